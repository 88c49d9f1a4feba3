"""Brokers' request logs as a DataFrame of `request_rows.COUNTED`.

Files may be plain (split among tasks) or packed (gz, bz2: one task a file), rotated, of several
brokers, in any order; folders are searched. Tasks read the files themselves, so that of the lines
that concern no group none passes through the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from rebal.inspectors.fleet.manifest import ReadLog
from rebal.inspectors.fleet.sources.request_files import Part, blocks, share_out
from rebal.inspectors.fleet.sources.request_rows import COUNTED, RequestLines
from rebal.inspectors.fleet.spark.tasks import cores_of, in_shares, in_tasks, numbered
from rebal.inspectors.logs.lines import Zone

_TASKS_PER_CORE: Final = 4
_ROWS: Final = 4000
"""Rows that a task hands over at once, about."""


def read_requests(
    spark: SparkSession,
    paths: Sequence[str],
    zone: Zone = None,
    known: Sequence[ReadLog] = (),
) -> tuple[DataFrame, tuple[ReadLog, ...]]:
    """Return the rows of the request logs at `paths`, and the logs as a later scan knows them.

    Each task adds a row with the counts of its lines. What is `known` of logs is not read again. A
    time that names no zone is of `zone` (None: UTC).

    Raises:
        DocumentError: a path is missing or cannot be read, or a folder holds no file.
    """
    shares, read = share_out(paths, _TASKS_PER_CORE * cores_of(spark), known)
    schema = from_arrow_schema(COUNTED, prefer_timestamp_ntz=False)
    work = partial(in_shares, shares=shares, work=partial(_read, zone=zone))
    return in_tasks(numbered(spark, len(shares)), work, schema), tuple(read)


def _read(parts: Sequence[Part], zone: Zone) -> Iterator[pa.RecordBatch]:
    """Yield rows of `COUNTED` of parts of logs."""
    found = RequestLines(zone)
    for part in parts:
        name = Path(part.path).name
        for position, text, problem in blocks(part):
            found.read(text, name, position)
            if problem is not None:
                found.add_problem(problem, name, position + len(text))
            if len(found) >= _ROWS:
                yield found.take()
    found.add_counts()
    yield found.take()
