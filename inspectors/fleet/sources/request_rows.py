"""Lines of a broker's request log → rows of `schemas.REQUESTS`; no Spark.

The line itself is read by `request_log_lines`, as for a single group. What says nothing is left
out: heartbeats that were answered without an error, and a KIP-848 member's after the first one
that changed nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from rebal.inspectors.fleet.schemas import LONG, REQUESTS
from rebal.inspectors.logs.lines import NO_OFFSET
from rebal.inspectors.logs.requests.lines import (
    BROKEN,
    MARK,
    NOT_JSON,
    Request,
    is_cut_off,
    may_concern_group,
    objects,
    parse,
    text_in,
)

COUNTS: Final = ("lines", "requests", "parsed", "cut_off")
"""What is counted of lines: all, those of the request logger, those of them that concern a group,
and those that end before they say what they are."""
COUNTED: Final = pa.schema([*REQUESTS, *((name, LONG) for name in COUNTS)])
"""Rows of `schemas.REQUESTS`, and one in which only the counts are set."""
_BEFORE_2_8: Final = "a broker before 2.8 wrote this line: it holds no JSON (KIP-673)"
_CUT_OFF: Final = "the line is cut off, or is no valid JSON"


class RequestLines:
    """Reads lines one after another and keeps the rows until they are taken.

    A line without a zone is taken as written by a clock `tz_offset` ahead of UTC.
    """

    def __init__(self, tz_offset: timedelta = NO_OFFSET) -> None:
        self._tz_offset = tz_offset
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
        requests = cut_off = 0
        for line in lines:
            if MARK in line:
                requests += 1
                if may_concern_group(line, heartbeats=True):
                    self._read(line, source, position)
                elif is_cut_off(line):
                    cut_off += 1
            position += len(line) + 1
        self._counts["lines"] += len(lines)
        self._counts["requests"] += requests
        self._counts["cut_off"] += cut_off

    def add_problem(self, problem: str, source: str, position: int) -> None:
        """A row that says why what stands there cannot be read."""
        self._rows.append({"problem": problem, "source": source, "position": position})

    def add_counts(self) -> None:
        """A row that holds the counts of all lines so far."""
        self._rows.append(dict(self._counts))

    def take(self) -> pa.RecordBatch:
        """The rows since the last time, as `COUNTED`."""
        rows, self._rows = self._rows, []
        columns = [
            pa.array([row.get(name) for row in rows], kind)
            for name, kind in zip(COUNTED.names, COUNTED.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=COUNTED)

    def _read(self, line: bytes, source: str, position: int) -> None:
        self._counts["parsed"] += 1
        found = parse(line, source, self._tz_offset, heartbeats=True)
        if found in (BROKEN, NOT_JSON):
            self.add_problem(_BEFORE_2_8 if found == NOT_JSON else _CUT_OFF, source, position)
        elif isinstance(found, Request):
            row = _row(found, self._steady)
            if row is not None:
                row["source"], row["position"] = source, position
                self._rows.append(row)


def request_rows(
    lines: Iterable[tuple[bytes, str, int]], tz_offset: timedelta = NO_OFFSET
) -> pa.RecordBatch:
    """The rows of `lines`: each its bytes, its file's name and its position in the file."""
    found = RequestLines(tz_offset)
    for line, source, position in lines:
        found.read(line, source, position)
    return found.take().select(REQUESTS.names)


def _row(found: Request, steady: set[tuple[str, str]]) -> dict[str, Any] | None:
    body, answer = found.request, found.response
    if found.api == "HEARTBEAT" and not found.error:
        return None
    if found.api == "CONSUMER_GROUP_HEARTBEAT" and _says_nothing_new(found, steady):
        return None
    row: dict[str, Any] = {
        "group_id": found.group_id,
        "at": found.at,
        "total_ms": found.total_ms,
        "api": found.api,
        "api_version": found.version,
        "error": found.error,
        "client_id": found.client_id,
        "host": found.host,
        "software_name": found.software_name,
        "software_version": found.software_version,
        "member_id": text_in(answer, "memberId") or text_in(body, "memberId") or None,
        "instance_id": text_in(body, "groupInstanceId") or text_in(body, "instanceId") or None,
    }
    try:
        row |= _OF_API[found.api](found)
    except (binascii.Error, ValueError):
        return {"problem": f"{found.api}: bytes that are no base64"}
    return row


