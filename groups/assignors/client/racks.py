"""Racks as the assignors use them (KIP-881): members near replicas, where that makes a difference.

Rack awareness is used only if a member's rack has replicas at all, and not every partition has
replicas on all racks.
"""

from __future__ import annotations

from collections.abc import Iterable

from rebal.groups.assignors.client.problem import Problem

RackSet = frozenset[str]


class Racks:
    """The racks of members and of partitions' replicas; brokers without a rack do not count."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._sets: dict[tuple[int, ...], RackSet] = {}
        self.of_member: list[str | None] = [member.rack or None for member in problem.members]

    def of_partition(self, topic: int, partition: int) -> RackSet:
        """The racks that have a replica of the partition."""
        replicas = self._problem.spec.replicas.get(self._problem.topics[topic], ())
        brokers = tuple(replicas[partition]) if partition < len(replicas) else ()
        found = self._sets.get(brokers)
        if found is None:
            racks = self._problem.spec.racks
            found = frozenset(r for b in brokers if (r := racks.get(b)) is not None)
            self._sets[brokers] = found
        return found

    def of_topic(self, topic: int) -> list[RackSet]:
        """The racks of each of the topic's partitions."""
        return [self.of_partition(topic, p) for p in range(self._problem.counts[topic])]


def matter(member_racks: set[str], partition_racks: Iterable[RackSet]) -> bool:
    """Whether rack awareness is used for these members and these partitions."""
    different = set(partition_racks)
    everywhere = frozenset().union(*different)
    return not member_racks.isdisjoint(everywhere) and different != {everywhere}
