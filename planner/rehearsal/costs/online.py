"""What it costs to move a running group to KIP-848 or back, rehearsed restart by restart.

Up: the first stop is a rebalance of the classic group, the first join converts it; from then on
each leave and each join gives it a new target, by the coordinator's own assignor. Down: the same,
until the last member with group.protocol=consumer leaves; what is left then rebalances as a classic
group. A static member that is back in time takes the place of its old self: no new target.
All of this was seen on 4.1.1 (tests/live/test_kip848_costs_live.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import LeaderWouldFail, SpecMember, UnknownAssignorError, get
from rebal.groups.assignors.server import SERVER_NAMES, server_assignor
from rebal.groups.errors import RebalError
from rebal.groups.model import GroupSnapshot, GroupType, Member, Record
from rebal.planner.plan import Cost, Pace
from rebal.planner.rehearsal.costs.cost import RECONCILE_INTERVAL, Speed, batches
from rebal.planner.rehearsal.costs.group import (
    RehearsedGroup,
    at_worst,
    cost_of_paces,
    figure,
)
from rebal.planner.rehearsal.costs.timeouts import back_in_time, of_the_brokers, slowest, waits
from rebal.planner.rehearsal.costs.work import too_much
from rebal.planner.rehearsal.whatif.spec import spec_of

_ASSIGNORS: Final = "group.consumer.assignors"


class Move(Record, frozen=True, kw_only=True):
    """Members that restart with the other protocol: `order` are their ids, in order.

    `up`: to group.protocol=consumer. `server_side` is the coordinator's assignor, `classic` that of
    the classic group: before the way up, after the way down. `eager` are the ids of those that run
    EAGER now; `eager_after` says whether a member that has gone down does.
    """

    snapshot: GroupSnapshot
    order: tuple[str, ...]
    up: bool
    server_side: str
    classic: str
    eager: tuple[str, ...] = ()
    eager_after: bool = False
    speed: Speed = Speed()


def default_server_side(snapshot: GroupSnapshot) -> str:
    """What the coordinator assigns with where nobody asks for anything: the brokers' first."""
    first = snapshot.cluster.settings.get(_ASSIGNORS, "").split(",")[0].strip()
    named = {"UniformAssignor": "uniform", "RangeAssignor": "range"}
    return named.get(first.rpartition(".")[2], first) or SERVER_NAMES[0]


