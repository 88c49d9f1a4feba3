"""The difference of two snapshots: identity first, then only what both sides know."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from rebal.groups.compact import NO_LAG, Lag, Lags, Partitions
from rebal.groups.model import AssignorList, GroupSnapshot, GroupState, Knowledge, Member, Topic
from rebal.planner.difference import Changed, MemberEvent, difference, environment
from tests.planner.builder import group_of

GROUP = {
    "members": [
        {"id": name, "list": ["range"], "host": f"/10.0.0.{number}"}
        for number, name in enumerate("abc")
    ]
}


@pytest.fixture
def seen() -> GroupSnapshot:
    return group_of(GROUP)


def with_members(snapshot: GroupSnapshot, *members: Member) -> GroupSnapshot:
    return replace(snapshot, members=members)


def test_equal_groups_do_not_differ_whatever_the_time_and_the_lag(seen: GroupSnapshot) -> None:
    later = replace(
        seen,
        captured_at=seen.captured_at + timedelta(days=1),
        lag=Lags([Lag(topic="orders", partition=0, committed=1, end=9)]),
    )
    found = difference(replace(seen, lag=NO_LAG), later)
    assert not found.found
    assert found.unchanged == 3


def test_static_member_is_recognised_by_its_instance_id_on_another_host(
    seen: GroupSnapshot,
) -> None:
    a = replace(seen.members[0], instance_id="pod-a")
    b = replace(seen.members[1], instance_id="pod-b")
    moved = replace(a, member_id="a-2", client_id="b", host=b.host)
    found = difference(with_members(seen, a, b), with_members(seen, moved, b))
    (one,) = found.members
    assert (one.event, one.was, one.now) == (MemberEvent.RESTARTED, "a-0f0f", "a-2")
    assert [change.what for change in one.changes] == ["client id", "host"]


def test_members_that_share_client_id_and_host_are_not_paired_by_chance(
    seen: GroupSnapshot,
) -> None:
    lists = [AssignorList(knowledge=Knowledge.EXACT, list=(n,)) for n in ("range", "roundrobin")]
    twins = [
        replace(seen.members[0], member_id=f"x-{n}", assignors=names)
        for n, names in enumerate(lists)
    ]
    again = [replace(twin, member_id=f"{twin.member_id}-new") for twin in twins]
    events = [one.event for one in difference(
        with_members(seen, *twins), with_members(seen, *again)
    ).members]  # fmt: skip
    assert events == [MemberEvent.CAME] * 2 + [MemberEvent.LEFT] * 2


def test_list_that_one_side_does_not_know_is_not_compared(seen: GroupSnapshot) -> None:
    unknown = [replace(member, assignors=AssignorList()) for member in seen.members]
    found = difference(seen, with_members(seen, *unknown))
    assert not found.found
    assert found.not_compared == 3


def test_owned_partitions_are_compared_in_stable_alone(seen: GroupSnapshot) -> None:
    bare = [replace(member, assignment={}) for member in seen.members]
    stable = difference(seen, with_members(seen, *bare))
    assert [change.what for one in stable.members for change in one.changes] == [
        "owned partitions"
    ] * 3
    moving = with_members(seen, *bare)
    moving = replace(
        moving, group=replace(moving.group, state=GroupState.PREPARING_REBALANCE, assignor=None)
    )
    found = difference(seen, moving)
    assert found.members == ()
    assert [change.what for change in found.group] == ["state"]


def test_another_order_of_the_same_owned_partitions_is_no_difference(seen: GroupSnapshot) -> None:
    turned = [
        replace(m, assignment={t: Partitions(reversed([*n])) for t, n in m.assignment.items()})
        for m in seen.members
    ]
    assert any(len(n) > 1 for m in turned for n in m.assignment.values())
    assert not difference(seen, with_members(seen, *turned)).found


def test_group_topics_and_brokers_are_compared(seen: GroupSnapshot) -> None:
    before = replace(
        seen,
        topics=(Topic(name="orders", partitions=12), Topic(name="old", partitions=1)),
        cluster=replace(seen.cluster, version="3.9", settings={"group.max.size": "10", "a": "1"}),
    )
    after = replace(
        seen,
        group=replace(seen.group, assignor="roundrobin"),
        topics=(Topic(name="orders", partitions=24), Topic(name="new", partitions=2)),
        cluster=replace(seen.cluster, version="4.1", settings={"group.max.size": "20", "b": "1"}),
    )
    found = difference(before, after)
    assert Changed(what="assignor", before="range", after="roundrobin") in found.group
    assert list(environment(before, after)) == list(found.environment)
    assert set(found.environment) == {
        Changed(what="partitions", subject="orders", before="12", after="24"),
        Changed(what="partitions", subject="new", after="2"),
        Changed(what="partitions", subject="old", before="1"),
        Changed(what="version", before="3.9", after="4.1"),
        Changed(what="group.max.size", before="10", after="20"),
    }


def test_what_the_coordinator_holds_is_compared_and_whom_it_rejected() -> None:
    """The members are the same, and a restart that was admitted before would be rejected now."""
    before = group_of({**GROUP, "reloaded": False, "probe": {"range": True, "sticky": None}})
    again = {"client": "d", "list": ["sticky"], "at": 1}
    news = {"reloaded": True, "probe": {"range": False, "sticky": False}}
    after = group_of({**GROUP, **news, "refusals": [again, again, {**again, "at": -1}]})
    coordinator = after.group.coordinator
    after = replace(after, captured_at=after.captured_at + timedelta(minutes=2))
    assert difference(before, after).group == (
        Changed(what="rebalanced since the coordinator's load", before="yes", after="no"),
        Changed(what="probe: every list holds range", before="yes", after="no"),
        Changed(what="rejected since", after="d [sticky]"),
    )
    epochs = [
        replace(after, group=replace(after.group, coordinator=replace(coordinator, leader_epoch=n)))
        for n in (5, 7)
    ]
    (load,) = difference(*epochs).group
    assert (load.before, load.after) == ("5", "7")


def test_racks_and_bounds_of_lists_are_compared() -> None:
    def seen(**member: object) -> GroupSnapshot:
        return group_of({"members": [{"id": "a", **member}]})

    def changes(was: GroupSnapshot, now: GroupSnapshot) -> dict[str, tuple[str | None, str | None]]:
        found = difference(was, now).members
        return {one.what: (one.before, one.after) for each in found for one in each.changes}

    moved = changes(seen(list=["range"], rack="a"), seen(list=["range"], rack="b"))
    assert moved == {"rack": ("a", "b")}
    bounds = changes(
        seen(at_least=["range"], lacks=["cooperative-sticky"]),
        seen(at_least=["range", "cooperative-sticky"]),
    )
    assert bounds == {"list holds cooperative-sticky": ("no", "yes")}
    probed = seen(at_least=["range"], lacks=["cooperative-sticky"])
    assert changes(seen(at_least=["range"]), probed) == {}, "one look had a probe"
    assert changes(probed, seen(at_least=["range"])) == {}
    assert changes(seen(at_least=["range"]), seen(list=["range"])) == {}
