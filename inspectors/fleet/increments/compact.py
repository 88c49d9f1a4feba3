"""Removes at once what no kept scan needs: rows of scans, files, entries of the tables' logs.

Scans do so too, now and then and each for its own cluster, and put small files together. Nothing
here disturbs a scan that is under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.lake.run import app_of
from rebal.inspectors.fleet.lake.scans import Scans, expired
from rebal.inspectors.fleet.lake.sweep import Freed, find_files, find_log, remove
from rebal.inspectors.fleet.lake.table import token_of


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
    scans = Scans(place)
    for cluster in clusters:
        app, found = app_of(cluster), scans.of(cluster)
        last = found.last()
        kept = last.retain if retain is None and last is not None else retain
        gone = tuple(row.number for row in expired(found.rows, kept, datetime.now(UTC)))
        number = scans.number(app)
        if gone and not dry:
            if not scans.drop(found, gone, app, token_of(cluster, number)):
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
