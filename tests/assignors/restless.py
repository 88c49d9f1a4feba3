"""A group that every other rebalance takes something away from, with `cooperative-sticky`."""

from rebal.groups.assignors import Spec, SpecMember


def restless() -> Spec:
    """Its members, with nothing owned yet."""
    counts = {"orders": 5, "payments": 3, "clicks": 2, "audit.v1": 2, "t-é": 5}
    people = (
        ("é", "audit.v1 clicks t-é", "j0", "a"),
        ("ab", "clicks orders", "i1", "b"),
        ("10", "t-é clicks audit.v1", "j2", None),
        ("2", "payments t-é", "i3", ""),
        ("00", "audit.v1 orders clicks t-é", None, "b"),
        ("1", "payments", "j5", "a"),
    )
    return Spec(
        members=tuple(
            SpecMember(member_id=name, topics=tuple(topics.split()), instance_id=static, rack=rack)
            for name, topics, static, rack in people
        ),
        partitions=counts,
        replicas={name: [[p % 3, (p + 1) % 3] for p in range(n)] for name, n in counts.items()},
        racks={0: "a", 1: "b", 2: None},
    )
