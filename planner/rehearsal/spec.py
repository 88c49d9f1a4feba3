"""Assignor input and partition owners of a captured group.

If a snapshot cannot be an assignor's input, the error says why in one sentence.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter

from rebal.groups.assignors import Spec, SpecMember, TopicPartition
from rebal.groups.assignors.connect import Work, held_of
from rebal.groups.compact import Partitions
from rebal.groups.errors import RebalError
from rebal.groups.model import GroupSnapshot, GroupType, Member, TopicPartitions


class Owners:
    """The owner of each owned partition, as a member's number.

    It is made of members' numbers and the partitions that each claims. If several members claim a
    partition, the last is its owner. Partitions that do not exist are included.
    """

    def __init__(self, owned: Iterable[tuple[int, Iterable[TopicPartition]]]) -> None:
        self.by_partition = {pair: number for number, pairs in owned for pair in pairs}

    @property
    def total(self) -> int:
        """Number of partitions that have an owner."""
        return len(self.by_partition)

    @cached_property
    def sizes(self) -> Counter[int]:
        """Number of partitions of each member that owns any, by member number."""
        return Counter(self.by_partition.values())

    @cached_property
    def by_topic(self) -> Mapping[str, Counter[int]]:
        """Number of partitions of each member in each topic: topic -> member number -> count."""
        members: defaultdict[str, list[int]] = defaultdict(list)
        for (topic, _), number in self.by_partition.items():
            members[topic].append(number)
        return {topic: Counter(numbers) for topic, numbers in members.items()}

    @cached_property
    def shares(self) -> Mapping[int, TopicPartitions]:
        """Partitions of each member that owns any, by member number: topic -> ascending numbers."""
        pairs: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for pair, number in self.by_partition.items():
            pairs[number].append(pair)
        return {number: _by_topic(sorted(some)) for number, some in pairs.items()}

    def without(self, other: Owners) -> Owners:
        """Return these owners without the partitions that have the same owner in `other`."""
        there = other.by_partition.get
        return Owners((n, (pair,)) for pair, n in self.by_partition.items() if there(pair) != n)


def _by_topic(pairs: Iterable[TopicPartition]) -> TopicPartitions:
    return {
        topic: Partitions(partition for _, partition in some)
        for topic, some in groupby(pairs, key=itemgetter(0))
    }


class CannotSimulateError(RebalError):
    """Error for a snapshot that cannot be simulated; the message says why and what to do."""


def task_spec_of(snapshot: GroupSnapshot) -> Spec | None:
    """Return the assignor input of a group that assigns tasks (Connect, Streams); None for others.

    Connect workers own their connectors and tasks, if the snapshot shows those of every worker. The
    tasks of Kafka Streams are not included.

    Raises:
        CannotSimulateError: the group has no members.
    """
    group = snapshot.group
    if not assigns_tasks(snapshot):
        return None
    _check_members(snapshot)
    work = work_by_worker(snapshot) or {}
    return Spec(
        members=tuple(
            SpecMember(
                member_id=member.member_id,
                topics=(),
                instance_id=member.instance_id,
                owned=work.get(member.member_id, ()),
                generation=1 if group.generation is None else group.generation,
            )
            for member in snapshot.members
        ),
        partitions={},
    )


def assigns_tasks(snapshot: GroupSnapshot) -> bool:
    """Return whether the group runs Kafka Streams, or is a classic group of Connect workers."""
    if snapshot.group.type in (GroupType.CONSUMER, GroupType.SHARE, GroupType.STREAMS):
        return snapshot.group.type is GroupType.STREAMS
    return snapshot.group.protocol_type == "connect" or _is_streams(snapshot)


def work_by_worker(snapshot: GroupSnapshot) -> dict[str, Work] | None:
    """Return the connectors and tasks that each Connect worker runs, by member id.

    None if the snapshot does not show them for every worker.
    """
    made = {
        member.member_id: held_of(member.worker.running)
        for member in snapshot.members
        if member.worker is not None and member.worker.running is not None
    }
    return made if made and len(made) == len(snapshot.members) else None


def _is_streams(snapshot: GroupSnapshot) -> bool:
    return snapshot.group.assignor == "stream" or any(
        "stream" in member.assignors.list for member in snapshot.members
    )


def start_of(snapshot: GroupSnapshot, *, server_side: bool = False) -> tuple[Spec, Owners]:
    """Return the assignor's input if the group rebalanced now, and the current partition owners.

    Members are in the order of the snapshot. Each has the partitions that it owns now (by topic,
    then partition, ascending, as clients send them) and the group's generation; `user_data` is left
    out. An owner is a member's index in the snapshot. With `server_side` the assignor is the
    coordinator's, which uses target assignments (KIP-848).

    Raises:
        CannotSimulateError: the group's type has no such assignor, the group has no members, a
            subscription is not known, no subscribed topic is described, a member owns partitions of
            a topic that is not described, or a partition has two owners.
    """
    _check_group(snapshot, server_side)
    generation = snapshot.group.generation
    counts = {topic.name: topic.partitions for topic in snapshot.topics}
    spec = Spec(
        members=tuple(
            SpecMember(
                member_id=member.member_id,
                topics=_topics(snapshot, member),
                instance_id=member.instance_id,
                rack=_rack(member),
                owned=_owned(snapshot, member, counts, server_side),
                generation=1 if generation is None else generation,
            )
            for member in snapshot.members
        ),
        partitions=counts,
        replicas={topic.name: topic.replicas for topic in snapshot.topics},
        racks={broker.broker_id: broker.rack for broker in snapshot.cluster.brokers},
    )
    _check_topics(snapshot, spec)
    return spec, _owners(snapshot, spec)


def subscribed_topics(subscriptions: Iterable[tuple[str, ...]]) -> set[str]:
    """Return every topic that at least one of the subscriptions contains."""
    return set().union(*set(subscriptions))


def _check_group(snapshot: GroupSnapshot, server_side: bool) -> None:
    group = snapshot.group
    if group.type is GroupType.CONSUMER and not server_side:
        raise _cannot_simulate(
            snapshot,
            "it is a KIP-848 group: its broker assigns the partitions, by uniform or range, and "
            "asks no client-side assignor",
        )
    if group.type in (GroupType.SHARE, GroupType.STREAMS):
        raise _cannot_simulate(
            snapshot, f"it is a {group.type} group, which has no client-side assignor"
        )
    if group.protocol_type not in (None, "", "consumer"):
        raise _cannot_simulate(
            snapshot,
            f"its protocol type is {group.protocol_type}, and only consumer groups have "
            "partition assignors"
            + (
                "; what restarts of Connect workers cost: --assignor eager, compatible or sessioned"
                if group.protocol_type == "connect"
                else ""
            ),
        )
    _check_members(snapshot)
    if _is_streams(snapshot):
        raise _cannot_simulate(
            snapshot,
            "it is a Kafka Streams program, which brings its own assignor (stream) and can use "
            "no other",
        )


def _check_members(snapshot: GroupSnapshot) -> None:
    if not snapshot.members:
        raise _cannot_simulate(
            snapshot,
            f"it has no members (state {snapshot.group.state}); capture it while its members run: "
            "rebal inspect GROUP --save",
        )


def _topics(snapshot: GroupSnapshot, member: Member) -> tuple[str, ...]:
    if member.subscription is not None:
        return member.subscription.topics
    if member.subscribed_topics and not member.subscribed_regex:
        return member.subscribed_topics
    why, pattern = member.subscription_error, member.subscribed_regex
    raise _cannot_simulate(
        snapshot,
        f"the subscription of member {member.member_id} "
        + (
            f"cannot be read ({why.rstrip('.')})"
            if why
            else f"is the pattern {pattern}, and the broker does not say which topics match it"
            if pattern
            else "is not in the snapshot"
        )
        + "; without its topics no assignment can be computed",
    )


def _rack(member: Member) -> str | None:
    read = member.subscription
    return member.rack if member.rack is not None or read is None else read.rack_id


def _check_topics(snapshot: GroupSnapshot, spec: Spec) -> None:
    names = sorted(subscribed_topics(member.topics for member in spec.members))
    if not names:
        raise _cannot_simulate(
            snapshot, "its members subscribe to no topic, so there is nothing to assign"
        )
    if not any(spec.partitions.get(name) for name in names):
        raise _cannot_simulate(
            snapshot,
            f"the snapshot describes none of the topics that its members subscribe to "
            f"({', '.join(names[:3])}{', …' if len(names) > 3 else ''}); capture the group with "
            "the right to DESCRIBE its topics",
        )


def _owners(snapshot: GroupSnapshot, spec: Spec) -> Owners:
    owners = Owners(enumerate(member.owned for member in spec.members))
    if owners.total != sum(len(member.owned) for member in spec.members):
        first: dict[TopicPartition, str] = {}
        for member in spec.members:
            for topic, partition in member.owned:
                other = first.setdefault((topic, partition), member.member_id)
                if other != member.member_id:
                    raise _cannot_simulate(
                        snapshot,
                        f"partition {partition} of {topic} has two owners, {other} and "
                        f"{member.member_id}; capture the group again when it is Stable",
                    )
    return owners


def _owned(
    snapshot: GroupSnapshot, member: Member, counts: dict[str, int], server_side: bool
) -> Sequence[TopicPartition]:
    target = member.target_assignment
    now = target if server_side and target is not None else member.assignment
    unknown = sorted(topic for topic in now.keys() - counts.keys() if now[topic])
    if unknown:
        raise _cannot_simulate(
            snapshot,
            f"member {member.member_id} owns partitions of {', '.join(unknown[:3])}, which the "
            "snapshot does not describe; capture the group with the right to DESCRIBE its topics",
        )
    return tuple(sorted((topic, number) for topic, some in now.items() for number in some))


def _cannot_simulate(snapshot: GroupSnapshot, why: str) -> CannotSimulateError:
    return CannotSimulateError(f"cannot simulate {snapshot.group.group_id}: {why}.")
