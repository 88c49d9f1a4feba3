"""The folder that `--out` names: finished runs, the one being made, and the switch between them.

    OUT/current -> runs/7            the last finished run; replaced in one step
    OUT/runs/7/manifest.json         what it holds
    OUT/runs/7/<table>/part-*.parquet
    OUT/runs/7/_inputs/<kind>/*.parquet   raw records and requests, for the next scan
    OUT/runs/8.partial/              a run that is not finished: no reader looks there
    OUT/.lock                        held while a scan writes

Whatever ends a scan too early (an error, Ctrl-C, SIGKILL, a power cut) leaves `current` as it was;
what it left behind is removed by the next scan.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import pyarrow.parquet as pq

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.manifest import (
    CURRENT,
    MANIFEST,
    Manifest,
    TableEntry,
    TableFile,
    dump_manifest,
    read_manifest,
)
from rebal.inspectors.fleet.schemas import TABLES

if sys.platform != "win32":
    import fcntl

PARTIAL: Final = ".partial"
INPUTS: Final = "_inputs"
_TASKS: Final = "_tasks"


class StoreError(DocumentError):
    """The folder of the tables cannot be used; says why."""


class Run:
    """A run that is being made. `previous` is the finished one that it goes on from, if any."""

    def __init__(self, out: Path, number: int, previous: Manifest | None) -> None:
        self.number = number
        self.previous = previous
        self._out = out
        self.folder = out / "runs" / f"{number}{PARTIAL}"

    @property
    def tasks(self) -> Path:
        """Where tasks put the files that they report."""
        return self.folder / _TASKS

    @property
    def previous_folder(self) -> Path | None:
        """The finished run's folder."""
        return self._out / "runs" / str(self.previous.run) if self.previous else None

    def inputs(self, kind: str) -> Path:
        """The folder of one kind of raw input: `records`, `requests` or `broken`."""
        return self.folder / INPUTS / kind

    def keep_inputs(self, kind: str) -> None:
        """Take over what the previous run has of `kind` (by link where the disk can)."""
        before = self.previous_folder
        if before is None or not (before / INPUTS / kind).is_dir():
            return
        target = self.inputs(kind)
        target.mkdir(parents=True, exist_ok=True)
        for path in sorted((before / INPUTS / kind).glob("*.parquet")):
            _link(path, target / path.name)

    def take(self, files: Iterable[tuple[str, str, int]]) -> dict[str, TableEntry]:
        """Move reported files (table, file, rows) to their places; every table gets an entry.

        Raises:
            StoreError: a reported file is not here: the executors write to another disk.
        """
        found: dict[str, list[TableFile]] = {name: [] for name in TABLES}
        for table, file, rows in sorted(files):
            place = f"{table}/part-{len(found[table]):05d}.parquet"
            (self.folder / table).mkdir(exist_ok=True)
            self._move(file, self.folder / place)
            found[table].append(TableFile(path=place, rows=rows))
        return {
            name: TableEntry(rows=sum(file.rows for file in files), files=tuple(files))
            for name, files in found.items()
        }

    def take_inputs(self, files: Iterable[tuple[str, str, int]]) -> None:
        """Move reported files (kind, file, rows) to the inputs."""
        for kind, file, _ in files:
            self.inputs(kind).mkdir(parents=True, exist_ok=True)
            self._move(file, self.inputs(kind) / file)

    def lend_errors(self) -> list[tuple[str, str, int]]:
        """What was broken in all scans' sources, as files that `take` can move to `errors`."""
        found: list[tuple[str, str, int]] = []
        for path in sorted(self.inputs("broken").glob("*.parquet")):
            _link(path, self.tasks / path.name)
            found.append(("errors", path.name, pq.ParquetFile(path).metadata.num_rows))
        return found

    def _move(self, file: str, target: Path) -> None:
        try:
            os.replace(self.tasks / file, target)
        except FileNotFoundError:
            raise StoreError(
                f"{self._out}: the executors wrote their files where this machine cannot see "
                "them: name a folder that all of them share with --out."
            ) from None

    def finish(self, manifest: Manifest) -> Path:
        """Make this run the current one, in one step, and remove all others."""
        shutil.rmtree(self.tasks, ignore_errors=True)
        path = self.folder / MANIFEST
        with path.open("wb") as out:
            out.write(dump_manifest(manifest))
            out.flush()
            os.fsync(out.fileno())
        runs = self._out / "runs"
        final = runs / str(self.number)
        os.rename(self.folder, final)
        fresh = self._out / f".{CURRENT}-{self.number}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(Path("runs") / str(self.number))
        os.replace(fresh, self._out / CURRENT)
        _sweep(runs, keep=self.number)
        return final


@contextmanager
def new_run(out: Path, *, full: bool) -> Iterator[Run]:
    """A run to be filled and finished; unless `full`, it goes on from the one that is there.

    What is not finished when the block ends is removed.

    Raises:
        StoreError: the folder cannot be written to, holds something else, or another scan is
            writing there.
        DocumentError: the finished run there cannot be read.
    """
    out = Path(os.path.abspath(out))
    runs = out / "runs"
    try:
        if out.exists() and not (out / CURRENT).is_symlink() and _foreign(out):
            raise StoreError(f"{out}: holds other files; name a new or an empty folder with --out.")
        runs.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("ab")
    except (FileExistsError, NotADirectoryError):
        raise StoreError(f"{out}: is a file; name a folder with --out.") from None
    except OSError as error:
        raise StoreError(f"{out}: cannot be written to ({error.strerror}).") from None
    with lock:
        _hold(lock, out)
        finished = (out / CURRENT).is_symlink()
        before = read_manifest(out) if finished and not full else None
        kept = _number_of(out / CURRENT)
        number = 1 + max([_number(path) for path in runs.iterdir()], default=0)
        _sweep(runs, keep=kept)
        run = Run(out, number, before)
        run.tasks.mkdir(parents=True)
        try:
            yield run
        finally:
            shutil.rmtree(run.folder, ignore_errors=True)


def counted(before: Mapping[str, int] | None, now: Mapping[str, int]) -> dict[str, int]:
    """Two counts by name added up, sorted by name, without zeros."""
    names = sorted({*(before or {}), *now})
    made = {name: (before or {}).get(name, 0) + now.get(name, 0) for name in names}
    return {name: amount for name, amount in made.items() if amount}


def _foreign(out: Path) -> bool:
    return any(path.name not in (".lock", "runs") for path in out.iterdir())


def _hold(lock: IO[bytes], out: Path) -> None:
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(
            f"{out}: another scan is writing there; wait for it, or name another folder."
        ) from None


def _link(path: Path, target: Path) -> None:
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, target)


def _number(path: Path) -> int:
    digits = path.name.removesuffix(PARTIAL)
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def _number_of(link: Path) -> int:
    try:
        return _number(Path(os.readlink(link)))
    except OSError:
        return 0


def _sweep(runs: Path, keep: int) -> None:
    for path in runs.iterdir():
        if path.name != str(keep):
            shutil.rmtree(path, ignore_errors=True)
