"""Costs of stopping members and starting them again, with other lists or another protocol.

They stop together at any pace; the pace is that of the start. Where the whole group stops, nothing
is consumed until the first have been given their partitions: all of them, until the next come.
Where some stop, the others take over what these owned in one rebalance, and give it back when they
come.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot, Member, Tri
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


def empty_after(members: Sequence[Member], *, killed: bool = False) -> float:
    """Return the seconds from the last stop until the group is Empty.

    A static member does not leave when it stops, a Kafka Streams one neither, and a killed one
    cannot: they count until their sessions end.
    """
    return max((waits(m).session for m in members if killed or not leaves(m)), default=0)


def stop_and_start(
    snapshot: GroupSnapshot,
    assignor: str,
    *,
    kip848: bool = False,
    speed: Speed,
    pricing: Pricing | None = FULL,
) -> Cost | None:
    """Return the cost when all members stop and start at once, beside the other paces.

    `kip848`: they start with group.protocol=consumer, and `assignor` is the coordinator's.
    `rebalances` and `partitions_moved` are those of the start: what happens while the members stop
    one after the other depends on who is the quickest.
    """
    ids = tuple(member.member_id for member in snapshot.members)
    roll = Roll(
        snapshot=snapshot,
        order=ids,
        target=() if kip848 else (assignor,),
        protocol="consumer" if kip848 else "classic",
        server_side=assignor if kip848 else default_server_side(snapshot),
        eager=ids,
        eager_after=cooperative(assignor) is not Tri.YES,
        together=True,
        speed=speed,
        pricing=pricing,
    )
    return priced(roll, -1, _text(roll))


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


def _text(roll: Roll) -> str:
    members, kip848 = with_brokers_sessions(roll.snapshot), roll.protocol == "consumer"
    speed, settings = roll.speed, roll.snapshot.cluster.settings
    held = empty_after(members)
    parts = [f"the restart ({figure(speed.restart)} s)"]
    if held > speed.restart:
        parts = [f"the sessions of those that do not leave when they stop ({figure(held)} s)"]
    if not kip848:
        default = "" if FIRST_DELAY in settings else ", by default"
        if speed.first:
            parts.append(
                f"the coordinator's wait for more members ({figure(speed.first)} s, "
                f"{FIRST_DELAY}{default})"
            )
        parts.append("one rebalance")
    listed = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    then = ""
    if kip848 and len(members) > 1:
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
