"""`rebal fleet report` and `--evidence` on made-up fleets: answers, order, forms, exit codes."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from rebal.cli import app, output
from rebal.cli import fleet as cli_fleet
from rebal.cli.fleet import VERDICTS, FleetReport, make_fleet_report
from rebal.cli.views.fleet_text import fleet_view
from rebal.groups.model import Knowledge
from rebal.inspectors import live
from rebal.inspectors.fleet.tables import open_tables
from rebal.inspectors.fleet.tables_groups import read_snapshots
from rebal.planner.plan import Cost, Plan
from rebal.planner.routes import make_plan
from tests.fleet.synthetic import SHAPES, fleet
from tests.fleet.tablefiles import AT, write_tables

Said = pytest.CaptureFixture[str]
WANTED = {
    "eager": "ready",
    "unknown": "ready",
    "defaults": "ready",
    "half-way": "ready",
    "cooperative": "done",
    "librdkafka": "blocked",
    "crash loop": "blocked",
    "kip-848": "done",
    "storm": "blocked",
    "static": "ready",
    "kafkajs": "blocked",
    "half unknown": "ready",
    "streams": "ready",
    "connect": "done",
    "empty": "unproven",
    "deleted": "gone",
    "dropped": "ready",
}
HOSTILE = "<script>alert(1)</script>|`x`\x1b[31m\u202egnp {{rows}} {{details}} </title>\nforged: 1"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("small"), fleet(20))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("large"), fleet(2000), files=4)


@pytest.fixture(scope="module")
def large_report(large: Path) -> FleetReport:
    return make_fleet_report(large)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every text that a cluster can choose is hostile; the second group is of the usual kind."""
    rows = fleet(7)
    mine = rows["groups"][3]["group_id"]
    for name, table in rows.items():
        for row in table:
            if row.get("group_id") != mine:
                continue
            row["group_id"] = HOSTILE
            for field in ("client_id", "host", "instance_id", "cause", "detail", "source"):
                if field in row:
                    row[field] = HOSTILE
            if name == "rebalances":
                row["joined"] = [HOSTILE]
    rows["incidents"].append({"group_id": HOSTILE, "kind": HOSTILE, "detail": HOSTILE, "count": 1})
    rows["rebalances"][-1]["assignor"] = HOSTILE
    return write_tables(tmp_path_factory.mktemp("hostile"), rows)


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BOOTSTRAP", "COMMAND_CONFIG", "PROFILE", "X_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(f"REBAL_{name}", raising=False)


def lines_of(folder: Path, capsys: Said, *words: str) -> list[str]:
    app.run(["fleet", "report", str(folder), *words])
    return capsys.readouterr().out.splitlines()


def test_each_shape_of_group_gets_its_verdict(small: Path) -> None:
    found = {group.group_id: group.verdict for group in make_fleet_report(small).groups}
    for n, row in enumerate(fleet(20)["groups"]):
        assert found[row["group_id"]] == WANTED[SHAPES[n]], SHAPES[n]
    assert set(WANTED.values()) == set(VERDICTS)


def test_a_group_is_judged_as_plan_upgrade_judges_it(small: Path) -> None:
    plans = {one.group.group_id: make_plan(one) for one in read_snapshots(open_tables(small))}
    for group in make_fleet_report(small).groups:
        if group.readiness is None:
            continue
        mine, wanted = group.readiness.plan, plans[group.group_id]
        assert (mine.verdict, mine.path, mine.next_step, mine.summary) == (
            wanted.verdict,
            wanted.path,
            wanted.next_step,
            wanted.summary,
        )
        assert mine.findings == wanted.findings


@pytest.mark.parametrize("to", ["cooperative", "eager", "consumer"])
def test_a_cost_is_that_of_the_groups_own_plan(small: Path, to: str) -> None:
    report = make_fleet_report(small, to=to)
    assert report.estimated == 0
    left = {
        one.group.group_id: costs_left(make_plan(one, to))
        for one in read_snapshots(open_tables(small))
    }
    priced = {
        group.group_id: group.readiness.outlay
        for group in report.groups
        if group.readiness is not None and group.readiness.outlay is not None
    }
    assert len(priced) >= {"cooperative": 12, "eager": 1, "consumer": 10}[to]
    for name, outlay in priced.items():
        seconds = [cost.partition_seconds or 0 for cost in left[name]]
        assert outlay.partition_seconds == pytest.approx(sum(seconds), abs=0.1), name
        assert outlay.rebalances == sum(cost.rebalances for cost in left[name])
        assert outlay.partitions_stopped == sum(cost.partitions_stopped for cost in left[name])
        assert outlay.partitions_moved == sum(cost.partitions_moved for cost in left[name])


