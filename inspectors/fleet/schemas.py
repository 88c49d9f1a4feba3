"""Names and types of the columns of the pipeline's tables, and of the rows between its stages.

docs/fleet-tables.md explains each column. Times are UTC timestamps in microseconds. Durations are
milliseconds (`_ms`). Partition lists are `[{topic, partitions}]` sorted by topic. A value that the
sources do not show is null, never a guess. A table's rows are sorted by their first columns, so the
same input gives the same tables.

`Rows` collects the rows that the timeline makes, and turns them into Arrow batches.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

TEXT: Final = pa.string()
INT: Final = pa.int32()
LONG: Final = pa.int64()
YES_NO: Final = pa.bool_()
TIME: Final = pa.timestamp("us", tz="UTC")
TEXTS: Final = pa.list_(TEXT)
PARTITIONS: Final = pa.list_(pa.struct([("topic", TEXT), ("partitions", pa.list_(INT))]))

RECORDS: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", INT),
        ("offset", LONG),
        ("timestamp", TIME),
        ("source", TEXT),
    ]
)
"""Records of `__consumer_offsets`, the same from every source. `source` is a bootstrap address, or
a file's name without its folder."""

GROUPS: Final = pa.schema(
    [
        ("group_id", TEXT),
        ("type", TEXT),
        ("protocol_type", TEXT),
        ("state", TEXT),
        ("partition", INT),
        ("assignor", TEXT),
        ("generation", INT),
        ("assignment_epoch", INT),
        ("leader", TEXT),
        ("members", INT),
        ("incarnation", INT),
        ("first_seen", TIME),
        ("last_seen", TIME),
        ("deleted_at", TIME),
        ("rebalance_total", LONG),
        ("rebalance_latency_avg_ms", pa.float64()),
        ("rebalance_latency_max_ms", pa.float64()),
        ("rebalance_latency_total_ms", pa.float64()),
        ("failed_rebalance_total", LONG),
        ("last_rebalance_at", TIME),
        ("refused_total", LONG),
        ("sources", TEXTS),
    ]
)

COMMITS: Final = pa.schema(
    [
        ("group_id", TEXT),
        ("topic", TEXT),
        ("topic_partition", INT),
        ("committed_offset", LONG),
        ("leader_epoch", INT),
        ("metadata", TEXT),
        ("committed_at", TIME),
        ("expires_at", TIME),
        ("first_offset", LONG),
        ("first_at", TIME),
        ("commits", LONG),
        ("value_version", INT),
        ("tombstone", YES_NO),
        ("partition", INT),
        ("offset", LONG),
        ("topic_id", TEXT),
    ]
)

