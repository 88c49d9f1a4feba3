"""The table `scans`: one row for each finished scan, committed last, from which all reading starts.

A row holds the version of every table at which this scan's rows, and nothing else of its cluster,
are in it. What is in the tables beyond these versions belongs to a scan that is not finished. A
scan that nobody keeps loses its row first, and then the files that no other scan has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from rebal.inspectors.clock import moment
from rebal.inspectors.fleet.lake.place import LakeError, Place
from rebal.inspectors.fleet.lake.table import DataFile, LakeTable, find_small, lost
from rebal.inspectors.fleet.manifest import Manifest, dump_manifest, load_manifest

SCANS: Final = "scans"
_TIME: Final = pa.timestamp("us", tz="UTC")
_COUNTS: Final = pa.map_(pa.string(), pa.int64())
SCHEMA: Final = pa.schema(
    [
        ("scan_id", pa.int64()),
        ("finished_at", _TIME),
        ("rebal", pa.string()),
        ("observed_from", _TIME),
        ("observed_until", _TIME),
        ("sources", pa.list_(pa.string())),
        ("records_read", pa.int64()),
        ("records", _COUNTS),
        ("offsets", pa.map_(pa.int32(), pa.int64())),
        ("versions", _COUNTS),
        ("rows", _COUNTS),
        ("folders", pa.list_(pa.string())),
        ("document", pa.string()),
    ]
)
"""`versions` and `rows` are by table, `offsets` the last ones read by partition of
`__consumer_offsets`; `folders` are those that the scan made in the tables, and `document` is the
whole manifest as JSON."""
LEAST: Final = 2
"""Scans of a cluster that stay in any case: the one before the last may be read at this moment."""
_SHARE: Final = 8
_ROWS: Final = 64
"""A document may be long, and one is read without the others of its file."""
_DROPS: Final = "/retention"


class Row(NamedTuple):
    """A finished scan by its `number`: the version of each table that holds it.

    `folders` are those that it made in the tables (None: an earlier rebal did not say).
    """

    number: int
    finished_at: datetime
    versions: Mapping[str, int]
    folders: tuple[str, ...] | None


class Finished:
    """A cluster's finished scans that can be read, the last one last; `files` hold their rows.

    Their documents are read one by one, for there may be thousands.
    """

    def __init__(self, place: Place, cluster: str, files: tuple[DataFile, ...]) -> None:
        self._place = place
        self.cluster = cluster
        self.files = files
        self._found = {row.number: (row, file) for file in files for row in self._rows(file)}

    @property
    def rows(self) -> tuple[Row, ...]:
        """The scans, sorted by number."""
        return tuple(self._found[number][0] for number in sorted(self._found))

    def last(self) -> Manifest | None:
        """Return the last scan, if there is one.

        Raises:
            DocumentError: it cannot be read.
        """
        return self.load(max(self._found)) if self._found else None

    def load(self, number: int) -> Manifest:
        """Return one of the scans.

        Raises:
            DocumentError: it cannot be read.
        """
        with self._open(self._found[number][1]) as file:
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=["scan_id", "document"])
                for at, scan in enumerate(rows["scan_id"].to_pylist()):
                    if scan == number:
                        return load_manifest(rows["document"][at].as_py(), str(self._place))
        raise LakeError(f"{self._place}: scan {number} is not there any more.")

    def holds(self, file: DataFile, numbers: Collection[int]) -> bool:
        """Return whether a file has the row of one of these scans."""
        return any(self._found[number][1] == file for number in numbers if number in self._found)

    def whole(self, file: DataFile) -> pa.Table:
        """Return all rows of a file."""
        with self._open(file) as opened:
            return _completed(opened.read(columns=SCHEMA.names))

    def _rows(self, file: DataFile) -> list[Row]:
        with self._open(file) as opened:
            found = opened.read(columns=["scan_id", "finished_at", "versions", "folders"])
        # A time that becomes a datetime imports pandas.
        times = map(moment, found["finished_at"].cast(pa.int64()).to_pylist())
        return [
            Row(
                row["scan_id"],
                at,
                dict(row["versions"]),
                None if row.get("folders") is None else tuple(row["folders"]),
            )
            for row, at in zip(found.drop(["finished_at"]).to_pylist(), times, strict=True)
            if at is not None
        ]

    @contextmanager
    def _open(self, file: DataFile) -> Iterator[pq.ParquetFile]:
        with (
            self._place.errors(),
            self._place.files().open_input_file(f"{SCANS}/{file.path}") as opened,
        ):
            yield pq.ParquetFile(opened)


class Scans:
    """The finished scans of a lake."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._table = LakeTable(place, SCANS, SCHEMA)

    def create(self) -> None:
        """Make the table unless it is there."""
        self._table.create()

    def clusters(self) -> tuple[str, ...]:
        """Return the clusters that have a finished scan, sorted."""
        return self._table.clusters()

    def of(self, cluster: str) -> Finished:
        """Return the cluster's finished scans."""
        return Finished(self._place, cluster, self._table.files(cluster))

    def number(self, app: str) -> int:
        """Return the number of the last scan that committed here."""
        return self._table.number(app)

    def finish(
        self, manifest: Manifest, before: Manifest | None, app: str, token: str, number: int
    ) -> Finished:
        """Make this scan the cluster's last, if `before` still is; return those that can be read.

        A scan that is there already is replaced. Scans that are older than what `manifest` retains
        lose their rows, once they are an eighth of all: so a row is written again a few times only.

        Args:
            manifest: The scan.
            before: The scan that was the last one when this one began.
            app: The name under which scans of the cluster commit.
            token: The folder that was made in the tables.
            number: The number that this commit takes.

        Raises:
            LakeError: another scan was finished meanwhile.
        """
        found = self.of(manifest.cluster)
        if found.last() != before:
            raise lost(self._place, manifest.cluster)
        same = [row for row in found.rows if row.number == manifest.run]
        folders = (*(same[0].folders or () if same else ()), token)
        row = Row(manifest.run, manifest.finished_at, {}, folders)
        rows = (*(one for one in found.rows if one not in same), row)
        gone = expired(rows, manifest.retain, manifest.finished_at)
        if len(gone) * _SHARE < len(rows):
            gone = ()
        replaced = {one.number for one in (*gone, *same)}
        made = pa.Table.from_pylist([row_of(manifest, folders)], SCHEMA)
        self._become(found, (app, number), token, replaced, made)
        after = self.of(manifest.cluster)
        # Rows may have been dropped at the same moment.
        if after.last() != manifest:
            raise lost(self._place, manifest.cluster)
        return after

    def drop(self, found: Finished, numbers: Collection[int], app: str, token: str) -> bool:
        """Remove the rows of these scans, unless the scans are not `found` any more.

        A scan that is under way is not disturbed: it takes a number of `app`, this takes none.
        """
        number = self._table.number(f"{app}{_DROPS}") + 1
        return self._become(found, (f"{app}{_DROPS}", number), token, numbers, None)

    def _become(
        self,
        found: Finished,
        commit: tuple[str, int],
        token: str,
        gone: Collection[int],
        made: pa.Table | None,
    ) -> bool:
        """Commit the rows without those `gone`, and those `made`; put small files together."""
        again = {one for one in found.files if found.holds(one, gone)}
        again |= set(find_small([one for one in found.files if one not in again]))
        parts = [found.whole(one) for one in sorted(again)]
        rows = pa.concat_tables([*parts, *([made] if made is not None else [])])
        staying = [one not in gone for one in rows["scan_id"].to_pylist()]
        if made is not None:
            staying[-1] = True
        rows = rows.filter(pa.array(staying, pa.bool_())).sort_by("scan_id")
        files = [one for one in found.files if one not in again]
        if len(rows):
            files.append(self._write(rows, token))
        done = self._table.become(found.cluster, files, *commit, instead_of=found.files)
        return done is not None

    def _write(self, rows: pa.Table, token: str) -> DataFile:
        path = f"{token}.parquet"
        files = self._place.files()
        with self._place.errors():
            with files.open_output_stream(f"{SCANS}/{path}") as out:
                pq.write_table(rows, out, compression="zstd", row_group_size=_ROWS)
            size = files.get_file_info(f"{SCANS}/{path}").size
        return DataFile(path, len(rows), size)


