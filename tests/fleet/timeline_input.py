"""The timeline's input, made without Spark: from captures in files, or row by row."""

import base64
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from rebal.inspectors.clock import micros
from rebal.inspectors.fleet.runs import effective_times
from rebal.inspectors.fleet.schemas import MADE, OPEN, TABLES, TIMELINE, WAITING
from rebal.inspectors.fleet.sources.requests import RequestLines
from rebal.inspectors.fleet.timeline.facts import DISORDER, pack_request, unpack_request
from rebal.inspectors.fleet.timeline.group import Options, TimelineRow, make_tables
from rebal.inspectors.logs.lines import Zone
from rebal.inspectors.logs.requests.lines import Request
from tests.fleet.conftest import lines_in

Row = dict[str, Any]
Tables = dict[str, list[Row]]
_SENT = ("key", "value")
_PLACE = pa.schema([TIMELINE.field(name) for name in ("at", "partition", "offset")])


def record(group_id: str, at: int, offset: int, key: bytes, value: bytes | None) -> Row:
    """One record; `at` in microseconds."""
    return {
        **dict.fromkeys(TIMELINE.names),
        "group_id": group_id,
        "at": at,
        "partition": 0,
        "offset": offset,
        "key": key,
        "value": value,
        "source": "topic",
    }


def asked(row: Row) -> Request:
    """What a row's line says."""
    return unpack_request(row["value"])


def asking(row: Row, **fields: Any) -> Row:
    """The row with these fields of its request."""
    return {**row, "value": pack_request(replace(asked(row), **fields))}


def request_rows(lines: Iterable[tuple[bytes, str, int]], zone: Zone = None) -> pa.Table:
    """The rows of `lines`: each its bytes, its file's name and its position in the file."""
    found = RequestLines(zone, Counter())
    rows = [row for one in lines for row in found.read(*one)]
    return pa.Table.from_pylist(rows, TIMELINE)


@cache
def captured_records(folder: Path) -> Sequence[Row]:
    """All group and member records of a capture; nobody changes them."""
    rows = []
    for read in map(json.loads, lines_in(folder / "consumer_offsets.jsonl.gz")):
        key = base64.b64decode(read["key"])
        if int.from_bytes(key[:2], "big") < 2:
            continue
        name = key[4 : 4 + int.from_bytes(key[2:4], "big")].decode()
        value = None if read["value"] is None else base64.b64decode(read["value"])
        row = record(name, read["timestamp"] * 1000, read["offset"], key, value)
        rows.append({**row, "partition": read["partition"]})
    return rows


@cache
def captured_requests(folder: Path) -> Sequence[Row]:
    """All lines of a capture's request log that concern a group; nobody changes them."""
    lines = enumerate(lines_in(folder / "kafka-request.log.gz"))
    numbered = ((line, "kafka-request.log", n) for n, line in lines)
    rows = request_rows(numbered).to_pylist()
    known = (row for row in rows if row["group_id"] is not None and row["problem"] is None)
    return [_times_as_numbers(row) for row in known]


