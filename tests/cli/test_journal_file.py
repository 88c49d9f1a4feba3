"""A journal that several commands write, that is moved away, cut off or replaced meanwhile."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from rebal.cli import app
from rebal.cli.errors import FileError
from rebal.cli.journal import Journal, journal_path
from rebal.cli.verifying import read_plan
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.plan import Plan, load_plan
from rebal.planner.verification.journal import JournalEntry
from rebal.planner.verification.verify import entry_of, verify
from tests.planner.builder import AT
from tests.planner.looks import look, pods

BEFORE = look(0, pods(1, 1))
PLAN = Path("checkout.plan.yaml")
JOURNAL = Path("checkout.plan.yaml.journal.jsonl")
Said = pytest.CaptureFixture[str]


@pytest.fixture
def plan(here: Path) -> Plan:
    Path("group.yaml").write_text(dump_snapshot(BEFORE))
    app.run(["plan-upgrade", "--snapshot", "group.yaml", "--out", str(PLAN)])
    return read_plan(PLAN)


def entry(plan: Plan, minutes: float) -> JournalEntry:
    seen = look(minutes, pods(1, 1))
    return entry_of(plan, verify(plan, (), seen), seen)


def opened(plan: Plan) -> Journal:
    return Journal(journal_path(PLAN), plan)


def new_attempt(expected: int = 3, minutes: float = 5) -> None:
    later: GroupSnapshot = replace(BEFORE, captured_at=AT + timedelta(minutes=minutes))
    Path("later.yaml").write_text(dump_snapshot(later))
    words = ["plan-upgrade", "--snapshot", "later.yaml", "--out", str(PLAN)]
    assert app.run([*words, "--expect-members", str(expected), "--new-attempt"]) != 2


def looks_in(journal: Path) -> int:
    return len(journal.read_text().splitlines()) if journal.exists() else 0


@pytest.mark.parametrize("next_look", [False, True], ids=["moved", "moved, and a new one begun"])
def test_a_command_whose_plan_is_set_aside_stops_and_writes_nothing_more(
    plan: Plan, next_look: bool
) -> None:
    book = opened(plan)
    book.append(entry(plan, 1))
    before = JOURNAL.read_text()
    new_attempt()
    if next_look:
        opened(read_plan(PLAN)).append(entry(read_plan(PLAN), 6))
    mine = JOURNAL.read_text() if next_look else None
    said = "belongs to another plan" if next_look else "moved or replaced while this command ran"
    for act in (book.refresh, lambda: book.append(entry(plan, 7))):
        with pytest.raises(FileError, match=said):
            act()
    assert (JOURNAL.read_text() if JOURNAL.exists() else None) == mine
    assert Path("checkout.plan.1.yaml.journal.jsonl").read_text() == before


@pytest.mark.parametrize("damage", ["emptied", "first line", "half a line", "same size"])
def test_a_journal_that_lost_looks_meanwhile_is_left_as_it_is(plan: Plan, damage: str) -> None:
    book = opened(plan)
    for minutes in (1, 2):
        book.append(entry(plan, minutes))
    first, second = JOURNAL.read_text().splitlines(keepends=True)
    if damage == "same size":
        JOURNAL.write_text(first + "x" * (len(second) - 1) + "\n")
    else:
        cut = {"emptied": 0, "first line": len(first), "half a line": len(first) + 9}[damage]
        os.truncate(JOURNAL, cut)
    left = JOURNAL.read_text()
    for act in (book.refresh, book.refresh, lambda: book.append(entry(plan, 3))):
        with pytest.raises(FileError, match="was cut off"):
            act()
    assert JOURNAL.read_text() == left


def test_a_line_that_another_command_adds_is_kept_and_nothing_is_said(
    plan: Plan, capsys: Said
) -> None:
    mine, other = opened(plan), opened(plan)
    capsys.readouterr()
    for minutes in (1, 2, 3):
        mine.append(entry(plan, minutes))
        other.append(entry(plan, minutes + 0.5))
    assert mine.entries == other.entries[:-1]
    mine.refresh()
    assert mine.entries == other.entries
    assert looks_in(JOURNAL) == len(other.entries) == 6
    assert capsys.readouterr().err == ""


def test_a_watch_whose_plan_is_replaced_stops_and_is_not_blind(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    minutes = iter(range(1, 9))

    def read(*_: object, **__: object) -> GroupSnapshot:
        minute = next(minutes)
        if minute == 2:
            new_attempt()
        return look(minute, pods(1, 1))

    monkeypatch.setattr("rebal.cli.sources.snapshot_for", read)
    assert app.run(["verify", str(PLAN), "--watch", "--every", "0.2"]) == 1
    said = capsys.readouterr()
    assert said.err.count("moved or replaced while this command ran") == 1
    assert "blind" not in said.out
    assert not JOURNAL.exists()
    earlier = Path("checkout.plan.1.yaml")
    kept = Journal(journal_path(earlier), load_plan(earlier.read_text(), "yaml"))
    assert [each.at for each in kept.entries] == [AT + timedelta(minutes=1)]