def costs_left(plan: Plan) -> list[Cost]:
    left = [step.cost for step in plan.steps if step.id >= (plan.next_step or 0)]
    return [cost for cost in left if cost is not None]


def test_what_is_too_much_to_rehearse_is_estimated_and_that_is_said(
    small: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = {g.group_id: g.readiness for g in make_fleet_report(small).groups}
    monkeypatch.setattr(cli_fleet, "_ENOUGH", 0)
    monkeypatch.setattr(cli_fleet, "_LEAST", 4_000)
    report = make_fleet_report(small)
    guesses = [g for g in report.groups if g.readiness and g.readiness.work]
    assert 0 < report.estimated == len(guesses) < len(report.to_take)
    for group in guesses:
        mine, wanted = group.readiness, exact[group.group_id]
        assert mine is not None
        assert wanted is not None
        assert mine.outlay is not None
        assert wanted.outlay is not None
        near = pytest.approx(wanted.outlay.partition_seconds, rel=0.35)
        assert mine.outlay.partition_seconds == near, group.group_id
    said = f"of {len(guesses)} groups only estimated (~)"
    for form in ("text", "markdown", "html"):
        text = "\n".join(lines_of(small, capsys, "-o", form))
        assert said in " ".join(text.split())
        table = text.replace(said, "")
        assert table.count("~") >= len(guesses)
    body = json.loads("\n".join(lines_of(small, capsys, "-o", "json")))
    named = {g["group_id"] for g in body["groups"] if (g.get("cost") or {}).get("estimated")}
    assert named == {group.group_id for group in guesses}
    text = "\n".join(lines_of(small, capsys, "--rehearse-all"))
    assert "~" not in text
    assert "costs are those of each group's own plan" in " ".join(text.split())
    name = guesses[0].group_id
    (one,) = make_fleet_report(small, group=name).groups
    assert one.readiness is not None
    assert one.readiness.outlay == getattr(exact[name], "outlay", None)


def test_the_order_is_ready_then_unproven_then_blocked_and_what_pays_first(
    large_report: FleetReport,
) -> None:
    groups = large_report.groups
    ranks = [("ready", "unproven", "blocked", "done", "gone").index(g.verdict) for g in groups]
    assert ranks == sorted(ranks)
    placed = [g.readiness.place for g in groups if g.readiness and g.readiness.place is not None]
    assert placed == list(range(1, len(placed) + 1))
    ready = [g.readiness for g in groups if g.readiness is not None and g.verdict == "ready"]
    begun = [one.under_way for one in ready]
    assert begun == sorted(begun, reverse=True)
    assert True in begun
    fresh = [one.pays_back for one in ready if not one.under_way and one.pays_back is not None]
    assert fresh == sorted(fresh)
    assert len(fresh) > 100
    done = [g for g in groups if g.verdict in ("done", "gone")]
    assert all(g.readiness is None or g.readiness.place is None for g in done)


def test_what_a_change_saves_is_what_stood_still_at_the_rebalances_seen(small: Path) -> None:
    rows = fleet(20)
    for group in make_fleet_report(small).to_take:
        ready = group.readiness
        assert ready is not None
        if ready.saves is None:
            continue
        seen = [r for r in rows["rebalances"] if r["group_id"] == group.group_id]
        spared = sum(r["stopped"] - r["moved"] for r in seen) / len(seen)
        seconds = sum(r["latency_ms"] for r in seen) / len(seen) / 1000
        wanted = max(0.0, spared) * seconds * len(seen) / 24
        assert ready.saves == pytest.approx(wanted, abs=0.02)
        if ready.outlay is not None and ready.saves:
            assert ready.pays_back == pytest.approx(ready.outlay.partition_seconds / ready.saves)


def test_twenty_groups_are_all_listed_the_answer_first(small: Path, capsys: Said) -> None:
    lines = lines_of(small, capsys)
    assert lines[0] == "20 groups: 10 ready, 4 blocked, 1 unproven, 4 done, 1 gone"
    assert re.fullmatch(r"as seen until 2026-11-20 09:00Z, \d+ \w+ ago; 24 h of history", lines[1])
    table = "\n".join(lines[3:24])
    for row in fleet(20)["groups"]:
        assert row["group_id"] in table
    text = "\n".join(lines)
    assert re.search(r"blocked by +RB104 in 3 groups:", text)
    assert re.search(r"cannot tell +RB901 in 3 groups:", text)
    assert "fraud-storm-0010" in text[text.index("worst off now") :].splitlines()[2]
    assert lines[-1].strip() == f"rebal fleet report {small} --out fleet.html"


@pytest.mark.parametrize("columns", [80, 100, 130, 200])
def test_two_thousand_groups_fit_one_screen_of_any_width(
    large_report: FleetReport, columns: int
) -> None:
    view = fleet_view(large_report, now=AT + timedelta(hours=27))
    lines = output.render(view, width=columns).splitlines()
    assert lines[0] == "2,000 groups: 1,000 ready, 400 blocked, 100 unproven, 400 done, 100 gone"
    assert len(lines) < (70 if columns < 100 else 48)
    commands = [line for line in lines if line.startswith("  rebal")]
    assert len(commands) == 2
    assert all(len(line) <= columns for line in lines if line not in commands)
    assert "take first (10 of 1,000):" in lines


def test_one_group_is_shown_with_its_whole_history(small: Path, capsys: Said) -> None:
    name = next(r["group_id"] for r in fleet(20)["groups"] if "half-way" in r["group_id"])
    lines = lines_of(small, capsys, "--group", name)
    text = "\n".join(lines)
    assert "rebalance-rate-per-hour" in text
    assert "failed-rebalance-total" in text
    assert "[cooperative-sticky] REFUSED ×12" in text
    assert "[cooperative-sticky, range]" in text
    assert "RB102" in text
    generations = [r["generation"] for r in fleet(20)["rebalances"] if r["group_id"] == name]
    rebalances = text[: text.index("assignor lists:")]
    shown = re.findall(r"^2026-\S+ \S+Z +(\d+) ", rebalances, re.MULTILINE)
    assert [int(n) for n in shown] == sorted(generations, reverse=True)


def test_match_takes_whole_names(small: Path, capsys: Said) -> None:
    assert lines_of(small, capsys, "--match", ".*-eager-.*")[0] == "2 groups: 2 ready"
    for words, said in (
        (["--match", "eager"], "no group of the scan matches eager as a whole name"),
        (["--match", "("], "--match (: not a regular expression"),
        (["--group", "nobody"], "the scan saw no group nobody"),
        (["--group", "a", "--match", "b"], "--group is for one group"),
        (["--to", "moon"], "--to moon: expected"),
        (["--out", "report.pdf"], "--out report.pdf: say the format with -o"),
    ):
        assert app.run(["fleet", "report", str(small), *words]) == 2, words
        told = capsys.readouterr()
        assert said in told.err
        assert told.err.count("\n") == 1
        assert told.out == ""


def test_a_folder_that_is_no_scan_fails_with_one_sentence(tmp_path: Path, capsys: Said) -> None:
    assert app.run(["fleet", "report", str(tmp_path)]) == 1
    assert app.run(["inspect", "any", "--evidence", str(tmp_path)]) == 1
    assert app.run(["plan-upgrade", "any", "--evidence", str(tmp_path / "no")]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 3
    assert told.err.count("rebal fleet scan --out") == 3


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 3),
        (["--exit-zero"], 0),
        (["--match", ".*-eager-.*"], 0),
        (["--match", ".*-(eager|empty)-.*"], 4),
        (["--match", ".*-(empty|librdkafka)-.*"], 3),
        (["--match", ".*-deleted-.*"], 0),
        (["--match", ".*-cooperative-.*"], 0),
        (["--match", ".*-eager-.*", "--fail-on", "warning"], 3),
    ],
)
def test_the_exit_code_is_the_worst_of_all_next_steps(
    small: Path, words: list[str], code: int, capsys: Said
) -> None:
    assert app.run(["fleet", "report", str(small), *words]) == code
    assert app.run(["fleet", "report", str(small), *words, "-o", "json"]) == code
    assert capsys.readouterr().out.rstrip().endswith(f'"exit_code": {code}\n}}')


