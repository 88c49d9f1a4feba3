"""The journal beside a plan: one JSON line for each check of the group by `rebal verify`.

A later command continues the roll-out from it.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from rebal.cli.errors import FileError
from rebal.cli.files import append_line, locked
from rebal.groups.snapshot.documents import dec_hook, enc_hook
from rebal.inspectors.files import read_stream
from rebal.planner.commands import JOURNAL
from rebal.planner.plan import Plan
from rebal.planner.verification.journal import JOURNAL_SCHEMA, JournalEntry, plan_key

_Version: TypeAlias = tuple[int, int, int, int] | None


class Journal:
    """A plan's journal: its entries, oldest first, and its file (None: nothing is written).

    `notes` name the lines that could not be read. Several commands may append to one file at the
    same time. If the file is cut off, moved or replaced meanwhile (as by --new-attempt), the next
    access raises FileError.
    """

    def __init__(self, path: Path | None, plan: Plan) -> None:
        """Read the journal's file, if it exists.

        Raises:
            FileError: the file cannot be read, or is the journal of another plan.
        """
        self.path = path
        self.notes: list[str] = []
        self.entries: list[JournalEntry] = []
        self._lines: dict[str, JournalEntry] = {}
        self._plan = plan
        self._version: _Version = None
        self.refresh()

    def refresh(self) -> None:
        """Read the file again if it has changed.

        Raises:
            FileError: the file cannot be read, is another plan's, or lacks lines read before.
        """
        if self.path is not None and self.path.exists():
            with locked(self.path, appending=False) as file:
                self._read(self.path, file)
        elif self._lines:
            raise FileError(self._lost())

    def append(self, entry: JournalEntry) -> None:
        """Add `entry`, in memory and on the disk.

        Raises:
            FileError: the file cannot be written, or as in `refresh`.
        """
        body = {"schema": JOURNAL_SCHEMA, **msgspec.to_builtins(entry, enc_hook=enc_hook)}
        line = json.dumps(body, separators=(",", ":"))
        if self.path is not None:
            self.refresh()
            with locked(self.path, appending=True) as file:
                self._read(self.path, file)
                append_line(file, line)
                self._version = _version_of(file)
        self._lines[line] = entry
        self.entries.append(entry)

    def _read(self, path: Path, file: IO[bytes]) -> None:
        """Read the entries from the locked file, if it has changed since the last read."""
        version = _version_of(file)
        if version == self._version:
            return
        notes: list[str] = []
        text = read_stream(file)
        there = dict(self._entries(text, path, notes))
        if notes and not (there or text.lstrip().startswith("{")):
            raise FileError(f"{path}: is no journal: name another file with --journal.")
        if not self._lines.keys() <= there.keys():
            raise FileError(self._lost())
        self._lines = there
        self.entries = sorted(there.values(), key=lambda entry: entry.at)
        self._version, self.notes = version, notes

    def _lost(self) -> str:
        return (
            f"{self.path} was cut off, moved or replaced while this command ran, as --new-attempt "
            "does: this command stops and records nothing more; verify the plan that is there."
        )

    def _entries(
        self, text: str, path: Path, notes: list[str]
    ) -> Iterator[tuple[str, JournalEntry]]:
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            try:
                body = json.loads(line)
            except (ValueError, RecursionError):
                notes.append(
                    f"{path}: line {number} is incomplete and ignored; what it recorded is lost."
                )
                continue
            yield line, self._entry(body, f"{path}: line {number}", self._plan)

    def _entry(self, body: object, where: str, plan: Plan) -> JournalEntry:
        schema = body.get("schema") if isinstance(body, dict) else None
        if schema != JOURNAL_SCHEMA:
            raise FileError(
                f"{where}: expected a line of {JOURNAL_SCHEMA}, got {schema!r}: finish with the "
                "version that wrote it, or begin again with plan-upgrade --new-attempt."
            )
        try:
            entry = msgspec.convert(body, JournalEntry, dec_hook=dec_hook)
        except (msgspec.ValidationError, UnicodeError) as error:
            # The latter where half a surrogate pair stands in the place of a time.
            raise FileError(f"{where}: {error}.") from None
        if entry.plan != plan_key(plan):
            raise FileError(
                f"{where}: belongs to another plan ({entry.plan}, not {plan_key(plan)}): verify "
                "that plan, or name another file with --journal."
            )
        return entry


def _version_of(file: IO[bytes]) -> _Version:
    """Return the open file's device, inode, size and time, to notice writes and replacement."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def journal_path(plan_file: Path) -> Path:
    """Return the path of a plan's journal: `a.plan.yaml` → `a.plan.yaml.journal.jsonl`.

    If `plan_file` is a link, the journal is beside the file that it points to.
    """
    file = Path(os.path.realpath(plan_file)) if plan_file.is_symlink() else plan_file
    return file.with_name(file.name + JOURNAL)
