"""Callbacks of KIP-848 members that throw: what they acknowledge, and how they leave."""

from __future__ import annotations

import pytest

from rebal.planner.rehearsal.script import Deed, Event, Scene
from tests.planner.rehearsal.scenes import play, told, with_processes
from tests.planner.rehearsal.test_kip848 import LATE, epochs, kip848


def failing(callback: str, **more: float) -> Scene:
    """Two members; the listener of m1 throws in this callback."""
    return with_processes(kip848(2), "m1", fails_in=(callback,), **more)


@pytest.mark.parametrize("callback", ["revoked", "assigned"])
def test_member_whose_callback_throws_in_a_reconciliation_leaves_at_once(callback: str) -> None:
    run = play(failing(callback), Event(do=Deed.START, processes=(LATE,), at=10.0))
    assert told(run, "callback failed") == [("m1", callback)]
    # close() calls onPartitionsRevoked again; a throw there does not keep back the heartbeat.
    assert told(run, "removed") == []
    assert {member.name: member.owned for member in run.members} == {"m0": 6, "m1": 0, "late": 6}
    # The join of `late`, and the leave of m1.
    assert epochs(run) == [8, 9]
    assert run.measures.longest < 15


def test_stopped_member_leaves_when_its_listener_is_done() -> None:
    stop = Event(do=Deed.STOP, members=("m1",), at=10.0)
    run = play(kip848(2, on_revoked=20.0), stop)
    assert run.rebalances[0].began == pytest.approx(30.0)


def test_member_whose_lost_callback_throws_joins_again_and_leaves() -> None:
    late = Event(do=Deed.BUSY, members=("m1",), seconds=100.0, at=10.0)
    run = play(failing("lost", rebalance=30.0), late)
    assert told(run, "callback failed") == [("m1", "lost")]
    # It left past its poll timeout, joined in its next poll, and left when it was closed.
    assert epochs(run) == [8, 9, 10]
    assert [member.owned for member in run.members] == [12, 0]
    assert told(run, "removed") == []