def test_json_and_yaml_say_the_same_in_a_stable_order(small: Path, capsys: Said) -> None:
    app.run(["fleet", "report", str(small), "-o", "json"])
    text = capsys.readouterr().out
    app.run(["fleet", "report", str(small), "-o", "json"])
    assert capsys.readouterr().out == text
    body = json.loads(text)
    app.run(["fleet", "report", str(small), "-o", "yaml"])
    assert plain(yaml.safe_load(capsys.readouterr().out)) == plain(body)
    assert list(body) == ["schema", "scan", "to", "counts", "groups", "exit_code"]
    assert body["schema"] == "rebal.fleet/1"
    assert body["counts"] == {"ready": 10, "blocked": 4, "unproven": 1, "done": 4, "gone": 1}
    for group in body["groups"]:
        assert list(group["metrics"])[:2] == ["rebalance-total", "rebalance-rate-per-hour"]
        assert ("place" in group) == (group["verdict"] != "gone")
        for missing in group.get("evidence_missing", ()):
            assert missing["how"]
    unknown = next(g for g in body["groups"] if "-half-unknown-" in g["group_id"])
    assert {one["rule"] for one in unknown["evidence_missing"]} == {"RB901"}
    assert {one["rule"] for one in unknown["blockers_later"]} == {"RB102"}
    assert unknown["blockers"] == []


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=lambda at: at.isoformat().replace("+00:00", "Z")))


