"""Cost of stopping some members together and starting them with another assignor list.

The others go on: they take over what these owned in one rebalance, and give it back when they come.
"""

from __future__ import annotations

from msgspec.structs import replace

from rebal.groups.model import Tri
from rebal.planner.clients import cooperative
from rebal.planner.facts import figure
from rebal.planner.plan import Cost
from rebal.planner.rehearsal.costs.rehearsed import priced
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.timeouts import at_worst


def stop_some(roll: Roll) -> Cost | None:
    """Return the cost when all of `order` start at once, beside the other paces.

    `eager` are the others that run EAGER. The target is one assignor, elected as soon as `order`
    have left: every other member's list holds it, and these start again with it alone.
    """
    how = "members that run EAGER stop all they own" if roll.eager else "only what moves stops"
    text = (
        "one rebalance when they stop together and the rest when they start; at each "
        f"{how}, if a restart takes {figure(roll.speed.restart)} s and a rebalance "
        f"{figure(roll.speed.rebalance)} s; they stop together at any pace, so the paces are those "
        f"of the start; {at_worst(roll.snapshot.members)}"
    )
    eager_after = cooperative(roll.target[0]) is not Tri.YES
    eager = (*roll.eager, *roll.order)
    stopped = replace(roll, eager=eager, eager_after=eager_after, together=True)
    return priced(stopped, -1, text)
