"""The form of the rows that all sources of records give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rebal.inspectors.fleet.schemas import RECORDS
from rebal.inspectors.fleet.spark.tasks import Work
from rebal.inspectors.kafka.brokers import ClusterReading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPIC: Final = "__consumer_offsets"
SOURCE: Final = RECORDS.append(pa.field("problem", pa.string()))
"""`schemas.RECORDS` and `problem`: null for a record; else why it is none, or `SKIPPED` and what
beside records it is."""
SKIPPED: Final = "skipped: "


@dataclass(frozen=True)
class Source:
    """`rows` are what tasks are given; `names` says where they come from.

    `read` makes batches of `SOURCE` of a task's rows (None: they are such rows). `holds_records`
    asks the source itself, in another way, whether there is something to read, so that reading
    nothing can be an error. `notes` are for the operator, and `brokers` is what those of a live
    cluster said.
    """

    rows: DataFrame
    names: tuple[str, ...]
    read: Work | None = None
    holds_records: Callable[[], bool] = lambda: False
    notes: tuple[str, ...] = ()
    brokers: ClusterReading | None = None