def test_one_group_as_json_has_each_rebalance_and_list(small: Path, capsys: Said) -> None:
    rows = fleet(20)
    name = rows["groups"][3]["group_id"]
    app.run(["fleet", "report", str(small), "--group", name, "-o", "json"])
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert len(group["rebalances"]) == sum(r["group_id"] == name for r in rows["rebalances"])
    assert len(group["assignor_lists"]) == sum(
        r["group_id"] == name for r in rows["assignor_lists"]
    )
    assert group["rebalances"][-1]["ended_at"] > group["rebalances"][0]["ended_at"]


def test_out_writes_the_form_that_its_name_ends_in(
    small: Path, tmp_path: Path, capsys: Said
) -> None:
    begins = {
        "a.json": "{\n",
        "a.yaml": "schema: rebal.fleet/1",
        "a.md": "# Fleet: 20 groups",
        "a.html": "<!doctype html>",
        "a.txt": "20 groups: 10 ready",
    }
    for name, begin in begins.items():
        out = tmp_path / name
        assert app.run(["fleet", "report", str(small), "--out", str(out)]) == 3
        assert out.read_text().startswith(begin)
        told = capsys.readouterr()
        assert (told.out, told.err) == ("", f"rebal: wrote {out}\n")
    odd = tmp_path / "page"
    assert app.run(["fleet", "report", str(small), "-o", "html", "--out", str(odd)]) == 3
    assert odd.read_text().startswith("<!doctype html>")
    assert app.run(["fleet", "report", str(small), "--out", str(tmp_path / "no" / "a.html")]) == 1
    assert "cannot write" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*begins, "page"])


def test_markdown_lists_every_group_and_is_a_table(small: Path, capsys: Said) -> None:
    lines = lines_of(small, capsys, "-o", "markdown")
    assert lines[0] == "# Fleet: 20 groups: 10 ready, 4 blocked, 1 unproven, 4 done, 1 gone"
    start = lines.index("## All groups, in the order to take them")
    rows = [line for line in lines[start:] if line.startswith("|")]
    assert len(rows) == 22
    assert {row.replace("\\|", "").count("|") for row in rows} == {11}


