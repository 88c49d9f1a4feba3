"""One bench case in a process of its own: `python -m bench.assignors_case rebal|kafka-python …`.

The words after the library are those of `Case`. Prints the seconds of the assign call and the
digest, as bench/java/AssignorCase.java does.
"""

import sys
import time

from bench.assignors_input import Case, digest, spec_of


def with_rebal(case: Case) -> tuple[float, str]:
    from rebal.groups.assignors import assign

    spec = spec_of(case)
    begin = time.perf_counter()
    result = assign(case.assignor, spec)
    return time.perf_counter() - begin, digest(result)


def with_kafka_python(case: Case) -> tuple[float, str]:
    """Run kafka-python's own assignors on objects with the attributes that they read."""
    from types import SimpleNamespace

    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    classes = (
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    )
    assignor = {cls.name: cls for cls in classes}[case.assignor]()
    spec = spec_of(case)
    counts = {name: set(range(count)) for name, count in spec.partitions.items()}
    cluster = SimpleNamespace(topics=lambda: set(counts), partitions_for_topic=counts.get)
    members = []
    for member in spec.members:
        owned: dict[str, list[int]] = {}
        for topic, partition in member.owned:
            owned.setdefault(topic, []).append(partition)
        metadata = SimpleNamespace(
            topics=list(member.topics),
            user_data=member.user_data or b"",
            owned_partitions=[SimpleNamespace(topic=t, partitions=p) for t, p in owned.items()],
            generation_id=-1 if member.generation is None else member.generation,
        )
        members.append(
            SimpleNamespace(member_id=member.member_id, group_instance_id=None, metadata=metadata)
        )
    begin = time.perf_counter()
    result = assignor.assign(cluster, members)
    taken = time.perf_counter() - begin
    return taken, digest({member: given.partitions() for member, given in result.items()})


LIBRARIES = {"rebal": with_rebal, "kafka-python": with_kafka_python}

if __name__ == "__main__":
    seconds, sha = LIBRARIES[sys.argv[1]](Case.parse(sys.argv[2:]))
    print(seconds, sha)
