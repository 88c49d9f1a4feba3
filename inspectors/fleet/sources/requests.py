"""Lines of brokers' request logs → rows of `schemas.TIMELINE`; no Spark.

Files may be plain (split among tasks) or packed (gz: one task a file), rotated, of several
brokers, in any order; folders are searched.

A row holds the record that live evidence is made of (logs/requests/lines.py). What says nothing is
left out: heartbeats that were answered without an error, and a KIP-848 member's after the first one
that changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from rebal.inspectors.clock import micros
from rebal.inspectors.fleet.schemas import TIMELINE
from rebal.inspectors.fleet.sources.files import Part, blocks
from rebal.inspectors.fleet.timeline.facts import is_steady, pack_request
from rebal.inspectors.logs.lines import Zone
from rebal.inspectors.logs.requests.lines import (
    CONSUMER_HEARTBEAT,
    HEARTBEAT,
    MARK,
    SYNC,
    Request,
    is_cut_off,
    may_concern_group,
    parse,
)

COUNTS: Final = ("lines", "requests", "parsed", "cut_off")
"""What is counted of lines: all, those of the request logger, those of them that concern a group,
and those that end before they say what they are, or at the end of a file that may still grow."""
SYNCED: Final = "group_id string, generation long, at long"
"""Rows of `read_syncs`; times are microseconds since 1970."""
_SYNC: Final = SYNC.encode()
_ROWS: Final = 4000
"""Rows that a task hands over at once, about."""


def read_parts(
    parts: Sequence[Part], zone: Zone, counts: MutableMapping[str, int]
) -> Iterator[pa.Table]:
    """Yield the rows of parts of logs as `TIMELINE`; their lines are added to `counts`."""
    found = RequestLines(zone, counts)
    for part in parts:
        name = Path(part.path).name
        for position, text, problem in blocks(part):
            end = position + len(text)
            found.read(text, name, position, growing=end >= part.end)
            if problem is not None:
                found.add_problem(problem, name, end)
            if len(found) >= _ROWS:
                yield found.take()
    yield found.take()


def read_syncs(parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
    """Yield the times of leaders' syncs in parts of logs that name no zone, as if in UTC."""
    for part in parts:
        for position, text, _ in blocks(part):
            lines = (line for line in text.split(b"\n") if MARK in line and _SYNC in line)
            read = (parse(line, part.path, position, None) for line in lines)
            rows = [
                {"group_id": one.group_id, "generation": one.generation, "at": micros(one.at)}
                for one in read
                if isinstance(one, Request) and one.assignments and one.at and one.local
                if not one.error
            ]
            if rows:
                yield pa.RecordBatch.from_pylist(rows)


class RequestLines:
    """Reads lines one after another and keeps the rows until they are taken.

    A time that names no zone is of `zone` (None: UTC); `counts` are by the names of `COUNTS`.
    """

    def __init__(self, zone: Zone, counts: MutableMapping[str, int]) -> None:
        self._zone = zone
        self._rows: list[dict[str, Any]] = []
        self._steady: set[tuple[str, str]] = set()
        self._counts = counts
        for name in COUNTS:
            counts.setdefault(name, 0)

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, text: bytes, source: str, position: int, *, growing: bool = False) -> None:
        """Lines of the file `source`; the first begins at `position`.

        The last line of a `growing` file may be half written: the next scan reads it whole.
        """
        *lines, rest = text.split(b"\n")
        if rest:
            lines.append(rest)
        self._counts["lines"] += len(lines)
        for line in lines:
            if MARK in line:
                self._counts["requests"] += 1
                if may_concern_group(line, heartbeats=True):
                    self._read(line, source, position, half=growing and line is rest)
                elif is_cut_off(line):
                    self._counts["cut_off"] += 1
            position += len(line) + 1

    def add_problem(self, problem: str, source: str, position: int) -> None:
        """Add a row that says why these bytes cannot be read."""
        self._rows.append({"problem": problem, "source": source, "position": position})

    def take(self) -> pa.Table:
        """Return the rows since the last time, as `TIMELINE`."""
        rows, self._rows = self._rows, []
        return pa.Table.from_pylist(rows, TIMELINE)

    def _read(self, line: bytes, source: str, position: int, *, half: bool) -> None:
        self._counts["parsed"] += 1
        found = parse(line, source, position, self._zone, heartbeats=True)
        if not isinstance(found, Request):
            if half:
                self._counts["cut_off"] += bool(found.problem)
            elif found.problem:
                self.add_problem(found.problem, source, position)
        elif not _says_nothing(found, self._steady):
            row = {"group_id": found.group_id, "at": found.at, "value": pack_request(found)}
            self._rows.append({**row, "source": source, "position": position})


def _says_nothing(found: Request, steady: set[tuple[str, str]]) -> bool:
    """Return whether a heartbeat changed nothing; each member's first of a batch counts as news."""
    if found.api != CONSUMER_HEARTBEAT:
        return found.api == HEARTBEAT and not found.error
    if not is_steady(found):
        return False
    member = (found.group_id, found.member_id)
    if member in steady:
        return True
    steady.add(member)
    return False