def test_hostile_names_stay_text_in_every_form(hostile: Path, capsys: Said) -> None:
    for words in ([], ["--group", HOSTILE], ["-o", "markdown"], ["--wide"]):
        text = "\n".join(lines_of(hostile, capsys, *words))
        assert "script" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert not [line for line in text.splitlines() if line.lstrip("| ").startswith("forged")]
    lines = lines_of(hostile, capsys, "-o", "markdown")
    assert not any("<script" in line.replace("\\<", "") for line in lines)
    start = lines.index("## All groups, in the order to take them")
    rows = [line for line in lines[start:] if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {11}
    app.run(["fleet", "report", str(hostile), "-o", "json"])
    assert HOSTILE in {g["group_id"] for g in json.loads(capsys.readouterr().out)["groups"]}


def test_records_that_could_not_be_read_are_said(tmp_path: Path, capsys: Said) -> None:
    rows = fleet(20)
    rows["errors"] = [{"source": "a.jsonl", "error": "cut off", "offset": n} for n in range(3)]
    folder = write_tables(tmp_path, rows)
    said = "3 records could not be read, and what they say is missing"
    assert said in lines_of(folder, capsys)[1]
    for form in ("markdown", "html"):
        assert said in "\n".join(lines_of(folder, capsys, "-o", form))
    body = json.loads("\n".join(lines_of(folder, capsys, "-o", "json")))
    assert body["scan"]["records_unreadable"] == 3


def test_an_empty_scan_is_no_error(tmp_path: Path, capsys: Said) -> None:
    folder = write_tables(tmp_path, {})
    for form in ("text", "json", "yaml", "markdown", "html"):
        assert app.run(["fleet", "report", str(folder), "-o", form]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert told.out.startswith("no group")


def test_a_refusal_counts_as_often_as_it_was(small: Path, capsys: Said) -> None:
    lines = lines_of(small, capsys, "--group", group_named("half-way"))
    text = " ".join(" ".join(lines).split())
    assert "RB904 in the way of step 2:" in text
    assert "was refused 12 times with [cooperative-sticky]" in text
    assert "REFUSED ×12" in text


def test_rules_of_a_later_step_are_told_too(small: Path, capsys: Said) -> None:
    text = "\n".join(lines_of(small, capsys))
    assert re.search(r"later step +RB102 in 2 groups: A member lacks the target", text)
    text = "\n".join(lines_of(small, capsys, "-o", "markdown"))
    assert "## In the way of a later step\n\n- **RB102** in 2: A member lacks" in text
    assert "<h2>In the way of a later step</h2>" in "\n".join(lines_of(small, capsys, "-o", "html"))


def test_rates_of_a_short_history_are_said_to_be_extrapolated(tmp_path: Path, capsys: Said) -> None:
    folder = write_tables(tmp_path, fleet(20), minutes=59)
    said = "59 min of history, from which rates an hour are extrapolated"
    assert lines_of(folder, capsys)[1].endswith(said)
    assert "extrapolated" not in "".join(lines_of(write_tables(tmp_path, fleet(20)), capsys))


def test_what_the_log_cleaner_took_between_scans_is_said(tmp_path: Path, capsys: Said) -> None:
    folder = write_tables(tmp_path, fleet(20), breaks={3: (7,), 9: (1, 5)})
    said = "of 2 partitions the log cleaner took records away between two scans"
    for form in ("text", "markdown", "html"):
        assert said in "\n".join(lines_of(folder, capsys, "-o", form))
    body = json.loads("\n".join(lines_of(folder, capsys, "-o", "json")))
    assert body["scan"]["partitions_with_missing_records"] == [3, 9]


def test_nothing_but_offsets_still_makes_a_report(tmp_path: Path, capsys: Said) -> None:
    """Without a request log latencies, lists and software are not known."""
    rows = fleet(20)
    for row in rows["groups"]:
        for name in list(row):
            if "latency" in name:
                row[name] = None
    for row in rows["rebalances"]:
        row |= {"latency_ms": None, "started_at": None, "cause": None}
    for row in rows["members"]:
        row |= {"assignors": None, "software_name": None, "software_version": None}
    rows["assignor_lists"] = []
    folder = write_tables(tmp_path, rows)
    for group in make_fleet_report(folder).to_take:
        assert group.readiness is not None
        assert group.readiness.assumed == (group.readiness.saves is not None)
    for form in ("text", "json", "yaml", "markdown", "html"):
        app.run(["fleet", "report", str(folder), "-o", form])
    told = capsys.readouterr()
    assert told.err == ""
    assert "RB901" in told.out


def test_two_thousand_groups_take_less_than_five_seconds_of_work(
    large: Path, tmp_path: Path
) -> None:
    """Of processor time, start of the process included: the clock's would tell of other tests."""
    for form in ("text", "html"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = ["fleet", "report", str(large), "--exit-zero", "-o", form]
        code = "import sys; from rebal.cli.app import main; main(sys.argv[1:])"
        with (tmp_path / form).open("w") as out:
            subprocess.run([sys.executable, "-c", code, *words], stdout=out, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        assert used < 5, form


def group_named(shape: str) -> str:
    return str(next(r["group_id"] for r in fleet(20)["groups"] if f"-{shape}-" in r["group_id"]))


def test_without_a_broker_the_tables_are_the_group(small: Path, capsys: Said) -> None:
    name = group_named("half-way")
    assert app.run(["inspect", name, "--evidence", str(small)]) == 0
    told = capsys.readouterr()
    assert re.fullmatch(
        rf"rebal: no broker was asked: {small}, as seen until 2026-11-20 09:00Z, \d+ \w+ ago\.\n",
        told.err,
    )
    assert "captured" in told.out
    assert "Nov 20 09:00Z by rebal fleet scan" in told.out
    assert f"rebal plan-upgrade {name} --evidence {small}" in told.out
    assert "request log Nov 20" in told.out
    assert app.run(["plan-upgrade", name, "--evidence", str(small)]) == 0
    told = capsys.readouterr()
    assert "half-way through bounce 1" in told.out
    assert "from what was seen Nov 20 09:00Z" in told.out
    assert "no broker was asked" in told.err
    assert app.run(["inspect", "--all", "--evidence", str(small), "-o", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["groups"]) == 20
    assert app.run(["inspect", "nobody", "--evidence", str(small)]) == 2
    assert "the scan saw no group nobody" in capsys.readouterr().err
    assert app.run(["inspect", name, "--probe", "--evidence", str(small)]) == 2
    assert "name a broker" in capsys.readouterr().err


def test_with_a_broker_the_live_group_gets_what_the_scan_saw(
    small: Path, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member was restarted since the scan: nothing is known of its new member id."""
    name = group_named("eager")
    (scanned,) = read_snapshots(open_tables(small), name)
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
    monkeypatch.setattr(live, "select_groups", lambda *a, **k: (name,))
    monkeypatch.setattr(live, "read_groups", lambda *a, **k: [found])
    words = ["-b", "kafka-1:9092", "--evidence", str(small)]
    assert app.run(["inspect", name, *words, "-o", "json"]) == 0
    told = capsys.readouterr()
    assert f"rebal: --evidence {small}: as seen until 2026-11-20 09:00Z" in told.err
    (group,) = json.loads(told.out)["groups"]
    known = {m["member_id"]: m["assignors"] for m in group["members"]}
    assert known.pop("restarted")["knowledge"] == Knowledge.BOUNDED.value
    assert {m["knowledge"] for m in known.values()} == {Knowledge.EXACT.value}
    for each in known.values():
        assert each["list"] == ["range"]
        assert each["evidence"][-1]["at"].startswith("2026-11-20T0")
    plan = tmp_path / "eager.plan.yaml"
    assert app.run(["plan-upgrade", name, *words, "--out", str(plan)]) == 0
    assert "1 member unknown" in capsys.readouterr().out or plan.exists()
    assert app.run(["plan-upgrade", "--all", *words]) == 0
    assert "no broker" not in capsys.readouterr().err
    assert app.run(["verify", str(plan), *words]) == 4
    assert "as seen until 2026-11-20 09:00Z" in capsys.readouterr().err


def test_a_group_that_the_scan_never_saw_gets_no_evidence_and_that_is_said(
    small: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scanned,) = read_snapshots(open_tables(small), group_named("eager"))
    other = msgspec.structs.replace(
        scanned, group=msgspec.structs.replace(scanned.group, group_id="new-since")
    )
    monkeypatch.setattr(live, "select_groups", lambda *a, **k: ("new-since",))
    monkeypatch.setattr(live, "read_groups", lambda *a, **k: [other])
    app.run(["inspect", "new-since", "-b", "kafka-1:9092", "--evidence", str(small)])
    assert "it saw no join of new-since" in capsys.readouterr().err
