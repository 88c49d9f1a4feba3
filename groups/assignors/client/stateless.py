"""Assignors that ignore owned partitions: `range` and `roundrobin`.

`range` gives each member a run of neighbouring partitions of each topic. Where racks matter
(KIP-881), a first pass gives members partitions with a replica on their rack, up to each member's
share; topics with the same members and partition counts get the same numbers, so that they stay
co-partitioned. The remaining partitions are assigned without regard to racks.

`roundrobin` deals all partitions, sorted, to the members in turn and skips members that did not
subscribe to the topic.
"""

from bisect import bisect_left
from itertools import chain, groupby, islice

from rebal.groups.assignors.client.problem import Problem, Racks, matter
from rebal.groups.assignors.spec import TopicPartition, by_instance


def assign_range(problem: Problem) -> list[list[TopicPartition]]:
    """Return each member's partitions, in the order the leader returns them."""
    places = problem.subscribers(by_instance(problem.members), once=True)
    if any(member.rack for member in problem.members):
        racks = Racks(problem)
        shares = [_Share(problem, topic, places[topic], racks) for topic in problem.leader_topics]
        if any(share.racks_matter for share in shares):
            return _with_racks(problem, shares)
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
    return result


class _Share:
    """One topic while it is being shared out: who may still get how much of it."""

    def __init__(self, problem: Problem, topic: int, members: list[int], racks: Racks) -> None:
        self.topic = topic
        self.members = members
        self.count = problem.counts[topic]
        self.base, self.more = divmod(self.count, len(members))
        self.given: dict[int, list[int]] = {member: [] for member in members}
        self.left: dict[int, None] = dict.fromkeys(range(self.count))
        self.of_member = racks.of_member
        mine = {rack for member in members if (rack := racks.of_member[member]) is not None}
        self.partition_racks = racks.of_topic(topic) if mine else []
        self.racks_matter = matter(mine, self.partition_racks)

    def room(self, member: int) -> int:
        """Return how many more partitions the member may get now."""
        return max(0, self.base + (self.more > 0) - len(self.given[member]))

    def near(self, member: int, partition: int) -> bool:
        """Return whether the member has no rack, or the rack of a replica."""
        rack = self.of_member[member]
        return rack is None or (
            bool(self.partition_racks) and rack in self.partition_racks[partition]
        )

    def give(self, member: int, partitions: list[int]) -> None:
        """Assign remaining partitions to the member."""
        self.given[member] += partitions
        if len(self.given[member]) > self.base:
            self.more -= 1
        for partition in partitions:
            del self.left[partition]

    def give_in_turn(self, *, near_only: bool) -> None:
        """Give each member in turn as many partitions as it has room for."""
        for member in self.members:
            room = self.room(member)
            if not room:
                continue
            fit = (p for p in self.left if not near_only or self.near(member, p))
            partitions = list(islice(fit, room))
            if partitions:
                self.give(member, partitions)


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
        name = problem.topics[share.topic]
        for member, partitions in share.given.items():
            result[member] += ((name, partition) for partition in sorted(partitions))
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
            if not open_members:
                return


def assign_roundrobin(problem: Problem) -> list[list[TopicPartition]]:
    """Return each member's partitions, in the order the leader returns them.

    Over successive topics with the same n subscribers, each subscriber gets every n-th partition;
    the topics before decide only which of them is first.
    """
    order = by_instance(problem.members)
    seat = [0] * len(order)
    for i, member in enumerate(order):
        seat[member] = i
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
    return result