def move_online(move: Move) -> Cost:
    """The cost at each pace; by arithmetic where the group cannot be rehearsed."""
    plain = _by_arithmetic(move)
    if not move.order or too_much(plain.partitions_moved * plain.rebalances // 2):
        return plain
    if move.server_side not in SERVER_NAMES:
        return plain
    try:
        made = [
            _Course(move).run(batch, name)
            for batch, name in batches(len(move.order), move.speed.batch)
        ]
    except (RebalError, LeaderWouldFail, UnknownAssignorError):
        return plain
    return cost_of_paces(made, 0, _text(move, made[0][0]))


class _Course:
    """One roll-out."""

    def __init__(self, move: Move) -> None:
        snapshot = move.snapshot
        ids = {t.name: t.topic_id for t in snapshot.topics if t.topic_id is not None}
        self._move = move
        self._server = server_assignor(move.server_side, ids)
        self._group = RehearsedGroup(
            spec_of(snapshot, server_side=True), _members(move), move.eager, move.speed
        )
        self._quiet = {m.member_id for m in _members(move) if _stays(m, move)}
        self._kip848 = snapshot.group.type is GroupType.CONSUMER
        self._left = set(move.order)

    def run(self, batch: int, name: str) -> tuple[Pace, int]:
        """The pace's cost, and the partitions that stopped, summed over all rebalances."""
        order = self._move.order
        for start in range(0, len(order), batch):
            ids = order[start : start + batch]
            self._left.difference_update(ids)
            self._restart(ids)
        return self._group.pace(name, batch), self._group.stopped

    def _restart(self, ids: Sequence[str]) -> None:
        group, move = self._group, self._move
        members = {id_: group.here[id_] for id_ in ids}
        leave = [id_ for id_ in ids if id_ not in self._quiet]
        # The last member with the new protocol that leaves has the group converted back.
        last = not move.up and not self._left and len(leave) == len(ids)
        self._stop(leave, last=last)
        group.away(members, 0 if move.up else move.speed.first)
        group.eager.difference_update(ids)
        if move.eager_after:
            group.eager.update(ids)
        self._kip848 = move.up or bool(self._left)
        self._start([replace(members[id_], owned=(), generation=None) for id_ in leave])

    def _stop(self, leave: Sequence[str], *, last: bool) -> None:
        group = self._group
        if len(leave) == len(group.here):
            group.here.clear()
        elif leave and self._kip848 and not last:
            group.retarget(self._server, leave=leave)
        elif leave:
            for id_ in leave:
                del group.here[id_]
            group.rebalance(get(self._move.classic))

    def _start(self, join: list[SpecMember]) -> None:
        group = self._group
        if join and self._kip848:
            if not group.here:
                group.hand_out(self._server, join.pop(0))
            if join:
                group.retarget(self._server, join=join)
        elif join:
            group.here.update({member.member_id: member for member in join})
            group.rebalance(get(self._move.classic))


def _stays(member: Member, move: Move) -> bool:
    return member.member_id in move.order and back_in_time(member, move.speed.restart)


def _members(move: Move) -> tuple[Member, ...]:
    """With the sessions that count for them: those of the brokers' with the new protocol."""
    return tuple(
        of_the_brokers(member, move.snapshot.cluster)
        if member.protocol_type == "consumer"
        else member
        for member in move.snapshot.members
    )


def _by_arithmetic(move: Move) -> Cost:
    """What a member owns moves away and back; what a static one owns waits for it."""
    if not move.order:
        return Cost(
            rebalances=0, partitions_stopped=0, partitions_moved=0, text="no member is left to move"
        )
    made = [_counted(move, *pace) for pace in batches(len(move.order), move.speed.batch)]
    pace, moved = made[0][0], made[0][0].partitions_moved
    worst = at_worst(pace, _members(move))
    moves = (
        f"each restarted member's partitions move away and back ({moved // 2} in all, twice)"
        if moved
        else "no partition is assigned now, so none moves"
    )
    text = (
        f"about {pace.rebalances} rebalances: {moves}, about {figure(pace.partition_seconds)} "
        f"partition-seconds stopped, {_if(move)}; estimated, not rehearsed; {worst}"
    )
    return cost_of_paces(made, 0, text)


def _counted(move: Move, batch: int, name: str) -> tuple[Pace, int]:
    """One pace by arithmetic, and the partitions that stop, summed over all rebalances."""
    speed, members = move.speed, _members(move)
    ours = [member for member in members if member.member_id in move.order]
    owned = {m.member_id: sum(map(len, m.assignment.values())) for m in members}
    static = sum(owned[member.member_id] for member in ours if _stays(member, move))
    away = sum(owned[member.member_id] for member in ours) - static
    leaving = sum(not _stays(member, move) for member in ours)
    # Where all are gone at once nothing moves away: everything waits for the first that is back.
    gone = batch >= leaving == len(members)
    changes, rounds = 1 if gone else 2, -(-len(ours) // batch)
    stopped, held = changes * away, static + (away if gone else 0)
    session = max(waits(member).session for member in ours)
    longest = max(speed.reconcile, slowest(members))
    waiting = bool(leaving) * changes * rounds
    return Pace(
        name=name,
        batch=batch,
        seconds=round(rounds * speed.restart + waiting * speed.reconcile, 1),
        partition_seconds=round(stopped * speed.reconcile + held * speed.restart, 1),
        rebalances=changes * leaving,
        partitions_moved=stopped,
        worst_seconds=round(rounds * max(speed.restart, session) + waiting * longest, 1),
        worst_partition_seconds=round(
            stopped * longest
            + held * max(speed.restart, session)
            + (away + static - held) * session,
            1,
        ),
    ), stopped


def _text(move: Move, pace: Pace) -> str:
    static = sum(_stays(member, move) for member in _members(move))
    count = f"{pace.rebalances} rebalance{'' if pace.rebalances == 1 else 's'}"
    parts = [count if pace.rebalances else "no rebalance"]
    if static < len(move.order):
        parts.append(
            f"each leave and each join gives the group a new target ({move.server_side}), and only "
            f"what moves stops"
        )
        if move.up and move.snapshot.group.type is not GroupType.CONSUMER:
            parts.append("the first leave is a rebalance of the classic group")
        if not move.up:
            parts.append("what follows the last leave is a rebalance of the classic group")
        if move.server_side == "range":
            parts.append(
                "range goes by member ids, and who comes back has a new one: more or less may move"
            )
        if move.eager or move.eager_after:
            parts.append(
                "classic members that run EAGER join again at each, give up all they own and have "
                "what stays back at once"
            )
    if static:
        parts.append(f"{static} static: what they own waits for them, and nobody else rejoins")
    parts.append(
        f"{pace.partitions_moved} changes of owner, {figure(pace.partition_seconds)} "
        f"partition-seconds stopped, {_if(move)}"
    )
    return f"{'; '.join(parts)}; {at_worst(pace, _members(move))}"


def _if(move: Move) -> str:
    """What the figures rest on."""
    speed = move.speed
    return (
        f"if a restart takes {figure(speed.restart)} s and what moves stops for up to "
        f"{figure(speed.reconcile)} s ({RECONCILE_INTERVAL}{_read(move)})"
    )


def _read(move: Move) -> str:
    return "" if RECONCILE_INTERVAL in move.snapshot.cluster.settings else ", by default"
