"""Offset commits: reduced in SQL to the newest and the first of each partition, then decoded.

Commits are nearly all of `__consumer_offsets`, so Python sees one row a group and partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rebal.groups.errors import WireError
from rebal.groups.wire.offsets_key import OffsetCommitKey, decode_key, kind_name
from rebal.inspectors.fleet.commit_values import decode_values
from rebal.inspectors.fleet.kinds import UNREADABLE, error_row
from rebal.inspectors.fleet.parts import REPORT_DDL, PartWriter
from rebal.inspectors.fleet.schemas import COMMITS, LONG, TEXT, TIME

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DERIVED: Final = ("commits_per_hour", "records_per_second")
_KEPT: Final = [field for field in COMMITS if field.name not in _DERIVED]
_DECODED: Final = pa.schema(
    [
        *_KEPT,
        ("records", LONG),
        ("legacy", LONG),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", TIME),
        ("source", TEXT),
        ("error", TEXT),
        ("seen_from", TIME),
        ("seen_until", TIME),
    ]
)
"""One reduced key: the columns of `commits` without rates, and what the counts and errors need."""
_SUMS: Final = ("commits", "records", "legacy")
_LATEST_MS: Final = 253_402_300_799_999


def reduce_commits(rows: DataFrame) -> DataFrame:
    """Rows of a source that hold only commits → one row a (group, topic, partition), decoded."""
    from pyspark.sql import functions as sql

    alive = sql.when(sql.col("value").isNotNull(), sql.col("offset"))
    legacy = sql.substring("key", 1, 2) == sql.lit(b"\x00\x00")
    columns = ("key", "value", "timestamp", "partition", "offset", "source")
    reduced = (
        rows.withColumn("about", sql.expr("substring(key, 3)"))
        .groupBy("about")
        .agg(
            sql.max_by(sql.struct(*columns), "offset").alias("newest"),
            sql.min_by("value", alive).alias("first_value"),
            sql.count("value").alias("commits"),
            sql.count(sql.lit(1)).alias("records"),
            sql.count(sql.when(legacy, True)).alias("legacy"),
            sql.min("timestamp").alias("seen_from"),
            sql.max("timestamp").alias("seen_until"),
            # Without an aggregate of this sort Spark sorts all records instead of hashing them.
            sql.collect_set(sql.lit(None).cast("int")).alias("hashed"),
        )
        .select("newest.*", "first_value", *_SUMS, "seen_from", "seen_until")
    )
    return _with_key(reduced).mapInArrow(_decode, _spark_schema())


def merge_commits(rows: DataFrame, before: DataFrame | None) -> DataFrame:
    """`rows` together with the `commits` table of the run before, one row a key again."""
    from pyspark.sql import functions as sql

    if before is None:
        return rows
    both = rows.unionByName(before.drop(*_DERIVED), allowMissingColumns=True)
    about = [sql.col(name) for name in ("group_id", "topic", "topic_partition")]
    first = sql.when(sql.col("first_offset").isNotNull(), sql.col("offset"))
    summed = set(_SUMS)
    merged = (
        both.withColumn("broken", sql.when(sql.col("group_id").isNull(), sql.col("key")))
        .groupBy(*about, "broken")
        .agg(
            sql.max_by(sql.struct(*(n for n in _DECODED.names if n not in summed)), "offset").alias(
                "newest"
            ),
            sql.min_by(sql.struct("first_offset", "first_at"), first).alias("first"),
            *(sql.sum(name).alias(name) for name in _SUMS),
            sql.min("seen_from").alias("seen_from"),
            sql.max("seen_until").alias("seen_until"),
        )
    )
    chosen = {"first_offset": "first.first_offset", "first_at": "first.first_at"}
    direct = summed | {"seen_from", "seen_until"}
    return merged.select(
        *(
            sql.col(name if name in direct else chosen.get(name, f"newest.{name}")).alias(name)
            for name in _DECODED.names
        )
    )


def write_commits(rows: DataFrame, folder: str) -> DataFrame:
    """Merged rows → `commits` files and reports (`parts.REPORT`) of what was read."""
    from pyspark.sql import functions as sql

    hours = (sql.col("committed_at").cast("double") - sql.col("first_at").cast("double")) / 3600
    progress = sql.col("committed_offset") - sql.col("first_offset")

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _write(batches, folder)

    return (
        rows.withColumn(
            "commits_per_hour",
            sql.when((hours > 0) & (sql.col("commits") > 1), (sql.col("commits") - 1) / hours),
        )
        .withColumn(
            "records_per_second",
            sql.when((hours > 0) & (progress >= 0), progress / (hours * 3600)),
        )
        .repartition("group_id")
        .sortWithinPartitions("group_id", "topic", "topic_partition")
        .mapInArrow(write, REPORT_DDL)
    )


def keep_commits(before: DataFrame, folder: str) -> DataFrame:
    """The `commits` table of the run before, written again as it is."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = PartWriter(folder)
        for batch in batches:
            writer.write("commits", batch)
        yield from writer.report()

    ordered = before.repartition("group_id").sortWithinPartitions(*COMMITS.names[:3])
    return ordered.mapInArrow(write, REPORT_DDL)


