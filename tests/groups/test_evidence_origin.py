"""Whose log it is: the group's own, or one of another broker, cluster or time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import LogRead
from rebal.groups.model import Cluster, GroupSnapshot
from tests.groups.observed import MIXED, at, group, joined, member, refused
from tests.groups.stable import NOW

WHERE = {"log": "k.log", "origin": "k"}


def read(**fields: Any) -> LogRead:
    return LogRead(**{**WHERE, "last_at": at(50), "read_at": NOW, **fields})


def shown(*seen: Any, **fields: Any) -> GroupSnapshot:
    return merge(group(member("a"), cluster=Cluster(cluster_id="here"), **fields), seen)


def test_a_log_without_any_member_of_the_group_is_not_used() -> None:
    merged = shown(refused(**WHERE), joined("b", *MIXED, **WHERE), read(last_at=at(0)))
    assert (merged.refusals, merged.departed, merged.unmatched) == ((), (), ())
    (note,) = merged.notes
    assert note.startswith("1 request log of this group shows none of its members")


@pytest.mark.parametrize(
    "proof",
    [
        [joined("a", *MIXED, **WHERE), read()],
        [read(members=frozenset({("g", "a-id")}))],
        [read(kind="client", cluster_ids=("here",))],
        [read(last_at=NOW - timedelta(minutes=1))],
    ],
    ids=["a join", "a heartbeat", "its cluster", "now"],
)
def test_a_log_of_the_group_s_own_tells_of_rejections(proof: list[Any]) -> None:
    merged = shown(refused(**WHERE), *proof)
    assert len(merged.refusals) == 1
    assert not any("not used" in note for note in merged.notes)


@pytest.mark.parametrize(
    "proof",
    [
        [read(kind="client", cluster_ids=("elsewhere",), last_at=NOW)],
        [read(members=frozenset({("other", "a-id")}))],
        # It reaches up to now, and who joined there is not here.
        [joined("b", *MIXED, **WHERE), read(last_at=NOW)],
    ],
    ids=["another cluster", "another group", "strangers"],
)
def test_a_log_of_somewhere_else_does_not(proof: list[Any]) -> None:
    assert shown(refused(**WHERE), *proof).refusals == ()


def test_a_log_of_two_brokers_says_which_one_coordinated_the_group() -> None:
    first = {"log": "k.log", "origin": "k h1:9092"}
    second = {"log": "k.log", "origin": "k h2:9092"}
    merged = shown(
        joined("a", *MIXED, **first),
        refused(**first),
        joined("z", "range", **second),
        refused(client_id="y", **second),
        read(**first, broker="h1:9092"),
        read(**second, broker="h2:9092"),
    )
    assert [one.client_id for one in merged.refusals] == ["x"]
    assert any("h1:9092 coordinated this group, and h2:9092 did not" in n for n in merged.notes)


def test_what_no_log_showed_stays() -> None:
    assert len(shown(refused()).refusals) == 1
