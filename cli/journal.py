"""The journal beside a plan: one JSON line for each look, so that a watch can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from rebal.cli.errors import FileError
from rebal.cli.files import append_line, read_text
from rebal.planner.plan import Plan
from rebal.planner.verification.journal import JOURNAL_SCHEMA, JournalEntry, plan_key

ENDING: Final = ".journal.jsonl"


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

    It stands beside the file itself, not beside a link to it.
    """
    file = plan_file.resolve() if plan_file.is_symlink() else plan_file
    return file.with_suffix(ENDING)
