"""The fleet's report: costs, the order, its options, exit codes, forms and files.

On one screen, every name as text; on what was really captured, as its plans say it as well. A group
with a member down or rejected is held: it never stands among those to take first.
"""

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from rebal.cli import app, output
from rebal.cli import fleet as cli_fleet
from rebal.cli.fleet import FleetGroup, FleetReport, make_fleet_report
from rebal.cli.render.fleet.screen import fleet_view
from rebal.cli.render.fleet.words import hindrance_text
from tests.counted import counted_calls
from tests.documents import checked
from tests.fleet.conftest import CAPTURES, report_lines
from tests.fleet.synthetic import AT, HOSTILE, Row, fleet, group_named, hostile_fleet, write_tables
from tests.fleet.timeline_input import captured_records, tables
from tests.rehearsed import forget

Said = pytest.CaptureFixture[str]


def test_costs_too_expensive_to_rehearse_are_estimated_and_marked_as_estimates(
    small_scan: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = {g.group_id: g.readiness for g in make_fleet_report(str(small_scan)).groups}
    monkeypatch.setattr(cli_fleet, "_ENOUGH", 0)
    monkeypatch.setattr(cli_fleet, "_LEAST", 4_000)
    report = make_fleet_report(str(small_scan))
    guesses = [g for g in report.groups if g.readiness and g.readiness.work]
    assert 0 < report.estimated == len(guesses) < len(report.to_take)
    for group in guesses:
        near = pytest.approx(exact[group.group_id].outlay.partition_seconds, rel=0.35)
        assert group.readiness.outlay.partition_seconds == near, group.group_id
    note = f"of {len(guesses)} groups only estimated (~)"
    text = "\n".join(report_lines(small_scan, capsys))
    assert note in " ".join(text.split())
    assert text.count("~") > len(guesses)
    body = checked("\n".join(report_lines(small_scan, capsys, "-o", "json")))
    named = {g["group_id"] for g in body["groups"] if (g.get("cost") or {}).get("estimated")}
    assert named == {group.group_id for group in guesses}
    name = guesses[0].group_id
    (one,) = make_fleet_report(str(small_scan), group=name).groups
    assert one.readiness.outlay == exact[name].outlay


def test_the_work_of_a_report_grows_no_faster_than_the_number_of_groups(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports and metrics plan and show each group once.

    bench/fleet_bench.py measures the time of 2,000.
    """
    monkeypatch.setattr(cli_fleet, "_ENOUGH", 0)
    monkeypatch.setattr(cli_fleet, "_LEAST", 0)
    few, many = (write_tables(tmp_path / str(n), fleet(n)) for n in (20, 40))
    for words in (["report"], ["report", "-o", "html"], ["metrics"]):
        work = []
        for folder in (few, few, many):  # What is loaded and cached once is not of the groups.
            forget()
            with counted_calls() as calls:
                app.run(["fleet", *words, str(folder)])
            work.append(calls.total())
        assert work[2] < 2.14 * work[1], (words, work)
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 100, 130, 200])
def test_a_report_of_400_groups_fits_one_screen_at_any_width(
    large_report: FleetReport, columns: int
) -> None:
    view = fleet_view(large_report, now=AT + timedelta(hours=27))
    lines = output.render(view, width=columns).splitlines()
    counts = "160 ready, 20 held, 60 blocked, 60 unproven, 80 done, 20 gone"
    assert lines[0] == f"400 groups: {counts}"
    assert len(lines) <= (69 if columns < 100 else 50)
    commands = [line for line in lines if line.startswith("  rebal")]
    assert len(commands) == 2
    assert all(len(line) <= columns for line in lines if line not in commands)
    assert "take first (7 of 160):" in lines


def check_hostile(folder: Path, capsys: Said, *words: str) -> None:
    """No name of a hostile fleet makes a line, a control character, or a tag of a page."""
    lines = report_lines(folder, capsys, *words)
    text = "\n".join(lines)
    assert "forged" in text
    assert not re.search("[\x1b\u202e]", text)
    assert "-o" not in words or not re.search(r"(?<!\\)<script>alert", text)
    assert not [line for line in lines if line.lstrip("| ").startswith("forged")]


def test_hostile_names_inject_nothing_into_any_report_format(tmp_path: Path, capsys: Said) -> None:
    """Also names that only the baseline scan has."""
    hostile = write_tables(tmp_path, hostile_fleet())
    for words in ([], ["--group", HOSTILE], ["-o", "markdown"], ["-o", "html"], ["--wide"]):
        check_hostile(hostile, capsys, *words)
    lines = report_lines(hostile, capsys, "-o", "markdown")
    start = lines.index("## All groups, in the order to take them")
    rows = [line for line in lines[start:] if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [11] * 9
    body = json.loads("\n".join(report_lines(hostile, capsys, "-o", "json")))
    assert HOSTILE in {group["group_id"] for group in body["groups"]}
    write_tables(tmp_path, fleet(3))
    for words in ([], ["-o", "markdown"], ["-o", "html"]):
        check_hostile(hostile, capsys, "--baseline", "1", *words)


def test_match_takes_whole_group_ids_and_bad_options_fail(small_scan: Path, capsys: Said) -> None:
    assert report_lines(small_scan, capsys, "--match", ".*-eager-.*")[0] == "2 groups: 2 ready"
    for words, message in (
        (["--match", "eager"], "no group of the scan matches eager as a whole name"),
        (["--match", "("], "--match (: not a regular expression"),
        (["--group", "nobody"], "the scan saw no group nobody"),
        (["--group", "a", "--match", "b"], "--group is for one group"),
        (["--to", "moon"], "--to moon: expected"),
        (["--to", "franz-go"], "--to franz-go: that is a client library, a goal of plan-upgrade"),
        (["--out", "report.pdf"], "--out report.pdf: name the format with -o"),
    ):
        assert app.run(["fleet", "report", str(small_scan), *words]) == 2, words
        printed = capsys.readouterr()
        assert message in printed.err
        more = [f"  rebal fleet report {small_scan}"] if words[1] == "nobody" else []
        assert printed.err.splitlines()[1:] == more
        assert printed.out == ""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--exit-zero"], 0),
        (["--match", ".*-eager-.*"], 0),
        (["--match", ".*-(eager|empty)-.*"], 4),
        (["--match", ".*-(empty|librdkafka)-.*"], 3),
        (["--match", ".*-deleted-.*"], 0),
        (["--match", ".*-eager-.*", "--fail-on", "warning"], 3),
    ],
)
def test_the_exit_code_of_a_report_is_the_worst_of_its_groups(
    small_scan: Path, words: list[str], code: int, capsys: Said
) -> None:
    assert app.run(["fleet", "report", str(small_scan), *words]) == code
    assert app.run(["fleet", "report", str(small_scan), *words, "-o", "json"]) == code
    assert capsys.readouterr().out.rstrip().endswith(f'"exit_code": {code}\n}}')


def test_the_report_out_option_writes_the_format_of_the_file_name_suffix(
    small_scan: Path, tmp_path: Path, capsys: Said
) -> None:
    begins = {
        "a.json": "{\n",
        "a.yaml": "schema: rebal.fleet/1",
        "a.md": "# Fleet: 20 groups",
        "a.html": "<!doctype html>",
        "a.txt": "20 groups: 8 ready, 1 held",
    }
    for name, begin in begins.items():
        out = tmp_path / name
        assert app.run(["fleet", "report", str(small_scan), "--out", str(out)]) == 3
        assert out.read_text().startswith(begin)
        printed = capsys.readouterr()
        assert (printed.out, printed.err) == ("", f"rebal: wrote {out}\n")
    odd = tmp_path / "page"
    assert app.run(["fleet", "report", str(small_scan), "-o", "html", "--out", str(odd)]) == 3
    assert odd.read_text().startswith("<!doctype html>")
    nowhere = str(tmp_path / "no" / "a.html")
    assert app.run(["fleet", "report", str(small_scan), "--out", nowhere]) == 1
    assert "cannot write" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*begins, "page"])


def test_each_cluster_of_a_lake_has_its_own_report(tmp_path: Path, capsys: Said) -> None:
    for cluster in ("east", "west", "east"):
        write_tables(tmp_path, fleet(4), cluster=cluster)
    west = Path(f"{tmp_path}#west")
    lines = report_lines(west, capsys)
    assert lines[1].startswith("cluster west, as seen until ")
    assert lines[2].startswith("no trend yet: the lake has one scan")
    assert f"--evidence '{west}'" in "\n".join(lines)
    body = checked("\n".join(report_lines(west, capsys, "-o", "json")))
    assert body["scan"]["cluster"] == "west"
    same = "no trend yet since scan 1 (2026-11-20 09:00Z): the scans end at the same time"
    assert report_lines(Path(f"{tmp_path}#east"), capsys)[2].startswith(same)


def test_kip_848_groups_in_a_scan_prove_that_brokers_enable_group_version(tmp_path: Path) -> None:
    rows = tables(captured_records(CAPTURES))
    for records, known in (({"GROUP_METADATA": 9}, False), ({"CONSUMER_GROUP_METADATA": 1}, True)):
        folder = write_tables(tmp_path, rows, records=records)
        ready = of(make_fleet_report(str(folder), to="consumer"), "shipping").readiness
        asked = [one for one in ready.missing if one.rule in ("RB401", "RB402")]
        feature = [one for one in asked if "group.version" in one.what]
        assert bool(feature) is not known
        assert len(asked) == 2 + len(feature)
        assert all(one.how.startswith("Name a broker with -b HOST:PORT") for one in asked)


def test_report_and_plan_name_the_same_path_verdict_and_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a request log the lists of pyapp are unknown; only its second step's gate needs them.

    No text names a third step of a plan that has two.
    """
    lake = write_tables(tmp_path, tables(captured_records(CAPTURES)))
    report = make_fleet_report(str(lake))
    capsys.readouterr()
    app.run(["fleet", "report", str(lake), "-o", "json"])
    documents = {one["group_id"]: one for one in checked(capsys.readouterr().out)["groups"]}
    ends = 0
    for group in report.groups:
        if group.readiness is None:
            continue
        name, mine = group.group_id, documents[group.group_id]
        app.run(["plan-upgrade", name, "--evidence", str(lake), "-o", "json"])
        plan = checked(capsys.readouterr().out)
        for key in ("verdict", "path", "next_step", "summary", "exit_code"):
            assert mine[key] == plan[key], (name, key)
        assert mine["steps"] == len(plan["steps"]), name
        app.run(["plan-upgrade", name, "--evidence", str(lake), "--details"])
        whole = capsys.readouterr().out
        app.run(["fleet", "report", str(lake), "--group", name, "--wide"])
        text = capsys.readouterr().out
        for shown in (hindrance_text(group), whole, text):
            named = [int(number) for number in re.findall(r"\bstep (\d+)", shown)]
            assert max(named, default=0) <= mine["steps"], (name, shown)
        ends += "to finish: RB901?" in hindrance_text(group)
        assert ("to finish: cannot tell" in whole) == ("to finish" in hindrance_text(group)), name
    assert ends >= 3


Rows = dict[str, list[Row]]
NAME = "orders-eager-0000"


def of(report: FleetReport, name: str = NAME) -> FleetGroup:
    """The group in a report."""
    (found,) = (group for group in report.groups if group.group_id == name)
    return found


def reported(folder: Path, rows: Rows, name: str = NAME) -> FleetGroup:
    """The group in the report of a lake of these rows."""
    return of(make_fleet_report(str(write_tables(folder, rows))), name)


def member_out(rows: Rows, reason: str | None, *, fewer: int = 1) -> Row:
    """The last member of the first group left before the last rebalance; its row."""
    group = rows["groups"][0]
    mine = [row for row in rows["members"] if row["group_id"] == NAME]
    lost = mine[-1]
    lost |= {
        "current": False,
        "left_at": AT - timedelta(minutes=30),
        "left_reason": reason,
        "last_generation": group["generation"] - 1,
    }
    group["members"] -= fewer
    (newest,) = (
        row
        for row in rows["rebalances"]
        if (row["group_id"], row["generation"]) == (NAME, group["generation"])
    )
    newest["members"] -= fewer
    return lost


def back(rows: Rows, lost: Row, **changes: object) -> None:
    """A new process in the place of the one that left."""
    generation = rows["groups"][0]["generation"]
    rows["members"].append(
        lost
        | {
            "member_id": "new-0001",
            "current": True,
            "left_at": None,
            "left_reason": None,
            "first_generation": generation,
            "last_generation": generation,
            "first_at": AT - timedelta(minutes=20),
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("reason", "held"),
    [
        ("session expired", True),
        ("did not rejoin in time", True),
        ("poll timeout expired", True),
        ("consumer poll timeout has expired.", True),
        ("member left", False),
        ("the consumer is being closed", False),
        (None, False),
    ],
)
def test_a_group_is_held_while_a_timed_out_member_is_missing_but_not_after_one_left(
    tmp_path: Path, reason: str | None, held: bool
) -> None:
    rows = fleet(4)
    lost = member_out(rows, reason)
    report = make_fleet_report(str(write_tables(tmp_path, rows)))
    reason_held = (f"{lost['client_id']} timed out and has not rejoined",)
    assert of(report).held == (reason_held if held else ())
    assert (NAME in {group.group_id for group in report.to_take}) is not held
    assert of(report).verdict == "ready", "the plan's verdict is the same everywhere"


def test_a_group_stays_held_for_a_rejected_client_that_has_not_rejoined(tmp_path: Path) -> None:
    """RB904 does not fire if its list is common again, but the client is still down."""
    rows = fleet(4)
    half = group_named("half-way")
    rows["assignor_lists"] = [
        row | {"assignors": ["range"]} if row["refused"] and row["group_id"] == half else row
        for row in rows["assignor_lists"]
    ]
    (held,) = reported(tmp_path, rows, half).held
    assert held.endswith("was rejected and has not rejoined")


@pytest.mark.parametrize(
    ("instance", "changes"),
    [
        (None, {}),
        ("orders-7", {"client_id": "another"}),
        (None, {"client_id": "orders-pod-x7"}),  # a pod's name; the group has as many as before
    ],
)
def test_a_group_is_not_held_for_a_timed_out_member_that_was_replaced(
    tmp_path: Path, instance: str | None, changes: dict[str, str]
) -> None:
    rows = fleet(4)
    lost = member_out(rows, "session expired", fewer=0)
    lost["instance_id"] = instance
    back(rows, lost, **changes)
    assert reported(tmp_path, rows).held == ()


def test_rates_begin_at_the_first_rebalance_that_the_log_cleaner_has_left(tmp_path: Path) -> None:
    rows = fleet(4)
    mine = [row for row in rows["rebalances"] if row["group_id"] == NAME]
    mine[0] |= {"joined": None, "evidence": "offsets topic"}
    found = reported(tmp_path / "0", rows)
    hours = (AT - mine[0]["ended_at"]) / timedelta(hours=1)
    assert found.history.metrics["rebalance-rate-per-hour"] == (len(mine) - 1) / hours
    assert found.downtime_per_hour
    mine[1]["stopped"] = None
    assert reported(tmp_path / "1", rows).downtime_per_hour is None


def test_one_new_process_replaces_only_one_timed_out_member_per_client_id(tmp_path: Path) -> None:
    """All processes have one client id; two timed out, one rejoined."""
    rows = fleet(4)
    mine = [row for row in rows["members"] if row["group_id"] == NAME]
    assert len(mine) > 2
    for row in mine:
        row["client_id"] = "app"
    lost = member_out(rows, "session expired", fewer=1)
    mine[0] |= {key: lost[key] for key in ("current", "left_at", "left_reason", "last_generation")}
    back(rows, lost)
    for number, reason in enumerate(("session expired", "the consumer is being closed")):
        mine[0]["left_reason"] = reason
        found = reported(tmp_path / str(number), rows)
        assert found.held == ("app timed out and has not rejoined",)
