"""Cost of stopping some members together and starting them with another assignor list.

The others go on: they take over what these owned in one rebalance, and give it back when they come.
"""

from __future__ import annotations

from rebal.groups.model import GroupSnapshot, Record, Tri
from rebal.planner.clients import cooperative
from rebal.planner.facts import figure
from rebal.planner.plan import Cost
from rebal.planner.rehearsal.costs.cost import FULL, Pricing
from rebal.planner.rehearsal.costs.rehearsed import priced
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.timeouts import Speed, at_worst


class Some(Record, frozen=True, kw_only=True):
    """Members that stop together: `stopped` are their ids, in the order in which they start again.

    `eager` are the ids of the others that run EAGER; `assignor` is elected as soon as `stopped`
    have left: every other member's list holds it, and these start again with it alone.
    """

    snapshot: GroupSnapshot
    stopped: tuple[str, ...]
    eager: tuple[str, ...]
    assignor: str
    speed: Speed = Speed()
    pricing: Pricing | None = FULL


def stop_some(some: Some) -> Cost | None:
    """Return the cost when all of them start at once, beside the other paces.

    Without a pricing there is none.
    """
    roll = Roll(
        snapshot=some.snapshot,
        order=some.stopped,
        target=(some.assignor,),
        eager=(*some.eager, *some.stopped),
        eager_after=cooperative(some.assignor) is not Tri.YES,
        together=True,
        speed=some.speed,
    )
    how = "members that run EAGER stop all they own" if some.eager else "only what moves stops"
    text = (
        "one rebalance when they stop together and the rest when they start; at each "
        f"{how}, if a restart takes {figure(some.speed.restart)} s and a rebalance "
        f"{figure(some.speed.rebalance)} s; they stop together at any pace, so the paces are those "
        f"of the start; {at_worst(some.snapshot.members)}"
    )
    return priced(roll, some.pricing, -1, text)
