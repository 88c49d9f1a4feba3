"""The form of the rows that all sources of records give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rebal.inspectors.fleet.schemas import RECORDS
from rebal.inspectors.fleet.spark.tasks import Work, in_tasks
from rebal.inspectors.kafka.brokers import ClusterReading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

TOPIC: Final = "__consumer_offsets"
SOURCE: Final = RECORDS.append(pa.field("problem", pa.string()))
"""`schemas.RECORDS` and `problem`: null for a record; else why it is none, or `SKIPPED` and what
beside records it is."""
SKIPPED: Final = "skipped: "


@dataclass(frozen=True)
class Source:
    """`rows` are what tasks are given; `names` says where they come from.

    `read` makes batches of `SOURCE` of a task's rows (None: they are such rows). `holds_records`:
    asks the source itself, in another way, whether there is
    something to read, so that reading nothing can be an error. `notes` are for the operator, and
    `brokers` is what those of a live cluster said.
    """

    rows: DataFrame
    names: tuple[str, ...]
    read: Work | None = None
    holds_records: Callable[[], bool] = lambda: False
    notes: tuple[str, ...] = ()
    brokers: ClusterReading | None = None


def whole_rows(source: Source) -> DataFrame:
    """Return the rows of `SOURCE` themselves, for what Spark alone can do with them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if source.read is None:
        return source.rows
    schema: StructType = from_arrow_schema(SOURCE, prefer_timestamp_ntz=False)
    return in_tasks(source.rows, source.read, schema)
