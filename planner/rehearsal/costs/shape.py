"""Shape of a roll-out: groups of one shape differ in names and in how many partitions they have.

Their costs grow in proportion to that number.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from rebal.groups.model import Member
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.timeouts import waits


def shape_of(roll: Roll) -> Hashable:
    """Return what decides a roll-out's cost, but for names and the number of partitions.

    Where members own unequal shares that number counts too. Each group of Connect workers has a
    shape of its own, because connectors count by name.
    """
    snapshot = roll.snapshot
    group = snapshot.group
    step = (roll.target, roll.protocol, roll.server_side, roll.eager_after, roll.together)
    if group.protocol_type == "connect":
        return group.group_id, roll.order, step, roll.speed
    numbers = {topic.name: number for number, topic in enumerate(snapshot.topics)}
    order, eager = {id_: place for place, id_ in enumerate(roll.order)}, set(roll.eager)
    members = tuple(
        (order.get(member.member_id), member.member_id in eager, *_shape(member, numbers))
        for member in snapshot.members
    )
    shares = [sum(map(len, member.assignment.values())) for member in snapshot.members]
    even = min(shares) > 0 and max(shares) - min(shares) <= 1
    topics = None if even else (tuple(shares), tuple(t.partitions for t in snapshot.topics))
    settings = frozenset(snapshot.cluster.settings.items())
    kind = group.coordinator.kind if group.coordinator is not None else None
    return members, topics, group.assignor, group.type, settings, kind, step, roll.speed


def _shape(member: Member, numbers: Mapping[str, int]) -> tuple[Hashable, ...]:
    patience, software = waits(member), member.software
    read = member.subscription
    subscribed = read.topics if read is not None else member.subscribed_topics
    return (
        member.assignors.knowledge,
        member.assignors.list,
        None if software is None else (software.family, software.version),
        member.instance_id is not None,
        member.protocol_type,
        (patience.session, patience.rebalance),
        frozenset(numbers.get(topic, topic) for topic in subscribed),
    )


def size_of(roll: Roll) -> int:
    """Return how many partitions the group has."""
    return sum(topic.partitions for topic in roll.snapshot.topics)
