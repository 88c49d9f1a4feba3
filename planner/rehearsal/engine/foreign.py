"""Assignors of other clients than Java's, with names of their own, as far as they are modelled."""

from collections.abc import Mapping
from typing import Final

from rebal.groups.assignors import Assignment, Assignor, Spec
from rebal.groups.assignors.client.kafka import EAGER, KafkaAssignor
from rebal.groups.jvmhash import utf16


def kafkajs_round_robin(spec: Spec) -> Assignment:
    """Return the result of kafkajs's only assignor (src/consumer/assigners/roundRobinAssigner).

    It deals all partitions of the leader's own topics in turn to the members sorted by id, and does
    not look at who is subscribed to what: here all members have the topics of the leader. Their
    order is that of the leader's metadata, in which brokers name a topic's partitions as it comes;
    here it is by number. So how many partitions a member gets is exact, and which ones is not.
    """
    ids = sorted((member.member_id for member in spec.members), key=utf16)
    topics = dict.fromkeys(topic for member in spec.members for topic in member.topics)
    pairs = [(topic, n) for topic in topics for n in range(spec.partitions.get(topic, 0))]
    return {id_: pairs[place :: len(ids)] for place, id_ in enumerate(ids)}


def kafka_go_range(spec: Spec) -> Assignment:
    """Return the result of segmentio/kafka-go's range (RangeGroupBalancer): other borders than
    Java's.

    Of a topic with P partitions the member i of M gets those from iP/M to (i + 1)P/M, rounded down.
    """
    members = sorted(spec.members, key=lambda member: member.member_id)
    made: Assignment = {member.member_id: [] for member in members}
    for topic, count in spec.partitions.items():
        ids = [member.member_id for member in members if topic in member.topics]
        for number, id_ in enumerate(ids):
            first, end = number * count // len(ids), (number + 1) * count // len(ids)
            made[id_] += [(topic, n) for n in range(first, end)]
    return made


FOREIGN: Final[Mapping[str, Assignor]] = {
    "RoundRobinAssigner": KafkaAssignor(
        "RoundRobinAssigner", EAGER, lambda p: kafkajs_round_robin(p.spec), lambda _: None
    )
}
"""By name on the wire."""
OF_FAMILY: Final[Mapping[tuple[str, str], Assignor]] = {
    ("segmentio", "range"): KafkaAssignor(
        "range", EAGER, lambda p: kafka_go_range(p.spec), lambda _: None
    )
}
"""Assignors that have the name of one of Kafka's own and assign differently, by client family."""
