"""Records of `__consumer_offsets` from captured files, as rows of `SOURCE`.

A file is JSON lines (plain or gzip) or Parquet, with the columns of Spark's Kafka source. In JSON,
key and value are base64. `timestamp` is a timestamp or a number of milliseconds. A row that is no
record gets a `problem`, so every row is counted.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rebal.groups.errors import DocumentError
from rebal.inspectors.clock import micros
from rebal.inspectors.fleet.schemas import TEXT, TIME
from rebal.inspectors.fleet.sources.source import (
    SKIPPED,
    SOURCE,
    TOPIC,
    FilePart,
    RecordSource,
    SourceRow,
    batches_of,
    blocks,
    head_of,
    is_remote,
    list_files,
    opened_file,
    share_out,
)

_NEEDED: Final = ("key", "value", "partition", "offset", "timestamp")
_ROWS: Final = 1 << 16
# Rows and bytes of a batch, about, whichever is less.
_BYTES: Final = 32 << 20
_FOREIGN: Final = f"{SKIPPED}records of other topics"


class _CapturedLine(msgspec.Struct):
    """A line of a captured file: one record of `__consumer_offsets` as JSON.

    msgspec decodes the base64 of key and value to bytes.
    """

    partition: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    offset: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    key: bytes | None = None
    value: bytes | None = None
    timestamp: Any = None
    topic: str | None = None


_decode: Final = msgspec.json.Decoder(_CapturedLine).decode


def find_files(paths: Sequence[str]) -> list[str]:
    """Return the captured files at `paths` (files, folders or patterns).

    Raises:
        DocumentError: a path is missing, a folder has no captured file, or Parquet is damaged or
            has not the columns that are needed.
    """
    files = [file for path in paths for file in _files(path)]
    for file in filter(_is_parquet, files):
        _check_columns(file)
    return files


def read_files(paths: Sequence[str]) -> RecordSource:
    """Return the record source for captured files; raise the errors of `find_files`."""
    files = find_files(paths)
    names = tuple(sorted({Path(path).name for path in files}))
    return RecordSource(names, lambda cores, _: share_out(files, cores)[0], read_parts)


def read_parts(parts: Sequence[FilePart]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts of files as batches of `SOURCE`."""
    for one in parts:
        yield from read_groups(one) if _is_parquet(one.path) else read_lines(one)


def _is_parquet(path: str) -> bool:
    return head_of(path).startswith(b"PAR1")


def read_lines(part: FilePart) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a part of a file as batches of `SOURCE`.

    Raises:
        DocumentError: the file cannot be read to its end.
    """
    for block in blocks(part):
        if block.problem is not None:
            raise DocumentError(f"{part.path}: {block.problem}.")
        yield from batches_of(
            _row(line, Path(part.path).name)
            for line in filter(bytes.strip, block.text.splitlines())
        )


def _row(line: bytes, source: str) -> SourceRow:
    """Return the row of a JSON line; an unreadable line is the row's value, with a `problem`."""
    try:
        found = _decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return None, line, None, None, None, source, f"no record: {error}"
    at = micros_in(found.timestamp)
    if found.topic not in (None, TOPIC):
        return None, None, None, None, at, source, _FOREIGN
    return found.key, found.value, found.partition, found.offset, at, source, None


def _files(path: str) -> list[str]:
    """Return the files at a path; of a folder only captured files (JSON lines or Parquet)."""
    files = list_files(path)
    if not (files != [path] if is_remote(path) else os.path.isdir(path)):
        return files
    # Spark writes files of its own beside those of records.
    found = [
        file
        for file in files
        if not any(part.startswith("_") for part in Path(file).relative_to(path).parts)
        and file.removesuffix(".gz").endswith((".jsonl", ".ndjson", ".json", ".parquet"))
    ]
    if not found:
        raise DocumentError(f"{path}: no .jsonl, .jsonl.gz or .parquet file is in this folder.")
    return found


def _check_columns(path: str) -> None:
    try:
        with opened_file(path) as opened:
            schema = pq.read_schema(opened)
    except pa.ArrowException:
        raise DocumentError(f"{path}: is no whole Parquet file; capture it again.") from None
    binary = (pa.binary(), pa.large_binary())
    fit = [one.name for one in schema if one.type in binary or one.name not in ("key", "value")]
    lacking = [name for name in _NEEDED if name not in fit]
    if lacking:
        raise DocumentError(
            f"{path}: {', '.join(lacking)}: missing, or of another type; expected the columns of "
            "Spark's Kafka source: key and value (binary), partition, offset, timestamp."
        )


def read_groups(part: FilePart) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part of a Parquet file as batches of `SOURCE`.

    A row group belongs to the part that contains the byte in its middle.
    """
    with opened_file(part.path) as opened:
        file = pq.ParquetFile(opened)
        names = [name for name in (*_NEEDED, "topic") if name in file.schema_arrow.names]
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            columns = [group.column(n) for n in range(group.num_columns)]
            size = sum(one.total_compressed_size for one in columns)
            if not part.begin <= columns[0].data_page_offset + size // 2 < part.end:
                continue
            rows = min(_ROWS, 1 + _BYTES * group.num_rows // max(1, group.total_byte_size))
            for batch in file.iter_batches(
                rows, row_groups=[number], columns=names, use_threads=False
            ):
                yield shaped(batch, Path(part.path).name)


def shaped(rows: pa.RecordBatch, source: str) -> pa.RecordBatch:
    """Return rows with the columns of Spark's Kafka source as rows of `SOURCE`.

    The column `topic` may be missing. A record of another topic becomes a skipped row.
    """
    topics = rows["topic"] if "topic" in rows.schema.names else pa.nulls(rows.num_rows)
    foreign = pc.fill_null(pc.not_equal(topics.cast(TEXT), TOPIC), False)
    # The place of a record of another topic is not in this one.
    partition, offset = (
        pc.if_else(foreign, pa.scalar(None, kind), rows[name].cast(kind))
        for name, kind in (("partition", pa.int32()), ("offset", pa.int64()))
    )
    without = pc.or_(pc.is_null(partition), pc.is_null(offset))
    problem = pc.if_else(
        without, pa.scalar("no record: without partition or offset"), pa.scalar(None, TEXT)
    )
    columns = [
        rows["key"].cast(pa.binary()),
        rows["value"].cast(pa.binary()),
        partition,
        offset,
        _times(rows["timestamp"]),
        pa.repeat(pa.scalar(source), rows.num_rows),
        pc.if_else(foreign, pa.scalar(_FOREIGN), problem),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SOURCE)


def _times(column: pa.Array) -> pa.Array:
    """Return a column as UTC timestamps; values that are no timestamps are read by `micros_in`."""
    if pa.types.is_timestamp(column.type):
        return pc.cast(column, pa.timestamp("us", column.type.tz), safe=False).cast(TIME)
    return pa.array(map(micros_in, column.to_pylist()), TIME)


def micros_in(time: Any) -> int | None:
    """Return a time as microseconds since 1970; None if it is not a time.

    `time` is a number of milliseconds, micro- or nanoseconds (told apart by size), the text of such
    a number, or an ISO 8601 time.
    """
    try:
        number = int(time)
    except (OverflowError, TypeError, ValueError):
        with contextlib.suppress(ValueError):
            written = datetime.fromisoformat(str(time))
            return micros(written if written.tzinfo else written.replace(tzinfo=UTC))
        return None
    found = number * 1000 if number < 10**14 else number if number < 10**17 else number // 1000
    return found if max(abs(number), abs(found)) < 2**63 else None
