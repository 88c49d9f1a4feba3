"""A lake's reports, metrics, groups and plans as they were kept: tests/data/fleet.

REBAL_SCREENS=renew writes the files again; read the difference before you commit it.
"""

from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from functools import cache
from pathlib import Path

import pytest

from rebal.cli import app
from tests.fleet import tablefiles
from tests.fleet.conftest import CAPTURES, check_kept
from tests.fleet.synthetic import Row, fleet, group_named
from tests.fleet.tablefiles import AT, write_tables
from tests.fleet.test_report import member_out
from tests.fleet.timeline_input import captured_records, captured_requests, tables

KEPT = Path(__file__).parents[1] / "data" / "fleet"
HALF_WAY = group_named("half-way")
CLOCKS = ("sources", *(f"commands.{name}_cmd" for name in ("fleet_report", "inspect", "plan")))
EVIDENCE = ("--evidence", "lake", "--exit-zero")
REPORT = ("fleet", "report", "lake", "--exit-zero")


class Later(datetime):
    """The clock when the reports are made."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return AT + timedelta(hours=27)


def twenty(at: Path) -> None:
    write_tables(at, fleet(20))


def two_scans(at: Path) -> None:
    """One group is new, one has gone, one was deleted, and two rebalance more or less often."""
    twenty(at)
    rows = fleet(21)
    for number, many in ((0, 96), (1, 14), (10, 4)):
        group = rows["groups"][number]
        name, until = group["group_id"], group["generation"]
        last = next(r for r in reversed(rows["rebalances"]) if r["group_id"] == name)
        for place in range(many):
            ended = AT + timedelta(hours=24) * (place + 0.5) / many
            again = {"generation": until + place + 1, "started_at": ended, "ended_at": ended}
            rows["rebalances"].append(last | again | {"latency_ms": 2000.0, "failed": False})
        group["generation"] += many
    rows["groups"][7] |= {"state": "Dead", "deleted_at": AT + timedelta(hours=1), "members": 0}
    lost = rows["groups"][5]["group_id"]
    kept = {name: [r for r in of if r.get("group_id") != lost] for name, of in rows.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tablefiles, "AT", AT + timedelta(hours=24))
        write_tables(at, kept)


def member_down(at: Path) -> None:
    rows = fleet(30)
    member_out(rows, "session expired")
    write_tables(at, rows)


def without_logs(at: Path) -> None:
    """Latencies, lists and software are not known; one group is of a type without records."""
    rows = fleet(20)
    for row in rows["groups"]:
        row |= {name: None for name in row if "latency" in name}
    for row in rows["rebalances"]:
        row |= {"latency_ms": None, "started_at": None, "cause": None}
    for row in rows["members"]:
        row |= {"assignors": None, "software_name": None, "software_version": None}
    rows["groups"][0] |= {"type": "streams", "members": None, "assignor": None}
    write_tables(at, rows | {"assignor_lists": []})


def short_and_broken(at: Path) -> None:
    """Two minutes of history, records that could not be read, and some that were cleaned."""
    broken: list[Row] = [{"source": "a.jsonl", "error": "cut off", "offset": n} for n in range(3)]
    breaks = {3: (7,), 9: (1, 5)}
    since = AT - timedelta(minutes=2)
    write_tables(at, fleet(20) | {"errors": broken}, observed_from=since, breaks=breaks)


def captures(at: Path) -> None:
    write_tables(at, tables([*captured_records(CAPTURES), *captured_requests(CAPTURES)]))


CASES: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "twenty groups": (twenty, REPORT),
    "twenty groups wide": (twenty, (*REPORT, "--wide")),
    "twenty groups markdown": (twenty, (*REPORT, "-o", "markdown")),
    "twenty groups to kip-848": (twenty, (*REPORT, "--to", "consumer")),
    "one group": (twenty, (*REPORT, "--group", HALF_WAY)),
    "one group json": (twenty, (*REPORT, "--group", HALF_WAY, "-o", "json")),
    "inspect half-way": (twenty, ("inspect", HALF_WAY, *EVIDENCE)),
    "inspect half-way json": (twenty, ("inspect", HALF_WAY, *EVIDENCE, "-o", "json")),
    "inspect unknown": (twenty, ("inspect", group_named("unknown"), *EVIDENCE)),
    "inspect kip-848": (twenty, ("inspect", group_named("kip-848"), *EVIDENCE)),
    "plan half-way": (twenty, ("plan-upgrade", HALF_WAY, *EVIDENCE)),
    "metrics": (twenty, ("fleet", "metrics", "lake")),
    "two scans": (two_scans, REPORT),
    "two scans baseline": (two_scans, (*REPORT, "--baseline", "1", "--wide")),
    "two scans baseline markdown": (two_scans, (*REPORT, "--baseline", "1", "-o", "markdown")),
    "member down": (member_down, REPORT),
    "without logs": (without_logs, REPORT),
    "without logs markdown": (without_logs, (*REPORT, "-o", "markdown")),
    "short and broken": (short_and_broken, (*REPORT, "--wide")),
    "captures": (captures, (*REPORT, "--wide")),
    "captures to kip-848": (captures, (*REPORT, "--wide", "--to", "consumer")),
}  # fmt: skip


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], None]], Path]:
    """Give the folder that holds a case's `lake`; each is made once."""

    @cache
    def folder(make: Callable[[Path], None]) -> Path:
        made = tmp_path_factory.mktemp(make.__name__)
        make(made / "lake")
        return made

    return folder


@pytest.mark.parametrize("name", CASES)
def test_a_report_is_as_it_was_kept(
    name: str,
    lakes: Callable[[Callable[[Path], None]], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, words = CASES[name]
    monkeypatch.chdir(lakes(make))
    for module in CLOCKS:
        monkeypatch.setattr(f"rebal.cli.{module}.datetime", Later)
    capsys.readouterr()
    assert app.run([*words]) == 0
    said = capsys.readouterr()
    check_kept(KEPT / f"{name.replace(' ', '_')}.txt", said.err + said.out)
