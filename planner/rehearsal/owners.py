"""Owners of a group's partitions, and what differs between two states of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from rebal.groups.compact import Partitions
from rebal.groups.model import TopicPartitions

TopicPartition = tuple[str, int]


class Owners:
    """The owner of each partition that has one, as a number, whether the partition exists or not.

    Made of members' numbers and what each claims: the last one to claim a partition is its owner.
    """

    def __init__(self, owned: Iterable[tuple[int, Iterable[TopicPartition]]]) -> None:
        self.by_partition = {pair: number for number, pairs in owned for pair in pairs}

    @property
    def total(self) -> int:
        """Number of partitions that have an owner."""
        return len(self.by_partition)

    @cached_property
    def sizes(self) -> Counter[int]:
        """Partition count of each member that owns any."""
        return Counter(self.by_partition.values())

    @cached_property
    def by_topic(self) -> Mapping[str, Counter[int]]:
        """Partition count in each topic of each member that owns any of it."""
        members: defaultdict[str, list[int]] = defaultdict(list)
        for (topic, _), number in self.by_partition.items():
            members[topic].append(number)
        return {topic: Counter(numbers) for topic, numbers in members.items()}

    @cached_property
    def shares(self) -> Mapping[int, TopicPartitions]:
        """Partitions of each member that owns any: topics by name, partitions ascending."""
        pairs: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for pair, number in self.by_partition.items():
            pairs[number].append(pair)
        return {number: _by_topic(sorted(some)) for number, some in pairs.items()}

    def without(self, other: Owners) -> Owners:
        """Return the partitions that have another owner, or none, in `other`."""
        there = other.by_partition
        differ = ((n, (pair,)) for pair, n in self.by_partition.items() if there.get(pair) != n)
        return Owners(differ)


def _by_topic(pairs: Iterable[TopicPartition]) -> TopicPartitions:
    return {
        topic: Partitions(partition for _, partition in some)
        for topic, some in groupby(pairs, key=itemgetter(0))
    }


class Kept(NamedTuple):
    """Partition counts of two states: kept by each member, and with any owner in both."""

    by_member: Counter[int]
    owned: int


def compare(before: Owners, after: Owners) -> Kept:
    """Count the partitions that keep their owner."""
    both = before.by_partition.keys() & after.by_partition.keys()
    return Kept(before.sizes - before.without(after).sizes, len(both))
