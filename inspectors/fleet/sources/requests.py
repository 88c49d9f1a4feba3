"""Lines of brokers' request logs, read as rows of `schemas.TIMELINE`, without Spark.

Files may be plain (split among tasks) or gzip (one task for each file). They may be rotated, of
several brokers, and in any order. Folders are searched.

A row holds the same request that live evidence uses (logs/requests/lines.py). Requests that show
nothing new are left out. They are heartbeats without an error, and a KIP-848 member's heartbeats
without a change, except the first.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from rebal.inspectors.clock import micros
from rebal.inspectors.fleet.schemas import TIMELINE
from rebal.inspectors.fleet.sources.source import FilePart, blocks
from rebal.inspectors.fleet.timeline.facts import is_steady, pack_request
from rebal.inspectors.logs.lines import Zone
from rebal.inspectors.logs.requests.lines import (
    CONSUMER_HEARTBEAT,
    MARK,
    SYNC,
    Request,
    is_cut_off,
    may_concern_group,
    parse,
)

SYNCED: Final = "group_id string, generation long, at long"
"""The Spark schema of rows of `read_syncs`; `at` is microseconds since 1970."""


def read_parts(
    parts: Sequence[FilePart], zone: Zone, counts: MutableMapping[str, int]
) -> Iterator[pa.Table]:
    """Yield the rows of these parts of request logs as tables of `TIMELINE`; count the lines.

    `zone` and `counts` are those of `RequestLines`.
    """
    found = RequestLines(zone, counts)
    for part in parts:
        name = Path(part.path).name
        for position, text, problem in blocks(part):
            end = position + len(text)
            rows = [*found.read(text, name, position, growing=end >= part.end)]
            if problem is not None:
                rows.append({"problem": problem, "source": name, "position": end})
            yield pa.Table.from_pylist(rows, TIMELINE)


def read_syncs(parts: Sequence[FilePart]) -> Iterator[pa.RecordBatch]:
    """Yield the group, generation and time of leaders' SYNC_GROUP requests.

    Only log times without a time zone count. They are read as UTC, in microseconds since 1970.
    """
    for part in parts:
        for position, text, _ in blocks(part):
            lines = (line for line in text.split(b"\n") if MARK in line and SYNC.encode() in line)
            rows = [
                {"group_id": one.group_id, "generation": one.generation, "at": micros(one.at)}
                for one in (parse(line, part.path, position, None) for line in lines)
                if isinstance(one, Request) and one.assignments and one.at and one.local
                if not one.error
            ]
            if rows:
                yield pa.RecordBatch.from_pylist(rows)


class RequestLines:
    """Reader of request log lines.

    `zone` is the time zone of times that name none (None: UTC). `counts` is a Counter: `lines` are
    all lines, `requests` those of Kafka's request logger, `parsed` those of them that may concern a
    group. `cut_off` are those that end too early, or are the half-written last line of a growing
    file.
    """

    def __init__(self, zone: Zone, counts: MutableMapping[str, int]) -> None:
        self._zone, self._counts = zone, counts
        self._steady: set[tuple[str, str]] = set()

    def read(
        self, text: bytes, source: str, position: int, *, growing: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of the lines in `text`.

        `text` is a piece of the file `source` and begins at byte `position`. The last line of a
        `growing` file may be half written; then it has no row, and the next scan reads it.
        """
        *lines, rest = text.split(b"\n")
        lines += [rest] if rest else []
        self._counts["lines"] += len(lines)
        for line in lines:
            if MARK in line:
                self._counts["requests"] += 1
                if may_concern_group(line, heartbeats=True):
                    yield from self._rows(line, source, position, half=growing and line is rest)
                elif is_cut_off(line):
                    self._counts["cut_off"] += 1
            position += len(line) + 1

    def _rows(
        self, line: bytes, source: str, position: int, *, half: bool
    ) -> Iterator[dict[str, Any]]:
        """Yield the row of a line, or a row with the problem if the line cannot be parsed.

        There is no row if the request shows nothing new. A line that may be only half written
        (`half`) is counted as cut off if it cannot be parsed, and has no row.
        """
        self._counts["parsed"] += 1
        found = parse(line, source, position, self._zone, heartbeats=True)
        if isinstance(found, Request):
            member = (found.group_id, found.member_id)
            is_still = found.api == CONSUMER_HEARTBEAT and is_steady(found)
            if not (is_still and member in self._steady):
                yield {
                    "group_id": found.group_id,
                    "at": found.at,
                    "value": pack_request(found),
                    "source": source,
                    "position": position,
                }
            if is_still:
                self._steady.add(member)
        elif half:
            self._counts["cut_off"] += bool(found.problem)
        elif found.problem:
            yield {"problem": found.problem, "source": source, "position": position}
