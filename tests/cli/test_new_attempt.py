"""A plan that a roll-out rests on is never overwritten: it is kept, or the command refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebal.cli import app, planning
from rebal.cli.errors import FileError
from rebal.cli.journal import Journal, journal_path
from rebal.cli.verifying import read_plan
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.verification.verify import entry_of, verify
from tests.planner.looks import look, pods

BEFORE = look(0, pods(1, 1))
Said = pytest.CaptureFixture[str]


@pytest.fixture
def out(here: Path) -> Path:
    Path("group.yaml").write_text(dump_snapshot(BEFORE))
    return Path("checkout.plan.yaml")


def plan_upgrade(out: Path, *more: str) -> int:
    return app.run(["plan-upgrade", "--snapshot", "group.yaml", "--out", str(out), *more])


def under_way(out: Path) -> str:
    """Make a plan and one look at it; return the journal's text."""
    plan_upgrade(out)
    plan = read_plan(out)
    Journal(journal_path(out), plan).append(entry_of(plan, verify(plan, (), BEFORE), BEFORE))
    return journal_path(out).read_text()


def test_a_plan_with_a_journal_is_not_overwritten(out: Path, capsys: Said) -> None:
    journal = under_way(out)
    plan = out.read_text()
    capsys.readouterr()
    stated = ["--assume-family", "'*=java'", "--expect-members", "2"]
    assert plan_upgrade(out, *(word.strip("'") for word in stated)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        "checkout.plan.yaml is the plan of a roll-out (checkout.plan.yaml.journal.jsonl" in said.err
    )
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
