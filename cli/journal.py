"""The journal beside a plan: one JSON line for each look, so that a watch can be resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, TypeAlias

import msgspec

from rebal.cli import output
from rebal.cli.errors import FileError
from rebal.cli.files import append_lines, locked, read_text
from rebal.groups.errors import RebalError
from rebal.groups.snapshot.documents import dec_hook, enc_hook, format_of
from rebal.inspectors.files import text_of
from rebal.planner.plan import Plan, load_plan
from rebal.planner.verification.journal import JOURNAL_SCHEMA, JournalEntry, plan_key

ENDING: Final = ".journal.jsonl"
PLAN_ENDINGS: Final = (".yaml", ".yml", ".json")
_Version: TypeAlias = tuple[int, int, int, int] | None


class Journal:
    """The entries of a journal, oldest first, and its file (None: nothing is written).

    `notes` say what could not be read. Several commands may add to one file at the same time, and
    the file may be cut off, moved or replaced meanwhile: it then gets the known lines again, unless
    `plan_file` holds another plan by then.
    """

    def __init__(self, path: Path | None, plan: Plan, *, plan_file: Path | None = None) -> None:
        """Read what is there.

        Raises:
            FileError: the file cannot be read, or is the journal of another plan.
        """
        self.path = path
        self.notes: list[str] = []
        self.entries: list[JournalEntry] = []
        self._lines: dict[str, JournalEntry] = {}
        self._lost: list[str] = []
        self._plan = plan
        self._plan_file = plan_file
        self._planned = _version(plan_file)
        self._version: _Version = None
        if path is not None and path.exists():
            with locked(path, appending=False) as file:
                self._read(path, file)

    def refresh(self) -> None:
        """Read the file again if it has changed, and write what it has lost.

        Raises:
            FileError: as when it was made, or the plan was replaced by another one.
        """
        self._check_plan()
        if _version(self.path) != self._version:
            self._write()

    def append(self, entry: JournalEntry) -> None:
        """Add `entry`, in memory and on the disk.

        Raises:
            FileError: the file cannot be written, or as in `refresh`.
        """
        body = {"schema": JOURNAL_SCHEMA, **msgspec.to_builtins(entry, enc_hook=enc_hook)}
        line = json.dumps(body, separators=(",", ":"))
        self._check_plan()
        self._write(line)
        self._lines[line] = entry
        self.entries.append(entry)

    def _check_plan(self) -> None:
        """Check that the plan's file does not hold another plan by now.

        Raises:
            FileError: it does. A damaged file, or none, is no other plan.
        """
        now = _version(self._plan_file)
        if self._plan_file is None or now in (None, self._planned):
            return
        try:
            plan = load_plan(read_text(self._plan_file), format_of(str(self._plan_file)))
        except RebalError:
            return
        if plan != self._plan:
            raise FileError(
                f"{self._plan_file} was replaced by another plan while this command ran: this "
                "command stops and records nothing more; verify the new plan."
            )
        self._planned = now

    def _write(self, *lines: str) -> None:
        """Append `lines` after those that the file has lost."""
        if self.path is None:
            return
        with locked(self.path, appending=True) as file:
            # A plan is replaced before its journal is moved, and this file may be a new one.
            self._check_plan()
            self._read(self.path, file)
            if self._lost:
                output.say(
                    f"{self.path} was cut off, moved or replaced: {len(self._lost)} looks that it "
                    "had are written to it again."
                )
            append_lines(file, (*self._lost, *lines))
            self._lost = []
            self._version = _version_of(os.fstat(file.fileno()))

    def _read(self, path: Path, file: IO[bytes]) -> None:
        """Read the locked file, if it is not as it was; find the known lines that it lacks."""
        version = _version_of(os.fstat(file.fileno()))
        if version == self._version:
            return
        notes: list[str] = []
        text = text_of(file)
        there = dict(self._entries(text, path, notes))
        if notes and not (there or self._lines or text.lstrip().startswith("{")):
            raise FileError(f"{path}: is no journal: name another file with --journal.")
        self._lost = [line for line in self._lines if line not in there]
        self._lines = {**self._lines, **there}
        self.entries = sorted(self._lines.values(), key=lambda entry: entry.at)
        self._version, self.notes = version, notes

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
                f"{where}: belongs to another plan ({entry.plan}, not {plan_key(plan)}): "
                "name another file with --journal."
            )
        return entry


def _version(path: Path | None) -> _Version:
    """Return what changes when the file is written or replaced; None without a file."""
    try:
        return None if path is None else _version_of(path.stat())
    except OSError:
        return None


def _version_of(found: os.stat_result) -> _Version:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def journal_path(plan_file: Path) -> Path:
    """Return the default path of a plan's journal: `a.plan.yaml` → `a.plan.journal.jsonl`.

    It stands beside the file itself, not beside a link to it. Where plans of other formats have the
    same name, that journal is the one of the plan that it names, and each other plan has its own:
    `a.plan.json` → `a.plan.json.journal.jsonl`.
    """
    file = Path(os.path.realpath(plan_file)) if plan_file.is_symlink() else plan_file
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
