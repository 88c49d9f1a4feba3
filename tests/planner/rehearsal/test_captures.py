"""The engine beside captured groups: the same deeds give the same generations and partitions."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from rebal.groups.model import RebalanceProtocol
from rebal.planner.rehearsal.engine.coordinator import ClassicTable
from rebal.planner.rehearsal.engine.memory import Error
from tests.planner.captured import BUNDLED, FOLDER
from tests.planner.rehearsal.captures.capture import read
from tests.planner.rehearsal.captures.replay import Comparison, replay, settled, stories

KINDS = {"state", "assignor", "leader", "members", "partitions", "rejections", "starts"}


def compare(folder: Path, seed: int = 0, *, only: tuple[str, ...] = ()) -> Comparison:
    """Replay the groups of a capture, or those that are named."""
    capture, all_ = read(folder), Comparison()
    for story in stories(capture):
        if not only or story.group.name in only:
            all_.take(replay(story, capture, seed))
    return all_


compared = cache(compare)


def test_replay_of_captured_groups_equals_the_capture(capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(FOLDER)
    with capsys.disabled():
        print(f"\n{found}")
    assert {*found.expected} >= KINDS
    assert found.share >= 0.99, found


def test_replay_of_the_captured_timeouts_equals_the_capture() -> None:
    assert compared(BUNDLED.with_name("captures_timeouts")).differences == []


def test_each_difference_from_the_bundled_capture_has_a_reason() -> None:
    unexplained = [str(one) for one in compared(BUNDLED).differences if not one.reason]
    assert unexplained == []


def test_replay_does_not_depend_on_the_seed() -> None:
    shares = {seed: compared(BUNDLED, seed).share for seed in range(1, 4)}
    assert min(shares.values()) >= 0.99, shares


def test_each_group_of_the_bundled_capture_is_compared_at_several_points() -> None:
    points = {story.group.name: len(settled(story)) for story in stories(read(BUNDLED))}
    assert len(points) == 15
    assert min(points.values()) >= 3


def test_replay_notices_a_coordinator_that_rejects_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicTable, "admits", lambda *_: True)
    found = compare(BUNDLED, only=("checkout", "pyapp"))
    missed = [one for one in found.differences if one.kind == "rejections"]
    assert len(missed) >= 5
    assert all(one.capture == [Error.INCONSISTENT_GROUP_PROTOCOL.name] for one in missed)


def test_replay_notices_members_with_an_eager_protocol_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "rebal.planner.rehearsal.engine.consumer.fixed_protocol", lambda *_: RebalanceProtocol.EAGER
    )
    found = compare(BUNDLED, only=("billing",))
    assert {one.kind for one in found.differences} >= {"rebalances"}
