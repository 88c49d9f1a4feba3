"""Publication of a finished scan beside the lake: the seam `Sink`, and the order of its writes.

A table of a lake is a set of files that never change, and each published row names the lake's file
that it is a copy of. So the rows there, counted by file, say what a scan has still to write and to
remove, whatever an earlier publication came to: work is in proportion to the files that are new.

    write the rows of files that are missing ── announce ── remove the rows of files that are gone

What is announced, in one row of `scans` for each cluster, are the files of one finished scan. Who
joins a table with that row on `files` sees that scan whole, at any moment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.lake.table import DataFile, LakeTable
from rebal.inspectors.fleet.manifest import Manifest, TableEntry
from rebal.inspectors.fleet.parts import columns_of
from rebal.inspectors.fleet.schemas import TABLES

Counts = Mapping[str, Mapping[str, int]]
"""Rows by table and by the lake's file that they are copies of."""


class Sink(Protocol):
    """A writer of tables outside the lake, by its own catalog and with its own credentials.

    Files are named by their paths in the lake's table. Each write is atomic, and of one cluster.
    """

    def require(self, cluster: str) -> None:
        """Check that tables of the cluster can be written, by writing.

        Raises:
            RebalError: they cannot; one sentence that says why.
        """

    def count(self, cluster: str) -> Counts:
        """Return the rows that are there."""

    def write(self, cluster: str, table: str, files: Sequence[DataFile]) -> None:
        """Put the rows of these files in the place of all that are there of the same files."""

    def announce(self, scan: Manifest, files: Sequence[str]) -> None:
        """Say that the cluster's scan is published, and that these are its files."""

    def remove(self, cluster: str, table: str, files: Collection[str]) -> None:
        """Remove the rows of these files."""


class Published(NamedTuple):
    """The rows that a publication has written and removed."""

    written: int
    removed: int


def publish(sink: Sink, place: Place, scan: Manifest) -> Published:
    """Make the sink's tables those of a finished scan of the lake.

    Raises:
        RebalError: what was wrong, in one sentence; the next publication goes on from there.
    """
    wanted = {name: _files(place, scan, name) for name in TABLES}
    there = sink.count(scan.cluster)
    written = removed = 0
    for name, files in wanted.items():
        known = there.get(name, {})
        fresh = [one for one in files if known.get(one.path, 0) != one.rows]
        if fresh:
            sink.write(scan.cluster, name, fresh)
            written += sum(one.rows for one in fresh)
    sink.announce(scan, [one.path for files in wanted.values() for one in files])
    for name, known in there.items():
        gone = known.keys() - {one.path for one in wanted[name]}
        if gone:
            sink.remove(scan.cluster, name, gone)
            removed += sum(known[path] for path in gone)
    return Published(written, removed)


def _files(place: Place, scan: Manifest, name: str) -> tuple[DataFile, ...]:
    version = scan.tables.get(name, TableEntry()).version
    return LakeTable(place, name, columns_of(name)).files(scan.cluster, version)
