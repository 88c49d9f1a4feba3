"""Kafka's four client-side assignors as objects with KIP-429's contract.

`range` gives each member a run of neighbouring partitions of each topic. Where racks matter
(KIP-881), a first pass gives members partitions with a replica on their rack, up to each member's
share. In that pass, topics with the same members and partition counts assign the same partition
numbers to each member, so that they stay co-partitioned. The remaining partitions are assigned
without regard to racks.

`roundrobin` deals all partitions, sorted, to the members in turn and skips members that did not
subscribe to the topic.

`sticky` and `cooperative-sticky` are one computation with two sources of owned partitions. A
`sticky` member revokes its partitions before it rejoins, so its user data lists them. A
`cooperative-sticky` member lists them in its subscription. The result of `cooperative-sticky`
leaves out partitions that another member must revoke first.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, groupby, islice, repeat
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors.client.problem import Problem, Racks, places, racks_matter
from rebal.groups.assignors.client.sticky import (
    Memories,
    all_alike,
    assign_constrained,
    assign_general,
    remembered,
    settle,
)
from rebal.groups.assignors.spec import (
    Assignment,
    Owned,
    Spec,
    SpecMember,
    TopicPartition,
    by_instance,
)
from rebal.groups.model import RebalanceProtocol
from rebal.groups.wire.consumer_protocol import (
    NO_GENERATION,
    StickyUserData,
    decode_cooperative_sticky,
    encode_cooperative_sticky,
    encode_sticky,
)


def assign_range(problem: Problem) -> Assignment:
    """Return the assignment by `range`, with each member's partitions in the leader's order."""
    places = problem.subscribers(by_instance(problem.members), once=True)
    if any(member.rack for member in problem.members):
        racks = Racks(problem)
        shares = [_Share(problem, topic, places[topic], racks) for topic in problem.leader_topics]
        if any(share.racks_matter for share in shares):
            return problem.assignment(_with_racks(problem, shares))
    result: list[list[TopicPartition]] = [[] for _ in problem.members]
    for topic in problem.leader_topics:
        members, pairs = places[topic], problem.pairs_of(topic)
        base, more = divmod(len(pairs), len(members))
        if not base:
            for member, pair in zip(members, pairs, strict=False):
                result[member].append(pair)
            continue
        start = 0
        for i, member in enumerate(members):
            stop = start + base + (i < more)
            result[member] += pairs[start:stop]
            start = stop
    return problem.assignment(result)


class _Share:
    """One topic while `range` assigns it: its free partitions, and how many each member may get."""

    def __init__(self, problem: Problem, topic: int, members: list[int], racks: Racks) -> None:
        self.topic = topic
        self.members = members
        self.count = problem.counts[topic]
        self.base, self.more = divmod(self.count, len(members))
        self.given: dict[int, list[int]] = {member: [] for member in members}
        self.left: dict[int, None] = dict.fromkeys(range(self.count))
        self.of_member = racks.of_member
        mine = {racks.of_member[member] for member in members} - {None}
        self.partition_racks = racks.of_topic(topic) if mine else []
        self.racks_matter = racks_matter(mine, self.partition_racks)

    def room(self, member: int) -> int:
        """Return how many more partitions of this topic the member may get now."""
        return max(0, self.base + (self.more > 0) - len(self.given[member]))

    def near(self, member: int, partition: int) -> bool:
        """Return True if the member has no rack, or if its rack has a replica of the partition."""
        rack, racks = self.of_member[member], self.partition_racks
        return rack is None or (bool(racks) and rack in racks[partition])

    def give(self, member: int, partitions: list[int]) -> None:
        self.given[member] += partitions
        if partitions and len(self.given[member]) > self.base:
            self.more -= 1
        for partition in partitions:
            del self.left[partition]

    def give_in_turn(self, *, near_only: bool) -> None:
        """Give each member in turn as many free partitions as it has room for.

        With `near_only`, a member that has a rack gets only partitions with a replica on that rack.
        """
        for member in self.members:
            if room := self.room(member):
                fit = (p for p in self.left if not near_only or self.near(member, p))
                self.give(member, list(islice(fit, room)))


def _with_racks(problem: Problem, shares: list[_Share]) -> list[list[TopicPartition]]:
    alike: dict[tuple[tuple[int, ...], int], list[_Share]] = {}
    for share in shares:
        alike.setdefault((tuple(share.members), len(share.partition_racks)), []).append(share)
    for (_, count), together in alike.items():
        if len(together) > 1:
            _give_alike(together, count)
        elif together[0].racks_matter:
            together[0].give_in_turn(near_only=True)
    result: list[list[TopicPartition]] = [[] for _ in problem.members]
    for share in sorted(shares, key=lambda share: share.topic):
        share.give_in_turn(near_only=False)
        for member, partitions in share.given.items():
            result[member] += zip(repeat(problem.topics[share.topic]), sorted(partitions))
    return result


def _give_alike(shares: list[_Share], count: int) -> None:
    open_members = dict.fromkeys(shares[0].members)
    for partition in range(count):
        taker = next(
            (
                member
                for member in open_members
                if all(s.near(member, partition) and s.room(member) > 0 for s in shares)
            ),
            None,
        )
        if taker is None:
            continue
        for share in shares:
            share.give(taker, [partition])
        if not any(share.room(taker) for share in shares):
            del open_members[taker]


def assign_roundrobin(problem: Problem) -> Assignment:
    """Return the assignment by `roundrobin`, with each member's partitions in the leader's order.

    Successive topics with the same n subscribers are dealt together: each subscriber gets every
    n-th partition. The first subscriber is the one whose turn it is after the earlier topics.
    """
    order = by_instance(problem.members)
    seat = places(order)
    subscribers = problem.subscribers(order, once=True)
    result: list[list[TopicPartition]] = [[] for _ in order]
    turn = 0
    for _, topics in groupby(range(len(subscribers)), key=lambda topic: id(subscribers[topic])):
        some = list(topics)
        takers = subscribers[some[0]]
        pairs = list(chain.from_iterable(map(problem.pairs_of, some)))
        step = len(takers)
        first = bisect_left(takers, turn, key=seat.__getitem__) % step
        takers = takers[first:] + takers[:first]
        if len(pairs) <= step:
            for member, pair in zip(takers, pairs, strict=False):
                result[member].append(pair)
        else:
            for i, member in enumerate(takers):
                result[member] += pairs[i::step]
        turn = (seat[takers[(len(pairs) - 1) % step]] + 1) % len(order)
    return problem.assignment(result)


def assign_sticky(problem: Problem, *, by_user_data: bool = True) -> Assignment:
    """Return the assignment by `sticky`, with each member's partitions in the leader's order.

    The leader reads the partitions that a member owned from its user data. If `by_user_data` is
    False, they are taken from the member's `owned` and `generation` instead, as if its user data
    contained these.

    Raises:
        LeaderWouldFail: the leader would throw, or never end.
    """
    memories = Memories(problem)

    def memory(member: SpecMember) -> tuple[list[int], int]:
        if by_user_data:
            return memories.read(member.user_data)
        if member.generation is None:
            return [], NO_GENERATION
        return problem.codes(list(remembered(member))), member.generation

    claims = settle(problem, memory)
    if all_alike(problem):
        return problem.from_codes(assign_constrained(problem, claims)[0])
    return problem.from_codes(assign_general(problem, claims))


def assign_cooperative(problem: Problem) -> Assignment:
    """Return the assignment by `cooperative-sticky` for this rebalance, in the leader's order.

    It leaves out partitions that another member must revoke first.

    Raises:
        LeaderWouldFail: the leader would throw, or never end.
    """

    def memory(member: SpecMember) -> tuple[list[int], int]:
        generation = member.generation
        if generation is None or generation < 0:
            generation = decode_cooperative_sticky(member.user_data)
        return problem.codes(member.owned), NO_GENERATION if generation is None else generation

    claims = settle(problem, memory)
    if all_alike(problem):
        lists, moving = assign_constrained(problem, claims)
    else:
        lists = assign_general(problem, claims)
        moving = _changing_hands(problem, lists)
    for codes, waits in zip(lists, moving, strict=True):
        if waits:
            codes[:] = _without(codes, waits)
    return problem.from_codes(lists)


def _without(codes: list[int], waits: set[int]) -> Iterator[int]:
    """Yield `codes` without the first occurrence of each code in `waits`."""
    open_ = set(waits)
    for code in codes:
        if code in open_:
            open_.remove(code)
        else:
            yield code


def _changing_hands(problem: Problem, lists: list[list[int]]) -> list[set[int]]:
    """Return, for each member, the partitions that it gains and another member loses, as codes.

    A code is a partition's number in `problem`, which has the partitions that each member owns now.
    `lists` has the codes assigned to each member.
    """
    gains: dict[int, int] = {}
    losses: set[int] = set()
    for member, codes in enumerate(lists):
        before = set(problem.codes(problem.members[member].owned))
        gains.update((code, member) for code in codes if code not in before)
        losses.update(before.difference(codes))
    moving: list[set[int]] = [set() for _ in lists]
    for code in losses:
        if code in gains:
            moving[gains[code]].add(code)
    return moving


EAGER: Final = frozenset({RebalanceProtocol.EAGER})


class KafkaAssignor:
    """A client-side assignor that computes the assignment as the group leader does.

    The four in `ASSIGNORS` have the results of `org.apache.kafka:kafka-clients:4.1.1`, list order
    included.
    """

    def __init__(
        self,
        name: str,
        supported_protocols: frozenset[RebalanceProtocol],
        lists: Callable[[Problem], Assignment],
        user_data: Callable[[SpecMember], bytes | None],
        remembered: Callable[[Problem], Assignment] | None = None,
    ) -> None:
        self.name = name
        self.supported_protocols = supported_protocols
        self.subscription_user_data = user_data
        self._lists = lists
        self._remembered = remembered or lists

    def assign(self, spec: Spec) -> Assignment:
        """Return the assignment: member id → `(topic, partition)` list; empty without members.

        Raises:
            LeaderWouldFail: the real leader throws or never ends on this input.
        """
        return self._lists(Problem(spec)) if spec.members else {}

    def assign_remembered(self, spec: Spec) -> Assignment:
        """Return the assignment as if each member's user data held its `owned` and `generation`.

        The result is that of `assign` for members with `subscription_user_data(member)` as their
        `user_data`, but no bytes are encoded or decoded. The members passed in must have the
        `user_data` None.

        Raises:
            LeaderWouldFail: the real leader throws or never ends on this input.
        """
        return self._remembered(Problem(spec)) if spec.members else {}

    def on_assignment(
        self,
        member: SpecMember,
        assigned: Owned,
        user_data: bytes | None,  # noqa: ARG002 - KIP-429 hands it over, Kafka's own ignore it
        generation: int,
    ) -> SpecMember:
        """Return the member after it received `assigned`, with the user data of its next JoinGroup.

        The argument `user_data`, that of the assignment, is ignored.
        """
        after = replace(member, owned=tuple(assigned), generation=generation)
        return replace(after, user_data=self.subscription_user_data(after))


def _remember_partitions(member: SpecMember) -> bytes | None:
    """Return the user data of a `sticky` member: the partitions that it owned, and the generation.

    Return None if the member has had no assignment yet.
    """
    if member.generation is None:
        return None
    previous = tuple(remembered(member))
    return encode_sticky(StickyUserData(previous=previous, generation=member.generation))


def _remember_generation(member: SpecMember) -> bytes:
    generation = member.generation
    return encode_cooperative_sticky(NO_GENERATION if generation is None else generation)


ASSIGNORS: Final = {
    assignor.name: assignor
    for assignor in (
        KafkaAssignor("range", EAGER, assign_range, lambda _: None),
        KafkaAssignor("roundrobin", EAGER, assign_roundrobin, lambda _: None),
        KafkaAssignor(
            "sticky",
            EAGER,
            assign_sticky,
            _remember_partitions,
            partial(assign_sticky, by_user_data=False),
        ),
        KafkaAssignor(
            "cooperative-sticky",
            EAGER | {RebalanceProtocol.COOPERATIVE},
            assign_cooperative,
            _remember_generation,
        ),
    )
}
