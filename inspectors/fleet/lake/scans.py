"""The table `scans`: one row for each finished scan. It is committed last, and readers start there.

A row holds a version for each table. At that version the table contains exactly this scan's rows of
the cluster. Rows in later versions belong to a scan that is not finished. A scan that is kept no
longer loses its row first, and then its files that no other scan has.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain, takewhile
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from rebal.inspectors.clock import moment
from rebal.inspectors.fleet.lake.place import LakeError, LakePlace
from rebal.inspectors.fleet.lake.table import DataFile, LakeTable, find_small, lost, read_rows
from rebal.inspectors.fleet.manifest import EMPTY_MANIFEST, Manifest, TableEntry, load_manifest
from rebal.inspectors.fleet.schemas import TIME

SCANS: Final = "scans"
_COUNTS: Final = pa.map_(pa.string(), pa.int64())
SCHEMA: Final = pa.schema(
    [
        ("scan_id", pa.int64()),
        ("finished_at", TIME),
        ("rebal", pa.string()),
        ("observed_from", TIME),
        ("observed_until", TIME),
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
"""The columns of `scans`. `versions` and `rows` are by table, `offsets` are the last ones read, by
partition of `__consumer_offsets`. `folders` are those that the scan made in the tables. `document`
is the manifest as JSON."""
LEAST: Final = 2
"""The number of scans of a cluster that are always kept: the last one, and the one before, which
may be read at this moment."""
_SHARE: Final = 8


class ScanRow(NamedTuple):
    """A finished scan: its `number`, and the Delta version of each table that holds it.

    `folders` are the folders that the scan made in the tables.
    """

    number: int
    finished_at: datetime
    versions: Mapping[str, int]
    folders: tuple[str, ...]


class Finished:
    """The finished scans of one cluster.

    `rows` are their rows in the table `scans`, sorted by scan number, and `files` the files of that
    table that hold these rows. A manifest is read only on demand, for there may be thousands of
    scans.
    """

    def __init__(
        self,
        place: LakePlace,
        cluster: str,
        files: Iterable[DataFile],
        rows: Iterable[ScanRow],
    ) -> None:
        self._place = place
        self.cluster = cluster
        self.files = tuple(sorted(files))
        self.rows = tuple(sorted(rows, key=itemgetter(0)))

    def last(self) -> Manifest:
        """Return the manifest of the last scan, or `EMPTY_MANIFEST` if there is none.

        Raises:
            DocumentError: the manifest cannot be read.
        """
        return self.load(self.rows[-1].number) if self.rows else EMPTY_MANIFEST

    def load(self, number: int) -> Manifest:
        """Return the manifest of the scan with this number.

        Raises:
            DocumentError: the manifest cannot be read.
            LakeError: the scan is no longer in the lake.
        """
        # The last file is named by the last scan.
        for one in reversed(self.files):
            for rows in read_rows(
                self._place,
                f"{SCANS}/{one.path}",
                pa.schema([SCHEMA.field(name) for name in ("scan_id", "document")]),
            ):
                numbers = rows["scan_id"].to_pylist()
                if number in numbers:
                    return load_manifest(
                        rows["document"][numbers.index(number)].as_py(), str(self._place)
                    )
        raise LakeError(f"{self._place}: scan {number} is not there any more.")


class Scans(LakeTable):
    """The Delta table `scans` of a lake: one row for each finished scan."""

    def __init__(self, place: LakePlace) -> None:
        super().__init__(place, SCANS, SCHEMA)

    def of(self, cluster: str, known: Finished | None = None) -> Finished:
        """Return the cluster's finished scans.

        `known` is an earlier result of this method. It is returned if the cluster's files in the
        table have not changed since.

        Raises:
            LakeError: the store does not let them be read.
        """
        files = self.files(cluster)
        if known is not None and known.files == files:
            return known
        rows = (row for one in files for row in _rows(self._place, one))
        return Finished(self._place, cluster, files, rows)

    def finish(self, manifest: Manifest, before: Finished, token: str) -> Finished:
        """Commit this scan's row, and return the cluster's finished scans.

        Rows of scans older than the manifest's `retain` are dropped once they are more than an
        eighth of all, so that a row is rarely written again.

        Args:
            manifest: The scan.
            before: The scans that were finished when this one began.
            token: The folder name that this scan used in the tables.

        Raises:
            LakeError: another scan was finished meanwhile.
        """
        found = self.of(manifest.cluster, before)
        if found.rows[-1:] != before.rows[-1:]:
            raise lost(self._place, manifest.cluster)
        row = ScanRow(
            manifest.run,
            manifest.finished_at,
            {name: one.version for name, one in _entries(manifest).items()},
            (token,),
        )
        dropped = expired((*found.rows, row), manifest.retain, manifest.finished_at)
        if len(dropped) * _SHARE <= len(found.rows):
            dropped = ()
        made = row, _written(manifest, row)
        after = self._exchange(found, token, {one.number for one in dropped}, made)
        # Rows may have been dropped at the same moment.
        if after.rows[-1:] != (row,):
            raise lost(self._place, manifest.cluster)
        return after

    def drop(self, found: Finished, dropped: Collection[int], token: str) -> bool:
        """Remove the rows of the scans numbered in `dropped`; return whether none of them is left.

        Nothing is removed if another commit has changed the cluster's rows since `found` was read.
        A scan in progress is not disturbed, for this commit takes no scan number.
        """
        return all(row.number not in dropped for row in self._exchange(found, token, dropped).rows)

    def _exchange(
        self,
        found: Finished,
        token: str,
        dropped: Collection[int],
        *made: tuple[ScanRow, pa.Table],
    ) -> Finished:
        """Commit the scans `found` without those numbered in `dropped`, and with the one in `made`.

        `made` holds one scan or none, and `token` names the new file. Small files are joined.
        Returns the cluster's finished scans after that. If another commit came first, this one
        changes nothing, and the result has the scans of the other.
        """
        again = found.files if dropped else find_small(found.files)
        written = self._write(
            token, chain(self._without(again, dropped), (table for _, table in made))
        )
        rows = [
            *(row for row in found.rows if row.number not in dropped),
            *(row for row, _ in made),
        ]
        number = rows[-1].number if made else None
        after = Finished(
            self._place,
            found.cluster,
            [*(one for one in found.files if one not in again), written],
            rows,
        )
        done = self.commit_files(found.cluster, after.files, number, instead_of=found.files)
        return after if done is not None else self.of(found.cluster, after)

    def _without(self, files: Iterable[DataFile], dropped: Collection[int]) -> Iterator[pa.Table]:
        """Yield these files' rows without the scans in `dropped`; missing columns are null."""
        for one in files:
            for rows in read_rows(self._place, f"{SCANS}/{one.path}", SCHEMA):
                staying = [number not in dropped for number in rows["scan_id"].to_pylist()]
                yield rows.filter(pa.array(staying, pa.bool_()))

    def _write(self, token: str, parts: Iterable[pa.Table]) -> DataFile:
        path, rows = f"{token}.parquet", 0
        with self._place.errors(), self._place.files().open_output_stream(f"{SCANS}/{path}") as out:
            with pq.ParquetWriter(out, SCHEMA, compression="zstd") as writer:
                for part in parts:
                    writer.write_table(part)
                    rows += len(part)
            return DataFile(path, rows, out.tell())


