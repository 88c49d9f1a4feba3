"""Groups with news go on from their state exactly where their new rows follow on it."""

from __future__ import annotations

import pytest

from rebal.inspectors.fleet.news import Choice, News, Series, State, choose


def told(offset: int | None, until: int = 100, latest: int = 100) -> State:
    return State(
        scan_id=7,
        usable=True,
        partition=3,
        offset=offset,
        told_until=until,
        latest=latest,
        recorded=True,
        unnamed=frozenset(),
    )


def chosen(one: Series, states: dict[str, State]) -> Choice:
    news = News()
    news.add(one)
    return choose(news, states, None, ())


def records(first: int, last: int, since: int = 100) -> Series:
    return Series("g", 3, first, last, since, since + 10)


@pytest.mark.parametrize("offset", [0, 1, 41])
def test_records_that_were_told_already_are_told_anew(offset: int) -> None:
    news = chosen(records(offset, offset + 1), {"g": told(offset)})
    assert news.anew == {"g"}
    assert not news.go_on


@pytest.mark.parametrize("offset", [None, 0, 41])
def test_records_that_follow_go_on_from_the_state(offset: int | None) -> None:
    first = 0 if offset is None else offset + 1
    news = chosen(records(first, first), {"g": told(offset)})
    assert news.go_on == {"g": 7}
    assert not news.anew


def test_records_of_an_earlier_time_are_told_anew() -> None:
    news = chosen(records(42, 43, since=99), {"g": told(41)})
    assert news.anew == {"g"}


def test_records_before_the_latest_time_that_was_read_are_told_anew() -> None:
    """A clock was ahead for a moment: which times are believed, the new ones decide."""
    news = chosen(records(42, 43, since=150), {"g": told(41, latest=160)})
    assert news.anew == {"g"}
    news = chosen(records(42, 43, since=160), {"g": told(41, latest=160)})
    assert news.go_on == {"g": 7}


def test_a_group_without_a_state_is_told_from_its_new_rows() -> None:
    news = chosen(records(5, 9), {})
    assert news.groups == {"g"}
    assert not news.go_on
    assert not news.anew
