"""Cost of stopping a whole group and starting it again, with other lists or another protocol.

All members stop together at any pace; the pace is that of the start. Nothing is consumed until the
first have been given their partitions: all of them, until the next come.
"""

from __future__ import annotations

from collections.abc import Sequence

from rebal.groups.model import GroupSnapshot, Member, Record, Tri
from rebal.planner.clients import cooperative
from rebal.planner.facts import figure
from rebal.planner.plan import Cost
from rebal.planner.rehearsal.costs.cost import FULL, Pricing
from rebal.planner.rehearsal.costs.rehearsed import priced
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.scene import default_server_side
from rebal.planner.timeouts import (
    FIRST_DELAY,
    RECONCILE_INTERVAL,
    Speed,
    at_worst,
    leaves,
    waits,
    with_brokers_sessions,
)


class Stop(Record, frozen=True, kw_only=True):
    """A group that stops and starts: its members now, and their assignor afterwards.

    `kip848`: they start with group.protocol=consumer, and `assignor` is the coordinator's.
    """

    snapshot: GroupSnapshot
    assignor: str
    kip848: bool = False
    speed: Speed = Speed()
    pricing: Pricing | None = FULL


def empty_after(members: Sequence[Member], *, killed: bool = False) -> float:
    """Return the seconds from the last stop until the group is Empty.

    A static member does not leave when it stops, a Kafka Streams one neither, and a killed one
    cannot: they count until their sessions end.
    """
    return max((waits(m).session for m in members if killed or not leaves(m)), default=0)


def stop_and_start(stop: Stop) -> Cost | None:
    """Return the cost when all start at once, beside the other paces.

    `rebalances` and `partitions_moved` are those of the start: what happens while the members stop
    one after the other depends on who is the quickest. Without a pricing there is no cost.
    """
    ids = tuple(member.member_id for member in stop.snapshot.members)
    roll = Roll(
        snapshot=stop.snapshot,
        order=ids,
        target=() if stop.kip848 else (stop.assignor,),
        protocol="consumer" if stop.kip848 else "classic",
        server_side=stop.assignor if stop.kip848 else default_server_side(stop.snapshot),
        eager=ids,
        eager_after=cooperative(stop.assignor) is not Tri.YES,
        together=True,
        speed=stop.speed,
    )
    return priced(roll, stop.pricing, -1, _text(stop))


def _text(stop: Stop) -> str:
    members = with_brokers_sessions(stop.snapshot)
    speed, settings = stop.speed, stop.snapshot.cluster.settings
    held = empty_after(members)
    parts = [f"the restart ({figure(speed.restart)} s)"]
    if held > speed.restart:
        parts = [f"the sessions of those that do not leave when they stop ({figure(held)} s)"]
    if not stop.kip848:
        default = "" if FIRST_DELAY in settings else ", by default"
        if speed.first:
            parts.append(
                f"the coordinator's wait for more members ({figure(speed.first)} s, "
                f"{FIRST_DELAY}{default})"
            )
        parts.append("one rebalance")
    listed = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    then = ""
    if stop.kip848 and len(members) > 1:
        default = "" if RECONCILE_INTERVAL in settings else ", by default"
        then = (
            "; the first that joins gets all of them at once, and those that the others get from "
            f"it stop for up to {figure(speed.reconcile)} s more ({RECONCILE_INTERVAL}{default})"
        )
    return (
        f"nothing is consumed for {listed}{then}; all stop together at any pace, so the paces are "
        "those of the start, and the first to start have everything until the next come; "
        f"{at_worst(members)}"
    )


def see_it_empty(members: Sequence[Member]) -> str:
    """Return the instruction to wait until the group has no members, and how long that takes."""
    held = empty_after(members)
    return f"see the group Empty{f' ({held:g} s later, when sessions end)' if held else ''}"
