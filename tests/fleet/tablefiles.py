"""A scan's folder as the pipeline leaves it, from rows written by hand; no Spark, no Java."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from rebal.inspectors.fleet.manifest import Manifest, TableEntry, TableFile, dump_manifest
from rebal.inspectors.fleet.schemas import TABLES
from rebal.inspectors.kafka.brokers import ClusterReading

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
_RECORDS: Final = {"GROUP_METADATA": 20}
AT = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


def write_tables(
    folder: Path,
    rows: Rows,
    *,
    schema: str = "rebal.fleet-scan/2",
    files: int = 1,
    more: Mapping[str, pa.DataType] | None = None,
    records: Mapping[str, int] | None = None,
    minutes: int = 24 * 60,
    breaks: Mapping[int, tuple[int, ...]] | None = None,
    brokers: ClusterReading | None = None,
) -> Path:
    """`folder` with these rows, in the layout of a finished run; each table in `files` files.

    `more` are columns, all null, that a newer rebal may have added to every table. `records` are
    the kinds of records that the manifest counts, `minutes` the length of the history, `breaks` and
    `brokers` as in the manifest.
    """
    run = folder / "runs" / "1"
    tables = {}
    for name, columns in TABLES.items():
        found = [dict(row) for row in rows.get(name, ())]
        unknown = {key for row in found for key in row} - set(columns.names)
        assert not unknown, f"{name} has no columns {unknown}"
        table = pa.Table.from_pylist(found, columns)
        for extra, kind in (more or {}).items():
            table = table.append_column(extra, pa.nulls(len(table), kind))
        (run / name).mkdir(parents=True, exist_ok=True)
        parts = []
        for number in range(files):
            start, stop = len(table) * number // files, len(table) * (number + 1) // files
            path = run / name / f"part-{number:05d}.parquet"
            pq.write_table(table.slice(start, stop - start), path, compression="zstd")
            parts.append(TableFile(path=f"{name}/{path.name}", rows=stop - start))
        tables[name] = TableEntry(rows=len(table), files=tuple(parts))
    manifest = Manifest(
        schema=schema,
        run=1,
        finished_at=AT,
        observed_from=AT - timedelta(minutes=minutes),
        observed_until=AT,
        sources=("consumer_offsets.jsonl.gz", "kafka-request.log.gz"),
        read=sum((records or _RECORDS).values()),
        records=dict(records or _RECORDS),
        breaks=dict(breaks or {}),
        brokers=brokers,
        tables=tables,
    )
    (run / "manifest.json").write_bytes(dump_manifest(manifest))
    current = folder / "current"
    current.unlink(missing_ok=True)
    current.symlink_to(Path("runs") / "1")
    return folder
