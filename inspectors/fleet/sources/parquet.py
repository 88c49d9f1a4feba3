"""Captured Parquet files: tasks read their row groups with Arrow.

`shaped` brings rows with the columns of Spark's Kafka source to the form of `SOURCE`, wherever they
come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rebal.groups.errors import DocumentError
from rebal.inspectors.clock import micros
from rebal.inspectors.fleet.schemas import TIME
from rebal.inspectors.fleet.sources.files import absolute, opened_file
from rebal.inspectors.fleet.sources.source import SKIPPED, SOURCE, TOPIC
from rebal.inspectors.fleet.spark.tasks import shares_of

_NEEDED: Final = ("key", "value", "partition", "offset", "timestamp")
_TASK: Final = 64 << 20
"""Bytes of a file that one task reads, about."""
_ROWS: Final = 1 << 16
_BYTES: Final = 32 << 20
"""Rows and bytes of a batch, about, whichever is less."""
_NO_RECORD: Final = "no record: without partition or offset"


class RowGroup(NamedTuple):
    """A row group of a file, by its number."""

    path: str
    number: int


def plan_parquet(paths: Sequence[str], least: int) -> list[list[RowGroup]]:
    """Return the row groups of all files, by task: at least `least` tasks where there is enough.

    Raises:
        DocumentError: a file is damaged, or has not the columns that are needed.
    """
    sizes: dict[RowGroup, int] = {}
    for path in map(absolute, paths):
        try:
            with opened_file(path) as opened:
                file = pq.ParquetFile(opened)
                _check_columns(path, file.schema_arrow)
                for number in range(file.num_row_groups):
                    group = file.metadata.row_group(number)
                    columns = (group.column(n) for n in range(group.num_columns))
                    size = sum(column.total_compressed_size for column in columns)
                    sizes[RowGroup(path, number)] = size
        except pa.ArrowException:
            raise DocumentError(f"{path}: is no whole Parquet file; capture it again.") from None
    return shares_of(sizes, max(least, -(-sum(sizes.values()) // _TASK)))


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


def read_group(one: RowGroup) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group as batches of `SOURCE`."""
    with opened_file(one.path) as opened:
        file = pq.ParquetFile(opened)
        names = [name for name in (*_NEEDED, "topic") if name in file.schema_arrow.names]
        group = file.metadata.row_group(one.number)
        rows = min(_ROWS, 1 + _BYTES * group.num_rows // max(1, group.total_byte_size))
        for batch in file.iter_batches(
            rows, row_groups=[one.number], columns=names, use_threads=False
        ):
            yield shaped(batch, Path(one.path).name)


def shaped(rows: pa.RecordBatch, source: str) -> pa.RecordBatch:
    """Return rows with the columns of Spark's Kafka source as rows of `SOURCE`.

    `topic` and `problem` are columns that they may have.
    """

    def column(name: str, kind: pa.DataType) -> pa.Array:
        found = name in rows.schema.names
        return rows[name].cast(kind) if found else pa.nulls(rows.num_rows, kind)

    problem = column("problem", pa.string())
    foreign = pc.fill_null(pc.not_equal(column("topic", pa.string()), TOPIC), False)
    # The place of a record of another topic is not in this one.
    partition, offset = (
        pc.if_else(foreign, pa.scalar(None, kind), column(name, kind))
        for name, kind in (("partition", pa.int32()), ("offset", pa.int64()))
    )
    without = pc.or_(pc.is_null(partition), pc.is_null(offset))
    problem = pc.if_else(without, pa.scalar(_NO_RECORD), problem)
    problem = pc.if_else(foreign, pa.scalar(f"{SKIPPED}records of other topics"), problem)
    columns = [
        column("key", pa.binary()),
        column("value", pa.binary()),
        partition,
        offset,
        _times(rows["timestamp"]),
        pa.repeat(pa.scalar(source), rows.num_rows),
        problem,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SOURCE)


def _times(column: pa.Array) -> pa.Array:
    """Return timestamps of any unit, or what else tells a time (`micros_in`), as times."""
    if pa.types.is_timestamp(column.type):
        return pc.cast(column, pa.timestamp("us", column.type.tz), safe=False).cast(TIME)
    return pa.array(map(micros_in, column.to_pylist()), TIME)


def micros_in(time: Any) -> int | None:
    """Return microseconds since 1970; None where `time` tells none.

    It is a number of milliseconds (or, being larger, of micro- or nanoseconds), its text, or a
    written time.
    """
    try:
        number = int(time)
    except (OverflowError, TypeError, ValueError):
        return _micros_written(str(time))
    found = number * 1000 if number < 10**14 else number if number < 10**17 else number // 1000
    return found if max(abs(number), abs(found)) < 2**63 else None


def _micros_written(time: str) -> int | None:
    try:
        found = datetime.fromisoformat(time)
    except ValueError:
        return None
    return micros(found if found.tzinfo else found.replace(tzinfo=UTC))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