ERRORS: Final = pa.schema(
    [
        ("source", TEXT),
        ("partition", INT),
        ("offset", LONG),
        ("at", TIME),
        ("group_id", TEXT),
        ("what", TEXT),
        ("error", TEXT),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)

TABLES: Final = {
    "groups": GROUPS,
    "members": pa.schema(
        [
            ("group_id", TEXT),
            ("incarnation", INT),
            ("first_generation", INT),
            ("last_generation", INT),
            ("member_id", TEXT),
            ("instance_id", TEXT),
            ("client_id", TEXT),
            ("host", TEXT),
            ("protocol_type", TEXT),
            ("software_name", TEXT),
            ("software_version", TEXT),
            ("leader", YES_NO),
            ("session_timeout_ms", INT),
            ("rebalance_timeout_ms", INT),
            ("subscription_version", INT),
            ("subscription_generation", INT),
            ("topics", TEXTS),
            ("topic_regex", TEXT),
            ("owned", PARTITIONS),
            ("rack_id", TEXT),
            ("user_data", pa.binary()),
            ("assignment", PARTITIONS),
            ("assignment_user_data", pa.binary()),
            ("target", PARTITIONS),
            ("assignors", TEXTS),
            ("first_at", TIME),
            ("last_at", TIME),
            ("joined_at", TIME),
            ("joined_reason", TEXT),
            ("left_at", TIME),
            ("left_reason", TEXT),
            ("current", YES_NO),
            ("error", TEXT),
        ]
    ),
    "assignor_lists": pa.schema(
        [
            ("group_id", TEXT),
            ("at", TIME),
            ("member_id", TEXT),
            ("instance_id", TEXT),
            ("client_id", TEXT),
            ("host", TEXT),
            ("assignors", TEXTS),
            ("protocol_type", TEXT),
            ("generation", INT),
            ("refused", YES_NO),
            ("replaced_member_id", TEXT),
            ("software_name", TEXT),
            ("software_version", TEXT),
            ("reason", TEXT),
            ("last_at", TIME),
            ("times", LONG),
            ("session_timeout_ms", INT),
            ("rebalance_timeout_ms", INT),
            ("evidence", TEXT),
            ("source", TEXT),
        ]
    ),
    "rebalances": pa.schema(
        [
            ("group_id", TEXT),
            ("incarnation", INT),
            ("generation", INT),
            ("started_at", TIME),
            ("ended_at", TIME),
            ("latency_ms", pa.float64()),
            ("cause", TEXT),
            ("failed", YES_NO),
            ("assignor_before", TEXT),
            ("assignor", TEXT),
            ("protocol_before", TEXT),
            ("protocol", TEXT),
            ("leader", TEXT),
            ("members", INT),
            ("joined", TEXTS),
            ("left", TEXTS),
            ("refused", TEXTS),
            ("partitions", INT),
            ("moved", INT),
            ("stopped", INT),
            ("evidence", TEXT),
        ]
    ),
    "commits": COMMITS,
    "incidents": pa.schema(
        [
            ("group_id", TEXT),
            ("kind", TEXT),
            ("started_at", TIME),
            ("ended_at", TIME),
            ("members", TEXTS),
            ("count", LONG),
            ("detail", TEXT),
        ]
    ),
    "errors": ERRORS,
    "log_ends": pa.schema(
        [("topic", TEXT), ("topic_partition", INT), ("log_end_offset", LONG), ("at", TIME)]
    ),
}

TIMELINE: Final = pa.schema(
    [
        ("group_id", TEXT),
        ("at", TIME),
        ("told_at", TIME),
        *(RECORDS.field(name) for name in ("key", "value", "partition", "offset", "source")),
        ("position", LONG),
        ("problem", TEXT),
        ("state", pa.binary()),
    ]
)
"""Input rows of the timeline: a group's saved state, a record, or a line of a request log.

- A record has a `key` and an offset.
- A line has its request as `value` (`facts.pack_request`). `position` orders the lines of one file.
  An unreadable line has only a `problem` and its place, and becomes a row of `errors`.
- `at` is the effective time (`runs.effective_times`): within a partition, these never decrease.
  `told_at` is the row's own timestamp, if it may differ. If `at` is null, the line has no time, and
  only its assignor list is used.
- Lines with equal bytes and equal times are the same line."""
RUNS: Final = pa.schema(
    [
        ("group_id", TEXT),
        ("kind", TEXT),
        ("partition", INT),
        ("offset", LONG),
        ("last_offset", LONG),
        ("at", TIME),
        ("until", TIME),
        ("ordered", YES_NO),
        ("size", LONG),
        ("rows", pa.binary()),
    ]
)
"""Runs: each is packed rows of `TIMELINE` of one group and one `kind`.

`kind` is `records` (of one partition), `requests` or `state`. `offset` to `last_offset` and `at` to
`until` are the bounds of the rows (null: they have none). Rows with and without a time are never in
one run. `ordered` is whether the times follow the offsets. `rows` are the packed rows, `size` is
their size in bytes before packing."""
STATES: Final = pa.schema(
    [
        ("group_id", TEXT),
        ("state", pa.binary()),
        ("form", TEXT),
        ("partition", INT),
        ("offset", LONG),
        ("told_until", LONG),
        ("latest", LONG),
        ("recorded", YES_NO),
        ("unnamed", TEXTS),
    ]
)
"""Saved states of groups.

`state` is the encoded state, and `form` its format (`timeline/history.py`; null: recompute the
group). `partition` and `offset` are the place of its last record. `told_until` is the time up to
which its rows are final, `latest` the latest timestamp of its records, waiting ones included; both
are microseconds since 1970. `recorded` is whether the group has records. `unnamed` are the topic
ids whose names are not known yet."""
COMMIT_PARTS: Final = pa.schema(
    [
        *COMMITS,
        ("records", LONG),
        ("first_record", LONG),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", TIME),
        ("source", TEXT),
        ("error", TEXT),
    ]
)
"""Offset commits of one group and partition that one task read.

They have the columns of `commits`. `records` is the number of records, tombstones included, and
`first_record` the offset of the record with `first_offset`. The other columns are those of an
unreadable record."""
INPUTS: Final = {
    "records": RUNS,
    "requests": RUNS,
    "states": STATES,
    "waiting": RUNS,
    "commit_parts": COMMIT_PARTS,
}
"""The tables that tasks write for later tasks and scans, not for readers."""
SCAN: Final = pa.field("scan_id", LONG)
"""The number of the scan that wrote a row."""


def in_columns(rows: pa.Table | pa.RecordBatch, columns: pa.Schema) -> pa.Table:
    """Return the rows in exactly these columns; a column that they lack is null."""
    known = rows.schema.names
    return pa.table(
        [
            rows[one.name].cast(one.type) if one.name in known else pa.nulls(len(rows), one.type)
            for one in columns
        ],
        schema=columns,
    )


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column's values as Python objects; times as microseconds since 1970."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(TIME).cast(LONG)
    # Not by way of numpy: pyarrow imports pandas for that.
    found: list[Any] = column.to_pylist()
    return found


def with_columns(rows: pa.Table, changed: Mapping[str, Any]) -> pa.Table:
    """Return the rows with the values of the columns in `changed` replaced."""
    for name, column in changed.items():
        rows = rows.set_column(rows.schema.get_field_index(name), rows.field(name), column)
    return rows


MADE: Final = ("groups", "members", "assignor_lists", "rebalances", "incidents", "errors")
"""The tables that the timeline writes."""
_SCHEMAS: Final = {
    **{name: TABLES[name] for name in MADE}, "states": STATES, "waiting": TIMELINE,
}  # fmt: skip
_NULLS: Final = {table: dict.fromkeys(schema.names) for table, schema in _SCHEMAS.items()}
_AT_ONCE: Final = 16_384

SETTLED: Final = ""
OPEN: Final = "open_"
"""The prefix of the kinds of rows that a later scan may replace: a group's present state."""
WAITING: Final = f"{OPEN}waiting"
"""The kind of input rows that the next scan applies again, after their group's state."""


class Rows:
    """Buffer of table rows that the timeline has made and that are not written yet.

    Times are microseconds since 1970, partition lists are `values.PartitionList`s. A column that is
    not given is null. `kind` is the kind of the rows that are added next: `SETTLED` rows are final,
    `OPEN` rows hold only until the group's next record or request, and a later scan replaces them.

    The groups of one task share the buffer, one after another; `group_id` is the present one. The
    buffer also has the topic names by topic id, and `breaks`: by partition, the offsets after which
    records may be missing. `unnamed` are the topic ids that were looked up and have no name.
    """

    def __init__(
        self,
        topic_names: Mapping[str, str] | None = None,
        breaks: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.group_id: str | None = None
        self.breaks = breaks or {}
        self.unnamed: set[str] = set()
        self._names = topic_names or {}
        self.kind: str = SETTLED
        self._held: dict[str, list[Any]] = {
            kind + name: [] for kind in (SETTLED, OPEN) for name in _SCHEMAS
        }

    def add(self, table: str, **columns: Any) -> None:
        """Add a row of `table`, of the present group unless `columns` have another `group_id`."""
        self._held[self.kind + table].append(
            {**_NULLS[table], "group_id": self.group_id, **columns}.values()
        )

    def take(self, *, rest: bool = False) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Remove rows and yield them as (kind, batch), of each kind that has enough for a batch.

        Rows that wait for the next scan hold a record's bytes, so they are yielded at once. With
        `rest` all rows are yielded.
        """
        for kind, rows in self._held.items():
            if len(rows) >= (1 if rest or kind == WAITING else _AT_ONCE):
                yield kind, _batch(kind.removeprefix(OPEN), rows)
                rows.clear()

    def topic(self, topic_id: str, learned: Mapping[str, str]) -> str:
        """Return the topic's name; if it is not known, note the id as unnamed and return the id.

        `learned` are names by topic id from the group's own records.
        """
        name = self._names.get(topic_id) or learned.get(topic_id)
        if name is None:
            self.unnamed.add(topic_id)
        return name or topic_id


def _batch(table: str, rows: Sequence[Iterable[Any]]) -> pa.RecordBatch:
    schema = _SCHEMAS[table]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(one, kind) for one, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
