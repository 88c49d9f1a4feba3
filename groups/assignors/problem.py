"""A `Spec` in compact form: members and topics are numbers, a partition is one number.

The code of partition p of topic t, with T topics, is `p * T + t`. Topics are numbered in the order
of their names, so that ascending codes go by partition, then topic; and a partition that does not
exist (any more) has a code like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, compress

from rebal.groups.assignors.javatable import hash_order, string_hash, utf16
from rebal.groups.assignors.spec import Assignment, LeaderWouldFail, Owned, Spec, SpecMember

Run = tuple[int, range]


class Problem:
    """The input of all four assignors.

    Members are numbered in the iteration order of the leader's map of subscriptions. Topics that
    nobody subscribed to, or that have no partitions, do not take part.
    """

    def __init__(self, spec: Spec) -> None:
        by_id = {member.member_id: member for member in spec.members}
        self.spec = spec
        self.members: list[SpecMember] = [by_id[name] for name in hash_order(by_id)]
        wanted = dict.fromkeys(chain.from_iterable(member.topics for member in self.members))
        known = [topic for topic in hash_order(wanted) if spec.partitions.get(topic, 0) > 0]
        self.topics: list[str] = sorted(known, key=utf16)
        self.topic_of: dict[str, int] = {name: t for t, name in enumerate(self.topics)}
        self.leader_topics: list[int] = [self.topic_of[name] for name in hash_order(known)]
        self.counts: list[int] = [spec.partitions[name] for name in self.topics]
        self.total: int = sum(self.counts)

    @cached_property
    def subscribed(self) -> list[list[int]]:
        """For each member its topics that take part, in its order, repeated as it repeats them."""
        of = self.topic_of
        return [[of[name] for name in member.topics if name in of] for member in self.members]

    @cached_property
    def by_name(self) -> list[int]:
        """Members in the order of their member ids."""
        keys = [utf16(member.member_id) for member in self.members]
        return sorted(range(len(keys)), key=keys.__getitem__)

    @cached_property
    def rank(self) -> list[int]:
        """For each member its place in `by_name`."""
        ranks = [0] * len(self.members)
        for rank, member in enumerate(self.by_name):
            ranks[member] = rank
        return ranks

    @cached_property
    def by_instance(self) -> list[int]:
        """Static members by instance id, then dynamic ones by member id; ties as numbered."""
        keys = [
            (1, utf16(m.member_id)) if m.instance_id is None else (0, utf16(m.instance_id))
            for m in self.members
        ]
        return sorted(range(len(keys)), key=keys.__getitem__)

    @cached_property
    def topic_hashes(self) -> list[int]:
        """`String.hashCode()` of each topic's name."""
        return [string_hash(name) for name in self.topics]

    def codes(self, owned: Owned) -> list[int]:
        """The codes of those partitions whose topic takes part, in the order given."""
        of, step = self.topic_of, len(self.topics)
        return [p * step + of[name] for name, p in owned if name in of]

    def codes_of(self, topic: int) -> range:
        """The codes of a topic's partitions, ascending."""
        step = len(self.topics)
        return range(topic, self.counts[topic] * step, step)

    def exists(self, code: int) -> bool:
        """Whether the topic has this partition."""
        partition, topic = divmod(code, len(self.topics))
        return 0 <= partition < self.counts[topic]

    def unassigned(
        self, topics: Sequence[int], kept: Sequence[Sequence[int]]
    ) -> list[tuple[int, list[int]]]:
        """For each of `topics` the partitions that the leader takes to be in none of `kept`.

        It walks all partitions and the kept ones side by side, both sorted by topic (in the order
        given), then partition. At a kept partition that does not exist the walk of the kept ones
        stands still, so that all behind it count as free although they are kept.
        """
        step = len(self.topics)
        free = [bytearray(b"\1") * count for count in self.counts]
        strange: list[tuple[int, int]] = []
        for code in chain.from_iterable(kept):
            partition, topic = divmod(code, step)
            if 0 <= partition < self.counts[topic]:
                free[topic][partition] = 0
            else:
                strange.append((topic, partition))
        if strange:
            place = {topic: i for i, topic in enumerate(topics)}
            halt = min((place[topic], partition) for topic, partition in strange)
            for topic in topics[halt[0] :]:
                if place[topic] > halt[0] or halt[1] < 0:
                    free[topic] = bytearray(b"\1") * self.counts[topic]
        return [(topic, list(compress(self.codes_of(topic), free[topic]))) for topic in topics]

    def from_codes(self, lists: Sequence[Iterable[int]]) -> Assignment:
        """The assignment of each member's codes, in their order."""
        names, step = self.topics, len(self.topics)
        return {
            member.member_id: [(names[code % step], code // step) for code in codes]
            for member, codes in zip(self.members, lists, strict=True)
        }

    def from_runs(self, lists: Sequence[Iterable[Run]]) -> Assignment:
        """The assignment of each member's `(topic, partitions)` runs, in their order."""
        names = self.topics
        return {
            member.member_id: [(names[topic], p) for topic, run in runs for p in run]
            for member, runs in zip(self.members, lists, strict=True)
        }

    def failure(
        self, why: str, members: Iterable[int], codes: Iterable[int], *, never_ends: bool = False
    ) -> LeaderWouldFail:
        """The finding about these members and partitions' topics, both sorted by name."""
        step = len(self.topics)
        names = [self.members[m].member_id for m in sorted(set(members), key=self.rank.__getitem__)]
        topics = [self.topics[t] for t in sorted({code % step for code in codes})]
        return LeaderWouldFail(why, members=names, topics=topics, never_ends=never_ends)
