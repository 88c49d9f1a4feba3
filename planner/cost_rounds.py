"""What a step costs, rehearsed restart by restart with the assignors that the group would use.

At each rebalance the coordinator's vote names the assignor; members that run EAGER stop all they
own and tell the leader nothing of it, COOPERATIVE ones give up only what moves, and what they gave
up reaches its new owner in a follow-up rebalance (KIP-429). A batch of members leaves and joins in
one rebalance each.

Two clocks run: as expected, and at worst, where no member leaves by itself (it counts until its
session ends) and each rebalance lasts as long as the slowest member's rebalance timeout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import LeaderWouldFail, SpecMember, UnknownAssignorError, get
from rebal.groups.errors import RebalError
from rebal.groups.model import CoordinatorKind, Knowledge, RebalanceProtocol
from rebal.groups.vote import elect
from rebal.planner.cost import Restarts, by_arithmetic
from rebal.planner.cost_timeouts import back_in_time, in_words, slowest, waits
from rebal.planner.plan import Cost, Pace
from rebal.planner.whatif_spec import TopicPartition, spec_of

_MOST_ROUNDS: Final = 20
# Partitions x rebalances: about a second of work.
_MOST_WORK: Final = 150_000


def by_assignors(restarts: Restarts) -> Cost:
    """The cost of these restarts, rehearsed; by arithmetic where the group cannot be rehearsed."""
    plain = by_arithmetic(restarts)
    work = restarts.partitions * max(1, plain.rebalances)
    if restarts.snapshot is None or not restarts.order or work > _MOST_WORK:
        return plain
    try:
        made = [_Rehearsal(restarts).run(batch, name) for batch, name in _batches(restarts)]
    except (RebalError, LeaderWouldFail, UnknownAssignorError):
        return plain
    first, stopped = made[0]
    return Cost(
        rebalances=first.rebalances,
        partitions_stopped=stopped,
        partitions_moved=first.partitions_moved,
        text=_text(restarts, first),
        seconds=first.seconds,
        partition_seconds=first.partition_seconds,
        worst_seconds=first.worst_seconds,
        worst_partition_seconds=first.worst_partition_seconds,
        paces=tuple(pace for pace, _ in made),
    )


def _batches(restarts: Restarts) -> Iterator[tuple[int, str]]:
    count, asked = len(restarts.order), restarts.speed.batch
    yield 1, "one by one"
    if 1 < asked < count:
        yield asked, f"{asked} at a time"
    if count > 1:
        yield count, "all at once"


class _Clock:
    """Wall time, and the sum over all partitions of how long each is not consumed; seconds."""

    def __init__(self, rebalance: float) -> None:
        self._rebalance = rebalance
        self.seconds = self.partition_seconds = 0.0

    def stop(self, seconds: float, partitions: int) -> None:
        """So many partitions stand still for so long."""
        self.partition_seconds += seconds * partitions

    def rebalance(self, stopped: int) -> None:
        """One rebalance, at which so many partitions stand still."""
        self.seconds += self._rebalance
        self.stop(self._rebalance, stopped)


class _Rehearsal:
    """One roll-out."""

    def __init__(self, restarts: Restarts) -> None:
        snapshot = restarts.snapshot
        assert snapshot is not None
        self._restarts = restarts
        self._spec = spec_of(snapshot)
        self._here = {member.member_id: member for member in self._spec.members}
        self._session = {m.member_id: waits(m).session for m in snapshot.members}
        self._static = {m.member_id for m in snapshot.members if m.instance_id is not None}
        self._quiet = {
            m.member_id for m in snapshot.members if back_in_time(m, restarts.speed.restart)
        }
        self._eager = set(restarts.eager_ids)
        elected = snapshot.group.assignor or ""
        self._elected = elected
        self._lists = {
            member.member_id: member.assignors.list
            if member.assignors.knowledge is Knowledge.EXACT
            else (elected,)
            for member in snapshot.members
        }
        coordinator = snapshot.group.coordinator
        known = coordinator is not None and coordinator.kind is not CoordinatorKind.UNKNOWN
        self._kind = coordinator.kind if coordinator and known else CoordinatorKind.JAVA
        longest = max(slowest(snapshot.members), restarts.speed.rebalance)
        self._expected, self._worst = _Clock(restarts.speed.rebalance), _Clock(longest)
        self._stopped = self._moved = self._rebalances = 0

    def run(self, batch: int, name: str) -> tuple[Pace, int]:
        """The pace's cost, and the partitions that stopped, summed over all rebalances."""
        order = self._restarts.order
        for start in range(0, len(order), batch):
            self._restart(order[start : start + batch])
        pace = Pace(
            name=name,
            batch=batch,
            seconds=round(self._expected.seconds, 1),
            partition_seconds=round(self._expected.partition_seconds, 1),
            rebalances=self._rebalances,
            partitions_moved=self._moved,
            worst_seconds=round(self._worst.seconds, 1),
            worst_partition_seconds=round(self._worst.partition_seconds, 1),
        )
        return pace, self._stopped

    def _restart(self, ids: Sequence[str]) -> None:
        members = {id_: self._here[id_] for id_ in ids}
        gone = {id_: self._here.pop(id_) for id_ in ids if id_ not in self._quiet}
        orphans = {owned: id_ for id_, member in gone.items() for owned in member.owned}
        if gone and self._here:
            self._rebalance(orphans)
        self._pass(members)
        for id_ in ids:
            self._lists[id_] = self._restarts.target_list or self._lists[id_]
            if self._restarts.target_list:
                self._eager.discard(id_)
                self._eager |= {id_} if self._restarts.eager_after else set()
        alone = not self._here
        for id_, member in gone.items():
            self._here[id_] = replace(member, owned=(), generation=None)
        if gone:
            self._rebalance(orphans if alone else {})
        elif self._vote() != self._elected:
            self._rebalance({})

    def _pass(self, away: Mapping[str, SpecMember]) -> None:
        """The time that these are away, and how long what they own stands still."""
        speed = self._restarts.speed
        static = away.keys() & self._static
        expected = {id_: min(speed.restart, self._session[id_]) for id_ in static}
        worst = {id_: self._session[id_] for id_ in away}
        for clock, holds in ((self._expected, expected), (self._worst, worst)):
            down = max([speed.restart, *holds.values()])
            clock.seconds += down
            if self._here:
                for id_, seconds in holds.items():
                    clock.stop(seconds, len(away[id_].owned))
            else:
                clock.seconds += speed.first
                clock.stop(down + speed.first, sum(len(m.owned) for m in away.values()))

    def _vote(self) -> str:
        made = elect([self._lists[id_] for id_ in self._here], self._kind).assignor
        wanted = self._restarts.target_list
        return made or (wanted[0] if wanted else self._elected)

    def _rebalance(self, orphans: dict[TopicPartition, str]) -> None:
        """Rebalances until nobody has anything to give up; `orphans` have lost their owner."""
        self._elected = self._vote()
        assignor = get(self._elected)
        cooperative = RebalanceProtocol.COOPERATIVE in assignor.supported_protocols
        before = {o: id_ for id_, m in self._here.items() for o in m.owned} | orphans
        waiting = len(orphans)
        for _ in range(_MOST_ROUNDS):
            stopped = waiting + sum(
                len(member.owned) for id_, member in self._here.items() if id_ in self._eager
            )
            result = assignor.assign(
                replace(self._spec, members=tuple(map(self._sent, self._here.values())))
            )
            given = {
                owned
                for id_, member in self._here.items()
                if id_ not in self._eager
                for owned in set(member.owned) - set(result[id_])
            }
            self._count(stopped)
            for id_, owned in result.items():
                generation = (self._here[id_].generation or 0) + 1
                self._here[id_] = assignor.on_assignment(
                    replace(self._here[id_], generation=generation), sorted(owned), None, generation
                )
            taken = {o for member in self._here.values() for o in member.owned}
            waiting = len(given - taken)
            if not (cooperative and waiting):
                break
        after = {o: id_ for id_, m in self._here.items() for o in m.owned}
        self._moved += sum(1 for owned, id_ in before.items() if after.get(owned) != id_)

    def _sent(self, member: SpecMember) -> SpecMember:
        """What a member tells the leader: an EAGER one has given up all it owned before."""
        assignor = get(self._elected)
        data = assignor.subscription_user_data(member)
        owned = () if member.member_id in self._eager else member.owned
        return replace(member, user_data=data, owned=owned)

    def _count(self, stopped: int) -> None:
        self._rebalances += 1
        self._stopped += stopped
        self._expected.rebalance(stopped)
        self._worst.rebalance(stopped)


