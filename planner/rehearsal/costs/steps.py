"""Costs of a plan's steps, and the words on what they rest on.

In batches: members restart, each batch after the one before (`by_assignors`, `by_workers`).

Online, to KIP-848 or back (`move_online`). Up: the first stop is a rebalance of the classic group,
the first join converts it; from then on each leave and each join gives it a new target, by the
coordinator's own assignor. Down: the same, until the last member with group.protocol=consumer
leaves; what is left then rebalances as a classic group. A static member that is back in time takes
the place of its old self: no new target. All of this was seen on 4.1.1
(tests/live/test_kip848_costs_live.py).

Together (`stop_and_start`, `stop_some`, `stop_workers`): they stop together at any pace; the pace
is that of the start. Where the whole group stops, nothing is consumed until the first have been
given their partitions: all of them, until the next come. Where some stop, the others take over what
these owned in one rebalance, and give it back when they come.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from rebal.groups.clients import older
from rebal.groups.model import GroupSnapshot, GroupType, Member, Tri
from rebal.planner.clients import cooperative
from rebal.planner.facts import all_partitions, figure, owned
from rebal.planner.plan import Cost
from rebal.planner.rehearsal.costs.rehearsed import priced
from rebal.planner.rehearsal.costs.start import FULL, Pricing, Roll
from rebal.planner.rehearsal.engine.leaders import EAGER
from rebal.planner.rehearsal.scene import default_server_side
from rebal.planner.rehearsal.spec import work_by_worker
from rebal.planner.timeouts import (
    FIRST_DELAY,
    RECONCILE_INTERVAL,
    Speed,
    at_worst,
    back_in_time,
    leaves,
    waits,
    with_brokers_sessions,
)


def by_assignors(roll: Roll) -> Cost | None:
    """Return the cost of these restarts, rehearsed."""
    if roll.snapshot.group.protocol_type == "connect":
        return by_workers(roll)
    if roll.eager_after and len(roll.eager) == len(roll.snapshot.members):
        how = f"each rebalance stops {all_partitions(sum(map(owned, roll.snapshot.members)))}"
    elif roll.eager_after:
        how = "members that run EAGER stop all they own at each rebalance"
    elif roll.eager:
        how = "members that are not restarted yet stop all they own at each rebalance"
    else:
        how = "at each rebalance only what moves stops"
    return priced(
        roll,
        f"{how}{_counts_on(roll.snapshot.members)}, if a restart takes "
        f"{figure(roll.speed.restart)} s and members send a heartbeat every "
        f"{figure(roll.speed.rebalance)} s (the members' own, and what their listeners do, is "
        f"not visible); {at_worst(roll.snapshot.members)}",
    )


def _counts_on(members: Sequence[Member]) -> str:
    if any(member.instance_id is None and not leaves(member) for member in members):
        return (
            "; a member that is closed does not leave: it counts until its session ends, and its "
            "next join and its partitions wait for that"
        )
    if any(member.instance_id is not None for member in members):
        return "; the partitions of a static member that restarts in time wait for it"
    return ""


def move_online(roll: Roll) -> Cost | None:
    """Return the cost at each pace; the figures are those of one restart after another."""
    up = roll.protocol == "consumer"
    members = with_brokers_sessions(roll.snapshot)
    static = sum(m.member_id in roll.order and back_in_time(m, roll.speed.restart) for m in members)
    parts = []
    if static < len(roll.order):
        parts.append(
            f"each leave and each join gives the group a new target ({roll.server_side}), and only "
            f"what moves stops"
        )
        if up and roll.snapshot.group.type is not GroupType.CONSUMER:
            parts.append("the first leave is a rebalance of the classic group")
        if not up:
            parts.append("what follows the last leave is a rebalance of the classic group")
        if roll.server_side == "range":
            parts.append(
                "range assigns by member id, and a restarted member has a new one: more or fewer "
                "partitions may move"
            )
        if roll.eager or roll.eager_after:
            parts.append(
                "classic members that run EAGER rejoin at each, revoke all partitions, and are "
                "assigned at once those that stay"
            )
    if static:
        parts.append(
            f"{static} static: their partitions wait for them, and no other member rejoins"
        )
    return priced(
        roll,
        f"{'; '.join(parts)}, if a restart takes {figure(roll.speed.restart)} s and what moves "
        f"stops for up to {figure(roll.speed.reconcile)} s ({_set(RECONCILE_INTERVAL, roll)}); "
        f"{at_worst(members)}",
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
    return priced(roll, _stop_text(roll))


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
    stopped = replace(
        roll,
        eager=(*roll.eager, *roll.order),
        eager_after=cooperative(roll.target[0]) is not Tri.YES,
        together=True,
    )
    return priced(stopped, text)


def _stop_text(roll: Roll) -> str:
    members, kip848 = with_brokers_sessions(roll.snapshot), roll.protocol == "consumer"
    speed = roll.speed
    held = empty_after(members)
    parts = [f"the restart ({figure(speed.restart)} s)"]
    if held > speed.restart:
        parts = [f"the sessions of those that do not leave when they stop ({figure(held)} s)"]
    if not kip848:
        if speed.first:
            parts.append(
                f"the coordinator's wait for more members ({figure(speed.first)} s, "
                f"{_set(FIRST_DELAY, roll)})"
            )
        parts.append("one rebalance")
    listed = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    then = ""
    if kip848 and len(members) > 1:
        then = (
            "; the first that joins gets all of them at once, and those that the others get from "
            f"it stop for up to {figure(speed.reconcile)} s more ({_set(RECONCILE_INTERVAL, roll)})"
        )
    return (
        f"nothing is consumed for {listed}{then}; all stop together at any pace, so the paces are "
        "those of the start, and the first to start have everything until the next come; "
        f"{at_worst(members)}"
    )


def _set(setting: str, roll: Roll) -> str:
    """Return the name of a broker's setting, and that its default counts where it was not read."""
    return setting + ("" if setting in roll.snapshot.cluster.settings else ", by default")


