"""Files are written whole or not at all; a journal that is moved, cut off or replaced."""

import gzip
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from rebal.cli import app, files, planning
from rebal.cli.errors import FileError, UsageError
from rebal.cli.journal import Journal, journal_path
from rebal.cli.verifying import read_plan
from rebal.groups.errors import RebalError
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.inspectors import files as text_files
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
def test_a_command_stops_writing_its_journal_when_a_new_attempt_replaces_the_plan(
    plan: Plan, next_look: bool
) -> None:
    journal = opened(plan)
    journal.append(entry(plan, 1))
    before = JOURNAL.read_text()
    new_attempt()
    if next_look:
        opened(read_plan(PLAN)).append(entry(read_plan(PLAN), 6))
    later_journal = JOURNAL.read_text() if next_look else None
    said = "belongs to another plan" if next_look else "moved or replaced while this command ran"
    for act in (journal.refresh, lambda: journal.append(entry(plan, 7))):
        with pytest.raises(FileError, match=said):
            act()
    assert (JOURNAL.read_text() if JOURNAL.exists() else None) == later_journal
    assert Path("checkout.plan.1.yaml.journal.jsonl").read_text() == before


@pytest.mark.parametrize("damage", ["emptied", "first line", "half a line", "same size"])
def test_a_journal_that_was_cut_off_meanwhile_is_left_unchanged(plan: Plan, damage: str) -> None:
    journal = opened(plan)
    for minutes in (1, 2):
        journal.append(entry(plan, minutes))
    first, second = JOURNAL.read_text().splitlines(keepends=True)
    if damage == "same size":
        JOURNAL.write_text(first + "x" * (len(second) - 1) + "\n")
    else:
        cut = {"emptied": 0, "first line": len(first), "half a line": len(first) + 9}[damage]
        os.truncate(JOURNAL, cut)
    left = JOURNAL.read_text()
    for act in (journal.refresh, journal.refresh, lambda: journal.append(entry(plan, 3))):
        with pytest.raises(FileError, match="was cut off"):
            act()
    assert JOURNAL.read_text() == left


