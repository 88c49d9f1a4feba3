"""Keeps a lake small: puts small files together, and removes what no kept scan needs.

Putting files together is a scan that reads nothing: it takes the cluster's next number, commits as
a scan does, and replaces the last scan's row by one with the new versions. Of states it keeps each
group's newest. Whatever ends it too early, the last scan stands as before. The rest disturbs no
scan that is under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from rebal.inspectors.fleet.files import of_scans
from rebal.inspectors.fleet.increments.choice import NEWEST, newest_states
from rebal.inspectors.fleet.increments.work import Load, carry
from rebal.inspectors.fleet.lake.place import LakeError, Place
from rebal.inspectors.fleet.lake.run import Run, app_of, new_run
from rebal.inspectors.fleet.lake.scans import Scans, expired
from rebal.inspectors.fleet.lake.sweep import Freed, find_files, find_log, remove
from rebal.inspectors.fleet.lake.table import SMALL, DataFile, token_of
from rebal.inspectors.fleet.manifest import Manifest
from rebal.inspectors.fleet.reports import Totals
from rebal.inspectors.fleet.writer import FOLDERS, WORK


class Compacted(NamedTuple):
    """The effect of a compaction, or of a dry run.

    `dropped` are scans by cluster that are kept no longer, `small` files that were put together
    into `made` others, `files` and `log` what was removed, and `lost` the sentences of clusters of
    which another scan came first.
    """

    dropped: Mapping[str, tuple[int, ...]]
    small: int
    made: int
    files: tuple[Freed, ...]
    log: tuple[Freed, ...]
    lost: tuple[str, ...]


def compact(
    place: Place, clusters: Sequence[str], *, retain: float | None = None, dry: bool = False
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
    small = made = 0
    scans = Scans(place)
    for cluster in clusters:
        app, found = app_of(cluster), scans.of(cluster)
        last = found.last()
        chunks = _chunks(Run(place, cluster, 0, found, full=False))
        if chunks and not dry:
            try:
                _put_together(place, cluster, chunks, last)
            except LakeError as error:
                lost.append(str(error))
                chunks = []
            found = scans.of(cluster)
        small, made = small + sum(len(files) for _, files in chunks), made + len(chunks)
        kept = last.retain if retain is None and last is not None else retain
        gone = tuple(row.number for row in expired(found.rows, kept, datetime.now(UTC)))
        number = scans.number(app)
        if gone and not dry:
            if not scans.drop(found, gone, app, token_of(cluster, number)):
                lost.append(_beside(place, cluster))
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
    return Compacted(dropped, small, made, tuple(freed), tuple(log), tuple(lost))


def _chunks(run: Run) -> list[tuple[str, tuple[DataFile, ...]]]:
    """Return the small files of each kind, in parts that make one file each."""
    chunks: list[tuple[str, tuple[DataFile, ...]]] = []
    for kind, table in FOLDERS.items():
        part: list[DataFile] = []
        for one in run.earlier(kind) if table != WORK else ():
            if one.size >= SMALL:
                continue
            if sum(other.size for other in part) + one.size > SMALL:
                chunks.append((kind, tuple(part)))
                part = []
            part.append(one)
        chunks.append((kind, tuple(part)))
    return [(kind, files) for kind, files in chunks if len(files) > 1]


def _put_together(
    place: Place,
    cluster: str,
    chunks: Sequence[tuple[str, tuple[DataFile, ...]]],
    last: Manifest | None,
) -> None:
    """Write each part as one file and commit them.

    Raises:
        LakeError: a scan of the cluster came first.
    """
    with new_run(place, cluster, full=False) as run:
        if last is None or run.previous != last:
            raise LakeError(_beside(place, cluster))
        newest, done = newest_states(run), Totals()
        for kind, files in chunks:
            staying = of_scans(newest) if kind in NEWEST else None
            load = Load(kind, tuple(one.path for one in files), staying=staying, whole=True)
            for report in carry(load, run.target):
                done.take(report.to_pylist())
        run.finish(last, done)


def _beside(place: Place, cluster: str) -> str:
    return (
        f"{place}: a scan of the cluster {cluster} ended meanwhile and came first: compact again."
    )
