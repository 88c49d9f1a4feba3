"""Rejections: each of its own client, resolved when that client joined since."""

from __future__ import annotations

from typing import Any

import pytest

from rebal.groups.evidence.absent import MOST_REFUSALS
from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import Refused
from rebal.groups.model import Evidence, Refusal, Source
from rebal.planner.admission.rejected import still_out
from tests.groups.observed import COOP, JAVA, at, group, joined, member


def refused(line: int = 1, **fields: Any) -> Refused:
    evidence = Evidence(source=Source.REQUEST_LOG, at=at(line), detail=f"k.log:{line}")
    return Refused(
        **{
            "group_id": "g", "client_id": "pod", "host": "h1", "list": (COOP,), "at": at(line),
            "line": line, "software": JAVA, "evidence": evidence, **fields,
        }
    )  # fmt: skip


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
    assert resolved(refused(host="", connection="c"), rejoin(connection="c")).rejoined_as


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
    assert merge(after, [refused()]).refusals == after.refusals
    joined_at = group(member("pod", host="/h1", joined_at=at(9), first_joined_at=at(9)))
    assert merge(joined_at, [refused()]).refusals[0].rejoined_as == "pod-id"


def test_one_client_that_retries_does_not_hide_the_others() -> None:
    many = [refused(n, host="h0", connection="c0") for n in range(1, 3 * MOST_REFUSALS)]
    merged = merge(group(member("a")), [refused(0, host="h9"), *many])
    assert {one.host for one in merged.refusals} == {"h0", "h9"}
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
