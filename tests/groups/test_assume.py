"""`--assume`: what a user vouches for fills gaps, and never overrules evidence."""

from __future__ import annotations

from typing import Any

import pytest

from rebal.groups.errors import AssumptionError
from rebal.groups.evidence.bounds import apply_assumptions
from rebal.groups.model import GroupSnapshot, Knowledge, Source
from tests.planner.builder import group_of
from tests.tables import table


def group(*members: dict[str, Any], **more: Any) -> GroupSnapshot:
    return group_of({"members": list(members), **more})


def lists(snapshot: GroupSnapshot) -> list[tuple[str, ...]]:
    return [member.assignors.list for member in snapshot.members]


@pytest.mark.parametrize("text", table("assume", "ids"))
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


def test_a_shared_client_id_may_be_meant() -> None:
    seen = group({"id": "a", "client": "svc"}, {"id": "b", "client": "svc"}, {"id": "c"})
    made, said = apply_assumptions(seen, ["every-client-id=svc:range"])
    assert lists(made) == [("range",), ("range",), ()]
    assert said == ("every member with client id svc (2) runs [range]",)


def test_what_evidence_shows_is_kept() -> None:
    seen = group({"id": "a", "list": ["range"]})
    assert (
        apply_assumptions(seen, ["client-id=a:range"]) == apply_assumptions(seen, []) == (seen, ())
    )


@pytest.mark.parametrize(("spec", "texts", "why"), table("assume", "contradicted"))
def test_what_the_group_shows_is_not_overruled(spec: dict[str, Any], texts: str, why: str) -> None:
    with pytest.raises(AssumptionError, match=why):
        apply_assumptions(group_of(spec), [f"client-id={text}" for text in texts.split()])


@pytest.mark.parametrize(("text", "why"), table("assume", "unreadable"))
def test_what_cannot_be_read_is_one_sentence(text: str, why: str) -> None:
    with pytest.raises(AssumptionError, match=why) as raised:
        apply_assumptions(group({"id": "a"}), [text])
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith(".")


def test_a_custom_assignor_that_the_group_runs() -> None:
    seen = group({"id": "a"}, elected="our-own")
    assert lists(apply_assumptions(seen, ["client-id=a:our-own"])[0]) == [("our-own",)]