def _with_key(reduced: DataFrame) -> DataFrame:
    """Group, topic and partition out of the key; all null where it has another form."""
    from pyspark.sql import functions as sql

    group_size, topic_size = _number(3, 2), _number(sql.col("group_size") + 5, 2)
    key = reduced.withColumn("group_size", group_size).withColumn("topic_size", topic_size)
    group = sql.expr("substring(key, 5, group_size)")
    topic = sql.expr("substring(key, 7 + group_size, topic_size)")
    good = (
        (sql.col("group_size") < 0x8000)
        & (sql.col("topic_size") < 0x8000)
        & (sql.octet_length("key") >= 10 + sql.col("group_size") + sql.col("topic_size"))
        & sql.is_valid_utf8(group.cast("string"))
        & sql.is_valid_utf8(topic.cast("string"))
    )
    number = _number(7 + sql.col("group_size") + sql.col("topic_size"), 4)
    signed = sql.when(number >= 2**31, number - 2**32).otherwise(number)
    return (
        key.withColumn("group_id", sql.when(good, group.cast("string")))
        .withColumn("topic", sql.when(good, topic.cast("string")))
        .withColumn("topic_partition", sql.when(good, signed.cast("int")))
        .drop("group_size", "topic_size")
    )


def _number(at: int | Column, size: int) -> Column:
    """`size` big-endian bytes of the key, from its byte `at` (1 is the first), without a sign."""
    from pyspark.sql import functions as sql

    place = sql.lit(at) if isinstance(at, int) else at
    part = sql.col("key").substr(place, sql.lit(size))
    return sql.coalesce(sql.conv(sql.hex(part), 16, 10).cast("bigint"), sql.lit(1 << 40))


def _spark_schema() -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(_DECODED, prefer_timestamp_ntz=False)


def _decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            yield _decoded(batch)


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    newest = decode_values(batch.column("value"))
    first = decode_values(batch.column("first_value"))
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        name: batch.column(name) for name in batch.schema.names
    }
    columns |= {
        "committed_offset": newest["offset"],
        "leader_epoch": newest["leader_epoch"],
        "metadata": newest["metadata"],
        "committed_at": _time(newest["committed_ms"]),
        "expires_at": _time(newest["expires_ms"]),
        "first_offset": first["offset"],
        "first_at": _time(first["committed_ms"]),
        "value_version": newest["version"],
        "tombstone": pc.is_null(batch.column("value")),
        "topic_id": newest["topic_id"],
        "error": newest["error"],
    }
    nameless = pc.is_null(batch.column("group_id"))
    if pc.any(nameless).as_py():
        _name_one_by_one(columns, nameless.to_pylist())
    arrays = [_whole(columns[field.name]).cast(field.type) for field in _DECODED]
    return pa.RecordBatch.from_arrays(arrays, schema=_DECODED)


def _name_one_by_one(columns: dict[str, Any], nameless: Sequence[bool]) -> None:
    """Ask the one codec about keys of another form: it names them or says what is wrong."""
    made = {
        name: columns[name].to_pylist()
        for name in ("group_id", "topic", "topic_partition", "error")
    }
    for row in (row for row, without in enumerate(nameless) if without):
        try:
            key = decode_key(columns["key"][row].as_py())
        except WireError as error:
            made["error"][row] = str(error)
            continue
        assert isinstance(key, OffsetCommitKey)
        found = {"group_id": key.group_id, "topic": key.topic, "topic_partition": key.partition}
        for name, value in found.items():
            made[name][row] = value
    for name, values in made.items():
        columns[name] = pa.array(values, _DECODED.field(name).type)


def _write(batches: Iterable[pa.RecordBatch], folder: str) -> Iterator[pa.RecordBatch]:
    writer = PartWriter(folder)
    for batch in batches:
        if not batch.num_rows:
            continue
        table = pa.Table.from_batches([batch])
        named = table.filter(pc.is_valid(table["group_id"]))
        writer.write("commits", named.select(COMMITS.names))
        for row in table.filter(pc.is_valid(table["error"])).to_pylist():
            _explain(writer, row)
        read = table.filter(pc.is_valid(table["records"]))
        _count(writer, read)
    yield from writer.report()


def _explain(writer: PartWriter, row: Mapping[str, Any]) -> None:
    what = kind_name(int.from_bytes(row["key"][:2], "big"))
    # A broken key is that of all its records; of a broken value only the newest was looked at.
    broken = row["records"] if row["group_id"] is None else 1
    writer.count(UNREADABLE, broken)
    writer.count(what, -broken)
    more = f" {broken} records have this key." if broken > 1 else ""
    writer.add("errors", [error_row(row, what, row["group_id"], row["error"] + more)])


def _count(writer: PartWriter, read: pa.Table) -> None:
    if not len(read):
        return
    legacy = pc.sum(read["legacy"]).as_py()
    writer.count(kind_name(0), legacy)
    writer.count(kind_name(1), pc.sum(read["records"]).as_py() - legacy)
    last = read.group_by("partition").aggregate([("offset", "max")])
    for row in last.to_pylist():
        writer.reach(str(row["partition"]), row["offset_max"])
    first, until = (
        pc.min(read["seen_from"].cast(pa.int64())).as_py(),
        pc.max(read["seen_until"].cast(pa.int64())).as_py(),
    )
    if first is not None and until is not None:
        writer.span(first, until)


def _time(milliseconds: pa.ChunkedArray) -> pa.Array:
    """Milliseconds since 1970 → a time; null for -1 and what no calendar holds."""
    numbers = _whole(milliseconds)
    sane = pc.and_(pc.greater_equal(numbers, 0), pc.less_equal(numbers, _LATEST_MS))
    safe = pc.if_else(sane, numbers, pa.scalar(None, pa.int64()))
    return safe.cast(pa.timestamp("ms", tz="UTC")).cast(TIME)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
