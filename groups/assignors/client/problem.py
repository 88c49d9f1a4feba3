"""A `Spec` in compact form: members and topics are numbers, a partition is one number.

The number of a partition is its code: `p * T + t` for partition p of topic t, with T topics. Topics
are numbered in the order of their names, so that ascending codes go by partition, then topic. A
partition that does not exist (any more) has a code by the same rule.
"""

from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from itertools import chain, repeat

from rebal.groups.assignors.javatable import hash_order
from rebal.groups.assignors.spec import (
    Assignment,
    Spec,
    SpecMember,
    TopicPartition,
)
from rebal.groups.errors import LeaderWouldFail
from rebal.groups.jvmhash import utf16

Free = list[tuple[int, list[int]]]


def places(order: Sequence[int]) -> list[int]:
    """Return for each member number its index in `order`, which lists all member numbers."""
    found = [0] * len(order)
    for place, member in enumerate(order):
        found[member] = place
    return found


class Problem:
    """Input of the four client-side assignors, with members, topics and partitions as numbers.

    Members are numbered in the iteration order of the leader's map of subscriptions. Topics without
    subscribers or without partitions are left out.
    """

    def __init__(self, spec: Spec) -> None:
        by_id = {member.member_id: member for member in spec.members}
        self.spec = spec
        self.members: list[SpecMember] = [by_id[name] for name in hash_order(by_id)]
        different = dict.fromkeys(tuple(member.topics) for member in self.members)
        wanted = dict.fromkeys(chain.from_iterable(different))
        known = [topic for topic in hash_order(wanted) if spec.partitions.get(topic, 0) > 0]
        self.topics: list[str] = sorted(known, key=utf16)
        self.topic_of: dict[str, int] = {name: t for t, name in enumerate(self.topics)}
        self.leader_topics: list[int] = [self.topic_of[name] for name in hash_order(known)]
        self.counts: list[int] = [spec.partitions[name] for name in self.topics]
        self.total: int = sum(self.counts)

    @cached_property
    def subscribed(self) -> list[list[int]]:
        """Topic numbers of each member's subscription, in the order and as often as it names them.

        Members with equal subscriptions share one list object. Topics that are left out of the
        problem are left out here.
        """
        of = self.topic_of

        @cache
        def numbers(names: tuple[str, ...]) -> list[int]:
            return [of[name] for name in names if name in of]

        return [numbers(tuple(member.topics)) for member in self.members]

    @cached_property
    def by_name(self) -> list[int]:
        """Member numbers in the order of the member ids."""
        keys = [utf16(member.member_id) for member in self.members]
        return sorted(range(len(keys)), key=keys.__getitem__)

    @cached_property
    def rank(self) -> list[int]:
        """Position of each member in the order of the member ids, indexed by member number."""
        return places(self.by_name)

    def subscribers(self, order: Sequence[int], *, once: bool) -> list[list[int]]:
        """Return the subscribers of each topic, in the order of `order`, which lists all members.

        With `once`, a member that names a topic twice is there once, otherwise twice. Topics with
        the same subscribers share one list object.
        """
        kinds: dict[int, int] = {}
        members: list[list[int]] = []
        kinds_of: list[list[int]] = [[] for _ in self.topics]
        place = places(order)
        for member in order:
            topics = self.subscribed[member]
            kind = kinds.setdefault(id(topics), len(members))
            if kind == len(members):
                members.append([])
                for topic in dict.fromkeys(topics) if once else topics:
                    kinds_of[topic].append(kind)
            members[kind].append(member)
        known = {
            some: sorted(chain.from_iterable(map(members.__getitem__, some)), key=place.__getitem__)
            for some in set(map(tuple, kinds_of))
        }
        return [known[tuple(some)] for some in kinds_of]

    def codes(self, owned: Sequence[TopicPartition]) -> list[int]:
        """Return the codes of the `owned` partitions, in the order given.

        Partitions of topics that are left out of the problem are left out.
        """
        of, step = self.topic_of, len(self.topics)
        try:
            return [p * step + of[name] for name, p in owned]
        except KeyError:
            return [p * step + of[name] for name, p in owned if name in of]

    def codes_of(self, topic: int) -> range:
        """Return the codes of a topic's partitions, ascending."""
        step = len(self.topics)
        return range(topic, self.counts[topic] * step, step)

    def exists(self, code: int) -> bool:
        """Return whether the partition with this code exists in its topic."""
        partition, topic = divmod(code, len(self.topics))
        return 0 <= partition < self.counts[topic]

    def unassigned(self, topics: Sequence[int], kept: Sequence[Sequence[int]]) -> tuple[Free, bool]:
        """Return the partitions that the leader treats as free, and whether all of `kept` exist.

        The free partitions are a list of (topic, codes) in the order of `topics`, which are all
        topics in the leader's order. `kept` are the codes that each member keeps. The leader walks
        all partitions and the kept ones side by side, both sorted by topic, then by partition. A
        kept partition that does not exist stops the walk of the kept ones, so the leader treats
        every partition after it as free.
        """
        taken = set().union(*kept)
        free = [
            (topic, [code for code in self.codes_of(topic) if code not in taken])
            for topic in topics
        ]
        if self.total - sum(len(codes) for _, codes in free) == len(taken):
            return free, True
        place = places(topics)
        halt = min(
            (place[code % len(topics)], code // len(topics))
            for code in taken
            if not self.exists(code)
        )
        for i, topic in enumerate(topics):
            if i > halt[0] or (i == halt[0] and halt[1] < 0):
                free[i] = (topic, list(self.codes_of(topic)))
        return free, False

    def pairs_of(self, topic: int) -> list[TopicPartition]:
        """Return `(topic, partition)` of each of a topic's partitions, ascending."""
        return list(zip(repeat(self.topics[topic]), range(self.counts[topic]), strict=False))

    def from_codes(self, lists: Sequence[Iterable[int]]) -> Assignment:
        """Return the assignment in which each member has the partitions of its codes in `lists`.

        It is member id → `(topic, partition)` list, in the order of the codes. `lists` are by
        member number.
        """
        names, step = self.topics, len(self.topics)
        return self.assignment(
            [[(names[code % step], code // step) for code in codes] for codes in lists]
        )

    def assignment(self, lists: Sequence[list[TopicPartition]]) -> Assignment:
        """Return the assignment, member id → partitions; `lists` has them by member number."""
        return {member.member_id: owned for member, owned in zip(self.members, lists, strict=True)}

    def failure(
        self, why: str, members: Iterable[int], codes: Iterable[int], *, never_ends: bool = False
    ) -> LeaderWouldFail:
        """Return the error with the reason `why`; it names the members and the codes' topics."""
        step = len(self.topics)
        names = [self.members[m].member_id for m in sorted(set(members), key=self.rank.__getitem__)]
        topics = [self.topics[t] for t in sorted({code % step for code in codes})]
        return LeaderWouldFail(why, members=names, topics=topics, never_ends=never_ends)


RackSet = frozenset[str]


class Racks:
    """Racks of members and of partitions' replicas (KIP-881).

    Brokers without a rack are ignored. The leader uses rack awareness only if a member's rack has
    replicas, and not every partition has replicas on all racks.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._sets: dict[tuple[int, ...], RackSet] = {}
        self.of_member: list[str | None] = [member.rack or None for member in problem.members]

    @property
    def matters(self) -> bool:
        """True if the leader uses rack awareness, judged by all members and all partitions."""
        mine = set(self.of_member) - {None}
        topics = range(len(self._problem.topics) if mine else 0)
        return racks_matter(mine, chain.from_iterable(map(self.of_topic, topics)))

    def of_code(self, code: int) -> RackSet:
        """Return the racks of a partition's replicas; empty if the partition does not exist."""
        problem = self._problem
        partition, topic = divmod(code, len(problem.topics))
        replicas = problem.spec.replicas.get(problem.topics[topic], ())
        exists = 0 <= partition < min(problem.counts[topic], len(replicas))
        brokers = tuple(replicas[partition]) if exists else ()
        if (found := self._sets.get(brokers)) is None:
            racks = map(problem.spec.racks.get, brokers)
            found = self._sets[brokers] = frozenset(rack for rack in racks if rack is not None)
        return found

    def of_topic(self, topic: int) -> list[RackSet]:
        """Return the racks of each of the topic's partitions."""
        return list(map(self.of_code, self._problem.codes_of(topic)))


def racks_matter(member_racks: set[str | None], partition_racks: Iterable[RackSet]) -> bool:
    """Return whether the leader uses rack awareness, given the members' and the partitions' racks.

    It does if a member's rack holds a replica, and not all partitions have replicas on all racks.
    """
    different = set(partition_racks)
    everywhere = frozenset().union(*different)
    return not member_racks.isdisjoint(everywhere) and different != {everywhere}
