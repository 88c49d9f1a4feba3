"""What `rebal fleet scan` takes and prints; no Spark is started here."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from rebal.cli.app import run
from rebal.cli.commands.fleet_scan_cmd import _progress
from rebal.inspectors.fleet import job
from rebal.inspectors.fleet.job import ScanOrder
from rebal.inspectors.fleet.manifest import SCHEMA, Manifest, TableEntry
from tests.documents import checked
from tests.fleet.tablefiles import AT

MADE = Manifest(
    cluster="mK8",
    run=3,
    finished_at=AT,
    observed_until=AT,
    sources=("a.jsonl", "b.log"),
    read=12,
    records={"OFFSET_COMMIT": 7, "GROUP_METADATA": 4, "UNREADABLE": 1},
    skipped={"control records": 2},
    requests={"lines": 900, "parsed": 30, "cut_off": 1},
    offsets={0: 41, 17: 5},
    breaks={17: (2,)},
    tables={"groups": TableEntry(rows=2), "errors": TableEntry(rows=1)},
)


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[ScanOrder]:
    """What the command asks for; the scan itself is left out."""
    taken: list[ScanOrder] = []

    def scan(order: ScanOrder, *_: Callable[..., None] | None) -> Manifest:
        taken.append(order)
        return MADE

    monkeypatch.setattr(job, "run_scan", scan)
    return taken


def test_what_a_scan_did_is_told_on_stderr(
    orders: list[ScanOrder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert run(["fleet", "scan", "--offsets", "a.jsonl", "--out", out]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "rebal: 12 records of __consumer_offsets: 7 offset commits, 4 of classic groups, "
        "1 unreadable, 2 control records.",
        "rebal: 900 lines of request logs, 30 about groups, 1 cut off.",
        "rebal: 2 groups, 0 rebalances, 0 assignor lists, 0 incidents, 1 errors are in "
        f"{out}; next: rebal fleet report {out}",
    ]
    assert orders[0].offsets == ("a.jsonl",)


@pytest.mark.usefixtures("orders")
def test_or_is_a_document_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert run(["fleet", "scan", "--offsets", "a.jsonl", "--out", out, "-o", "json"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    body = checked(told.out)
    assert body["schema"] == "rebal.fleet-summary/1"
    assert (body["folder"], body["cluster"]) == (out, "mK8")
    assert sum(body["records"].values()) == body["records_read"] == 12
    assert body["last_offsets"] == {"0": 41, "17": 5}
    assert body["breaks"] == {"17": [2]}
    assert body["tables"] == {"groups": 2, "errors": 1}
    assert (body["observed_from"], body["exit_code"]) == (None, 0)


def test_a_manifest_fits_its_schema() -> None:
    assert checked(msgspec.json.encode(MADE).decode())["schema"] == SCHEMA


def test_an_option_takes_all_the_paths_that_follow(orders: list[ScanOrder], tmp_path: Path) -> None:
    words = ["--segments", "broker-1", "broker-2", "--request-log", "a.log", "hdfs://nn/logs"]
    assert run(["fleet", "scan", *words, "--out", str(tmp_path / "out"), "--full"]) == 0
    (order,) = orders
    assert order.segments == ("broker-1", "broker-2")
    assert order.request_logs == ("a.log", "hdfs://nn/logs")
    assert order.full


FILE = ["--offsets", "a.jsonl"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--segments", "b"], "a scan reads records from one source"),
        (["-b", "127.0.0.1:1"], "a scan reads records from one source"),
        (["--spark-conf", "x"], "expected KEY=VALUE"),
        (["--every", "0s"], "--every 0s: expected a second or more"),
        (["--every", "soon"], "--every soon: expected a duration such as 90s"),
        (["--every", "5m", "-o", "json"], "--every prints sentences: leave out -o"),
        (["--cluster", "a#b"], "expected a name without #"),
    ],
)
def test_options_that_cannot_be(
    words: list[str],
    says: str,
    orders: list[ScanOrder],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["fleet", "scan", *FILE, *words, "--out", str(tmp_path / "out")]) == 2
    assert says in capsys.readouterr().err
    assert orders == []


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_each_step_and_how_many_of_its_tasks_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with _progress() as (say, tasks):
        assert tasks is not None
        say("reading a [file].jsonl")
        tasks(3, 12)
    shown = terminal.getvalue()
    assert "rebal: starting Spark" in shown
    assert "rebal: reading a [file].jsonl" in shown
    assert re.search("━.* 3/12.* tasks, .*0:00:0", shown)


def test_a_file_gets_a_line_for_each_step_and_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with _progress() as (say, tasks):
        say("reading a.jsonl")
    assert tasks is None
    assert capsys.readouterr().err == "rebal: reading a.jsonl\n"
