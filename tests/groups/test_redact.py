"""A redacted snapshot names nobody and gives the same plan."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.groups.model import (
    AssignorList,
    Group,
    GroupSnapshot,
    Knowledge,
    Member,
    Running,
    WorkerState,
)
from rebal.groups.snapshot.documents import dump_snapshot, load_snapshot
from rebal.groups.snapshot.redact import redact
from tests.groups.stable import stable_group

AT = datetime(2026, 11, 20, 9, 12, tzinfo=UTC)
UUID = "0a1b2c3d-0000-4000-8000-00000000000{}"


SNAPSHOT = load_snapshot((Path(__file__).parents[1] / "data" / "redact.yaml").read_text(), "yaml")
NAMES = (
    *("shop", "pod-", "late", "gone", "ghost", "10.1.2"),
    *("kafka-2", "corp", "secret-host", "fe80"),
)


def test_no_name_is_left_anywhere() -> None:
    text = dump_snapshot(redact(SNAPSHOT))
    assert [name for name in NAMES if name in text] == []
    data = msgspec.json.encode(redact(SNAPSHOT), enc_hook=str)
    assert [name for name in NAMES if name.encode() in data] == []
    for member in redact(SNAPSHOT).members:
        assert member.assignment_user_data == bytes(len(b"secret-host:1"))
        assert member.subscription.user_data == bytes(len(b"secret-host:1"))


def test_ids_keep_their_random_ends_and_evidence_its_lines() -> None:
    """tests/cli/test_redacted_plan.py compares the plans."""
    made = redact(SNAPSHOT)
    for before, after in zip(SNAPSHOT.members, made.members, strict=True):
        assert after.member_id.endswith(before.member_id[-36:])
        assert (after.evidence[0].detail, after.evidence[0].at) == ("file:41 JOIN_GROUP v9", AT)
    assert made.refusals[0].rejoined_as.endswith(UUID.format(8))
    assert made.refusals[0].connection == ""
    assert made.departed[0].member_id.startswith("member-")
    assert made.departed[0].member_id.endswith(UUID.format(7))
    assert made.contradictions[0].member_id == made.members[0].member_id
    assert made.contradictions[0].what == f"{made.members[0].client_id} changed"


def test_a_client_called_like_a_class_or_an_assignor_does_not_change_the_list() -> None:
    known = AssignorList(
        knowledge=Knowledge.EXACT, list=("zone",), classes=("com.acme.ZoneAssignor",)
    )
    one = Member(
        member_id=f"acme-{UUID.format(9)}", client_id="acme", assignors=known,
        subscribed_topics=("acme",),
    )  # fmt: skip
    made = redact(replace(SNAPSHOT, members=(one,))).members[0]
    assert (made.assignors.classes, made.subscribed_topics) == (known.classes, ("acme",))
    assert made.client_id != "acme"
    assert redact(SNAPSHOT).members[2].client_id.startswith("id-")
    assert redact(SNAPSHOT).members[2].assignors.list == ("range",)


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_sticky_user_data_stays_for_the_simulation(assignor: str) -> None:
    group = replace(SNAPSHOT.group, assignor=assignor)
    made = redact(replace(SNAPSHOT, group=group))
    assert made.members[0].subscription == SNAPSHOT.members[0].subscription


def test_a_redacted_worker_has_no_address() -> None:
    running = (Running("orders-sink", itself=True, tasks=(0, 2)), Running("audit", tasks=(1,)))
    worker = WorkerState(url="http://connect-7.example.org:8083/", running=running)
    assert (worker.connectors, worker.tasks) == (1, 3)
    member = Member(member_id="w-1", client_id="w", worker=worker)
    made = redact(stable_group(member, protocol_type="connect"))
    assert made.members[0].worker == WorkerState(url="", running=running)
    assert "example" not in dump_snapshot(made, "json")


ids = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)


@given(
    st.lists(
        st.tuples(ids, st.none() | ids.filter(bool), st.uuids()),
        max_size=6,
        unique_by=lambda p: p[2],
    )
)
def test_order_and_equality_are_kept(people: list[tuple[str, str | None, object]]) -> None:
    before = [
        Member(member_id=f"{instance or client}-{uuid}", client_id=client, instance_id=instance)
        for client, instance, uuid in people
    ]
    group = GroupSnapshot(group=Group(group_id="g"), captured_at=AT, members=tuple(before))
    after = redact(group).members

    def java(text: str | None) -> tuple[bool, bytes]:
        # None and "" are two values: only with a place of each do ranks tell them apart.
        return text is not None, (text or "").encode("utf-16-be")

    def ranks(values: list[str | None]) -> list[int]:
        order = sorted(set(values), key=java)
        return [order.index(value) for value in values]

    for field in ("member_id", "client_id", "instance_id"):
        assert ranks([getattr(m, field) for m in before]) == ranks(
            [getattr(m, field) for m in after]
        )
    both = [m.client_id for m in before] + [m.instance_id for m in before]
    both_after = [m.client_id for m in after] + [m.instance_id for m in after]
    assert ranks(both) == ranks(both_after)
    assert redact(redact(group)) == redact(group)
