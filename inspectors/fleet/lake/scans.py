"""The table `scans`: one row for each finished scan, committed last, from which all reading starts.

A row holds the version of every table at which this scan's rows, and nothing else of its cluster,
are in it. What is in the tables beyond these versions belongs to a scan that is not finished.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.lake.place import LakeError, Place
from rebal.inspectors.fleet.lake.table import DataFile, LakeTable, lost, token_of
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
        ("document", pa.string()),
    ]
)
"""`versions` and `rows` are by table, `offsets` the last ones read by partition of
`__consumer_offsets`; `document` is the whole manifest as JSON."""


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

    def last(self, cluster: str) -> Manifest | None:
        """Return the cluster's last finished scan, if there is one.

        Raises:
            DocumentError: it cannot be read.
        """
        return self._last_of(self._rows(self._table.files(cluster)))

    def kept(self, cluster: str) -> tuple[Manifest, ...]:
        """Return the cluster's finished scans that can still be read, the last one last.

        An earlier one that another version wrote is left out.

        Raises:
            DocumentError: the last one cannot be read.
        """
        rows = self._rows(self._table.files(cluster))
        found: list[Manifest] = []
        for text in rows["document"].to_pylist()[:-1]:
            with contextlib.suppress(DocumentError):
                found.append(load_manifest(text, str(self._place)))
        last = self._last_of(rows)
        return tuple(found) if last is None else (*found, last)

    def number(self, app: str) -> int:
        """Return the number of the last scan that committed here."""
        return self._table.number(app)

    def finish(self, manifest: Manifest, before: Manifest | None, app: str) -> str:
        """Make this scan the cluster's last, if `before` still is; return the file of its rows.

        The row of `before` stays: it may be read at this moment.

        Raises:
            LakeError: another scan was finished meanwhile.
        """
        cluster, number = manifest.cluster, manifest.run
        files = self._table.files(cluster)
        earlier = self._rows(files)
        if self._last_of(earlier) != before:
            raise lost(self._place, cluster)
        row = pa.Table.from_pylist([_row(manifest)], SCHEMA)
        rows = pa.concat_tables([earlier.slice(max(0, len(earlier) - 1)), row])
        made = self._write(rows, cluster, number)
        if self._table.become(cluster, [made], app, number, instead_of=files) is None:
            raise lost(self._place, cluster)
        return f"{SCANS}/{made.path}"

    def _last_of(self, rows: pa.Table) -> Manifest | None:
        if not len(rows):
            return None
        return load_manifest(rows["document"][-1].as_py(), str(self._place))

    def _rows(self, files: Sequence[DataFile]) -> pa.Table:
        """The rows in a cluster's files, the last scan's last."""
        parts = [self._read(file) for file in files]
        # pyarrow imports pandas to make an empty table.
        return pa.concat_tables(parts) if parts else SCHEMA.empty_table()

    def _write(self, rows: pa.Table, cluster: str, number: int) -> DataFile:
        path = f"{token_of(cluster, number)}.parquet"
        files = self._place.files()
        with self._place.errors():
            with files.open_output_stream(f"{SCANS}/{path}") as out:
                pq.write_table(rows, out, compression="zstd")
            size = files.get_file_info(f"{SCANS}/{path}").size
        return DataFile(path, len(rows), size)

    def _read(self, file: DataFile) -> pa.Table:
        with (
            self._place.errors(),
            self._place.files().open_input_file(f"{SCANS}/{file.path}") as opened,
        ):
            return pq.ParquetFile(opened).read(columns=SCHEMA.names)


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


def _row(manifest: Manifest) -> dict[str, object]:
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
        "document": dump_manifest(manifest),
    }
