"""Files of a cluster, and entries of the tables' logs, that no kept scan needs.

Scans remove them now and then, and each for its own cluster; `compact` removes all at once, and
first the rows of scans that are kept no longer. It disturbs no scan that is under way.

A file is in all scans from the one that wrote it up to the one that replaced it, as each scan goes
on from the one before. So a file that was there before the first scan that is kept is needed if
this one has it, and a file that a later one wrote may be needed by any: no other table's version
has to be opened, however many scans are kept.

delta-rs's `vacuum` goes by the age of files in hours: it would remove what a longer scan under way
has written, and keep what a cluster with scans of every minute replaces as long as the oldest scan
of any other; it opens every version that stays. Its `cleanup_metadata` goes by the age
of log entries, as a property of the table says, whose change ends every scan under way.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from rebal.inspectors.fleet.lake.place import PROBE, LakePlace
from rebal.inspectors.fleet.lake.scans import SCANS, Finished, ScanRow, Scans, expired
from rebal.inspectors.fleet.lake.table import (
    CHECKPOINT,
    DataFile,
    LakeTable,
    number_of,
    token_of,
)
from rebal.inspectors.fleet.writer import STORED, columns_of

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

_LOG: Final = "_delta_log"
# On HDFS a commit that was cut off has a dot in front of its name.
_ENTRY: Final = re.compile(r"\.?(\d{20})\..+")
_SUMMED: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")


Known = Mapping[int, Mapping[str, Sequence[DataFile]]]
"""The files of scans, by number and table."""


class Freed(NamedTuple):
    """A file that nobody needs: its path in the lake, its size in bytes."""

    path: str
    size: int


def find_files(
    place: LakePlace,
    found: Finished,
    number: int,
    *,
    gone: Collection[int] = (),
    known: Known | None = None,
) -> list[Freed]:
    """Return the cluster's files that none of its scans has but for those `gone`.

    Files of the scan with this number and of later ones are left out: it may be under way. An
    earlier one that is still at work has lost: its first commit will say so. Of scans in `known`
    no table is opened.

    Raises:
        LakeError: the store does not let them be listed.
    """
    kept = [row for row in found.rows if row.number not in gone]
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
    """Return the files that these scans have, and those of all their rows, as paths in the lake."""
    made = {f"{SCANS}/{one.path}" for one in found.files}
    for number, row in rows.items():
        for table, version in row.versions.items():
            files = (known or {}).get(number, {}).get(table)
            if files is None:
                files = LakeTable(place, table, columns_of(table)).files(found.cluster, version)
            made |= {f"{table}/{one.path}" for one in files}
    return made


def find_log(place: LakePlace, gone: Mapping[str, Collection[int]]) -> list[Freed]:
    """Return the entries of all tables' logs that no version of a scan needs.

    A version is made of the last checkpoint up to it and of the entries after that. `gone` are
    scans by cluster that are not kept.

    Raises:
        LakeError: the store does not let them be listed.
    """
    scans = Scans(place)
    rows = [
        row
        for cluster in scans.clusters()
        for row in scans.of(cluster).rows
        if row.number not in gone.get(cluster, ())
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
    """Remove files, and folders of scans that have none left; what is gone already is left out.

    Raises:
        LakeError: the store does not let it happen.
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
    """The effect of a compaction, or of a dry run.

    `dropped` are scans by cluster that are kept no longer, `files` and `log` what was removed, and
    `lost` the sentences of clusters of which a scan came first.
    """

    dropped: Mapping[str, tuple[int, ...]]
    files: tuple[Freed, ...]
    log: tuple[Freed, ...]
    lost: tuple[str, ...]


def compact(
    place: LakePlace, clusters: Sequence[str], *, retain: float | None = None, dry: bool = False
) -> Compacted:
    """Compact what these clusters have in the lake; `dry` changes nothing.

    Scans of `retain` seconds are kept (None: of the time that the last scan names).

    Raises:
        LakeError: the store does not let it happen.
        DocumentError: a cluster's last scan cannot be read.
    """
    dropped: dict[str, tuple[int, ...]] = {}
    freed: list[Freed] = []
    lost: list[str] = []
    scans = Scans(place)
    for cluster in clusters:
        found = scans.of(cluster)
        kept = found.last().retain if retain is None else retain
        gone = tuple(row.number for row in expired(found.rows, kept, datetime.now(UTC)))
        number = max((row.number for row in found.rows), default=0)
        if gone and not dry:
            if not scans.drop(found, gone, token_of(cluster, number)):
                lost.append(
                    f"{place}: a scan of the cluster {cluster} ended meanwhile and came first: "
                    "compact again."
                )
                gone = ()
            found = scans.of(cluster)
        dropped[cluster] = gone
        fresh = find_files(place, found, number + 1, gone=gone)
        if not dry:
            remove(place, fresh)
        freed += fresh
    log = find_log(place, dropped if dry else {})
    if not dry:
        remove(place, log)
    return Compacted(dropped, tuple(freed), tuple(log), tuple(lost))


def _list(place: LakePlace, folder: str) -> list[FileInfo]:
    """Return all files in a folder, and in those below it."""
    from pyarrow.fs import FileSelector

    selector = FileSelector(folder, allow_not_found=True, recursive=True)
    with place.errors():
        return [one for one in place.files().get_file_info(selector) if one.is_file]
