"""The form of the rows that all sources of records give."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from rebal.inspectors.fleet.schemas import RECORDS
from rebal.inspectors.kafka.brokers import ClusterReading

TOPIC: Final = "__consumer_offsets"
SOURCE: Final = RECORDS.append(pa.field("problem", pa.string()))
"""`schemas.RECORDS` and `problem`: null for a record; else why it is none, or `SKIPPED` and what
beside records it is."""
SourceRow = tuple[bytes | None, bytes | None, int | None, int | None, int | None, str, str | None]
"""A row of `SOURCE`; its time is microseconds since 1970."""
SKIPPED: Final = "skipped: "
UNREADABLE: Final = "UNREADABLE"
"""What a record counts as that is not what its key says."""
_ROWS: Final = 4000
# Rows and bytes of a batch, about, whichever is less.
_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class RecordSource:
    """Records that a scan reads; `names` says where they come from.

    `share` makes shares of them for so many cores, one for each task, and may leave out records up
    to the offsets that it is given by partition; `read` makes batches of `SOURCE` of a share,
    wherever the task runs. `cluster` is the id of theirs, if they say it; `notes` are for the
    operator, and `brokers` is what those of a live cluster said.
    """

    names: tuple[str, ...]
    share: Callable[[int, Mapping[int, int]], Sequence[Any]]
    read: Callable[[Any], Iterator[pa.RecordBatch]]
    cluster: str | None = None
    notes: tuple[str, ...] = ()
    brokers: ClusterReading | None = None


def batches_of(rows: Iterable[SourceRow]) -> Iterator[pa.RecordBatch]:
    """Yield these rows as batches of `SOURCE`."""
    held: list[SourceRow] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row[1] or b"")
        if len(held) >= _ROWS or size >= _BYTES:
            yield _batch_of(held)
            held, size = [], 0
    yield _batch_of(held)


def _batch_of(rows: Sequence[SourceRow]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(SOURCE)
    arrays = [pa.array(column, one.type) for one, column in zip(SOURCE, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SOURCE)


def error_row(
    row: Mapping[str, Any], what: str, group_id: str | None, error: str
) -> dict[str, Any]:
    """Return a row of `errors` for a row of a source."""
    return {
        "source": row["source"],
        "partition": row["partition"],
        "offset": row["offset"],
        "at": row["timestamp"],
        "group_id": group_id,
        "what": what,
        "error": error,
        "key": row["key"],
        "value": row["value"],
    }
