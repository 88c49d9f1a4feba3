"""What it costs to stop a whole group and start it again, with other lists or another protocol.

All members stop together at any pace; the pace is that of the start. Nothing is consumed until the
first have been given their partitions: all of them, until the next come.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from rebal.groups.assignors import Assignor, LeaderWouldFail, SpecMember, UnknownAssignorError
from rebal.groups.assignors.server import SERVER_NAMES, server_assignor
from rebal.groups.errors import RebalError
from rebal.groups.model import GroupSnapshot, Member, Record, Tri
from rebal.planner.clients import cooperative
from rebal.planner.facts import all_partitions
from rebal.planner.plan import Cost, Pace
from rebal.planner.rehearsal.costs.cost import FIRST_DELAY, RECONCILE_INTERVAL, Speed, batches
from rebal.planner.rehearsal.costs.group import RehearsedGroup, cost_of_paces, figure
from rebal.planner.rehearsal.costs.rehearsed import priced
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.timeouts import (
    in_words,
    leaves,
    slowest,
    waits,
    with_brokers_sessions,
)
from rebal.planner.rehearsal.costs.work import too_much
from rebal.planner.rehearsal.whatif.spec import spec_of


class Stop(Record, frozen=True, kw_only=True):
    """A group that stops and starts: its members now, and the assignor that they come back with.

    `kip848`: they come back with group.protocol=consumer, and `assignor` is the coordinator's.
    """

    snapshot: GroupSnapshot
    assignor: str
    kip848: bool = False
    speed: Speed = Speed()


def empty_after(members: Sequence[Member], *, killed: bool = False) -> float:
    """How many seconds after the last stop the group is Empty.

    A static member does not leave when it stops, a Kafka Streams one neither, and a killed one
    cannot: they count until their sessions end.
    """
    return max((waits(m).session for m in members if killed or not leaves(m)), default=0)


def stop_and_start(stop: Stop) -> Cost:
    """Return the cost when all start at once, beside the other paces.

    `rebalances` and `partitions_moved` are those of the start: what happens while the members stop
    one after the other depends on who is the quickest.
    """
    if stop.kip848:
        return _to_kip848(stop)
    ids = tuple(member.member_id for member in stop.snapshot.members)
    roll = Roll(
        snapshot=stop.snapshot,
        order=ids,
        target=(stop.assignor,),
        eager=ids,
        eager_after=cooperative(stop.assignor) is not Tri.YES,
        together=True,
        speed=stop.speed,
    )
    return priced(roll, -1, lambda pace: _text(stop, pace))


def _to_kip848(stop: Stop) -> Cost:
    plain = _by_arithmetic(stop)
    count = len(stop.snapshot.members)
    paces = list(batches(count, stop.speed.batch))
    # A KIP-848 group gets a new target with each that joins.
    if too_much(2 * count * plain.partitions_stopped):
        return plain
    try:
        made = [_Start(stop).run(batch, name) for batch, name in paces]
    except (RebalError, LeaderWouldFail, UnknownAssignorError):
        return plain
    return cost_of_paces(made, -1, _text(stop, made[-1][0]))


class _Start:
    """One stop and one start."""

    def __init__(self, stop: Stop) -> None:
        snapshot, members = stop.snapshot, with_brokers_sessions(stop.snapshot)
        spec = spec_of(snapshot, server_side=True)
        self._stop = stop
        self._gone = spec.members
        self._group = RehearsedGroup(spec, members, (), stop.speed)
        self._assignor = _server(stop)

    def run(self, batch: int, name: str) -> tuple[Pace, int]:
        """The pace's cost, and the partitions that stopped, summed over all rebalances."""
        group, gone = self._group, self._gone
        group.here.clear()
        group.go_on(*_down(self._stop))
        for start in range(0, len(gone), batch):
            if start:
                group.go_on(self._stop.speed.restart, self._stop.speed.restart)
            self._join(gone[start : start + batch])
        return group.pace(name, batch), group.stopped

    def _join(self, members: Sequence[SpecMember]) -> None:
        group = self._group
        join = [replace(member, owned=(), generation=None) for member in members]
        if not group.here:
            group.hand_out(self._assignor, join.pop(0))
        if join:
            group.retarget(self._assignor, join=join)


