"""The fleet's report as text and Markdown: the answer first, on one screen, every name as text."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from rebal.cli import output
from rebal.cli.fleet import FleetReport
from rebal.cli.render.fleet.screen import MOST, fleet_view
from rebal.cli.render.fleet.terms import INCIDENTS, PATHS, RATES, VERDICTS
from tests.fleet.conftest import check_hostile, report_lines
from tests.fleet.synthetic import HOSTILE, fleet, group_named, hostile_fleet
from tests.fleet.tablefiles import AT, Rows, write_tables

Said = pytest.CaptureFixture[str]


def test_twenty_groups_are_all_listed_the_answer_first(small_scan: Path, capsys: Said) -> None:
    lines = report_lines(small_scan, capsys)
    assert lines[0] == "20 groups: 8 ready, 1 held, 3 blocked, 3 unproven, 4 done, 1 gone"
    assert re.fullmatch(r"as seen until 2026-11-20 09:00Z, \d+ \w+ ago; 24 h of history", lines[1])
    assert lines[2] == "no trend yet: the lake has one scan of this cluster"
    answers = "\n".join(lines[4:11])
    assert "runs EAGER    12 of 19 groups; not known for 2\n" in answers
    assert "can move now  8: checkout-dropped-0018, " in answers
    assert "hurt now      2: fraud-storm-0010, ledger-crash-loop-0006\n" in answers
    assert "must wait     3 for the owners' clients or settings (blocked); 3 for" in answers
    table = "\n".join(lines[9:35])
    for row in fleet(20)["groups"]:
        assert row["group_id"] in table
    text = "\n".join(lines)
    assert re.search(r"blocked by +RB104 in 3 groups:", text)
    assert re.search(r"later step +RB102 in 2 groups: A member lacks the target", text)
    assert re.search(r"cannot tell +RB901 in 3 groups:", text)
    assert "fraud-storm-0010" in text[text.index("worst off now") :].splitlines()[2]
    assert lines[-1].strip() == f"rebal fleet report {small_scan} --out fleet.html"


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 100, 130, 200])
def test_four_hundred_groups_fit_one_screen_of_any_width(
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


def test_one_group_is_shown_with_its_whole_history(small_scan: Path, capsys: Said) -> None:
    name = group_named("half-way")
    lines = report_lines(small_scan, capsys, "--group", name)
    text = "\n".join(lines)
    assert "rebalance-rate-per-hour" in text
    assert "failed-rebalance-total" in text
    assert "[cooperative-sticky] REJECTED ×12" in text
    assert "[cooperative-sticky, range]" in text
    assert "RB102" in text
    said = " ".join(text.split())
    assert "RB904 in the way of step 2:" in said
    assert "was rejected 12 times (INCONSISTENT_GROUP_PROTOCOL) with [cooperative-sticky]" in said
    generations = [r["generation"] for r in fleet(20)["rebalances"] if r["group_id"] == name]
    rebalances = text[: text.index("assignor lists:")]
    shown = re.findall(r"^2026-\S+ \S+Z +(\d+) ", rebalances, re.MULTILINE)
    assert [int(n) for n in shown] == sorted(generations, reverse=True)


def test_rules_of_a_later_step_are_told_on_pages_too(small_scan: Path, capsys: Said) -> None:
    text = "\n".join(report_lines(small_scan, capsys, "-o", "markdown"))
    assert "## In the way of a later step\n\n- **RB102** in 2: A member lacks" in text
    text = "\n".join(report_lines(small_scan, capsys, "-o", "html"))
    assert "<h2>In the way of a later step</h2>" in text


def test_hostile_names_stay_text_in_every_form(tmp_path: Path, capsys: Said) -> None:
    hostile = write_tables(tmp_path, hostile_fleet())
    for words in ([], ["--group", HOSTILE], ["-o", "markdown"], ["--wide"]):
        check_hostile(hostile, capsys, *words)
    lines = report_lines(hostile, capsys, "-o", "markdown")
    start = lines.index("## All groups, in the order to take them")
    rows = [line for line in lines[start:] if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [11] * 9
    body = json.loads("\n".join(report_lines(hostile, capsys, "-o", "json")))
    assert HOSTILE in {group["group_id"] for group in body["groups"]}


def test_what_is_missing_is_said_in_every_form(tmp_path: Path, capsys: Said) -> None:
    broken = [{"source": "a.jsonl", "error": "cut off", "offset": n} for n in range(3)]
    rows = {**fleet(20), "errors": broken}
    folder = write_tables(tmp_path, rows, breaks={3: (7,), 9: (1, 5)})
    for form in ("text", "markdown", "html"):
        text = " ".join(" ".join(report_lines(folder, capsys, "-o", form)).split())
        assert "3 records could not be read, and their evidence is missing" in text
        assert "of 2 partitions the log cleaner removed records between two scans" in text
    scan = json.loads("\n".join(report_lines(folder, capsys, "-o", "json")))["scan"]
    assert (scan["records_unreadable"], scan["partitions_with_missing_records"]) == (3, [3, 9])


@pytest.mark.parametrize("minutes", [2, 24 * 60])
def test_rates_of_a_short_history_are_said_to_be_extrapolated(
    minutes: int, tmp_path: Path, capsys: Said
) -> None:
    lines = report_lines(write_tables(tmp_path, fleet(20), minutes=minutes), capsys, "--wide")
    said = "2 min of history, from which rates an hour are extrapolated"
    assert lines[1].endswith(said) is (minutes == 2)
    (head,) = (n for n, line in enumerate(lines) if line.startswith("worst off now"))
    assert ("EXTRAPOLATED" in lines[head + 1]) is (minutes == 2)
    worst = lines[head + 2 : head + 2 + MOST]
    assert all(line.endswith("from 2 min") is (minutes == 2) for line in worst)


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_terms_are_explained_where_they_stand_and_no_others(
    form: str, tmp_path: Path, capsys: Said
) -> None:
    def told(rows: Rows, name: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        words = [] if form == "text" else ["-o", form]
        return " ".join(" ".join(report_lines(write_tables(folder, rows), capsys, *words)).split())

    every = told(fleet(20), "every")
    for meaning in (VERDICTS["held"], PATHS["cut over"], INCIDENTS["storm"], RATES["downtime/h"]):
        assert meaning in every
    calm = fleet(20)
    calm["incidents"] = []
    assert INCIDENTS["storm"] not in told(calm, "calm")


def test_members_that_no_record_shows_are_no_zero(tmp_path: Path, capsys: Said) -> None:
    rows = fleet(20)
    rows["groups"][0] |= {"type": "streams", "members": None, "assignor": None}
    name = rows["groups"][0]["group_id"]
    folder = write_tables(tmp_path, rows)
    lines = report_lines(folder, capsys, "-o", "markdown")
    cells = [cell.strip() for line in lines if f" {name} " in line for cell in line.split("|")]
    assert "·" in cells
    page = "\n".join(report_lines(folder, capsys, "-o", "html"))
    assert '<td class="n" data-k="0">·</td>' in page
