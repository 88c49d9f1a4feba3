"""Assignors of other clients than Java's, with names of their own, as far as they are modelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import Assignment, Assignor, Owned, Spec, SpecMember
from rebal.groups.jvmhash import utf16
from rebal.groups.model import RebalanceProtocol


class KafkajsRoundRobin:
    """kafkajs's only assignor (src/consumer/assigners/roundRobinAssigner).

    It deals all partitions of the leader's own topics in turn to the members sorted by id, and does
    not look at who is subscribed to what: here all members have the topics of the leader. Their
    order is that of the leader's metadata, in which brokers name a topic's partitions as it comes;
    here it is by number. So how many partitions a member gets is exact, and which ones is not.
    """

    name = "RoundRobinAssigner"
    version = 0
    supported_protocols = frozenset({RebalanceProtocol.EAGER})

    def subscription_user_data(self, member: SpecMember) -> bytes | None:  # noqa: ARG002
        """Return None: it sends none."""
        return None

    def assign(self, spec: Spec) -> Assignment:
        """Return the partitions dealt in turn."""
        made: Assignment = {
            member.member_id: []
            for member in sorted(spec.members, key=lambda member: utf16(member.member_id))
        }
        ids = list(made)
        topics = dict.fromkeys(topic for member in spec.members for topic in member.topics)
        pairs = [(topic, n) for topic in topics for n in range(spec.partitions.get(topic, 0))]
        for number, pair in enumerate(pairs):
            made[ids[number % len(ids)]].append(pair)
        return made

    def on_assignment(
        self,
        member: SpecMember,
        assigned: Owned,
        user_data: bytes | None,  # noqa: ARG002 - the interface has it
        generation: int,
    ) -> SpecMember:
        """Return the member with what it owns now."""
        return replace(member, owned=tuple(assigned), generation=generation)


class KafkaGoRange(KafkajsRoundRobin):
    """Range of segmentio/kafka-go (RangeGroupBalancer): other borders than Java's.

    Of a topic with P partitions the member i of M gets those from iP/M to (i + 1)P/M, rounded down.
    """

    name = "range"

    def assign(self, spec: Spec) -> Assignment:
        """Return a slice of each topic for each of its members, by member id."""
        members = sorted(spec.members, key=lambda member: member.member_id)
        made: Assignment = {member.member_id: [] for member in members}
        for topic, count in spec.partitions.items():
            ids = [member.member_id for member in members if topic in member.topics]
            for number, id_ in enumerate(ids):
                first, end = number * count // len(ids), (number + 1) * count // len(ids)
                made[id_] += [(topic, n) for n in range(first, end)]
        return made


FOREIGN: Final[Mapping[str, Assignor]] = {KafkajsRoundRobin.name: KafkajsRoundRobin()}
"""By name on the wire."""
OF_FAMILY: Final[Mapping[tuple[str, str], Assignor]] = {("segmentio", "range"): KafkaGoRange()}
"""Assignors that have the name of one of Kafka's own and assign differently, by client family."""