def expired(rows: Sequence[Row], retain: float | None, now: datetime) -> tuple[Row, ...]:
    """Return the scans that nobody keeps, of `rows` sorted by number: older than `retain` seconds.

    The last `LEAST` stay in any case, without `retain` no other does. What follows a scan that is
    kept is kept.
    """
    old = rows[: max(0, len(rows) - LEAST)]
    if retain is None:
        return tuple(old)
    since = now - timedelta(seconds=retain)
    return tuple(takewhile(lambda row: row.finished_at < since, old))


def _completed(rows: pa.Table) -> pa.Table:
    """The rows with the columns that an earlier rebal did not write."""
    for name in SCHEMA.names:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(len(rows), SCHEMA.field(name).type))
    return rows.select(SCHEMA.names).cast(SCHEMA)


def is_lake(place: Place) -> bool:
    """Return whether the place has the table of finished scans."""
    from deltalake import DeltaTable

    with place.errors():
        if place.folder is not None and not place.folder.is_dir():
            return False
        return DeltaTable.is_deltatable(place.table(SCANS), dict(place.options))


def clusters_of(place: Place) -> tuple[str, ...]:
    """Return the clusters with a finished scan; none where there is no lake yet."""
    return Scans(place).clusters() if is_lake(place) else ()


def choose_cluster(place: Place, clusters: tuple[str, ...], wanted: str | None) -> str:
    """Return the cluster to read in a lake that has these: the one wanted, or the only one.

    Raises:
        LakeError: it is not there, or none is wanted and there are several.
    """
    if wanted is not None and wanted not in clusters:
        raise LakeError(
            f"{place}: no finished scan of the cluster {wanted} is there; it has scans of "
            f"{', '.join(clusters)}."
        )
    if wanted is None and len(clusters) > 1:
        raise LakeError(
            f"{place}: it has scans of {len(clusters)} clusters ({', '.join(clusters)}): name one, "
            f"as in {place}#{clusters[0]}."
        )
    return wanted or clusters[0]


def row_of(manifest: Manifest, folders: Sequence[str]) -> dict[str, object]:
    """Return a scan's row, in the columns of `SCHEMA`."""
    entries = {**manifest.tables, **manifest.inputs}
    return {
        "scan_id": manifest.run,
        "finished_at": manifest.finished_at,
        "rebal": manifest.rebal,
        "observed_from": manifest.observed_from,
        "observed_until": manifest.observed_until,
        "sources": list(manifest.sources),
        "records_read": manifest.read,
        "records": list(manifest.records.items()),
        "offsets": list(manifest.offsets.items()),
        "versions": [(name, entry.version) for name, entry in entries.items()],
        "rows": [(name, entry.rows) for name, entry in entries.items()],
        "folders": list(folders),
        "document": dump_manifest(manifest),
    }
