"""Brokers' request logs as a DataFrame of `schemas.REQUESTS`, through Spark's text source.

The JVM throws away the lines that concern no group before any of them reaches Python. Files may be
plain (split among tasks) or compressed (`.gz`, `.bz2`: one task a file), rotated, of several
brokers, in any order; folders are searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from rebal.inspectors.fleet.paths import file_name, spark_paths
from rebal.inspectors.fleet.request_rows import request_rows
from rebal.inspectors.fleet.schemas import REQUESTS
from rebal.inspectors.log_lines import NO_OFFSET

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MARK: Final = "Completed request:"
_WANTED: Final = ("JOIN_GROUP", "SYNC_GROUP", "LEAVE_GROUP", "CONSUMER_GROUP_HEARTBEAT")


@dataclass(frozen=True)
class RequestLogs:
    """`rows` is a DataFrame of `schemas.REQUESTS`; `counts()` says what the files held."""

    rows: DataFrame
    _seen: Observation

    def counts(self) -> Mapping[str, int]:
        """Lines read, by what they are; waits for the first action on `rows` to end.

        `lines` is all of them, `requests` those of the request logger, `parsed` those that
        concern a group, `cut_off` requests that end before they say what they are.
        """
        return {name: int(value or 0) for name, value in self._seen.get.items()}


def read_requests(
    spark: SparkSession, paths: Sequence[str], tz_offset: timedelta = NO_OFFSET
) -> RequestLogs:
    """The request logs at `paths` (files or folders; a path with a scheme is Spark's own).

    A line without a zone is taken as written by a clock `tz_offset` ahead of UTC.
    """
    lines = (
        spark.read.option("recursiveFileLookup", "true")
        .text(spark_paths(paths))
        .select("value", file_name().alias("file_name"), "_metadata.file_block_start")
    )
    value = sql.col("value")
    is_request, wanted = value.contains(MARK), _wanted(value)
    seen = Observation("request log lines")
    observed = lines.observe(
        seen,
        sql.count(sql.lit(1)).alias("lines"),
        _count_if(is_request).alias("requests"),
        _count_if(is_request & wanted).alias("parsed"),
        _count_if(is_request & ~value.contains("requestApiKeyName")).alias("cut_off"),
    )
    schema: StructType = from_arrow_schema(REQUESTS, prefer_timestamp_ntz=False)

    def parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return parse_batches(batches, tz_offset)

    return RequestLogs(observed.where(is_request & wanted).mapInArrow(parse, schema), seen)


def parse_batches(
    batches: Iterable[pa.RecordBatch], tz_offset: timedelta = NO_OFFSET
) -> Iterator[pa.RecordBatch]:
    """Batches of (line, file name, where its part of the file begins) → batches of requests.

    A part's lines come in their order, so its beginning plus a running number orders the file's.
    """
    number = 0
    for batch in batches:
        raw = batch.column(0).cast(pa.binary())
        sources, starts = batch.column(1).to_pylist(), batch.column(2).to_pylist()
        yield request_rows(
            (
                (line.as_py(), source, start + number + index)
                for index, (line, source, start) in enumerate(
                    zip(raw, sources, starts, strict=True)
                )
            ),
            tz_offset,
        )
        number += batch.num_rows


def _wanted(value: Column) -> Column:
    group_request = value.contains(_WANTED[0])
    for api in _WANTED[1:]:
        group_request |= value.contains(api)
    # A refused heartbeat only; in a JSON wrapper the quotes are escaped.
    return group_request | (value.contains("HEARTBEAT") & ~value.rlike(r'errorCode\\*":0\b'))


def _count_if(condition: Column) -> Column:
    return sql.sum(condition.cast("long"))
