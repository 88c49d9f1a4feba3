"""What it costs to stop a whole group and start it again, or to move it to KIP-848 and back."""

from __future__ import annotations

from collections.abc import Container, Sequence

from rebal.groups.model import Member
from rebal.planner.cost import Speed
from rebal.planner.cost_timeouts import in_words, slowest, waits
from rebal.planner.plan import Cost


def empty_after(members: Sequence[Member], *, killed: bool = False) -> float:
    """How many seconds after the last stop the group is Empty.

    A static member does not leave when it stops, and a killed one cannot: both count until their
    sessions end.
    """
    return max(
        (waits(m).session for m in members if killed or m.instance_id is not None), default=0
    )


def stop_and_start(members: Sequence[Member], speed: Speed, *, kip848: bool = False) -> Cost:
    """All members stop, the group is seen Empty, all start.

    `kip848`: with group.protocol=consumer, where nobody waits for anybody (the classic coordinator
    waits for more members before its first rebalance, and then for the slowest of them).
    """
    first = 0.0 if kip848 else speed.first
    owned = sum(len(numbers) for member in members for numbers in member.assignment.values())
    held = empty_after(members)
    pause = max(speed.restart, held) + first + speed.rebalance
    longest = max(speed.restart, empty_after(members, killed=True)) + first
    longest += speed.rebalance if kip848 else slowest(members)
    parts = [f"the restart ({speed.restart:g} s)"]
    if held > speed.restart:
        parts = [f"the sessions of static members, who do not leave when they stop ({held:g} s)"]
    if first:
        parts.append(
            f"the coordinator's wait for more members ({first:g} s, "
            "group.initial.rebalance.delay.ms)"
        )
    parts.append(f"one rebalance ({speed.rebalance:g} s)")
    waiting = "" if kip848 else ", and the rebalance waits for the slowest"
    listed = f"{', '.join(parts[:-1])} and {parts[-1]}"
    return Cost(
        rebalances=1,
        partitions_stopped=owned,
        partitions_moved=owned,
        text=f"nothing is consumed for about {pause:.0f} s: all {owned} partitions stand still for "
        f"{listed}; at worst {longest:.0f} s, where a member is killed instead of stopped and "
        f"counts until its session ends{waiting}: {in_words(members)}",
        seconds=pause,
        partition_seconds=pause * owned,
        worst_seconds=longest,
        worst_partition_seconds=longest * owned,
    )


def move_online(
    order: Sequence[Member], eager: Container[str], speed: Speed, while_it_moves: str
) -> Cost:
    """The members restart in this `order`, each with the other protocol (KIP-848).

    What a member owns moves away and back. `eager` are the ids of those that run EAGER until they
    are restarted: they stop all they own at each of these changes.
    """
    owned = [sum(len(numbers) for numbers in member.assignment.values()) for member in order]
    waiting = [n if m.member_id in eager else 0 for m, n in zip(order, owned, strict=True)]
    stops = [2 * (own + sum(waiting[i:])) for i, own in enumerate(owned, 1)]
    seconds = len(order) * (speed.restart + 2 * speed.rebalance)
    stopped = sum(stops) * speed.rebalance
    told = (
        f", about {stopped:,.0f} partition-seconds stopped in {seconds:,.0f} s, if a restart takes "
        f"{speed.restart:g} s and each change {speed.rebalance:g} s"
    )
    return Cost(
        rebalances=2 * len(order),
        partitions_stopped=sum(stops),
        partitions_moved=2 * sum(owned),
        text=f"each restarted member's partitions move away and back ({sum(owned)} in all, twice)"
        f"{told if order else ''}{while_it_moves}",
        seconds=seconds,
        partition_seconds=stopped,
    )


def see_it_empty(members: Sequence[Member], group_id: str) -> str:
    """The line of an order that waits for the group to have no members."""
    line = f"see that the group is Empty: rebal inspect {group_id}"
    held = empty_after(members)
    if held:
        line += f" (static members count until their sessions end, {held:g} s after they stop)"
    return line
