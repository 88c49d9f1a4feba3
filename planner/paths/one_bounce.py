"""One rolling restart: every list holds the target and the old assignor already (KIP-726).

This is the default of Java 3.0 and later, [range, cooperative-sticky]. The old one stands first
and is elected, so a load of the coordinator forgets the target until the next rebalance (RB113).
"""

from __future__ import annotations

from rebal.planner.context import Context
from rebal.planner.paths.refresh import refresh
from rebal.planner.paths.rolling import drop_old
from rebal.planner.plan import Step
from rebal.planner.rehearsal.costs.cost import CostModel


def one_bounce(context: Context, cost: CostModel) -> tuple[Step, ...]:
    """The narrowing step; before it a restart with the current list where that is needed."""
    before = (refresh(context, 1, cost),) if context.refresh else ()
    return (*before, drop_old(context, context.narrow_step, cost))
