"""`--assume`: what a user vouches for fills gaps, and never overrules evidence."""

from __future__ import annotations

from typing import Any

import pytest

from rebal.groups.errors import AssumptionError
from rebal.groups.evidence.assume import apply_assumptions
from rebal.groups.model import GroupSnapshot, Knowledge, Source
from tests.planner.builder import context_of, group_of


def group(*members: dict[str, Any], **more: Any) -> GroupSnapshot:
    return group_of({"members": list(members), **more})


def lists(snapshot: GroupSnapshot) -> list[tuple[str, ...]]:
    return [member.assignors.list for member in snapshot.members]


@pytest.mark.parametrize(
    "text",
    [
        "client-id=a=b:c,d:range,cooperative-sticky",
        "instance-id=pod-1:range,cooperative-sticky",
        "member-id=a-0f0f:range,cooperative-sticky",
        "client-id=a=b:c,d: org.apache.kafka.clients.consumer.RangeAssignor, cooperative-sticky",
    ],
)
def test_a_member_by_each_of_its_ids(text: str) -> None:
    seen = group({"id": "a", "client": "a=b:c,d", "instance": "pod-1"}, {"id": "b"})
    made, said = apply_assumptions(seen, [text])
    assert lists(made) == [("range", "cooperative-sticky"), ()]
    known = made.members[0].assignors
    assert known.knowledge is Knowledge.EXACT
    assert [item.source for item in known.evidence] == [Source.ASSUMED]
    assert made.members[1] == seen.members[1]
    assert len(said) == 1
    assert said[0].endswith("runs [range, cooperative-sticky]")


def test_a_shared_client_id_must_be_meant() -> None:
    seen = group({"id": "a", "client": "svc"}, {"id": "b", "client": "svc"}, {"id": "c"})
    with pytest.raises(AssumptionError, match=r"2 members share.*every-client-id"):
        apply_assumptions(seen, ["client-id=svc:range"])
    made, said = apply_assumptions(seen, ["every-client-id=svc:range"])
    assert lists(made) == [("range",), ("range",), ()]
    assert said == ("every member with client id svc (2) runs [range]",)


def test_what_evidence_shows_is_kept() -> None:
    seen = group({"id": "a", "list": ["range"]})
    assert (
        apply_assumptions(seen, ["client-id=a:range"]) == apply_assumptions(seen, []) == (seen, ())
    )
    with pytest.raises(AssumptionError, match=r"request log shows.*runs \[range\]"):
        apply_assumptions(seen, ["client-id=a:range,cooperative-sticky"])


@pytest.mark.parametrize(
    ("member", "text", "why"),
    [
        ({"lacks": ["cooperative-sticky"]}, "range,cooperative-sticky", "has no coop"),
        ({"at_least": ["range", "sticky"]}, "range", "has sticky: say the whole list"),
        ({}, "roundrobin", "range is elected"),
    ],
)
def test_bounds_are_not_overruled(member: dict[str, Any], text: str, why: str) -> None:
    with pytest.raises(AssumptionError, match=why):
        apply_assumptions(group({"id": "a", **member}), [f"client-id=a:{text}"])


def test_a_member_that_kept_partitions_cannot_have_an_eager_assignor() -> None:
    seen = group({"id": "a", "owned": True}, elected="cooperative-sticky")
    with pytest.raises(AssumptionError, match="kept"):
        apply_assumptions(seen, ["client-id=a:cooperative-sticky,range"])


def test_the_probe_is_not_overruled() -> None:
    seen = group({"id": "a"}, probe={"cooperative-sticky": False}, reloaded=False)
    with pytest.raises(AssumptionError, match="some list lacks cooperative-sticky"):
        apply_assumptions(seen, ["client-id=a:range,cooperative-sticky"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("billing:range", "expected client-id"),
        ("client-id=a", "expected client-id"),
        ("client-id=a:", "expected client-id"),
        ("client-id=a:range,,sticky", "expected client-id"),
        ("client-id=:range", "expected client-id"),
        ("host=a:range", "expected client-id"),
        ("client-id=x:range", "no member has the client id x"),
        ("client-id=a:range,range", "twice"),
        ("client-id=a:cooperative-stick", "cooperative-stick is no assignor"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: str, why: str) -> None:
    with pytest.raises(AssumptionError, match=why) as raised:
        apply_assumptions(group({"id": "a"}), [text])
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith(".")


def test_two_lists_for_one_member() -> None:
    with pytest.raises(AssumptionError, match="keep one of the two"):
        apply_assumptions(
            group({"id": "a"}), ["client-id=a:range", "member-id=a-0f0f:range,sticky"]
        )


def test_a_custom_assignor_that_the_group_runs() -> None:
    seen = group({"id": "a"}, elected="our-own")
    assert lists(apply_assumptions(seen, ["client-id=a:our-own"])[0]) == [("our-own",)]


@pytest.mark.parametrize("more", [{"type": "consumer"}, {"protocol_type": "connect"}])
def test_groups_without_lists(more: dict[str, Any]) -> None:
    with pytest.raises(AssumptionError, match="only members of classic consumer groups"):
        apply_assumptions(group({"id": "a"}, **more), ["client-id=a:range"])


def test_an_assumed_list_answers_the_planner() -> None:
    spec = {"members": [{"id": "a"}]}
    made, _ = apply_assumptions(group_of(spec), ["client-id=a:cooperative-sticky,range"])
    context = context_of(spec)
    assert not context.holding
    assert [facts.name for facts in type(context)(made).holding] == ["a"]
