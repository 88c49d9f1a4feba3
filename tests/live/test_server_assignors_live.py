"""`uniform` and `range` against the target assignments of a real 4.1 broker, member by member.

Each event's target is computed from the group as it was read just before it; who joins gets its
member id from the group as it is after. Several topics, and members of some of them, are given to
the coordinator's own classes (tests/assignors/test_server_oracle.py).
"""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from rebal.groups.assignors import SpecMember
from rebal.groups.assignors.javatable import hash_order
from rebal.groups.assignors.server import server_assignor
from rebal.groups.model import GroupSnapshot, GroupType
from rebal.inspectors.kafka.read import read_groups
from rebal.planner.rehearsal.spec import spec_of
from rebal.planner.rehearsal.whatif.changes import Changes
from rebal.planner.rehearsal.whatif.simulation import simulate
from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members
from tests.kafka.processes import wait_for
from tests.live_support import config_of

Targets = dict[str, set[tuple[str, int]]]
PARTITIONS = 12


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
        given = sum(map(len, targets(seen).values()))
        is_newest = seen.group.group_epoch == seen.group.assignment_epoch
        return (
            is_newest
            and given == PARTITIONS
            and all(
                member.target_assignment == member.assignment
                and member.member_epoch == seen.group.group_epoch
                for member in seen.members
            )
        )

    wait_for(f"{group_id} to settle with {members} members", at_rest, timeout=30)
    return found[0]


def targets(snapshot: GroupSnapshot) -> Targets:
    return {
        member.member_id: {
            (topic, p) for topic, numbers in member.target_assignment.items() for p in numbers
        }
        for member in snapshot.members
    }


def foretold(before: GroupSnapshot, after: GroupSnapshot, assignor: str) -> list[Targets]:
    """What rebal computes for the members of `after`, from the targets of `before`; it comes first.

    The others are for members whose ids share a place in the coordinator's table: no answer tells
    in which order they stand there.
    """
    spec = spec_of(before, server_side=True)
    known = {member.member_id: member for member in spec.members}
    joined = {member.member_id: member for member in spec_of(after, server_side=True).members}
    members = tuple(
        known.get(name)
        or SpecMember(member_id=name, topics=one.topics, instance_id=one.instance_id)
        for name, one in joined.items()
    )
    ids = {topic.name: topic.topic_id for topic in before.topics}
    orders: dict[tuple[str, ...], tuple[SpecMember, ...]] = {}
    for order in itertools.permutations(members):
        orders.setdefault(tuple(hash_order(one.member_id for one in order)), order)
    found = []
    for order in orders.values():
        made, undecided = server_assignor(assignor, ids).assign_and_tell(
            replace(spec, members=order)
        )
        assert not undecided.topics
        found.append({name: set(owned) for name, owned in made.items()})
        assert bool(undecided.members) or all(one == found[0] for one in found)
    return found


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_brokers_targets_are_foretold(
    assignor: str, kafka41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    kafka41.create_topic(topic_name, PARTITIONS)

    def start(n: int) -> Member:
        return members.start(
            "java-4.1.1", kafka41, f"c-{n}", group_id, topics=[topic_name], protocol="consumer",
            instance_id=f"pod-{9 - n}" if n % 2 else None,
            settings={"group.remote.assignor": assignor},
        )  # fmt: skip

    running = [start(0)]
    before = settled(kafka41, group_id, 1)
    assert (before.group.type, before.group.assignor) == (GroupType.CONSUMER, assignor)
    for n in range(1, 5):
        running.append(start(n))
        after = settled(kafka41, group_id, n + 1)
        assert targets(after) in foretold(before, after, assignor), f"member {n} joined"
        before = after
    running[2].stop()
    after = settled(kafka41, group_id, 4)
    possible = foretold(before, after, assignor)
    assert targets(after) in possible, "a member left"
    # The same through the what-if that an operator types, on the group as it was before.
    gone = next(m.member_id for m in before.members if m.client_id == "c-2")
    made = simulate(before, assignor, Changes(remove_members=(gone,)))
    assert possible[0] == {
        shift.member_id: {(t, p) for t, numbers in shift.then.items() for p in numbers}
        for shift in made.members
        if shift.change != "leaves"
    }
