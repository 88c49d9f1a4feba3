"""Brokers' request logs as a DataFrame of `request_rows.COUNTED`.

Files may be plain (split among tasks) or packed (gz, bz2: one task a file), rotated, of several
brokers, in any order; folders are searched. Tasks read local files themselves, so that of the
lines that concern no group none passes through the JVM; where only Spark can look (`hdfs://…`),
its text source hands the lines over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from rebal.inspectors.fleet.manifest import ReadLog
from rebal.inspectors.fleet.sources.request_files import Part, blocks, share_out
from rebal.inspectors.fleet.sources.request_rows import COUNTED, RequestLines
from rebal.inspectors.fleet.sources.source import file_name, is_remote, spark_paths
from rebal.inspectors.fleet.spark.tasks import cores_of, in_tasks
from rebal.inspectors.logs.lines import Zone

_TASKS_PER_CORE: Final = 4
_ROWS: Final = 4000
"""Rows that a task hands over at once, about."""
_Reader = Callable[[Iterable[pa.RecordBatch], RequestLines], Iterator[None]]


@dataclass(frozen=True)
class RequestLogs:
    """`rows` is a DataFrame of `request_rows.COUNTED`: each task adds the counts of its lines.

    `read` are the logs on disk as the next scan is to know them, `whole` whether all that the
    paths hold was read, and not only what is new.
    """

    rows: DataFrame
    read: tuple[ReadLog, ...]
    whole: bool


def read_requests(
    spark: SparkSession,
    paths: Sequence[str],
    zone: Zone = None,
    known: Sequence[ReadLog] = (),
) -> RequestLogs:
    """The request logs at `paths` (files or folders; a path with a scheme is Spark's own).

    What is `known` of logs on disk is not read again. A time that names no
    zone is of `zone` (None: UTC).

    Raises:
        DocumentError: a path is missing or cannot be read, or a folder holds no file.
    """
    tasks = _TASKS_PER_CORE * cores_of(spark)
    on_disk = [path for path in paths if not is_remote(path)]
    local, read = share_out(on_disk, tasks, known) if on_disk else ([], [])
    remote = [path for path in paths if is_remote(path)]
    frames: list[tuple[DataFrame, _Reader]] = []
    if local or not remote:
        numbers = spark.range(0, len(local), 1, max(1, len(local)))
        frames.append((numbers, partial(_read_parts, shares=local)))
    if remote:
        text = spark.read.option("recursiveFileLookup", "true").text(spark_paths(remote))
        lines = text.select("value", file_name().alias("file"), "_metadata.file_block_start")
        frames.append((lines, _read_lines))
    schema = from_arrow_schema(COUNTED, prefer_timestamp_ntz=False)
    rows = reduce(
        DataFrame.unionByName,
        (
            in_tasks(frame, partial(_make_rows, read=read, zone=zone), schema)
            for frame, read in frames
        ),
    )
    return RequestLogs(rows, tuple(read), bool(remote) or not known)


def _make_rows(
    batches: Iterable[pa.RecordBatch], read: _Reader, zone: Zone
) -> Iterator[pa.RecordBatch]:
    """Make rows of `COUNTED` of a task's input."""
    found = RequestLines(zone)
    for _ in read(batches, found):
        if len(found) >= _ROWS:
            yield found.take()
    found.add_counts()
    yield found.take()


def _read_parts(
    batches: Iterable[pa.RecordBatch], found: RequestLines, shares: Sequence[Sequence[Part]]
) -> Iterator[None]:
    """The shares whose numbers the batches hold."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for part in shares[number]:
                name = Path(part.path).name
                for position, text, problem in blocks(part):
                    found.read(text, name, position)
                    if problem is not None:
                        found.add_problem(problem, name, position + len(text))
                    yield


def _read_lines(batches: Iterable[pa.RecordBatch], found: RequestLines) -> Iterator[None]:
    """Lines, each with its file's name and where its part of the file begins.

    A part's lines come in their order, so its beginning plus a running number orders the file's.
    """
    number = 0
    for batch in batches:
        values = batch.column(0).cast(pa.binary()).to_pylist()
        names, starts = batch.column(1).to_pylist(), batch.column(2).to_pylist()
        for line, name, start in zip(values, names, starts, strict=True):
            found.read(line, name, start + number)
            number += 1
        yield