def write_records(path: Path, rows: Iterable[Row]) -> Path:
    """A file of these records, as an export has them."""
    lines = []
    for row in rows:
        sent = {name: row[name] and base64.b64encode(row[name]).decode() for name in _SENT}
        place = {"topic": "__consumer_offsets"} | {one: row[one] for one in ("partition", "offset")}
        lines.append(json.dumps({**sent, "timestamp": row["at"] // 1000, **place}) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def in_order(rows: Iterable[Row], observed: tuple[int, int] | None = None) -> list[Row]:
    """The rows as the pipeline sorts them, by effective times."""
    moved: list[Row] = []
    for _, of_group in groupby(sorted(rows, key=_group), key=_group):
        mine = list(of_group)
        times = effective_times(pa.Table.from_pylist(mine, _PLACE), observed)
        moved += [
            row if at == row["at"] else {**row, "at": at, "told_at": row["at"]}
            for row, at in zip(mine, times.cast(pa.int64()).to_pylist(), strict=True)
        ]
    return sorted(moved, key=_place)


def record_of(row: Row) -> TimelineRow:
    """A row as the timeline takes it."""
    return TimelineRow(**{name: row.get(name) for name in TimelineRow._fields})


def tables(rows: Iterable[Row], **options: Any) -> Tables:
    """The rows of each table, as Python values: of one scan, and the same of several."""
    rows = list(rows)
    observed = options.pop("observed", None)
    options["recorded"] = {row["group_id"] for row in rows if row["offset"] is not None}
    ordered = in_order(rows, observed)
    whole = Scans(observed, **options)
    whole.scan(ordered)
    parts = Scans(observed, **options)
    for n in range(_PARTS):
        parts.scan(part_of(ordered, n, _PARTS))
    found = whole.tables()
    assert parts.tables() == found
    return found


_PARTS = 3


def part_of(ordered: Sequence[Row], number: int, count: int) -> list[Row]:
    """Part `number` of `count` of each group's rows; rows without a time are last ones."""
    of: dict[str | None, list[Row]] = {}
    for row in ordered:
        of.setdefault(row["group_id"], []).append(row)
    cut = [len(mine) * number // count for mine in of.values()]
    ends = [len(mine) * (number + 1) // count for mine in of.values()]
    return [
        row
        for mine, start, end in zip(of.values(), cut, ends, strict=True)
        for row in mine[start:end]
    ]


class Scans:
    """Scans of the same groups one after another, each with the states that the last one left."""

    def __init__(self, observed: tuple[int, int] | None = None, **options: Any) -> None:
        self._options, self._observed = options, observed
        self._settled: Tables = {name: [] for name in MADE}
        self._open: Tables = {name: [] for name in MADE}
        self._states: dict[str, Row] = {}
        self._waiting: list[Row] = []

    def scan(self, ordered: Sequence[Row]) -> None:
        """Tell these rows, which are in order."""
        news = {row["group_id"] for row in ordered}
        waiting = [row for row in self._waiting if row["group_id"] in news]
        states = [row for name, row in self._states.items() if name in news]
        rows = sorted([*states, *in_order([*ordered, *waiting], self._observed)], key=_place)
        kept = {name for name in self._states if name in news}
        self._waiting = [row for row in self._waiting if row["group_id"] not in news]
        for name, before in self._open.items():
            self._open[name] = [row for row in before if row["group_id"] not in kept]
        for kind, batch in make_tables(map(record_of, rows), Options(**self._options)):
            batch.validate(full=True)
            found = batch.to_pylist()
            if kind == WAITING:
                moved = [_times_as_numbers(row) for row in found]
                self._waiting += moved
            elif kind == "states":
                for row in found:
                    empty = dict.fromkeys(TIMELINE.names)
                    one = {"group_id": row["group_id"], "state": row["state"]}
                    self._states[row["group_id"]] = empty | one
            else:
                table = kind.removeprefix(OPEN)
                assert batch.schema == TABLES[table]
                into = self._settled if table == kind else self._open
                into[table] += found

    def tables(self) -> Tables:
        """All rows, of each group the settled ones first."""
        return {name: sorted(self._settled[name] + self._open[name], key=_group) for name in MADE}


def _group(row: Row) -> str:
    return str(row["group_id"])


def _place(row: Row) -> tuple[Any, ...]:
    """By what rows are sorted: a request counts early."""
    return (
        str(row["group_id"]),
        row["state"] is None,
        row["at"] is None,
        (row["at"] or 0) - (DISORDER if row["key"] is None and row["state"] is None else 0),
        row["offset"] is None,
        row["partition"] or 0,
        row["offset"] or 0,
        row["source"] or "",
        row["position"] or 0,
    )


def _times_as_numbers(row: Row) -> Row:
    return {
        name: micros(value) if isinstance(value, datetime) else value for name, value in row.items()
    }
