"""A scan in progress in a lake, from its number to its row in the table `scans`.

    LAKE/<table>/<number>-<random>/*.parquet   files of its tasks, not yet in a table
    one Delta commit to each table, then one to scans

A scan may end too early at any of these steps (an error, Ctrl-C, SIGKILL, a lost machine). Then no
row in `scans` names its files, and the next scan's commits remove them from the tables. If two
scans of one cluster overlap, the first Delta commit decides, and the other scan ends with an error.

Files and Delta log entries that no kept scan needs are deleted. Each scan does so now and then, for
its own cluster. `compact` deletes all of them at once, after the rows of scans that are kept no
longer. It disturbs no scan in progress.

Each scan continues from the previous one. So a file belongs to every scan from the one that wrote
it to the one that replaced it. A file from before the first kept scan is needed only if the first
kept scan has it. A file of a later scan may be needed by any. So no other table version has to be
opened, however many scans are kept.

delta-rs's `vacuum` decides by the age of files in hours. It would delete the files of a longer scan
in progress. It would also keep replaced files of a cluster that is scanned each minute, as long as
the oldest scan of any cluster. It opens every version that stays. Its `cleanup_metadata` decides by
the age of log entries, from a table property, and a change of that property ends every scan in
progress.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from rebal.inspectors.fleet.lake.place import PROBE, LakeError, LakePlace
from rebal.inspectors.fleet.lake.scans import (
    LEAST,
    SCANS,
    Finished,
    ScanRow,
    Scans,
    expired,
    is_lake,
)
from rebal.inspectors.fleet.lake.table import (
    CHECKPOINT,
    DataFile,
    LakeTable,
    lost,
    number_of,
    token_of,
)
from rebal.inspectors.fleet.lake.writer import FOLDERS, STORED, Target, TaskReport, columns_of
from rebal.inspectors.fleet.manifest import EMPTY_MANIFEST, UNNAMED, Manifest, TableEntry
from rebal.inspectors.fleet.schemas import TABLES

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

# Tables that are asked about or committed at a time, for a store takes its time to answer.
_AT_ONCE: Final = 8
_LOG: Final = "_delta_log"
# On HDFS a commit that was cut off has a dot in front of its name.
_ENTRY: Final = re.compile(r"\.?(\d{20})\..+")
_SUMMED: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")
Known = Mapping[int, Mapping[str, Sequence[DataFile]]]
"""The files of scans, by scan number and table."""


class LakeScan:
    """A scan in progress. `previous` is the manifest of the finished scan that it continues from.

    `found` are the cluster's scans that were finished when it began. With `full`, it continues from
    none, and `previous` is `EMPTY_MANIFEST`. `retain` is for how many seconds scans are kept (None:
    as long as the last scan says; if there is none, only the last two scans are kept).
    """

    def __init__(
        self,
        place: LakePlace,
        cluster: str,
        number: int,
        found: Finished,
        *,
        full: bool,
        retain: float | None = None,
    ) -> None:
        self.place = place
        self.cluster = cluster
        self.number = number
        self.target = Target(place, token_of(cluster, number), number)
        self._found = found
        self._last = found.last()
        self.previous = EMPTY_MANIFEST if full else self._last
        self.retain = self._last.retain if retain is None else retain

    def earlier(self, kind: str) -> tuple[DataFile, ...]:
        """Return the previous scan's files of this kind, with paths relative to the lake."""
        if not self.previous.run:
            return ()
        table = FOLDERS[kind]
        return tuple(
            one._replace(path=f"{table}/{one.path}")
            for one in self._of_last[table]
            if one.path.split("/")[-1].startswith(f"{kind}-")
        )

    def finish(self, manifest: Manifest, report: TaskReport) -> Manifest:
        """Commit each table and then the scan; return the manifest with the tables' versions.

        Files of the previous scan stay in the tables, except those in `report.replaced`.

        Raises:
            LakeError: another scan of this cluster finished first, or the store rejects the commit.
        """
        made = self._files(report)

        def commit(name: str) -> TableEntry:
            version = self._table(name).commit_files(self.cluster, made[name], self.number)
            if version is None:
                raise lost(self.place, self.cluster)
            return TableEntry(rows=sum(one.rows for one in made[name]), version=version)

        first, *others = STORED
        # Of two scans, the first table takes one; committing all at once, both could lose.
        entries = {first: commit(first)}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            entries |= zip(others, pool.map(commit, others), strict=True)
        finished = replace(
            manifest,
            retain=self.retain,
            tables={name: entry for name, entry in entries.items() if name in TABLES},
            inputs={name: entry for name, entry in entries.items() if name not in TABLES},
        )
        found = Scans(self.place).finish(finished, self._found, self.target.token)
        self._sweep(found, {finished.run: made})
        return finished

    def _files(self, report: TaskReport) -> dict[str, list[DataFile]]:
        """Return the files of this scan when it is finished, by table, with paths in the table.

        They are the previous scan's files without those in `report.replaced`, and the new files in
        `report.made`.
        """
        found: dict[str, list[DataFile]] = {table: [] for table in STORED}
        for kind, table in FOLDERS.items():
            kept = (one for one in self.earlier(kind) if one.path not in report.replaced)
            found[table] += [
                one._replace(path=one.path.removeprefix(f"{table}/"))
                for one in (*kept, *sorted(report.made.get(kind, ())))
            ]
        return found

    def _sweep(self, found: Finished, known: Known) -> None:
        """Delete files and Delta log entries that no scan needs; ignore errors of the lake.

        `found` are the finished scans. `known` has the files of some of them, by scan number and
        table. Every tenth scan deletes files and log entries. The other scans delete files only, if
        at most `LEAST` scans are kept.
        """
        if self._last.run:
            known = {**known, self._last.run: self._of_last}
        with contextlib.suppress(LakeError):
            if len(found.rows) <= LEAST or self.number % CHECKPOINT == 0:
                remove(self.place, find_files(self.place, found, self.number, known=known))
            if self.number % CHECKPOINT == 0:
                remove(self.place, find_log(self.place, {}))

    @cached_property
    def _of_last(self) -> Mapping[str, tuple[DataFile, ...]]:
        entries = defaultdict(TableEntry, {**self._last.tables, **self._last.inputs})
        return {
            name: self._table(name).files(self.cluster, entries[name].version) for name in STORED
        }

    def _table(self, name: str) -> LakeTable:
        return LakeTable(self.place, name, columns_of(name))


