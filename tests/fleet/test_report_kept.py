"""A lake's reports, metrics, groups and plans as they were kept: tests/data/fleet.

REBAL_SCREENS=renew writes the files again; read the difference before you commit it. Beside them
the report's trend: two scans of a lake are compared where that is honest, and only there; and
`--evidence LAKE`: the group, or what is known of a live one. Settings reach the lake's store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rebal.cli import app
from rebal.cli import fleet as cli_fleet
from rebal.cli.fleet import NoTrend, Trend, trend_of
from rebal.cli.params import Lake
from rebal.cli.sources import scan_snapshots
from rebal.groups.model import GroupSnapshot, Knowledge
from rebal.inspectors.kafka import read as live
from rebal.inspectors.tables import reader
from rebal.inspectors.tables.groups import read_snapshots
from rebal.inspectors.tables.reader import GroupHistory, RebalanceRow, ScanStanding, open_tables
from tests.documents import checked
from tests.fleet import synthetic
from tests.fleet.conftest import CAPTURES, check_kept, report_lines
from tests.fleet.synthetic import AT, Row, fleet, group_named, write_tables
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
        patch.setattr(synthetic, "AT", AT + timedelta(hours=24))
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
def test_the_output_for_a_synthetic_lake_equals_the_kept_file(
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
    printed = capsys.readouterr()
    check_kept(KEPT / f"{name.replace(' ', '_')}.txt", printed.err + printed.out)


Said = pytest.CaptureFixture[str]


HOUR = 3_600_000_000


DAY = 24.0


FACTS: dict[str, Any] = dict.fromkeys(GroupHistory.__struct_fields__[:-5])


@dataclass
class Group:
    """A group that an earlier scan saw at hour 24; each rebalance takes 2 s and stops 10."""

    rebalances: list[RebalanceRow] = field(default_factory=list)

    def rebalance(self, hours: Iterable[float], **told: Any) -> Group:
        for at in (round(hour * HOUR) for hour in hours):
            known = {"incarnation": 1, "generation": len(self.rebalances) + 1, "ended_at": at}
            known |= {"latency_ms": 2000.0, "stopped": 10, "members": 3, "failed": False, **told}
            self.rebalances.append(RebalanceRow(**dict.fromkeys(RebalanceRow._fields) | known))
        return self

    def trend(self, until: float = 48.0, **earlier: Any) -> Trend | NoTrend:
        """Its trend in a scan that ends at hour `until`; `earlier` is how it stood at hour 24."""
        seen = [one for one in self.rebalances if one.ended_at <= DAY * HOUR]
        stood = {"incarnation": 1, "generation": len(seen), "is_deleted": False, **earlier}
        now = {"observed_until": round(until * HOUR), "rebalances": tuple(self.rebalances)}
        now |= {"incarnation": 1, "generation": self.rebalances[-1].generation}
        return trend_of(GroupHistory(**FACTS | now), ScanStanding(**stood), round(DAY * HOUR))


def often(count: int, since: float = DAY, until: float = 2 * DAY) -> list[float]:
    """The hours of so many rebalances between these two."""
    return [since + (until - since) * (n + 0.5) / count for n in range(count)]


def calm() -> Group:
    """One that rebalanced twelve times until hour 24."""
    return Group().rebalance(often(12, 0, DAY))


def test_the_trend_is_worse_after_more_rebalances_and_better_after_none() -> None:
    worse = calm().rebalance(often(96)).trend()
    assert worse.change == "worse"
    # The first one is where what is known of it begins.
    assert worse.rebalances.before == pytest.approx(11 / 23)
    assert worse.rebalances.since == 4
    assert worse.downtime.since == pytest.approx(4 * 2 * 10)
    assert (worse.seconds_before, worse.seconds_since) == (23 * 3600, 24 * 3600)
    assert Group().rebalance(often(160, 0, DAY)).trend().change == "better"
    assert calm().rebalance(often(14)).trend().change == "unclear"
    assert calm().rebalance(often(96), stopped=0).trend().change == "mixed"


@pytest.mark.parametrize(("count", "change"), [(0, "unclear"), (2, "unclear"), (20, "worse")])
def test_the_trend_is_unclear_after_few_rebalances_in_a_short_time(count: int, change: str) -> None:
    """Five minutes after a scan: none, one or two rebalances may be chance, twenty are not."""
    soon = DAY + 5 / 60
    assert calm().rebalance(often(count, DAY, soon)).trend(soon).change == change


@pytest.mark.parametrize(
    ("earlier", "why"),
    [
        ({"incarnation": 2}, "deleted and created again since then"),
        ({"is_deleted": True}, "deleted and created again since then"),
        ({"until": DAY}, "the scans end at the same time"),
        ({"until": DAY - 3}, "the scans end at the same time"),
        ({"until": DAY + 0.01}, "less than a minute of it was seen before or since"),
        ({"generation": None}, "no rebalance is known"),
    ],
)
def test_a_group_without_comparable_scans_has_no_trend(earlier: dict[str, Any], why: str) -> None:
    assert calm().rebalance([23.9]).trend(**earlier) == NoTrend(why=why)


def test_a_group_has_no_trend_if_log_compaction_removed_one_of_its_rebalances() -> None:
    group = calm().rebalance(often(30))
    del group.rebalances[-3]
    assert group.trend() == NoTrend(why="not all its rebalances are known")


def test_a_compacted_offsets_topic_does_not_make_the_trend_of_a_group_worse() -> None:
    """The first scan found only the newest generation: the earlier rate is unknown."""
    group = calm().rebalance(often(12))
    del group.rebalances[:11]
    trend = group.trend(generation=12)
    assert (trend.seconds_before, trend.rebalances.before) == (3600, 0)


def test_the_downtime_trend_is_left_out_if_rebalance_latencies_are_unknown() -> None:
    """The second scan has no request log: its rebalances have no latency."""
    trend = calm().rebalance(often(96), latency_ms=None).trend()
    assert trend.rebalances.change == "worse"
    assert trend.downtime is None


@pytest.mark.usefixtures("no_costs")
def test_an_unreadable_baseline_names_the_readable_scans(tmp_path: Path, capsys: Said) -> None:
    for _ in range(3):
        write_tables(tmp_path, fleet(4))
    report = ["fleet", "report", str(tmp_path), "--exit-zero", "--baseline"]
    assert app.run([*report, "1"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"rebal: {tmp_path}: scan 1 was removed or never finished; scans 2 to 3 can be read.\n"
    )
    assert app.run([*report, "3"]) == 2
    assert capsys.readouterr().err == (
        "rebal: --baseline 3: it is the last scan; name one before it.\n"
    )
    assert app.run([*report, "2"]) == 0
    assert "since scan 2 " in capsys.readouterr().out
    assert app.run([*report, "0"]) == 2


@pytest.mark.usefixtures("no_costs")
def test_a_report_without_the_files_of_an_earlier_scan_lacks_only_the_trend(
    tmp_path: Path, capsys: Said
) -> None:
    """Another scan that has just ended removed the files."""
    two_scans(tmp_path)
    for path in tmp_path.glob("groups/*-00000001-*/*.parquet"):
        path.unlink()
    assert "no trend yet: no earlier scan is left" in report_lines(tmp_path, capsys)[2]
    assert app.run(["fleet", "report", str(tmp_path), "--baseline", "1"]) == 1
    assert "No such file" in capsys.readouterr().err


@pytest.mark.usefixtures("no_costs")
def test_the_json_report_contains_the_trend_of_each_group_or_the_reason_for_none(
    tmp_path: Path, capsys: Said
) -> None:
    two_scans(tmp_path)
    body = checked("\n".join(report_lines(tmp_path, capsys, "-o", "json")))
    assert (body["trend"]["groups"], body["no_trend"], body["baseline"]) == (17, None, None)
    found = {group["group_id"]: group for group in body["groups"]}
    trend = found["orders-eager-0000"]["trend"]
    assert (trend["scan"], trend["change"]) == (1, "worse")
    assert trend["rebalances_per_hour"]["since"] == 4
    assert found["payments-deleted-0017"]["no_trend"] == "deleted"
    assert found["search-eager-0020"]["no_trend"] == "new since then"


@pytest.mark.usefixtures("no_costs")
@pytest.mark.parametrize("form", ["text", "json", "yaml", "markdown", "html"])
def test_a_report_without_any_group_is_no_error(tmp_path: Path, capsys: Said, form: str) -> None:
    words = ["fleet", "report", str(tmp_path), "--exit-zero", "-o", form]
    write_tables(tmp_path, {})
    assert app.run(words) == 0
    write_tables(tmp_path, fleet(4))
    assert app.run([*words, "--baseline", "1"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert form != "text" or printed.out.startswith("no group")
    assert form in ("json", "yaml") or "not there → ready" in printed.out
    write_tables(tmp_path, {})
    assert app.run(words) == 0
    assert app.run([*words, "--baseline", "2"]) == 0
    assert "no group is in both scans" in " ".join(capsys.readouterr().out.split())


EAGER = group_named("eager")


SECRET = "w8K-not-to-be-printed"


OPTIONS = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_SECRET_ACCESS_KEY": SECRET}


WORDS = [word for pair in OPTIONS.items() for word in ("--lake-option", "=".join(pair))]


def test_inspect_without_a_broker_reads_groups_from_a_lake(small_scan: Path, capsys: Said) -> None:
    lake = ["--evidence", str(small_scan)]
    assert app.run(["inspect", "--all", *lake, "-o", "json"]) == 3
    assert len(json.loads(capsys.readouterr().out)["groups"]) == 20
    assert app.run(["inspect", "nobody", *lake]) == 2
    assert "the scan saw no group nobody" in capsys.readouterr().err
    found = scan_snapshots(Lake(str(small_scan)), ["nobody", EAGER], seen_only=True)
    assert [one.group.group_id for one in found] == [EAGER]
    assert app.run(["inspect", EAGER, "--probe", *lake]) == 2
    assert "name a broker" in capsys.readouterr().err


def answer(monkeypatch: pytest.MonkeyPatch, found: GroupSnapshot) -> None:
    """Have the brokers say that this is the group."""
    chosen = live.Selection(group_ids=(found.group.group_id,))
    monkeypatch.setattr(live, "select_groups", lambda *a, **k: chosen)
    monkeypatch.setattr(live, "read_groups", lambda *a, **k: [found])


def test_a_lake_given_as_evidence_adds_assignor_lists_to_the_live_group(
    small_scan: Path, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member was restarted since the scan: its new member id has no evidence."""
    (scanned,) = read_snapshots(open_tables(str(small_scan)), EAGER)
    blank = [
        msgspec.structs.replace(
            member,
            member_id="restarted" if n == 0 else member.member_id,
            assignors=type(member.assignors)(),
            software=None,
            timeouts=None,
        )
        for n, member in enumerate(scanned.members)
    ]
    now = AT + timedelta(hours=30)
    found = msgspec.structs.replace(scanned, members=tuple(blank), captured_at=now, unmatched=())
    answer(monkeypatch, found)
    words = ["-b", "kafka-1:9092", "--evidence", str(small_scan)]
    assert app.run(["inspect", EAGER, *words, "-o", "json"]) == 0
    printed = capsys.readouterr()
    assert f"rebal: --evidence {small_scan}: as seen until 2026-11-20 09:00Z" in printed.err
    (group,) = json.loads(printed.out)["groups"]
    known = {m["member_id"]: m["assignors"] for m in group["members"]}
    assert known.pop("restarted")["knowledge"] == Knowledge.BOUNDED.value
    assert {m["knowledge"] for m in known.values()} == {Knowledge.EXACT.value}
    plan = tmp_path / "eager.plan.yaml"
    assert app.run(["plan-upgrade", EAGER, *words, "--out", str(plan)]) == 0
    assert "no broker" not in capsys.readouterr().err
    assert app.run(["verify", str(plan), *words]) == 4
    assert "as seen until 2026-11-20 09:00Z" in capsys.readouterr().err


