"""Members that a log shows and that are not in the group now, without those that were replaced."""

from __future__ import annotations

from typing import Any

import pytest

from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import Joined, Left
from rebal.groups.model import Evidence, Source
from tests.groups.observed import COOP, at, group, joined, member


def left(name: str, minute: int) -> Left:
    evidence = Evidence(source=Source.REQUEST_LOG, at=at(minute), detail="LEAVE_GROUP")
    return Left(
        group_id="g", member_id=f"{name}-id", at=at(minute), reason="the consumer is being closed",
        evidence=evidence,
    )  # fmt: skip


def came(name: str, minute: int, client: str = "", host: str = "h1", **fields: Any) -> Joined:
    """A new member."""
    return joined(
        name, "range", minute=minute, client_id=client or name, host=host, new=True, **fields
    )


def gone(*seen: Any, here: tuple[str, ...] = ("a1",), **fields: Any) -> list[str]:
    merged = merge(group(*(member(name, **fields) for name in here)), seen)
    return [one.member_id.removesuffix("-id") for one in merged.departed]


def test_a_member_that_left_is_named_with_its_list_and_when() -> None:
    seen = [came("a1", 1), came("a2", 2), left("a2", 56)]
    (one,) = merge(group(member("a1")), seen).departed
    assert (one.member_id, one.client_id, one.host, one.list) == ("a2-id", "a2", "h1", ("range",))
    assert (one.left, one.left_at, one.last_seen) == (True, at(56), at(56))
    assert one.reason == "the consumer is being closed"


def test_a_member_that_was_killed_is_named_too() -> None:
    merged = merge(group(member("a1")), [came("a1", 1), came("a2", 2)])
    (one,) = merged.departed
    assert (one.left, one.left_at, one.last_seen) == (False, None, at(2))
    assert merge(merged, [came("a2", 2)]).departed == merged.departed


def test_a_member_that_left_keeps_the_classes_of_its_own_log() -> None:
    own = ("com.acme.Own",)
    log = Evidence(source=Source.CLIENT_LOG, at=at(2), detail="a2.log:7")
    wire = joined("a2", "cooperative-sticky", minute=2)
    for names in (("cooperative-sticky",), ()):
        printed = joined("a2", *names, minute=2, evidence=log, classes=own)
        (one,) = merge(group(member("a1")), [printed, wire, left("a2", 5)]).departed
        assert (one.list, one.classes) == (("cooperative-sticky",), own)
    (one,) = merge(group(member("a1")), [printed]).departed
    assert (one.list, one.classes) == ((), own)


def test_a_restart_of_the_same_client_replaces_it() -> None:
    first = [came("old", 1, "pod"), left("old", 5)]
    assert gone(*first, came("new", 6, "pod"), here=("new",)) == []
    # A new pod has another address.
    assert gone(*first, came("new", 6, "pod", "h2"), here=("new",)) == []
    # A surge: the new one is there before the old one stops.
    assert gone(*first, came("new", 4, "pod", "h2"), here=("new",)) == []
    assert gone(*first, came("new", 6, "another"), here=("new",)) == ["old"]


def test_each_new_member_replaces_one() -> None:
    seen = [came("a", 1, "pod", "h1"), came("b", 2, "pod", "h2"), left("a", 5), left("b", 6)]
    assert gone(*seen, came("c", 7, "pod", "h1"), here=("c",)) == ["b"]
    chain = [came("c", 7, "pod", "h1"), left("c", 8), came("d", 9, "pod", "h1")]
    assert gone(*seen, *chain, here=("d",)) == ["b"]


def test_a_member_that_only_rejoins_replaces_nobody() -> None:
    """A leave makes all others rejoin."""
    seen = [came("a", 1, "pod", "h1"), left("a", 5)]
    stayed = joined("b", "range", minute=6, client_id="pod", host="h1")
    assert gone(*seen, stayed, here=("b",)) == ["a"]


@pytest.mark.parametrize(("instance", "expected"), [("i-1", []), ("i-2", ["old"])])
def test_a_static_member_is_known_by_its_instance(instance: str, expected: list[str]) -> None:
    seen = [came("old", 1, "pod", instance_id="i-1")]
    assert gone(*seen, here=("new",), instance_id=instance) == expected


def test_a_member_id_that_was_only_given_was_no_member() -> None:
    assert gone(came("a1", 1), came("x", 2, accepted=False)) == []


def test_the_list_is_of_its_last_join() -> None:
    seen = [came("a2", 2), joined("a2", COOP, minute=9)]
    (one,) = merge(group(member("a1")), seen).departed
    assert one.list == (COOP,)