def _server(stop: Stop) -> Assignor:
    """The coordinator's assignor.

    Raises:
        UnknownAssignorError: it is none of Kafka's own.
    """
    if stop.assignor not in SERVER_NAMES:
        raise UnknownAssignorError(f"{stop.assignor} is not known here.")
    topics = stop.snapshot.topics
    return server_assignor(stop.assignor, {t.name: t.topic_id for t in topics if t.topic_id})


def _down(stop: Stop) -> tuple[float, float]:
    """Seconds from the last stop until the first join is answered: as expected, and at worst.

    With group.protocol=consumer it is answered at once; the classic coordinator waits for more.
    """
    members = with_brokers_sessions(stop.snapshot)
    first = 0.0 if stop.kip848 else stop.speed.first
    restart = stop.speed.restart
    held, longest = empty_after(members), empty_after(members, killed=True)
    return max(restart, held) + first, max(restart, longest) + first


def _by_arithmetic(stop: Stop) -> Cost:
    """Everything stands still until all are back, and is handed out anew in one rebalance."""
    members = stop.snapshot.members
    owned = sum(len(numbers) for member in members for numbers in member.assignment.values())
    down, longest = _down(stop)
    then = stop.speed.reconcile if stop.kip848 else stop.speed.rebalance
    seconds, worst = down + then, longest + max(then, slowest(members))
    made = Pace(
        name="all at once",
        batch=len(members),
        seconds=seconds,
        partition_seconds=seconds * owned,
        rebalances=1,
        partitions_moved=owned,
        worst_seconds=worst,
        worst_partition_seconds=worst * owned,
    )
    return cost_of_paces(
        [(made, owned)], 0, f"{_text(stop, made)}; not rehearsed, so at one pace only"
    )


def _text(stop: Stop, pace: Pace) -> str:
    members = with_brokers_sessions(stop.snapshot)
    speed, settings = stop.speed, stop.snapshot.cluster.settings
    owned = sum(len(numbers) for member in members for numbers in member.assignment.values())
    held = empty_after(members)
    parts = [f"the restart ({figure(speed.restart)} s)"]
    if held > speed.restart:
        parts = [f"the sessions of those that do not leave when they stop ({figure(held)} s)"]
    pause = _down(stop)[0]
    if not stop.kip848:
        default = "" if FIRST_DELAY in settings else ", by default"
        if speed.first:
            parts.append(
                f"the coordinator's wait for more members ({figure(speed.first)} s, "
                f"{FIRST_DELAY}{default})"
            )
        parts.append("one rebalance")
        pause = pace.longest_seconds or 0.0
    listed = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    then = ""
    if stop.kip848 and len(members) > 1:
        default = "" if RECONCILE_INTERVAL in settings else ", by default"
        then = (
            "; the first that joins gets all of them at once, and those that the others get from "
            f"it stop for up to {figure(speed.reconcile)} s more ({RECONCILE_INTERVAL}{default})"
        )
    assert pace.worst_seconds is not None
    stand = "stands" if owned == 1 else "stand"
    still = f"{all_partitions(owned)} {stand} still for " if owned else ""
    return (
        f"nothing is consumed for about {figure(pause)} s: {still}{listed}{then}; "
        "all stop together at any pace, so the paces are those of the start, and "
        "the first to start have everything until the next come; at worst "
        f"{figure(pace.worst_seconds)} s, where a member is killed instead of stopped and counts "
        f"until its session ends, and a rebalance waits for the slowest: {in_words(members)}"
    )


def see_it_empty(members: Sequence[Member]) -> str:
    """The line of an order that waits for the group to have no members."""
    line = "see that the group is Empty"
    held = empty_after(members)
    if held:
        line += f" (static members count until their sessions end, {held:g} s after they stop)"
    return line
