"""Two rolling restarts: first both assignors everywhere, then the target alone (KIP-429).

The target comes first in the mixed list, up and down: when the coordinator loads the group again,
each list in its memory becomes just the elected assignor, and with the target first that is what
the second bounce needs; franz-go follows the vote the same way.
"""

from __future__ import annotations

from rebal.planner.context import Context
from rebal.planner.paths.refresh import refresh
from rebal.planner.paths.rolling import add_both, drop_old
from rebal.planner.plan import Step
from rebal.planner.rehearsal.costs.cost import CostModel


def two_bounces(context: Context, cost: CostModel) -> tuple[Step, ...]:
    """Both steps, with who has done what by the evidence; between them a restart with the current
    list where the coordinator may have forgotten the lists."""
    between = (refresh(context, 2, cost),) if context.refresh else ()
    return (
        add_both(context, 1, cost),
        *between,
        drop_old(context, context.narrow_step, cost),
    )
