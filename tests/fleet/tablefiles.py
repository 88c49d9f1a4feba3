"""A lake as the pipeline leaves it, from rows written by hand; no Spark, no Java."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from rebal.inspectors.fleet.lake.place import find_place
from rebal.inspectors.fleet.lake.run import new_run
from rebal.inspectors.fleet.lake.scans import SCANS
from rebal.inspectors.fleet.lake.writer import PartWriter, Target, TaskReport
from rebal.inspectors.fleet.manifest import UNNAMED, Manifest
from rebal.inspectors.fleet.schemas import TABLES
from rebal.inspectors.kafka.brokers import ClusterReading
from rebal.inspectors.tables.reader import open_tables

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
_RECORDS: Final = {"GROUP_METADATA": 20}
AT = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


def write_tables(
    folder: Path,
    rows: Rows,
    *,
    parts: int = 1,
    records: Mapping[str, int] = _RECORDS,
    brokers: ClusterReading | None = None,
    cluster: str = UNNAMED,
    **said: Any,
) -> Path:
    """`folder` with these rows, as a finished scan leaves them; each table in `parts` files.

    `records` are the kinds of records that the manifest counts, `said` what else it says.
    """
    run = new_run(find_place(str(folder)), cluster, full=True)
    if brokers is not None:
        ends = [
            {"topic": topic, "topic_partition": number, "log_end_offset": end, "at": brokers.at}
            for topic, of_topic in brokers.ends.items()
            for number, end in enumerate(of_topic)
        ]
        rows = {"log_ends": ends, **rows}
        said["brokers"] = replace(brokers, ends={})
    made: list[pa.RecordBatch] = []
    for number in range(parts):
        writer = PartWriter(run.target)
        for name, found in rows.items():
            unknown = {key for row in found for key in row} - set(TABLES[name].names)
            assert not unknown, f"{name} has no columns {unknown}"
            start, stop = len(found) * number // parts, len(found) * (number + 1) // parts
            writer.add("open_groups" if name == "groups" else name, found[start:stop])
        made += writer.report()
    manifest = Manifest(
        cluster=cluster,
        run=run.number,
        finished_at=AT,
        observed_until=AT,
        sources=("consumer_offsets.jsonl.gz", "kafka-request.log.gz"),
        read=sum(records.values()),
        records=dict(records),
        **{"observed_from": AT - timedelta(hours=24), **said},
    )
    run.finish(manifest, reported(made))
    return folder


def last_scan(folder: Path, cluster: str | None = None) -> Manifest:
    """The manifest of the last finished scan of the cluster, or of the lake's only one."""
    return open_tables(str(folder) if cluster is None else f"{folder}#{cluster}").manifest


def target_in(folder: Path, number: int = 1) -> Target:
    """Where tasks of a scan with this number write, in a lake in `folder`."""
    return Target(find_place(str(folder)), f"{number:08d}-test", number)


def reported(batches: Iterable[pa.RecordBatch]) -> TaskReport:
    """What tasks report to the driver."""
    totals = TaskReport()
    for batch in batches:
        totals.take(batch.to_pylist())
    return totals


def files_in(folder: Path, kind: str) -> list[str]:
    """The files of one kind in a lake, as paths in it, sorted."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(f"{kind}-*.parquet"))


def change_document(folder: Path, change: Mapping[str, Any]) -> None:
    """Overwrite fields of the last scan's document, as nothing of rebal does."""
    path = max((folder / SCANS).glob("*.parquet"))
    rows = pq.read_table(path)
    documents = [json.dumps(json.loads(text) | change) for text in rows["document"].to_pylist()]
    at = rows.schema.get_field_index("document")
    pq.write_table(rows.set_column(at, "document", pa.array(documents)), path)