def see_it_empty(members: Sequence[Member]) -> str:
    """Return the instruction to wait until the group has no members, and how long that takes."""
    held = empty_after(members)
    return f"see the group Empty{f' ({held:g} s later, when sessions end)' if held else ''}"


def by_workers(roll: Roll) -> Cost | None:
    """Return the cost of these restarts, rehearsed.

    What stops and moves are connectors and tasks: `unit` is `task`, and a connector counts as one.
    Where it is not known what the workers run, only rebalances and times are predicted.
    """
    snapshot, speed = roll.snapshot, roll.speed
    now, then = snapshot.group.assignor == EAGER, roll.eager_after
    how = f"each rebalance stops all {work_of_all(snapshot):,} connectors and tasks"
    if now and roll.target and not then:
        how += " until no worker is eager any more, then only what moves"
    elif then and not now:
        how = f"once a worker is eager, {how}"
    elif not now:
        how = "at each rebalance only what moves stops"
    said = (
        f"{how} (a connector counts as a task), if a restart takes {figure(speed.restart)} s and "
        f"workers send a heartbeat every {figure(speed.rebalance)} s (how long tasks take to stop "
        f"and to start is not visible); {at_worst(snapshot.members)}"
    )
    cost = priced(roll, "; ".join([said, *_doubts(snapshot.members)]))
    if cost is None or work_by_worker(snapshot) is not None or not cost.paces:
        return cost
    return Cost(
        rebalances=cost.rebalances,
        partitions_stopped=0,
        partitions_moved=0,
        unit="task",
        seconds=cost.seconds,
        text=f"{cost.rebalances} rebalances of connectors and tasks; what the workers run is "
        "not known, so what stops and moves is not predicted",
    )


def stop_workers(roll: Roll) -> Cost | None:
    """Return the cost where all that restart stop before the first of them starts again."""
    text = "nothing runs from the first stop to the end of the one rebalance"
    if work_by_worker(roll.snapshot) is None:
        return Cost(
            rebalances=min(1, len(roll.order)),
            partitions_stopped=0,
            partitions_moved=0,
            unit="task",
            text=f"{text}; what the workers run is not known, so no more can be predicted",
        )
    told = (
        f"{text} (a connector counts as a task), if a restart takes "
        f"{figure(roll.speed.restart)} s and workers send a heartbeat every "
        f"{figure(roll.speed.rebalance)} s; {at_worst(roll.snapshot.members)}"
    )
    return priced(replace(roll, together=True), told)


def work_of_all(snapshot: GroupSnapshot) -> int:
    """Return how many connectors and tasks the workers run."""
    return sum(map(len, (work_by_worker(snapshot) or {}).values()))


def _doubts(members: Sequence[Member]) -> Iterator[str]:
    # What the figures leave out, or may have wrong.
    if any(m.worker is not None and m.worker.held_back_ms for m in members):
        yield "what a lost worker ran is held back right now, and not counted"
    old = [m for m in members if m.software is not None and older(m.software, "3.4") is Tri.YES]
    if old:
        yield (
            f"{len(old)} of the workers are older than 3.4 and share work out otherwise when they "
            "lead (KAFKA-12495): the figures are those of later releases"
        )