def _text(restarts: Restarts, pace: Pace) -> str:
    if not pace.rebalances:
        expected = (
            "no rebalance while static members come back within session.timeout.ms; the partitions "
            f"of each wait for it: {_seconds(pace.partition_seconds)} partition-seconds stopped"
        )
        return f"{expected}; {_at_worst(restarts, pace)}"
    count = f"{pace.rebalances} rebalance{'' if pace.rebalances == 1 else 's'}"
    if restarts.eager_after and restarts.eager == restarts.members:
        how = f"each stops all {restarts.partitions} partitions"
    elif restarts.eager_after:
        how = "members that run EAGER stop all they own at each"
    elif restarts.eager:
        how = "members that are not restarted yet stop all they own at each"
    else:
        how = "at each only what moves stops"
    return (
        f"{count}; {how}; {pace.partitions_moved} changes of owner, "
        f"{_seconds(pace.partition_seconds)} partition-seconds stopped, if a restart takes "
        f"{_seconds(restarts.speed.restart)} s and a rebalance {_seconds(restarts.speed.rebalance)}"
        " s (a heartbeat interval; the members' own, and what their listeners do, is not visible); "
        f"{_at_worst(restarts, pace)}"
    )


def _at_worst(restarts: Restarts, pace: Pace) -> str:
    assert restarts.snapshot is not None
    assert pace.worst_seconds is not None
    assert pace.worst_partition_seconds is not None
    members = restarts.snapshot.members
    return (
        f"at worst {_seconds(pace.worst_partition_seconds)} in {_seconds(pace.worst_seconds)} s, "
        "where each member is gone without leaving, and each rebalance waits for the slowest as "
        "long as it may: "
        f"{in_words(members)}"
    )


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
