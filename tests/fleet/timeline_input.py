"""The timeline's input, made without Spark: from captures in files, or row by row."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from rebal.inspectors.fleet.schemas import TABLES, TIME
from rebal.inspectors.fleet.sources.request_rows import request_rows
from rebal.inspectors.fleet.timeline.clock import settle
from rebal.inspectors.fleet.timeline.rows import MADE
from rebal.inspectors.fleet.timeline.timeline import INPUT, make_tables

Row = dict[str, Any]
Tables = dict[str, list[Row]]


def micros(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)


def record(group_id: str, at: int, offset: int, key: bytes, value: bytes | None) -> Row:
    """One record; `at` in microseconds."""
    return {
        **dict.fromkeys(INPUT.names),
        "group_id": group_id,
        "at": at,
        "partition": 0,
        "offset": offset,
        "key": key,
        "value": value,
        "source": "topic",
    }


def request(row: Mapping[str, Any]) -> Row:
    """One row of REQUESTS, `at` in microseconds or a datetime."""
    at = row["at"]
    at = micros(at) if isinstance(at, datetime) else at
    return {**dict.fromkeys(INPUT.names), **row, "at": at}


def captured_records(folder: Path) -> Iterator[Row]:
    """All group and member records of a capture."""
    with gzip.open(folder / "consumer_offsets.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            read = json.loads(line)
            key = base64.b64decode(read["key"])
            if int.from_bytes(key[:2], "big") < 2:
                continue
            name = key[4 : 4 + int.from_bytes(key[2:4], "big")].decode()
            value = None if read["value"] is None else base64.b64decode(read["value"])
            row = record(name, read["timestamp"] * 1000, read["offset"], key, value)
            yield {**row, "partition": read["partition"]}


def captured_requests(folder: Path) -> Iterator[Row]:
    """All lines of a capture's request log that concern a group."""
    with gzip.open(folder / "kafka-request.log.gz", "rb") as lines:
        numbered = [(line, "kafka-request.log", n) for n, line in enumerate(lines)]
    for row in request_rows(numbered).to_pylist():
        if row["group_id"] is not None and row["problem"] is None:
            yield request(row)


def in_order(rows: Iterable[Row], observed: tuple[int, int] | None = None) -> list[Row]:
    """The rows as the pipeline sorts them, by effective times."""
    given = list(rows)
    columns = ("group_id", "at", "partition", "offset")
    types = {"at": TIME} | {name: INPUT.field(name).type for name in columns if name != "at"}
    table = pa.table(
        {
            name: pa.array([row[name] for row in given], pa.int64() if name == "at" else kind)
            for name, kind in sorted(types.items())
        }
    )
    settled = settle(table.set_column(0, "at", table["at"].cast(TIME)), observed)
    times = settled["at"].cast(pa.int64()).to_pylist()
    moved = [
        row if at == row["at"] else {**row, "at": at, "told_at": row["at"]}
        for row, at in zip(given, times, strict=True)
    ]

    def key(row: Row) -> tuple[Any, ...]:
        return (
            row["group_id"],
            row["at"] or 0,
            row["offset"] is None,
            row["offset"] or 0,
            row["source"] or "",
            row["position"] or 0,
        )

    return sorted(moved, key=key)


def batches(
    rows: Iterable[Row], size: int = 1000, observed: tuple[int, int] | None = None
) -> Iterator[pa.RecordBatch]:
    ordered = in_order(rows, observed)
    for at in range(0, len(ordered), size):
        part = ordered[at : at + size]
        columns = []
        for field in INPUT:
            values = [row[field.name] for row in part]
            kind = pa.int64() if field.type == TIME else field.type
            columns.append(pa.array(values, kind).cast(field.type))
        yield pa.RecordBatch.from_arrays(columns, schema=INPUT)


def tables(rows: Iterable[Row], size: int = 1000, **options: Any) -> Tables:
    """The rows of each table, as Python values."""
    made: Tables = {name: [] for name in MADE}
    rows = list(rows)
    options["recorded"] = {row["group_id"] for row in rows if row["offset"] is not None}
    for table, batch in make_tables(batches(rows, size, options.get("observed")), **options):
        batch.validate(full=True)
        assert batch.schema == TABLES[table]
        made[table] += batch.to_pylist()
    return made


def at_ms(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
