"""The brokers' time from what a look brings with it, where no request tells it."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from rebal.inspectors import clock
from rebal.inspectors.errors import RequestError
from rebal.inspectors.kafka.session import ahead_of_brokers
from rebal.inspectors.kafka.snapshots import _noted
from tests.groups.stable import NOW, stable_group


def answer(at: datetime, error: int = 0, leader: int = 1) -> SimpleNamespace:
    voters = [
        SimpleNamespace(replica_id=n, last_caught_up_timestamp=round(at.timestamp() * 1000) - n + 1)
        for n in (1, 2)
    ]
    part = SimpleNamespace(leader_id=leader, current_voters=voters)
    return SimpleNamespace(error_code=error, topics=[SimpleNamespace(partitions=[part])])


@pytest.mark.parametrize(
    ("said", "seconds", "ahead"),
    [
        (answer(NOW - timedelta(hours=1)), 0.2, timedelta(hours=1, seconds=0.1)),
        (answer(NOW + timedelta(hours=1)), 0, timedelta(hours=-1)),
        (answer(NOW + timedelta(seconds=1)), 0, timedelta()),
        (answer(NOW - timedelta(seconds=5)), 20, timedelta()),
        (answer(NOW - timedelta(hours=1), error=31), 0, None),
        (answer(NOW - timedelta(hours=1), leader=3), 0, None),
        (RequestError("TIMED_OUT", "no answer"), 0, None),
    ],
    ids=["ahead", "behind", "not material", "a slow answer", "no right", "no leader", "no answer"],
)
def test_the_offset_is_that_of_the_leaders_present_time(
    said: Any, seconds: float, ahead: timedelta | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "now", Mock(side_effect=[NOW, NOW + timedelta(seconds=seconds)]))
    raw = Mock()
    raw.any().send.side_effect = [said]
    assert ahead_of_brokers(raw, Mock()) == ahead


def test_records_that_are_later_than_their_look_show_a_clock_that_is_behind() -> None:
    made = stable_group()
    assert _noted(made, None, made.captured_at + timedelta(seconds=1)) is made
    seen = _noted(made, made.captured_at + timedelta(minutes=30), None)
    assert (seen.captured_at, seen.clock_compared) == (made.captured_at, False)
    assert seen.notes == (
        "this machine's clock is at least 30 min behind the brokers': the times of looks are its "
        "own",
    )
