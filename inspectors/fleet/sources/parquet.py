"""Captured Parquet files: tasks read their row groups with Arrow, or Spark reads remote ones.

Both give rows with the columns of Spark's Kafka source, which are brought to the form of
`sources.SOURCE` in one place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.schemas import TEXT, TIME
from rebal.inspectors.fleet.sources.repeats import may_repeat
from rebal.inspectors.fleet.sources.source import (
    SKIPPED,
    SOURCE,
    TOPIC,
    Source,
    file_name,
    spark_paths,
)
from rebal.inspectors.fleet.spark.tasks import cores_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED: Final = ("key", "value", "partition", "offset", "timestamp")
_TASK: Final = 64 << 20
"""Bytes of a file that one task reads, about."""
_ROWS: Final = 1 << 16
_BYTES: Final = 32 << 20
"""Rows and bytes of a batch, about, whichever is less."""

Part = tuple[str, int]
"""A file and the number of a row group in it."""


def task_parquet(spark: SparkSession, paths: Sequence[str]) -> Source:
    """Local files: each task reads its row groups with Arrow.

    Raises:
        DocumentError: a file is damaged, or has not the columns that are needed.
    """
    tasks = plan_parquet(paths, cores_of(spark))
    rows = spark.range(0, len(tasks), 1, len(tasks))
    read = partial(read_tasks, tasks=tasks)
    return Source(rows, (), read, may_repeat=may_repeat(paths))


def spark_parquet(spark: SparkSession, paths: Sequence[str]) -> Source:
    """Files that only Spark can read.

    Raises:
        DocumentError: they have not the columns that are needed.
    """
    rows = spark.read.parquet(*spark_paths(paths))
    kinds = {each.name: each.dataType.simpleString() for each in rows.schema.fields}
    forms = [(name, pa.binary() if kind == "binary" else TEXT) for name, kind in kinds.items()]
    _check_columns(paths[0], pa.schema(forms))
    topic = ["topic"] if "topic" in kinds else []
    rows = rows.select(*_NEEDED, *topic, file_name().alias("source"))
    return Source(rows, (), _read_rows, may_repeat=True)


def plan_parquet(paths: Sequence[str], least: int) -> list[list[Part]]:
    """The row groups of all files, by task: at least `least` tasks where there is enough.

    Raises:
        DocumentError: a file is damaged, or has not the columns that are needed.
    """
    sizes: dict[Part, int] = {}
    for path in paths:
        try:
            with pq.ParquetFile(path) as file:
                _check_columns(path, file.schema_arrow)
                metadata = file.metadata
        except (pa.ArrowException, OSError):
            raise DocumentError(f"{path}: is no whole Parquet file; capture it again.") from None
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            columns = (group.column(n) for n in range(group.num_columns))
            sizes[path, number] = sum(column.total_compressed_size for column in columns)
    total = sum(sizes.values())
    wanted = max(least, -(-total // _TASK))
    tasks: list[list[Part]] = [[]]
    held = 0
    for part, size in sizes.items():
        if held * wanted >= total * len(tasks):
            tasks.append([])
        tasks[-1].append(part)
        held += size
    return tasks


def _check_columns(path: str, schema: pa.Schema) -> None:
    missing = [name for name in _NEEDED if name not in schema.names]
    wrong = [
        name for name in ("key", "value") if not missing and not _is_binary(schema.field(name).type)
    ]
    if missing or wrong:
        lacking = f"no column {', '.join(missing)}" if missing else f"{wrong[0]} is not binary"
        raise DocumentError(
            f"{path}: {lacking}; expected the columns of Spark's Kafka source: "
            "key and value (binary), partition, offset, timestamp."
        )


def _read_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield shaped(batch, batch["source"])


def read_tasks(
    batches: Iterable[pa.RecordBatch], tasks: Sequence[Sequence[Part]]
) -> Iterator[pa.RecordBatch]:
    """The row groups of the tasks whose numbers the batches hold, as batches of `SOURCE`."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for path, parts in itertools.groupby(tasks[number], key=itemgetter(0)):
                with pq.ParquetFile(path, memory_map=True) as file:
                    for _, group in parts:
                        yield from _row_group(file, group, Path(path).name)


def _row_group(file: pq.ParquetFile, number: int, source: str) -> Iterator[pa.RecordBatch]:
    names = [name for name in (*_NEEDED, "topic") if name in file.schema_arrow.names]
    group = file.metadata.row_group(number)
    rows = min(_ROWS, 1 + _BYTES * group.num_rows // max(1, group.total_byte_size))
    for batch in file.iter_batches(rows, row_groups=[number], columns=names, use_threads=False):
        yield shaped(batch, source)


def shaped(rows: pa.RecordBatch, source: str | pa.Array) -> pa.RecordBatch:
    """Rows with the columns of Spark's Kafka source → rows of `SOURCE`."""
    size = rows.num_rows
    partition = rows["partition"].cast(pa.int32())
    offset = rows["offset"].cast(pa.int64())
    nothing = pa.nulls(size, pa.string())
    problem = nothing
    if partition.null_count or offset.null_count:
        without = pc.or_(pc.is_null(partition), pc.is_null(offset))
        what = "the row is no record: without partition or offset"
        problem = pc.if_else(without, pa.scalar(what), problem)
    foreign = _foreign(rows)
    if foreign is not None:
        problem = pc.if_else(foreign, pa.scalar(f"{SKIPPED}records of other topics"), problem)
        # The place of a record of another topic is not in this one.
        partition = pc.if_else(foreign, pa.scalar(None, pa.int32()), partition)
        offset = pc.if_else(foreign, pa.scalar(None, pa.int64()), offset)
    columns = [
        rows["key"].cast(pa.binary()),
        rows["value"].cast(pa.binary()),
        partition,
        offset,
        _times(rows["timestamp"]),
        pa.array([source], pa.string()).take(pa.array(np.zeros(size, np.int32)))
        if isinstance(source, str)
        else source,
        problem,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SOURCE)


def _foreign(rows: pa.RecordBatch) -> pa.Array | None:
    """Return a mask of the rows of other topics; None where there is none."""
    if "topic" not in rows.schema.names:
        return None
    foreign = pc.fill_null(pc.not_equal(rows["topic"].cast(pa.string()), TOPIC), False)
    return foreign if pc.any(foreign).as_py() else None


def _times(column: pa.Array) -> pa.Array:
    """Timestamps of any unit; else milliseconds (or, being larger, micro- or nanoseconds) since
    1970, or a written time."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return pc.cast(column, pa.timestamp("us", kind.tz), safe=False).cast(TIME)
    if not pa.types.is_integer(kind):
        return pa.array([_written(text) for text in column.cast(pa.string()).to_pylist()], TIME)
    return _micros(column.cast(pa.int64())).cast(TIME)


def _micros(numbers: pa.Array) -> pa.Array:
    nanos = pc.divide(numbers, 1000)
    millis = pc.multiply(numbers, 1000)
    return pc.if_else(
        pc.greater_equal(numbers, 10**17),
        nanos,
        pc.if_else(pc.greater_equal(numbers, 10**14), numbers, millis),
    )


def _written(text: str | None) -> Any:
    try:
        return _micros(pa.array([int(text or "")], pa.int64()))[0].as_py()
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
