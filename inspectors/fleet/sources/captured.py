"""Records of `__consumer_offsets` from captured files, in the form of `SOURCE`.

JSON lines have the columns of Spark's Kafka source with key and value in base64 (plain, or `.gz`),
Parquet files (`parquet`) have them as they are; `timestamp` is a timestamp or a number of
milliseconds. Rows that are no records keep their place with a `problem`, so nothing is lost
without a trace.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import pyarrow as pa

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.schemas import TEXT
from rebal.inspectors.fleet.sources.files import is_folder, list_files, opened_file
from rebal.inspectors.fleet.sources.parquet import (
    RowGroup,
    micros_in,
    plan_parquet,
    read_group,
    shaped,
)
from rebal.inspectors.fleet.sources.request_files import Part, blocks, share_out
from rebal.inspectors.fleet.sources.source import SOURCE, TOPIC, Source
from rebal.inspectors.fleet.spark.tasks import cores_of, numbered, numbers_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TEXT: Final = (".jsonl", ".ndjson", ".json")
_PARQUET_MAGIC: Final = b"PAR1"
_LINE: Final = SOURCE.remove(SOURCE.get_field_index("source")).append(pa.field("topic", TEXT))


class _Line(msgspec.Struct):
    """A line of captured JSON: key and value are base64."""

    partition: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    offset: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    key: Any = None
    value: Any = None
    timestamp: Any = None
    topic: str | None = None


_decode: Final = msgspec.json.Decoder(_Line).decode


def find_files(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Return the captured files at `paths` (files, folders or patterns).

    Each comes with its form, `text` or `parquet`.

    Raises:
        DocumentError: a path is missing or empty, or a folder has no captured file.
    """
    return [(file, _form(file)) for path in paths for file in _files(path)]


def read_files(spark: SparkSession, files: Sequence[tuple[str, str]]) -> Source:
    """Return the records in captured files, as `find_files` gives them.

    Raises:
        DocumentError: Parquet without the columns that are needed.
    """
    cores = cores_of(spark)
    text, _ = share_out([path for path, form in files if form == "text"], cores)
    parquet = plan_parquet([path for path, form in files if form == "parquet"], cores)
    tasks: list[Sequence[Part | RowGroup]] = [*text, *parquet]
    names = tuple(sorted({Path(path).name for path, _ in files}))
    return Source(numbered(spark, len(tasks)), names, partial(read_tasks, tasks=tasks))


def read_tasks(
    batches: Iterable[pa.RecordBatch], tasks: Sequence[Sequence[Part | RowGroup]]
) -> Iterator[pa.RecordBatch]:
    """Yield what the tasks read whose numbers the batches hold, as batches of `SOURCE`."""
    for number in numbers_in(batches):
        for one in tasks[number]:
            yield from read_lines(one) if isinstance(one, Part) else read_group(one)


def read_lines(part: Part) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a part of a file as batches of `SOURCE`.

    Raises:
        DocumentError: the file cannot be read to its end.
    """
    for block in blocks(part):
        if block.problem is not None:
            raise DocumentError(f"{part.path}: {block.problem}.")
        rows = [_row(line) for line in block.text.splitlines() if line.strip()]
        yield shaped(pa.RecordBatch.from_pylist(rows, _LINE), Path(part.path).name)


def _row(line: bytes) -> dict[str, Any]:
    """Return the columns of a line; what cannot be read is kept as it is written."""
    try:
        found = _decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {"value": line}
    made: dict[str, Any] = {"partition": found.partition, "offset": found.offset}
    made |= {"timestamp": micros_in(found.timestamp), "topic": found.topic}
    for name in ("key", "value"):
        try:
            text = getattr(found, name)
            made[name] = None if text is None else base64.b64decode(text, validate=True)
        except (TypeError, ValueError):
            return {**made, "value": line, "problem": f"the {name} is not base64"}
    return made


def _files(path: str) -> list[str]:
    """Return the files of a path; of a folder those that are captured."""
    files = list_files(path)
    if not is_folder(path):
        return files
    # Spark writes files of its own beside those of records.
    found = [
        file
        for file in files
        if not any(part.startswith("_") for part in Path(file).relative_to(path).parts)
        and file.removesuffix(".gz").endswith((*_TEXT, ".parquet"))
    ]
    if not found:
        raise DocumentError(f"{path}: no .jsonl, .jsonl.gz or .parquet file is in this folder.")
    return found


def _form(path: str) -> str:
    """Return what a file is by its first bytes; of lines the tasks see whether they are packed."""
    with opened_file(path) as stream:
        head = stream.read(len(_PARQUET_MAGIC))
    if not head:
        raise DocumentError(f"{path}: is empty; capture the records of {TOPIC} again.")
    return "parquet" if head == _PARQUET_MAGIC else "text"
