"""Hostile runs (tests/hostile): option values, files, environment, broker answers."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rebal.cli import app
from rebal.inspectors.kafka.wire import Deadline
from tests.hostile.ground import SECRET
from tests.hostile.runs import MOST_KILOBYTES, MOST_SECONDS, Range, Run, draw


@pytest.fixture(scope="module")
def hostile_range(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        made = Range(folder)
        yield made
        made.close()


@pytest.mark.parametrize(
    "runs", [100, pytest.param(100_000, marks=[pytest.mark.full, pytest.mark.timeout(14_400)])]
)
def test_a_hostile_run_ends_with_a_sentence_without_secrets(
    runs: int, hostile_range: Range
) -> None:
    faults = []
    for seed in range(runs):
        run = draw(seed, hostile_range)
        end = hostile_range.run(run)
        if end.fault:
            faults.append((seed, end.fault, run.words))
    assert not faults


@pytest.mark.parametrize(
    "words",
    [
        ("diff", "sparse.yaml", "sparse.json"),
        ("inspect", "--snapshot", "sparse.json"),
        ("inspect", "g", "--command-config", "sparse.properties"),
        ("inspect", "--snapshot", "checkout.rebal.yaml", "--client-log", "sparse.log"),
        ("inspect", "--snapshot", "checkout.rebal.yaml", "--client-log", "bomb.gz"),
        ("inspect", "--snapshot", "checkout.rebal.yaml", "--inventory", "sparse.yaml"),
        ("verify", "fifo.yaml"),
        ("inspect", "--snapshot", "/dev/zero"),
        ("inspect", "g", "-X", f"{SECRET}=="),
        ("inspect", "g\udcff", "-b", "127.0.0.1:1"),
    ],
    ids=" ".join,
)
@pytest.mark.slow
def test_a_whole_process_keeps_the_bounds(words: tuple[str, ...], hostile_range: Range) -> None:
    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_KILOBYTES << 10,) * 2)

    done = subprocess.run(
        [sys.executable, "-m", "rebal.cli.entry", *map(os.fsencode, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=bounded,
        timeout=MOST_SECONDS,
        check=False,
    )
    assert done.returncode in (0, 1, 2)
    assert b"rebal: " in done.stdout
    assert b"this is a fault" not in done.stdout
    assert SECRET.encode() not in done.stdout


def test_answers_that_are_cut_off_keep_no_memory(hostile_range: Range) -> None:
    """Each of three connections announces an answer of 99 MB."""
    live = ["-b", f"127.0.0.1:{hostile_range.broker.port}", "--timeout", "0.5"]
    run = Run(["inspect", "g", "h", "i", "--probe", *live], way="huge", after=7, seed=625830631)
    assert hostile_range.run(run).fault == ""


@pytest.mark.parametrize("answers", [2, 3, 4])
def test_all_rows_of_doctor_share_one_timeout(
    answers: int, hostile_range: Range, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Counted(Deadline):
        def __init__(self, timeout_ms: int) -> None:
            super().__init__(timeout_ms)
            made.append(self)

    for module in ("cluster", "doctor"):
        monkeypatch.setattr(f"rebal.inspectors.kafka.{module}.Deadline", Counted)
    broker = hostile_range.broker
    broker.way, broker.after = "silent", answers
    app.run(["doctor", "g", "-b", f"127.0.0.1:{broker.port}", "--timeout", "0.5"])
    assert len(made) == 1
