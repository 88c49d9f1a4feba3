"""A journal that several commands write, that is moved away, cut off or replaced meanwhile.

A plan that a roll-out rests on is never overwritten: it is kept, or the command refuses.
"""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from rebal.cli import app, planning
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
def out(here: Path) -> Path:
    """Where the plan of a saved group will be."""
    Path("group.yaml").write_text(dump_snapshot(BEFORE))
    return PLAN


@pytest.fixture
def plan(out: Path) -> Plan:
    plan_upgrade(out)
    return read_plan(out)


def plan_upgrade(out: Path, *more: str, snapshot: str = "group.yaml") -> int:
    return app.run(["plan-upgrade", "--snapshot", snapshot, "--out", str(out), *more])


def entry(plan: Plan, minutes: float) -> JournalEntry:
    seen = look(minutes, pods(1, 1))
    return entry_of(plan, verify(plan, (), seen), seen)


def under_way(out: Path) -> str:
    """Make a plan and one look at it; return the journal's text."""
    plan_upgrade(out)
    plan = read_plan(out)
    Journal(journal_path(out), plan).append(entry(plan, 0))
    return journal_path(out).read_text()


def opened(plan: Plan) -> Journal:
    return Journal(journal_path(PLAN), plan)


def new_attempt() -> None:
    later: GroupSnapshot = replace(BEFORE, captured_at=AT + timedelta(minutes=5))
    Path("later.yaml").write_text(dump_snapshot(later))
    words = ["--expect-members", "3", "--new-attempt"]
    assert plan_upgrade(PLAN, *words, snapshot="later.yaml") != 2


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

    monkeypatch.setattr("rebal.cli.sources.GroupSource.read", read)
    assert app.run(["verify", str(PLAN), "--watch", "--every", "0.2"]) == 1
    said = capsys.readouterr()
    assert said.err.count("moved or replaced while this command ran") == 1
    assert "blind" not in said.out
    assert not JOURNAL.exists()
    earlier = Path("checkout.plan.1.yaml")
    kept = Journal(journal_path(earlier), load_plan(earlier.read_text(), "yaml"))
    assert [each.at for each in kept.entries] == [AT + timedelta(minutes=1)]


def test_a_plan_with_a_journal_is_not_overwritten(out: Path, capsys: Said) -> None:
    journal = under_way(out)
    plan = out.read_text()
    capsys.readouterr()
    stated = ["--assume-family", "'*=java'", "--expect-members", "2"]
    assert plan_upgrade(out, *(word.strip("'") for word in stated)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"checkout.plan.yaml is the plan of a roll-out ({journal_path(out)}" in said.err
    assert f"last look {BEFORE.captured_at:%Y-%m-%d %H:%M}Z, step 1)" in said.err
    assert "or add --new-attempt" in said.err
    going_on = said.err.splitlines()[-1].split()
    assert going_on[:3] == ["rebal", "verify", "checkout.plan.yaml"]
    assert all(word in going_on for word in stated)
    assert out.read_text() == plan
    assert journal_path(out).read_text() == journal


def test_a_new_attempt_keeps_the_plan_and_its_journal(out: Path, capsys: Said) -> None:
    journal = under_way(out)
    plan = out.read_text()
    capsys.readouterr()
    assert plan_upgrade(out, "--expect-members", "2", "--new-attempt") != 2
    assert "kept the earlier plan as checkout.plan.1.yaml" in capsys.readouterr().err
    kept = Path("checkout.plan.1.yaml")
    assert (kept.read_text(), journal_path(kept).read_text()) == (plan, journal)
    assert Journal(journal_path(kept), read_plan(kept)).entries
    assert read_plan(out).expected_members == 2
    assert not journal_path(out).exists()
    under_way(out)
    plan_upgrade(out, "--new-attempt")
    assert Path("checkout.plan.2.yaml").exists()
    assert kept.read_text() == plan


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        ("not a plan\n", "is the plan of a roll-out"),
        (None, "whose plan checkout.plan.yaml is gone"),
    ],
)
def test_a_journal_whose_plan_is_damaged_or_gone_is_kept(
    out: Path, damaged: str | None, said: str, capsys: Said
) -> None:
    journal = under_way(out)
    out.unlink()
    if damaged is not None:
        out.write_text(damaged)
    assert plan_upgrade(out) == 2
    assert said in capsys.readouterr().err
    assert plan_upgrade(out, "--new-attempt") != 2
    kept = Path("checkout.plan.1.yaml")
    assert (kept.read_text() if kept.exists() else None) == damaged
    assert journal_path(kept).read_text() == journal


def test_a_full_disk_leaves_the_plan_and_its_journal_together(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, plan = under_way(out), out.read_text()
    write = planning.write_text

    def full(path: Path, text: str) -> None:
        if path == out:
            raise FileError("cannot write: no space left")
        write(path, text)

    monkeypatch.setattr(planning, "write_text", full)
    assert plan_upgrade(out, "--new-attempt") == 1
    assert (out.read_text(), journal_path(out).read_text()) == (plan, journal)


def test_a_linked_plan_has_its_journal_beside_the_file(out: Path, capsys: Said) -> None:
    Path("real").mkdir()
    real = Path("real") / out
    plan_upgrade(real)
    out.symlink_to(real)
    under_way(out)
    capsys.readouterr()
    assert plan_upgrade(real) == 2
    assert "is the plan of a roll-out" in capsys.readouterr().err
    assert plan_upgrade(out, "--new-attempt") != 2
    assert sorted(path.name for path in Path("real").iterdir()) == [
        "checkout.plan.1.yaml",
        "checkout.plan.1.yaml.journal.jsonl",
        "checkout.plan.yaml",
    ]
