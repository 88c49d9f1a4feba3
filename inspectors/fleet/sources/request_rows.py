"""Lines of brokers' request logs → rows of `schemas.REQUESTS`; no Spark.

Files may be plain (split among tasks) or packed (gz, bz2: one task a file), rotated, of several
brokers, in any order; folders are searched.

A row is a view of the record that live evidence is made of (logs/requests/lines.py). What says
nothing is left out: heartbeats that were answered without an error, and a KIP-848 member's after
the first one that changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from rebal.inspectors.fleet.schemas import LONG, REQUESTS, YES_NO
from rebal.inspectors.fleet.sources.request_files import Part, blocks
from rebal.inspectors.logs.lines import Zone
from rebal.inspectors.logs.requests.lines import (
    CONSUMER_HEARTBEAT,
    HEARTBEAT,
    JOIN,
    LEAVE,
    MARK,
    SYNC,
    Request,
    is_cut_off,
    may_concern_group,
    parse,
)

COUNTS: Final = ("lines", "requests", "parsed", "cut_off")
"""What is counted of lines: all, those of the request logger, those of them that concern a group,
and those that end before they say what they are."""
COUNTED: Final = pa.schema([*REQUESTS, ("local", YES_NO), *((name, LONG) for name in COUNTS)])
"""Rows of `schemas.REQUESTS`, and one in which only the counts are set. `local` is whether the time
names no zone, and none is known."""
_MADE: Final = frozenset(
    {"member_id", "protocols", "skip_assignment", "members", "assignments", "left"}
)
_EQUAL: Final = tuple(
    n for n in REQUESTS.names if n in Request.__struct_fields__ and n not in _MADE
)
"""The columns that are fields of `Request` as they are."""
_equal: Final = attrgetter(*_EQUAL)
_ROWS: Final = 4000
"""Rows that a task hands over at once, about."""


def read_parts(parts: Sequence[Part], zone: Zone) -> Iterator[pa.RecordBatch]:
    """Yield the rows of parts of logs as `COUNTED`, the counts of their lines last."""
    found = RequestLines(zone)
    for part in parts:
        name = Path(part.path).name
        for position, text, problem in blocks(part):
            found.read(text, name, position)
            if problem is not None:
                found.add_problem(problem, name, position + len(text))
            if len(found) >= _ROWS:
                yield found.take()
    found.add_counts()
    yield found.take()


class RequestLines:
    """Reads lines one after another and keeps the rows until they are taken.

    A time that names no zone is of `zone` (None: UTC).
    """

    def __init__(self, zone: Zone = None) -> None:
        self._zone = zone
        self._rows: list[dict[str, Any]] = []
        self._steady: set[tuple[str, str]] = set()
        self._counts = dict.fromkeys(COUNTS, 0)

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, text: bytes, source: str, position: int) -> None:
        """Whole lines of the file `source`; the first begins at `position`."""
        lines = text.split(b"\n")
        if not lines[-1]:
            lines.pop()
        self._counts["lines"] += len(lines)
        for line in lines:
            if MARK in line:
                self._counts["requests"] += 1
                if may_concern_group(line, heartbeats=True):
                    self._read(line, source, position)
                elif is_cut_off(line):
                    self._counts["cut_off"] += 1
            position += len(line) + 1

    def add_problem(self, problem: str, source: str, position: int) -> None:
        """Add a row that says why these bytes cannot be read."""
        self._rows.append({"problem": problem, "source": source, "position": position})

    def add_counts(self) -> None:
        """Add a row that holds the counts of all lines so far."""
        self._rows.append(dict(self._counts))

    def take(self) -> pa.RecordBatch:
        """Return the rows since the last time, as `COUNTED`."""
        rows, self._rows = self._rows, []
        return pa.RecordBatch.from_pylist(rows, COUNTED)

    def _read(self, line: bytes, source: str, position: int) -> None:
        self._counts["parsed"] += 1
        found = parse(line, source, position, self._zone, heartbeats=True)
        if isinstance(found, Request):
            row = _row(found, self._steady)
            if row is not None:
                self._rows.append(row)
        elif found.problem:
            self.add_problem(found.problem, source, position)


def _row(found: Request, steady: set[tuple[str, str]]) -> dict[str, Any] | None:
    """Return the columns that a request has; None where it says nothing."""
    if found.api == HEARTBEAT and not found.error:
        return None
    if found.api == CONSUMER_HEARTBEAT and _says_nothing_new(found, steady):
        return None
    row = dict(zip(_EQUAL, _equal(found), strict=True))
    row["member_id"], row["local"] = found.member_id or None, found.local
    row["source"], row["position"] = found.log, found.line
    if found.api == JOIN:
        row["probe"] = found.is_probe
        row["skip_assignment"] = found.skip_assignment
        row["protocols"] = [
            {"name": each.name, "metadata": each.metadata} for each in found.protocols
        ]
        row["members"] = [
            {
                "member_id": each.member_id,
                "instance_id": each.group_instance_id or None,
                "metadata": each.metadata,
            }
            for each in found.members
        ]
    elif found.api == SYNC:
        row["assignments"] = [
            {"member_id": each.member_id, "assignment": each.assignment}
            for each in found.assignments
        ]
    elif found.api == LEAVE:
        row["left"] = [
            {
                "member_id": each.member_id,
                "instance_id": each.group_instance_id or None,
                "reason": each.reason or None,
            }
            for each in found.left
        ]
    return row


def _says_nothing_new(found: Request, steady: set[tuple[str, str]]) -> bool:
    """Return whether a heartbeat changed nothing; each member's first of a batch counts as news."""
    epoch = found.generation
    if (
        found.error
        or epoch is None
        or epoch <= 0
        or found.member_epoch != epoch
        or found.subscribed_topics is not None
    ):
        return False
    member = (found.group_id, found.member_id)
    if member in steady:
        return True
    steady.add(member)
    return False