def test_two_commands_that_append_to_one_journal_keep_each_others_lines(
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


def test_verify_watch_stops_with_an_error_when_its_plan_is_replaced(
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
    next_command = said.err.splitlines()[-1].split()
    assert next_command[:3] == ["rebal", "verify", "checkout.plan.yaml"]
    assert all(word in next_command for word in stated)
    assert out.read_text() == plan
    assert journal_path(out).read_text() == journal


def test_a_new_attempt_keeps_the_earlier_plan_and_its_journal(out: Path, capsys: Said) -> None:
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
def test_a_new_attempt_keeps_a_journal_whose_plan_is_damaged_or_missing(
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


def test_the_journal_of_a_symlinked_plan_lies_beside_its_target(out: Path, capsys: Said) -> None:
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


def test_a_saved_snapshot_reads_back_and_the_next_save_keeps_its_file_mode(
    tmp_path: Path, group: Callable[..., GroupSnapshot]
) -> None:
    path = files.save_snapshot(group(), tmp_path)
    assert path.name == "checkout.rebal.yaml"
    assert files.read_snapshot(path) == group()
    path.chmod(0o640)
    files.save_snapshot(group(members=()), path)
    assert files.read_snapshot(path).members == ()
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["checkout.rebal.yaml"]


def test_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write_text(tmp_path / "a", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_failed_write_leaves_the_old_file_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rebal.cli.files.os.fsync", full)
    with pytest.raises(FileError, match=r"cannot write .*a\.yaml: no space left on device\."):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.yaml"]
    with pytest.raises(FileError, match=r"cannot write .*: no such file or directory\."):
        files.write_text(tmp_path / "no" / "a.yaml", "x")


def test_a_write_through_a_symlink_replaces_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    files.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..", ".", "", "a/b", "nul\0\n", "ünïcode", "x" * 249, "-o", ".x"]
)
def test_any_group_id_makes_a_file_inside_the_folder(
    name: str, tmp_path: Path, group: Callable[..., GroupSnapshot]
) -> None:
    made = files.save_snapshot(group(group_id=name), tmp_path)
    assert made.parent == tmp_path
    assert os.listdir(tmp_path) == [made.name]
    assert not made.name.startswith(("-", "."))
    assert made.name.isascii()
    assert files.read_snapshot(made).group.group_id == name


# A path that is no snapshot, what stands there (of a good one's text) and what is said of it.
BAD: dict[str, tuple[str, Callable[[str], bytes] | None, str]] = {
    "missing": ("none.yaml", None, "there is no such file"),
    "folder": ("", None, "is a folder"),
    "endless": ("/dev/zero", None, "is no text"),
    "sparse": ("s.json", lambda good: b"", "is no text"),
    "pipe": ("p.yaml", None, "nothing was written to this pipe within 0.05 s"),
    "name": ("\ud800.yaml", None, "no file can have this name"),
    "binary": ("b.yaml", lambda good: b"schema: \xff\xfe", "not UTF-8 text"),
    "gz": ("g.yaml", lambda good: gzip.compress(good.encode()), "is compressed; unpack it first"),
    "UTF-16": ("u.yaml", lambda good: good.encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    "empty": ("e.yaml", lambda good: b"", "expected a document with `schema: rebal.snapshot/1`"),
    "cut off": ("c.json", lambda good: good.encode()[: len(good) // 2], "not valid JSON"),
    "newer": (
        "n.json", lambda good: good.replace("snapshot/1", "snapshot/2").encode(),
        "use the rebal version that wrote it",
    ),
    "other": ("o.json", lambda good: b'{"schema": "rebal.inspect/1"}', "expected rebal.snapshot/1"),
    "ending": ("x.toml", lambda good: b"", "the ending says the format"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "made", "said"), BAD.values(), ids=BAD)
def test_a_file_that_is_no_snapshot_is_reported_in_one_sentence(
    name: str,
    made: Callable[[str], bytes] | None,
    said: str,
    *,
    tmp_path: Path,
    group: Callable[..., GroupSnapshot],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rebal.inspectors.files._PATIENCE", 0.05)
    path = tmp_path / name
    if made is not None:
        path.write_bytes(made(dump_snapshot(group(), "json")))
    if name == "p.yaml":
        os.mkfifo(path)
    if name == "s.json":
        os.truncate(path, 1 << 30)
    with pytest.raises(RebalError) as caught:
        files.read_snapshot(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_named_pipe_is_read_and_written_if_the_other_end_is_open(tmp_path: Path) -> None:
    pipe = tmp_path / "p"
    os.mkfifo(pipe)
    with pytest.raises(FileError, match=r"cannot write .*p: no such device or address"):
        files.write_text(pipe, "x")
    with ThreadPoolExecutor(1) as other:
        read = other.submit(text_files.read_text, pipe)
        wrote = False
        while not (wrote or read.done()):
            with suppress(FileError):
                files.write_text(pipe, "written")
                wrote = True
        assert read.result() == "written"
    assert pipe.is_fifo()


def test_a_text_file_above_the_size_limit_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 11)
    assert text_files.read_text(tmp_path / "a", 11) == "x" * 11
    with pytest.raises(OSError, match="is larger than 0 MiB, so it is no document"):
        text_files.read_text(tmp_path / "a", 10)


def test_the_only_snapshot_of_a_folder_is_found_and_none_or_two_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rebal inspect GROUP --save"):
        files.the_one_snapshot(tmp_path)
    (tmp_path / "a.rebal.yaml").write_text("x")
    (tmp_path / "notes.yaml").write_text("x")
    assert files.the_one_snapshot(tmp_path).name == "a.rebal.yaml"
    (tmp_path / "b.rebal.yaml").write_text("x")
    with pytest.raises(UsageError, match=r"has 2 \(a\.rebal\.yaml, b\.rebal\.yaml\)"):
        files.the_one_snapshot(tmp_path)


def test_a_device_is_written_and_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "full.yaml").symlink_to("/dev/full")
    with pytest.raises(FileError, match=r"full\.yaml: no space left on device\."):
        files.write_text(tmp_path / "full.yaml", "x")
    assert Path("/dev/full").is_char_device()
    assert os.listdir(tmp_path) == ["full.yaml"]