def test_a_lake_given_as_evidence_that_never_saw_the_group_is_reported(
    small_scan: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scanned,) = read_snapshots(open_tables(str(small_scan)), EAGER)
    other = msgspec.structs.replace(
        scanned, group=msgspec.structs.replace(scanned.group, group_id="new-since")
    )
    answer(monkeypatch, other)
    app.run(["inspect", "new-since", "-b", "kafka-1:9092", "--evidence", str(small_scan)])
    assert "it saw no join of new-since" in capsys.readouterr().err


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str] | None]:
    """The settings with which each lake was opened."""
    made: list[Mapping[str, str] | None] = []

    def open_tables(text: str, options: Mapping[str, str] | None = None) -> reader.Tables:
        made.append(options)
        return opening(text, options)

    opening = reader.open_tables
    for module in (cli_fleet, reader):
        monkeypatch.setattr(module, "open_tables", open_tables)
    return made


@pytest.mark.parametrize(
    "command",
    [
        ["fleet", "report", "LAKE"],
        ["fleet", "report", "LAKE", "--group", EAGER],
        ["inspect", EAGER, "--evidence", "LAKE"],
        ["plan-upgrade", EAGER, "--evidence", "LAKE"],
        ["simulate", EAGER, "--assignor", "range", "--evidence", "LAKE"],
        ["groups", "--evidence", "LAKE"],
    ],
)
def test_lake_options_reach_the_store_and_printed_commands_omit_their_secrets(
    command: list[str], small_scan: Path, opened: list[Mapping[str, str] | None], capsys: Said
) -> None:
    words = [str(small_scan) if word == "LAKE" else word for word in command]
    app.run([*words, *WORDS])
    printed = capsys.readouterr()
    assert opened
    assert all(options == OPTIONS for options in opened)
    assert SECRET not in printed.out + printed.err
    lines = printed.out.splitlines()
    reading = [line for line in lines if "rebal " in line and str(small_scan) in line]
    assert reading or command[0] == "simulate"
    for line in reading:
        assert "--lake-option AWS_ENDPOINT_URL=http://127.0.0.1:9000" in line
        assert "AWS_SECRET" not in line


def test_verify_and_diff_pass_lake_options_to_the_store(
    small_scan: Path, tmp_path: Path, opened: list[Mapping[str, str] | None], capsys: Said
) -> None:
    plan = tmp_path / "group.plan.yaml"
    lake = ["--evidence", str(small_scan), *WORDS]
    assert app.run(["plan-upgrade", EAGER, *lake, "--out", str(plan)]) == 0
    assert SECRET not in plan.read_text()
    assert "AWS_ENDPOINT_URL" in plan.read_text()
    before = len(opened)
    app.run(["verify", str(plan), *lake])
    app.run(["diff", str(plan), EAGER, *lake])
    assert len(opened) == before + 2
    assert SECRET not in "".join(capsys.readouterr())


def test_lake_option_without_a_lake_is_rejected(capsys: Said) -> None:
    assert app.run(["groups", "--lake-option", "A=b"]) == 2
    assert "name the lake with --evidence" in capsys.readouterr().err