def counted(before: Mapping[str, int] | None, now: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of two maps of counts, sorted by name, without zeros."""
    return dict(sorted((Counter(before) + Counter(now)).items()))


def new_scan(
    place: LakePlace, cluster: str, *, full: bool, retain: float | None = None
) -> LakeScan:
    """Return a new scan of the cluster, which continues from its last one unless `full`.

    `retain` is for how many seconds scans are kept (None: as long as the last scan says; if there
    is none, only the last two scans are kept).

    Raises:
        LakeError: the lake cannot be written, or the folder holds other files.
        DocumentError: the cluster's last scan in the lake cannot be read.
    """
    check_place(place)
    place.probe(token_of(cluster, 0))
    scans = Scans(place)
    tables = [LakeTable(place, name, columns_of(name)) for name in STORED]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        number = 1 + max(
            scans.create(cluster), *pool.map(partial(LakeTable.create, cluster=cluster), tables)
        )
    return LakeScan(place, cluster, number, scans.of(cluster), full=full, retain=retain)


def find_cluster(place: LakePlace, named: str | None, reported: str | None, *, whose: str) -> str:
    """Return the name or id of the cluster that the records belong to.

    `reported` is the cluster id that the brokers or files give, `named` the value of --cluster
    (each None if missing). With neither, it is `unnamed`, unless the lake has another cluster.
    `whose` names the records' source in error messages, with its verb ("the files are").

    Raises:
        LakeError: `reported` and `named` differ, or the lake has other clusters and neither is
            given.
    """
    if named is not None and reported is not None and named != reported:
        raise LakeError(
            f"--cluster {named}: {whose} of the cluster {reported}: leave the option out, or check "
            "which cluster was meant."
        )
    if named or reported:
        return str(named or reported)
    found = Scans(place).clusters() if is_lake(place) else ()
    others = tuple(one for one in found if one != UNNAMED)
    if others:
        raise LakeError(
            f"{place}: it has scans of {', '.join(others)}, and {whose} of a cluster that they do "
            "not name: say which with --cluster NAME."
        )
    return UNNAMED


def check_place(place: LakePlace) -> None:
    """Check that a lake can be written: a folder that is new, empty or a lake, or a writable store.

    Raises:
        LakeError: the lake cannot be written.
    """
    folder = place.folder
    if folder is None:
        place.probe(token_of("", 0))
        return
    if folder.is_file():
        raise LakeError(f"{place}: is a file; name a folder with --out.")
    # An earlier rebal had `_work`.
    known = {*STORED, SCANS, PROBE, "_work"}
    if folder.is_dir() and {path.name for path in folder.iterdir()} - known:
        raise LakeError(f"{place}: holds other files; name a new or an empty folder with --out.")


class Freed(NamedTuple):
    """A file that no scan needs: its path relative to the lake, and its size in bytes."""

    path: str
    size: int


def find_files(
    place: LakePlace,
    found: Finished,
    number: int,
    *,
    dropped: Collection[int] = (),
    known: Known | None = None,
) -> list[Freed]:
    """Return the cluster's files that no kept scan needs.

    `found` are the finished scans, and `dropped` the numbers of those that are not kept. Files of
    scan `number` and of later ones are never returned, for such a scan may be in progress. An older
    scan that still runs has lost: its first commit will fail. `known` has the files of some scans
    by number and table; for the others the tables are opened.

    Raises:
        LakeError: the store does not let the files be listed.
    """
    kept = [row for row in found.rows if row.number not in dropped]
    first = kept[0].number if kept else 0
    folders = {folder for row in kept for folder in row.folders}
    needed = _files_of(place, found, {row.number: row for row in (*kept[:1], *kept[-1:])}, known)
    freed: list[Freed] = []
    for table in (*STORED, SCANS, PROBE):
        for one in _list(place, table):
            # On HDFS a file that is being written has a dot in front of its name.
            token = one.path.split("/")[1].removeprefix(".")
            written = number_of(token, found.cluster)
            if written is None or written >= number or one.path in needed:
                continue
            if written <= first or token not in folders:
                freed.append(Freed(one.path, one.size))
    return freed


def _files_of(
    place: LakePlace, found: Finished, rows: Mapping[int, ScanRow], known: Known | None
) -> set[str]:
    made = {f"{SCANS}/{one.path}" for one in found.files}
    for number, row in rows.items():
        for table, version in row.versions.items():
            files = (known or {}).get(number, {}).get(table)
            if files is None:
                files = LakeTable(place, table, columns_of(table)).files(found.cluster, version)
            made |= {f"{table}/{one.path}" for one in files}
    return made


def find_log(place: LakePlace, dropped: Mapping[str, Collection[int]]) -> list[Freed]:
    """Return the Delta log entries of all tables that no version of a kept scan needs.

    A version needs the last checkpoint up to it, and the entries after that. `dropped` has, by
    cluster, the numbers of the scans that are not kept.

    Raises:
        LakeError: the store does not let the entries be listed.
    """
    scans = Scans(place)
    rows = [
        row
        for cluster in scans.clusters()
        for row in scans.of(cluster).rows
        if row.number not in dropped.get(cluster, ())
    ]
    entries: list[Freed] = []
    for table in (*STORED, SCANS):
        log = [(_ENTRY.fullmatch(one.base_name), one) for one in _list(place, f"{table}/{_LOG}")]
        versions = [int(found[1]) for found, _ in log if found]
        # `scans` is read at its last version, and who opens it now may have seen fewer checkpoints.
        pinned = [row.versions[table] for row in rows if table in row.versions]
        first = max(versions) - CHECKPOINT if table == SCANS else min(pinned, default=0)
        summed = [int(found[1]) for _, one in log if (found := _SUMMED.fullmatch(one.base_name))]
        start = max((version for version in summed if version <= first), default=0)
        entries += [
            Freed(one.path, one.size) for found, one in log if found and int(found[1]) < start
        ]
    return sorted(entries)


def remove(place: LakePlace, freed: Sequence[Freed]) -> None:
    """Delete the files in `freed`, and then the scan folders that are empty without them.

    A file that does not exist any more is skipped.

    Raises:
        LakeError: the store does not let the files be deleted.
    """
    files = place.files()
    with place.errors():
        for one in freed:
            with contextlib.suppress(FileNotFoundError):
                files.delete_file(one.path)
        for folder in sorted({one.path.rsplit("/", 1)[0] for one in freed}):
            if folder.count("/") == 1 and not folder.endswith(_LOG) and not _list(place, folder):
                with contextlib.suppress(FileNotFoundError):
                    files.delete_dir(folder)


class Compacted(NamedTuple):
    """The result of `compact`, or of its dry run.

    `dropped` are the numbers of the scans, by cluster, that are kept no longer. `files` and `log`
    are the files and log entries that were deleted, or that a dry run would delete. `lost` has a
    sentence for each cluster where a new scan finished first, so nothing was dropped.
    """

    dropped: Mapping[str, tuple[int, ...]]
    files: tuple[Freed, ...]
    log: tuple[Freed, ...]
    lost: tuple[str, ...]


def compact(
    place: LakePlace, clusters: Sequence[str], *, retain: float | None = None, dry: bool = False
) -> Compacted:
    """Drop these clusters' scans that are kept no longer, and delete files that no scan needs.

    `retain` is for how many seconds scans are kept (None: as long as the cluster's last scan says).
    With `dry` nothing is changed.

    Raises:
        LakeError: the store rejects a read, a commit or a deletion.
        DocumentError: a cluster's last scan cannot be read.
    """
    dropped: dict[str, tuple[int, ...]] = {}
    freed: list[Freed] = []
    came_first: list[str] = []
    scans = Scans(place)
    for cluster in clusters:
        found = scans.of(cluster)
        numbers = tuple(
            row.number
            for row in expired(
                found.rows, found.last().retain if retain is None else retain, datetime.now(UTC)
            )
        )
        number = max((row.number for row in found.rows), default=0)
        if numbers and not dry:
            if not scans.drop(found, numbers, token_of(cluster, number)):
                came_first.append(
                    f"{place}: a scan of the cluster {cluster} ended meanwhile and came first: "
                    "compact again."
                )
                numbers = ()
            found = scans.of(cluster)
        dropped[cluster] = numbers
        fresh = find_files(place, found, number + 1, dropped=numbers)
        if not dry:
            remove(place, fresh)
        freed += fresh
    log = find_log(place, dropped if dry else {})
    if not dry:
        remove(place, log)
    return Compacted(dropped, tuple(freed), tuple(log), tuple(came_first))


def _list(place: LakePlace, folder: str) -> list[FileInfo]:
    from pyarrow.fs import FileSelector

    below = FileSelector(folder, allow_not_found=True, recursive=True)
    with place.errors():
        return [one for one in place.files().get_file_info(below) if one.is_file]
