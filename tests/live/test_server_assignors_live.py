"""`uniform` and `range` against the target assignments of a real 4.1 broker, member by member.

Each target is foretold by the what-if that an operator types, from the group as it was read before.
Who joins, several topics, and members of some of them are given to the coordinator's own classes
(tests/assignors/test_server_oracle.py).
"""

from __future__ import annotations

import pytest

from rebal.groups.model import GroupSnapshot, GroupType
from rebal.inspectors.kafka.read import read_groups
from rebal.planner.rehearsal.whatif.changes import Changes
from rebal.planner.rehearsal.whatif.simulation import simulate
from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.processes import wait_for
from tests.live_support import config_of

PARTITIONS = 12
COUNT = 5


def settled(broker: Broker, group_id: str, members: int) -> GroupSnapshot:
    """The group with so many members, once all have the newest target, which gives each partition.

    The first target of a new topic's group may be made before the coordinator knows the topic.
    """
    found: list[GroupSnapshot] = []

    def at_rest() -> bool:
        (seen,) = read_groups(config_of(broker), [group_id])
        if not isinstance(seen, GroupSnapshot) or len(seen.members) != members:
            return False
        found[:] = [seen]
        epochs = {seen.group.group_epoch, seen.group.assignment_epoch}
        epochs |= {member.member_epoch for member in seen.members}
        there = all(member.target_assignment == member.assignment for member in seen.members)
        given = sum(map(len, targets(seen).values()))
        return len(epochs) == 1 and there and given == PARTITIONS

    wait_for(f"{group_id} to settle with {members} members", at_rest, timeout=30)
    return found[0]


def targets(snapshot: GroupSnapshot) -> dict[str, set[tuple[str, int]]]:
    return {
        member.member_id: {
            (topic, p) for topic, numbers in member.target_assignment.items() for p in numbers
        }
        for member in snapshot.members
    }


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_brokers_targets_are_foretold(
    assignor: str, kafka41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    kafka41.create_topic(topic_name, PARTITIONS)
    running = [
        members.start(
            "java-4.1.1", kafka41, f"c-{n}", group_id, topics=[topic_name], protocol="consumer",
            instance_id=f"pod-{9 - n}" if n % 2 else None,
            settings={"group.remote.assignor": assignor},
        )
        for n in range(COUNT)
    ]  # fmt: skip
    before = settled(kafka41, group_id, COUNT)
    assert (before.group.type, before.group.assignor) == (GroupType.CONSUMER, assignor)
    for count, n in enumerate((2, 0, 4), 1):
        gone = next(m.member_id for m in before.members if m.client_id == f"c-{n}")
        made = simulate(before, assignor, Changes(remove_members=(gone,)))
        running[n].stop()
        before = settled(kafka41, group_id, COUNT - count)
        assert targets(before) == {
            shift.member_id: {(t, p) for t, numbers in shift.then.items() for p in numbers}
            for shift in made.members
            if shift.change != "leaves"
        }
