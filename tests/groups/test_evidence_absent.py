"""Clients that logs show and that are not in the group: rejected, or departed.

A rejection is of its own client, and resolved when that client joined since. A member that was
replaced has not departed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.evidence.absent import MOST_REFUSALS
from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import Joined, Left, Refused
from rebal.groups.model import Evidence, Refusal, Source
from rebal.planner.admission.check import still_out
from tests.groups import observed
from tests.groups.observed import COOP, JAVA, at, group, joined, member

OWN = Evidence(source=Source.CLIENT_LOG)


def refused(line: int = 1, **fields: Any) -> Refused:
    usual = {"client_id": "pod", "host": "h1", "list": (COOP,), "line": line, "software": JAVA}
    return observed.refused(line, **{**usual, **fields})


def rejoin(minute: int = 9, **fields: Any) -> Any:
    return joined(
        "pod", COOP, "range", minute=minute, line=minute,
        **{"host": "h1", "software": JAVA, "new": True, **fields},
    )  # fmt: skip


def test_clients_of_one_client_id_are_rejected_each_on_its_own() -> None:
    seen = [refused(n, host=f"h{n}", connection=f"b:1-h{n}:2-{n}") for n in range(1, 6)]
    merged = merge(group(member("pod", host="/h9")), seen)
    assert [one.host for one in merged.refusals] == ["h1", "h2", "h3", "h4", "h5"]
    assert all(one.times == 1 and one.rejoined_as is None for one in merged.refusals)
    assert merged.refusals[0].connection == "b:1-h1:2-1"


def resolved(seen: Refused, later: Any) -> Refusal:
    (one,) = merge(group(member("a")), [seen, later]).refusals
    return one


def test_a_client_that_joined_since_resolves_its_own_rejection() -> None:
    one = resolved(refused(), rejoin())
    assert (one.rejoined_as, one.rejoined_at) == ("pod-id", at(9))
    assert resolved(refused(instance_id="i"), rejoin(instance_id="i", host="h2")).rejoined_as
    assert resolved(refused(host="", connection="c"), rejoin(connection="c", new=False)).rejoined_as


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({}, {"host": "h2"}),
        ({}, {"client_id": "other"}),
        ({}, {"minute": 0}),
        ({}, {"accepted": False}),
        ({}, {"instance_id": "i"}),
        ({"instance_id": "i"}, {"instance_id": "j"}),
        ({"host": ""}, {"host": ""}),
        ({"at": None}, {}),
        ({"log": "x", "evidence": OWN}, {"at": at(1) + timedelta(seconds=3)}),
    ],
)
def test_another_client_s_join_does_not(first: dict[str, Any], later: dict[str, Any]) -> None:
    assert resolved(refused(**first), rejoin(**later)).rejoined_as is None


@pytest.mark.parametrize(("here", "back"), [("a", True), ("pod", False)])
def test_a_log_without_addresses_shows_the_client_s_return_where_no_other_has_its_name(
    here: str, back: bool
) -> None:
    seen = [refused(host="", log="pod.log"), rejoin(host="", log="pod.log")]
    (one,) = merge(group(member(here)), seen).refusals
    assert (one.rejoined_as is not None) is back


def test_a_static_client_s_own_log_orders_its_join_that_a_broker_dates_too() -> None:
    first = refused(instance_id="i", host="", log="i.log", evidence=OWN)
    own, broker = (
        rejoin(instance_id="i", at=first.at + timedelta(seconds=3), **more)
        for more in ({"host": "", "log": "i.log", "evidence": OWN}, {"log": "request.log"})
    )
    (one,) = merge(group(member("a")), [first, own, broker]).refusals
    assert one.rejoined_as == "pod-id"
    (one,) = merge(group(member("a")), [first, broker]).refusals
    assert one.rejoined_as is None


@pytest.mark.parametrize("known", [[], [joined("pod", COOP, minute=0, host="h1", new=True)]])
def test_an_older_member_of_the_same_name_that_rejoins_is_not_the_rejected_client(
    known: list[Any],
) -> None:
    """Two processes share client id and address; the one that lives rejoins at each rebalance."""
    seen = [*known, refused(), rejoin(new=False)]
    merged = merge(group(member("pod", host="/h1")), seen)
    assert [one.rejoined_as for one in merged.refusals] == [None]
    assert [one.client_id for one in still_out(merged)] == ["pod"]


def test_lines_of_one_log_are_in_order_whatever_its_clock() -> None:
    first, later = refused(at=None, log="k.log"), rejoin(at=None, log="k.log")
    one = resolved(first, later)
    assert (one.rejoined_as, one.rejoined_at) == ("pod-id", None)
    assert resolved(refused(99, at=None, log="k.log"), later).rejoined_as is None


def test_a_known_rejection_is_resolved_by_what_is_seen_later() -> None:
    before = merge(group(member("pod", host="/h1")), [refused()])
    assert before.refusals[0].rejoined_as is None
    after = merge(before, [rejoin()])
    assert [one.rejoined_as for one in after.refusals] == ["pod-id"]
    # Read again, it is the same one.
    assert merge(replace(after, members=()), [refused()]).refusals == after.refusals
    joined_at = group(member("pod", host="/h1", joined_at=at(9), first_joined_at=at(9)))
    (one,) = merge(joined_at, [refused()]).refusals
    assert (one.rejoined_as, one.rejoined_at) == ("pod-id", at(9))


def test_one_client_that_retries_does_not_hide_the_others() -> None:
    many = [refused(n, host="h0", connection="c0") for n in range(1, 3 * MOST_REFUSALS)]
    others = [refused(0, host=f"g{n}") for n in range(MOST_REFUSALS - 1)]
    merged = merge(group(member("a")), [*others, *many])
    assert len(merged.refusals) == MOST_REFUSALS
    assert {one.host for one in merged.refusals} == {"h0", *(one.host for one in others)}
    assert merged.refusals[-1].at == at(3 * MOST_REFUSALS - 1)


def test_a_rejection_that_two_logs_show_is_one() -> None:
    own = [
        refused(n, host="", evidence=Evidence(source=Source.CLIENT_LOG, at=at(n), detail=str(n)))
        for n in (1, 2)
    ]
    by_broker = refused(1, connection="c1")
    merged = merge(group(member("a")), [*own, by_broker])
    assert [(one.at, one.host) for one in merged.refusals] == [(at(1), "h1"), (at(2), "")]
    assert merge(merged, [*own, by_broker]).refusals == merged.refusals


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
