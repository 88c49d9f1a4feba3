"""Child processes of the live tests."""

from pathlib import Path

from tests.kafka.processes import ChildProcess


def test_a_process_that_has_ended_hears_nothing(tmp_path: Path) -> None:
    child = ChildProcess("ended", ["true"], tmp_path / "log")
    child.popen.wait(10)
    child.say("stop")
    child.wait(10)
    assert not child.alive