def _protocol(found: Request) -> dict[str, Any]:
    body, answer = found.request, found.response
    return {
        "protocol_type": text_in(body, "protocolType") or None,
        "protocol": text_in(answer, "protocolName") or text_in(body, "protocolName") or None,
    }


def _join(found: Request) -> dict[str, Any]:
    body, answer = found.request, found.response
    generation = _int(answer, "generationId")
    return {
        **_protocol(found),
        "generation": generation if not found.error else None,
        "reason": text_in(body, "reason") or None,
        "session_timeout_ms": _int(body, "sessionTimeoutMs"),
        "rebalance_timeout_ms": _int(body, "rebalanceTimeoutMs"),
        "protocols": [
            {"name": text_in(one, "name"), "metadata": _bytes(one, "metadata")}
            for one in objects(body.get("protocols"))
        ],
        "probe": found.is_probe,
        "leader": text_in(answer, "leader") or None,
        "skip_assignment": answer.get("skipAssignment") is True,
        "members": [
            {
                "member_id": text_in(one, "memberId"),
                "instance_id": text_in(one, "groupInstanceId") or None,
                "metadata": _bytes(one, "metadata"),
            }
            for one in objects(answer.get("members"))
        ],
    }


def _sync(found: Request) -> dict[str, Any]:
    return {
        **_protocol(found),
        "generation": _int(found.request, "generationId"),
        "assignments": [
            {"member_id": text_in(one, "memberId"), "assignment": _bytes(one, "assignment")}
            for one in objects(found.request.get("assignments"))
        ],
    }


def _leave(found: Request) -> dict[str, Any]:
    left = [
        {
            "member_id": text_in(one, "memberId"),
            "instance_id": text_in(one, "groupInstanceId") or None,
            "reason": text_in(one, "reason") or None,
        }
        for one in objects(found.request.get("members"))
    ]
    alone = text_in(found.request, "memberId")  # below version 3
    if alone:
        left.append({"member_id": alone, "instance_id": None, "reason": None})
    return {"left": left}


def _heartbeat(found: Request) -> dict[str, Any]:
    return {"generation": _int(found.request, "generationId")}


def _consumer_heartbeat(found: Request) -> dict[str, Any]:
    body, answer = found.request, found.response
    topics = body.get("subscribedTopicNames")
    return {
        "generation": _int(body, "memberEpoch"),
        "rebalance_timeout_ms": _int(body, "rebalanceTimeoutMs"),
        "member_epoch": None if found.error else _int(answer, "memberEpoch"),
        "subscribed_topics": (
            [topic for topic in topics if isinstance(topic, str)]
            if isinstance(topics, list)
            else None
        ),
        "server_assignor": text_in(body, "serverAssignor") or None,
    }


_OF_API: Final = {
    "JOIN_GROUP": _join,
    "SYNC_GROUP": _sync,
    "LEAVE_GROUP": _leave,
    "HEARTBEAT": _heartbeat,
    "CONSUMER_GROUP_HEARTBEAT": _consumer_heartbeat,
}


def _says_nothing_new(found: Request, steady: set[tuple[str, str]]) -> bool:
    """A KIP-848 member's heartbeat that changed nothing; its first of a batch names its client."""
    body, answer = found.request, found.response
    epoch = _int(body, "memberEpoch")
    if (
        found.error
        or epoch is None
        or epoch <= 0
        or answer.get("memberEpoch") != epoch
        or body.get("subscribedTopicNames") is not None
    ):
        return False
    member = (found.group_id, text_in(answer, "memberId"))
    if member in steady:
        return True
    steady.add(member)
    return False


def _int(body: dict[str, Any], key: str) -> int | None:
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if -(2**31) <= value < 2**31 else None


def _bytes(body: dict[str, Any], key: str) -> bytes:
    return base64.b64decode(text_in(body, key), validate=True)
