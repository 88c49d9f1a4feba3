"""A group as it goes through the rebalances of a roll-out, and what each of them costs.

Two clocks run: as expected, and at worst, where no member leaves by itself (it counts until its
session ends) and each rebalance lasts as long as the slowest member's rebalance timeout.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import Assignor, Spec, SpecMember
from rebal.groups.model import Member, RebalanceProtocol
from rebal.planner.plan import Cost, Pace
from rebal.planner.rehearsal.costs.cost import Speed
from rebal.planner.rehearsal.costs.timeouts import in_words, slowest, waits
from rebal.planner.rehearsal.whatif.spec import TopicPartition

_MOST_ROUNDS: Final = 20


class Clock:
    """Wall time, and the sum over all partitions of how long each is not consumed; seconds."""

    def __init__(self) -> None:
        self.seconds = self.partition_seconds = 0.0

    def wait(self, seconds: float, partitions: int = 0) -> None:
        """Time goes by while so many partitions stand still."""
        self.seconds += seconds
        self.stop(seconds, partitions)

    def stop(self, seconds: float, partitions: int) -> None:
        """So many partitions stand still for so long, beside what else goes on."""
        self.partition_seconds += seconds * partitions


def clocked(
    name: str, batch: int, expected: Clock, worst: Clock, *, rebalances: int, moved: int
) -> Pace:
    """A pace of which two clocks show how long it takes."""
    return Pace(
        name=name,
        batch=batch,
        seconds=round(expected.seconds, 1),
        partition_seconds=round(expected.partition_seconds, 1),
        rebalances=rebalances,
        partitions_moved=moved,
        worst_seconds=round(worst.seconds, 1),
        worst_partition_seconds=round(worst.partition_seconds, 1),
    )


class RehearsedGroup:
    """Who is in the group, what each owns, and what has happened so far.

    `here` are its members now, `eager` those that run EAGER, `members` all of the roll-out as the
    group waits for them. `stopped` sums up the partitions that stopped at each rebalance, `moved`
    the changes of owner. `owner` is who had a partition last.
    """

    def __init__(
        self, spec: Spec, members: Sequence[Member], eager: Collection[str], speed: Speed
    ) -> None:
        self.here = {member.member_id: member for member in spec.members}
        self.eager = set(eager)
        self.speed = speed
        self.expected, self.worst = Clock(), Clock()
        self.stopped = self.moved = self.rebalances = 0
        self._spec = spec
        self._session = {member.member_id: waits(member).session for member in members}
        self._static = {m.member_id for m in members if m.instance_id is not None}
        self._longest = max(slowest(members), speed.rebalance)
        self._owner = {o: id_ for id_, member in self.here.items() for o in member.owned}

    def pace(self, name: str, batch: int) -> Pace:
        """What it has cost so far."""
        return clocked(
            name, batch, self.expected, self.worst, rebalances=self.rebalances, moved=self.moved
        )

    def away(self, gone: Mapping[str, SpecMember], first: float = 0.0) -> None:
        """The time that these are away, and how long what they own stands still.

        What a static member owns waits for it; at worst nobody leaves. Where the group has no
        other members everything waits, and for `first` seconds more (Speed).
        """
        static = gone.keys() & self._static
        expected = {id_: min(self.speed.restart, self._session[id_]) for id_ in static}
        worst = {id_: self._session[id_] for id_ in gone}
        for clock, holds in ((self.expected, expected), (self.worst, worst)):
            down = max([self.speed.restart, *holds.values()])
            if self.here:
                clock.wait(down)
                for id_, seconds in holds.items():
                    clock.stop(seconds, len(gone[id_].owned))
            else:
                clock.wait(down + first, sum(len(member.owned) for member in gone.values()))

    def go_on(self, expected: float, worst: float) -> None:
        """So many seconds go by; what nobody in the group owns stands still."""
        still = len(self._owner) - sum(len(member.owned) for member in self.here.values())
        self.expected.wait(expected, still)
        self.worst.wait(worst, still)

    def rebalance(self, assignor: Assignor) -> None:
        """Rebalances of a classic group until nobody has anything to give up.

        What its last owner has left behind waits until then.
        """
        cooperative = RebalanceProtocol.COOPERATIVE in assignor.supported_protocols
        owned = {o for member in self.here.values() for o in member.owned}
        waiting = len(self._owner.keys() - owned)
        for _ in range(_MOST_ROUNDS):
            still = waiting + sum(
                len(member.owned) for id_, member in self.here.items() if id_ in self.eager
            )
            sent = tuple(self._sent(assignor, member) for member in self.here.values())
            result = assignor.assign(replace(self._spec, members=sent))
            given = {
                each
                for id_, member in self.here.items()
                if id_ not in self.eager
                for each in set(member.owned) - set(result[id_])
            }
            self.rebalances += 1
            self.stopped += still
            self.expected.wait(self.speed.rebalance, still)
            self.worst.wait(self._longest, still)
            self._receive(assignor, result)
            waiting = len(given - {o for member in self.here.values() for o in member.owned})
            if not (cooperative and waiting):
                break
        self._settle()

    def hand_out(self, assignor: Assignor, first: SpecMember) -> None:
        """An Empty KIP-848 group: the answer to the first that joins has everything in it."""
        self.here[first.member_id] = first
        self.rebalances += 1
        self._receive(assignor, assignor.assign(self._now()))
        self.stopped += len(self._settle())

    def retarget(
        self, assignor: Assignor, leave: Sequence[str] = (), join: Sequence[SpecMember] = ()
    ) -> None:
        """New targets of a KIP-848 group, one for each that leaves or joins.

        Nobody waits for anybody: what moves stops until its new owner asks the next time, for all
        within one such interval. Classic members that run EAGER join again at each target: they
        give up all they own and have what stays back within a round trip (seen on 4.1.1).
        """
        for id_ in leave:
            del self.here[id_]
            self._receive(assignor, assignor.assign(self._now()))
        for member in join:
            self.here[member.member_id] = member
            self._receive(assignor, assignor.assign(self._now()))
        self.rebalances += len(leave) + len(join)
        moving = self._settle()
        eager = (member for id_, member in self.here.items() if id_ in self.eager)
        self.stopped += len(moving.union(*(member.owned for member in eager)))
        interval = self.speed.reconcile
        self.expected.wait(interval, len(moving))
        self.worst.wait(max(interval, self._longest), len(moving))

    def _now(self) -> Spec:
        return replace(self._spec, members=tuple(self.here.values()))

    def _sent(self, assignor: Assignor, member: SpecMember) -> SpecMember:
        """What a member tells the leader: an EAGER one has given up all it owned before."""
        data = assignor.subscription_user_data(member)
        owned = () if member.member_id in self.eager else member.owned
        return replace(member, user_data=data, owned=owned)

    def _receive(self, assignor: Assignor, result: Mapping[str, Sequence[TopicPartition]]) -> None:
        for id_, owned in result.items():
            generation = (self.here[id_].generation or 0) + 1
            self.here[id_] = assignor.on_assignment(
                replace(self.here[id_], generation=generation), sorted(owned), None, generation
            )

    def _settle(self) -> set[TopicPartition]:
        """Who owns what now; gives back what has another owner than before."""
        now = {o: id_ for id_, member in self.here.items() for o in member.owned}
        moved = {o for o, id_ in self._owner.items() if now.get(o) != id_}
        self.moved += len(moved)
        self._owner = now
        return moved


def cost_of_paces(made: Sequence[tuple[Pace, int]], main: int, text: str) -> Cost:
    """The cost whose figures are those of the pace at `main`; each pace comes with its stops."""
    pace, stopped = made[main]
    return Cost(
        rebalances=pace.rebalances,
        partitions_stopped=stopped,
        partitions_moved=pace.partitions_moved,
        text=text,
        seconds=pace.seconds,
        partition_seconds=pace.partition_seconds,
        worst_seconds=pace.worst_seconds,
        worst_partition_seconds=pace.worst_partition_seconds,
        paces=tuple(pace for pace, _ in made),
    )


def at_worst(pace: Pace, members: Sequence[Member]) -> str:
    """The worst of a pace in words, with the timeouts that it follows from."""
    assert pace.worst_seconds is not None
    assert pace.worst_partition_seconds is not None
    stopped = f"{figure(pace.worst_partition_seconds)} in " if pace.worst_partition_seconds else ""
    return (
        f"at worst {stopped}{figure(pace.worst_seconds)} s, where each member is gone without "
        "leaving, and each rebalance waits for the slowest as "
        f"long as it may: {in_words(members)}"
    )


def figure(value: float) -> str:
    """`1,234`, `3.5`."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
