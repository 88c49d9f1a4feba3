"""The brokers' time from what a look brings with it, where no request tells it."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

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


class Broker:
    """A connection whose answer takes `seconds`; an error is raised."""

    def __init__(self, said: SimpleNamespace | Exception, *, seconds: float = 0) -> None:
        self.said, self.at, self.spent = said, NOW, timedelta(seconds=seconds)

    def any(self, _: object) -> Broker:
        return self

    def send(self, *_: object, **__: object) -> SimpleNamespace:
        self.at += self.spent
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


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
    broker = Broker(said, seconds=seconds)
    monkeypatch.setattr(clock, "now", lambda: broker.at)
    deadline = SimpleNamespace(share=lambda _: None)
    assert ahead_of_brokers(broker, deadline) == ahead  # type: ignore[arg-type]


def test_records_that_are_later_than_their_look_show_a_clock_that_is_behind() -> None:
    made = stable_group()
    assert _noted(made, None, made.captured_at + timedelta(seconds=1)) is made
    seen = _noted(made, made.captured_at + timedelta(minutes=30), None)
    assert (seen.captured_at, seen.clock_compared) == (made.captured_at, False)
    assert seen.notes == (
        "this machine's clock is at least 30 min behind the brokers': the times of looks are its "
        "own",
    )
