"""The journal beside a plan: one JSON line for each look, so that a watch can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from rebal.cli.errors import FileError
from rebal.cli.files import append_line, read_text
from rebal.groups.errors import RebalError
from rebal.groups.snapshot.documents import format_of
from rebal.planner.plan import Plan, load_plan
from rebal.planner.verification.journal import JOURNAL_SCHEMA, JournalEntry, plan_key

ENDING: Final = ".journal.jsonl"
PLAN_ENDINGS: Final = (".yaml", ".yml", ".json")


class Journal:
    """The entries of a journal, oldest first, and its file (None: nothing is written).

    `notes` say what could not be read. Several commands may add to one file at the same time.
    """

    def __init__(self, path: Path | None, plan: Plan) -> None:
        """Read what is there.

        Raises:
            FileError: the file cannot be read, or is the journal of another plan.
        """
        self.path = path
        self.notes: list[str] = []
        self.entries: list[JournalEntry] = []
        self._plan = plan
        self._size = 0
        self.refresh()

    def refresh(self) -> None:
        """Read the file again if another command has appended to it.

        Raises:
            FileError: as when it was made.
        """
        if self.path is None or not self.path.exists() or self._size == _size(self.path):
            return
        self.notes.clear()
        self._size = _size(self.path)
        self.entries = sorted(self._read(self.path, self._plan), key=lambda entry: entry.at)

    def append(self, entry: JournalEntry) -> None:
        """Add `entry`, in memory and on the disk.

        Raises:
            FileError: the file cannot be written.
        """
        if self.path is not None:
            body = {"schema": JOURNAL_SCHEMA, **msgspec.to_builtins(entry)}
            line = json.dumps(body, separators=(",", ":"))
            append_line(self.path, line)
            self._size += len(line) + 1
        self.entries.append(entry)

    def _read(self, path: Path, plan: Plan) -> Iterator[JournalEntry]:
        lines = read_text(path).split("\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                body = json.loads(line)
            except (ValueError, RecursionError):
                self.notes.append(
                    f"{path}: line {number} is incomplete and ignored; what it recorded is lost."
                )
                continue
            yield self._entry(body, f"{path}: line {number}", plan)

    def _entry(self, body: object, where: str, plan: Plan) -> JournalEntry:
        schema = body.get("schema") if isinstance(body, dict) else None
        if schema != JOURNAL_SCHEMA:
            raise FileError(f"{where}: expected a line of {JOURNAL_SCHEMA}, got {schema!r}.")
        try:
            entry = msgspec.convert(body, JournalEntry)
        except msgspec.ValidationError as error:
            raise FileError(f"{where}: {error}.") from None
        if entry.plan != plan_key(plan):
            raise FileError(
                f"{where}: belongs to another plan ({entry.plan}, not {plan_key(plan)}): "
                "name another file with --journal."
            )
        return entry


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}.") from None


def journal_path(plan_file: Path) -> Path:
    """Return the default path of a plan's journal: `a.plan.yaml` → `a.plan.journal.jsonl`.

    It stands beside the file itself, not beside a link to it. Where plans of other formats have the
    same name, that journal is the one of the plan that it names, and each other plan has its own:
    `a.plan.json` → `a.plan.json.journal.jsonl`.
    """
    file = plan_file.resolve() if plan_file.is_symlink() else plan_file
    shared, own = file.with_suffix(ENDING), file.with_name(file.name + ENDING)
    alike = [path for path in map(file.with_suffix, PLAN_ENDINGS) if path.exists()]
    if file not in alike or alike == [file]:
        return shared if not own.exists() else own
    if own.exists():
        return own
    if not shared.exists():
        return shared if alike[0] == file else own
    named, key = _named_by(shared), _key_of(file)
    return shared if key is not None and named in (key, None) else own


def _named_by(journal: Path) -> str | None:
    """Return the key of the plan that a journal's first whole line names; None without one."""
    for line in read_text(journal).splitlines():
        try:
            plan = json.loads(line)["plan"]
        except (ValueError, RecursionError, KeyError, TypeError):
            continue
        return str(plan)
    return None


def _key_of(file: Path) -> str | None:
    """Return the key of the plan in `file`; None where it is damaged."""
    try:
        return plan_key(load_plan(read_text(file), format_of(str(file)), str(file)))
    except RebalError:
        return None
