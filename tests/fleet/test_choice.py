"""Groups with news go on from their state exactly where their new rows follow on it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.inspectors.fleet.increments import (
    ABOUT,
    NEWS,
    GroupChoice,
    choose,
    decoded,
    encoded,
    summed,
    told_until,
)
from rebal.inspectors.fleet.timeline.facts import DISORDER
from rebal.inspectors.fleet.timeline.group import FORM
from tests.examples import examples


def told(offset: int | None, until: int = 100, latest: int = 100, **more: Any) -> pa.Table:
    row = {"group_id": "g", "form": FORM, "partition": 3, "offset": offset, "told_until": until}
    row |= {"latest": latest, "recorded": True, "unnamed": [], **more}
    return pa.Table.from_pylist([row], ABOUT)


def records(first: int, last: int, since: int = 100, until: int | None = None) -> dict[str, Any]:
    until = since + 10 if until is None else until
    row = {"group_id": "g", "kind": "records", "partition": 3, "offset": first}
    return row | {"last_offset": last, "at": since, "until": until, "ordered": True}


def requests(at: int | None) -> dict[str, Any]:
    return {"group_id": "g", "kind": "requests", "at": at, "until": at, "ordered": True}


def news(*rows: dict[str, Any]) -> pa.Table:
    return summed([pa.Table.from_pylist(list(rows), NEWS)])


def chosen(one: dict[str, Any], states: pa.Table, *words: Any) -> GroupChoice:
    return choose(news(one), states, *words or (None, ()))


def goes_on(choice: GroupChoice) -> bool:
    assert choice.groups.to_pylist() == ["g"]
    going = choice.go_on.to_pylist()
    assert going in ([], ["g"])
    assert choice.anew.to_pylist() == ([] if going else ["g"])
    return bool(going)


@pytest.mark.parametrize(
    ("one", "state", "words", "on"),
    [
        pytest.param(records(42, 43), told(41), (), True, id="records that follow"),
        pytest.param(records(1, 1), told(0), (), True, id="the second record"),
        pytest.param(records(0, 0), told(None), (), True, id="the first one"),
        pytest.param(records(41, 42), told(41), (), False, id="told already"),
        pytest.param(records(42, 43), told(41, form="another"), (), False, id="another form"),
        pytest.param(records(42, 43), told(41, form=None), (), False, id="no state"),
        pytest.param(records(42, 43), told(41, recorded=False), (), False, id="lines alone"),
        pytest.param(records(42, 43), told(41, partition=4), (), False, id="another partition"),
        pytest.param(records(42, 43, since=99), told(41), (), False, id="an earlier time"),
        pytest.param(records(42, 43, 150), told(41, latest=160), (), False, id="a clock was ahead"),
        pytest.param(records(42, 43, 160), told(41, latest=160), (), True, id="it no longer is"),
        pytest.param(records(42, 43), told(41), ((100, 105), ()), False, id="time not believed"),
        pytest.param(records(42, 43), told(41), ((100, 110), ()), True, id="time believed"),
        pytest.param(requests(None), told(41), (), True, id="a line without a time"),
        pytest.param(requests(101 + DISORDER), told(41), (), True, id="later lines"),
        pytest.param(requests(100 + DISORDER), told(41), (), False, id="earlier lines"),
    ],
)
def test_a_group_goes_on_from_its_state_where_its_news_follow_on_it(
    one: dict[str, Any], state: pa.Table, words: tuple[Any, ...], on: bool
) -> None:
    """Else it is told anew: which times are believed, the new ones decide."""
    assert goes_on(chosen(one, state, *words)) is on


def test_a_group_is_told_anew_when_a_topic_of_it_gets_a_name() -> None:
    choice = choose(news(), told(41, unnamed=["x", "y"]), None, ["y"])
    assert not goes_on(choice)
    assert choice.recorded.to_pylist() == ["g"]
    assert not choose(news(), told(41, unnamed=["x"]), None, ["y"]).groups


def test_a_group_without_a_state_is_told_from_its_new_rows() -> None:
    choice = chosen(records(5, 9), ABOUT.empty_table())
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
