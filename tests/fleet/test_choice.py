"""Groups with news go on from their state exactly where their new rows follow on it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.inspectors.fleet.increments.choice import (
    NEWS,
    Choice,
    choose,
    decoded,
    encoded,
    summed,
    told_until,
)
from rebal.inspectors.fleet.schemas import SCAN, STATES
from rebal.inspectors.fleet.timeline.clock import DISORDER
from rebal.inspectors.fleet.timeline.timeline import FORM
from tests.examples import examples

STATE_COLUMNS = pa.schema([one for one in STATES if one.name != "state"]).append(SCAN)


def told(offset: int | None, until: int = 100, latest: int = 100, **more: Any) -> pa.Table:
    row = {"group_id": "g", "form": FORM, "partition": 3, "offset": offset, "told_until": until}
    row |= {"latest": latest, "recorded": True, "unnamed": [], "scan_id": 7, **more}
    return pa.Table.from_pylist([row], STATE_COLUMNS)


def records(first: int, last: int, since: int = 100, until: int | None = None) -> dict[str, Any]:
    until = since + 10 if until is None else until
    row = {"group_id": "g", "kind": "records", "partition": 3, "offset": first}
    return row | {"last_offset": last, "at": since, "until": until, "ordered": True}


def requests(at: int | None) -> dict[str, Any]:
    return {"group_id": "g", "kind": "requests", "at": at, "until": at, "ordered": True}


def news(*rows: dict[str, Any]) -> pa.Table:
    return summed([pa.Table.from_pylist(list(rows), NEWS)])


def chosen(one: dict[str, Any], states: pa.Table, *words: Any) -> Choice:
    return choose(news(one), states, *words or (None, ()))


def goes_on(choice: Choice) -> bool:
    assert choice.groups.to_pylist() == ["g"]
    going = choice.go_on.to_pylist()
    assert going in ([], [{"group_id": "g", "scan_id": 7}])
    assert choice.anew.to_pylist() == ([] if going else ["g"])
    return bool(going)


@pytest.mark.parametrize("offset", [0, 1, 41])
def test_records_that_follow_go_on_and_those_that_were_told_already_are_told_anew(
    offset: int,
) -> None:
    assert goes_on(chosen(records(offset + 1, offset + 1), told(offset)))
    assert goes_on(chosen(records(0, 0), told(None)))
    assert not goes_on(chosen(records(offset, offset + 1), told(offset)))


@pytest.mark.parametrize(
    "state", [{"form": "another"}, {"form": None}, {"recorded": False}, {"partition": 4}]
)
def test_a_state_that_the_records_do_not_follow_is_not_gone_on_from(state: dict[str, Any]) -> None:
    assert not goes_on(chosen(records(42, 43), told(41, **state)))


def test_records_of_an_earlier_time_are_told_anew() -> None:
    """A clock was ahead for a moment: which times are believed, the new ones decide."""
    assert not goes_on(chosen(records(42, 43, since=99), told(41)))
    assert not goes_on(chosen(records(42, 43, since=150), told(41, latest=160)))
    assert goes_on(chosen(records(42, 43, since=160), told(41, latest=160)))


def test_a_time_that_is_not_believed_has_the_group_told_anew() -> None:
    assert not goes_on(chosen(records(42, 43), told(41), (100, 105), ()))
    assert goes_on(chosen(records(42, 43), told(41), (100, 110), ()))


def test_requests_after_what_was_told_go_on_and_earlier_ones_are_told_anew() -> None:
    assert goes_on(chosen(requests(None), told(41)))
    assert goes_on(chosen(requests(101 + DISORDER), told(41)))
    assert not goes_on(chosen(requests(100 + DISORDER), told(41)))


def test_a_group_is_told_anew_when_a_topic_of_it_gets_a_name() -> None:
    choice = choose(news(), told(41, unnamed=["x", "y"]), None, ["y"])
    assert not goes_on(choice)
    assert choice.recorded.to_pylist() == ["g"]
    assert not choose(news(), told(41, unnamed=["x"]), None, ["y"]).groups


def test_a_group_without_a_state_is_told_from_its_new_rows() -> None:
    choice = chosen(records(5, 9), STATE_COLUMNS.empty_table())
    assert choice.groups.to_pylist() == ["g"]
    assert not choice.go_on
    assert not choice.anew


def test_what_was_read_is_whole_up_to_the_end_of_the_shorter_source() -> None:
    assert told_until(news(records(1, 2, 0, 90), requests(70))) == 70 - 2 * DISORDER
    assert told_until(news(records(1, 2, 0, 90))) is None


@examples(100)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.data())
def test_news_of_runs_in_any_order_and_of_any_tasks_are_those_of_all_records(
    times: list[int], data: st.DataObject
) -> None:
    """Runs of a partition follow each other exactly where times follow the offsets."""
    rows = [records(n, n, at, at) for n, at in enumerate(times)]
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    parts = [one for part in (shuffled[:cut], shuffled[cut:]) for one in encoded(news(*part))]
    (found,) = decoded(parts).to_pylist()
    assert (found["offset"], found["last_offset"]) == (0, len(times) - 1)
    assert not found["ordered"] or times == sorted(times)
    (whole,) = news(*shuffled).to_pylist()
    assert whole == {**found, "ordered": times == sorted(times)}
