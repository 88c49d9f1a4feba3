"""What all sources of records share: the form of their rows, and how Spark names files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rebal.inspectors.fleet.schemas import RECORDS
from rebal.inspectors.fleet.spark.tasks import Work, in_tasks
from rebal.inspectors.kafka.brokers import ClusterReading

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

TOPIC: Final = "__consumer_offsets"
SOURCE: Final = RECORDS.append(pa.field("problem", pa.string()))
"""`schemas.RECORDS` and `problem`: null for a record; else why it is none, or `SKIPPED` and what
beside records it is."""
SKIPPED: Final = "skipped: "
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_GLOB: Final = re.compile(r"([\\{}\[\]*?])")


@dataclass(frozen=True)
class Source:
    """`rows` are what tasks are given; `names` says where they come from.

    `read` makes batches of `SOURCE` of a task's rows (None: they are such rows). `may_repeat`: one
    record may come twice. `holds_records`: asks the source itself, in another way, whether there is
    something to read, so that reading nothing can be an error. `notes` are for the operator, and
    `brokers` is what those of a live cluster said.
    """

    rows: DataFrame
    names: tuple[str, ...]
    read: Work | None = None
    may_repeat: bool = False
    holds_records: Callable[[], bool] = lambda: False
    notes: tuple[str, ...] = ()
    brokers: ClusterReading | None = None


def whole_rows(source: Source) -> DataFrame:
    """The rows of `SOURCE` themselves, for what Spark alone can do with them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if source.read is None:
        return source.rows
    schema: StructType = from_arrow_schema(SOURCE, prefer_timestamp_ntz=False)
    return in_tasks(source.rows, source.read, schema)


def is_remote(path: str) -> bool:
    """Whether only Spark can look there (`hdfs://…`, `s3a://…`)."""
    return _SCHEME.match(path) is not None


def spark_paths(paths: Sequence[str]) -> list[str]:
    """`paths` for Spark's readers: a local one as it is, whatever characters its name holds."""
    return [
        path if is_remote(path) else "file:" + _GLOB.sub(r"\\\1", str(Path(path).absolute()))
        for path in paths
    ]


def file_name() -> Column:
    """The name of the file that a row was read from, as its folder lists it."""
    from pyspark.sql import functions as sql

    # Spark tells it as a part of a URI, in which a plus is a plus.
    return sql.url_decode(sql.regexp_replace("_metadata.file_name", r"\+", "%2B"))