def _rows(place: LakePlace, file: DataFile) -> tuple[ScanRow, ...]:
    found = pa.concat_tables(
        read_rows(
            place,
            f"{SCANS}/{file.path}",
            pa.schema(
                [SCHEMA.field(name) for name in ("scan_id", "finished_at", "versions", "folders")]
            ),
        )
    )
    # A time that becomes a datetime imports pandas.
    times = map(moment, found["finished_at"].cast(pa.int64()).to_pylist())
    return tuple(
        ScanRow(row["scan_id"], at, dict(row["versions"]), tuple(row["folders"]))
        for row, at in zip(found.drop(["finished_at"]).to_pylist(), times, strict=True)
        if at is not None
    )


def expired(rows: Sequence[ScanRow], retain: float | None, now: datetime) -> tuple[ScanRow, ...]:
    """Return the scans of `rows` (sorted by number) that are no longer kept.

    They are the scans before the first one that finished in the `retain` seconds before `now`. The
    last `LEAST` scans are always kept. If `retain` is None, only these are kept.
    """
    old = rows[: max(0, len(rows) - LEAST)]
    if retain is None:
        return tuple(old)
    return tuple(takewhile(lambda row: row.finished_at < now - timedelta(seconds=retain), old))


def is_lake(place: LakePlace) -> bool:
    """Return whether the place has the table of finished scans."""
    from deltalake import DeltaTable

    with place.errors():
        return DeltaTable.is_deltatable(place.table(SCANS), dict(place.options))


def choose_cluster(place: LakePlace, clusters: tuple[str, ...], wanted: str | None) -> str:
    """Return the cluster to read: `wanted`, or the only one of `clusters` if `wanted` is None.

    Raises:
        LakeError: `wanted` is not in the lake, or it is None and the lake has several clusters.
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


def _entries(manifest: Manifest) -> Mapping[str, TableEntry]:
    return {**manifest.tables, **manifest.inputs}


def _written(manifest: Manifest, row: ScanRow) -> pa.Table:
    made = {
        "scan_id": row.number,
        "finished_at": row.finished_at,
        "rebal": manifest.rebal,
        "observed_from": manifest.observed_from,
        "observed_until": manifest.observed_until,
        "sources": list(manifest.sources),
        "records_read": manifest.read,
        "records": list(manifest.records.items()),
        "offsets": list(manifest.offsets.items()),
        "versions": list(row.versions.items()),
        "rows": [(name, entry.rows) for name, entry in _entries(manifest).items()],
        "folders": row.folders,
        "document": msgspec.json.encode(manifest).decode(),
    }
    return pa.Table.from_pylist([made], SCHEMA)
