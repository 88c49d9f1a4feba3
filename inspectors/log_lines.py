"""What log lines of any layout have in common: a time, and perhaps a wrapper around the message."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from rebal.groups.model import Record

_TIME: Final = re.compile(
    r"(?<!\d)(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"(?: ?(Z|UTC|[+-]\d\d:?\d\d)(?![\w:]))?"
)
_MESSAGE_KEYS: Final = ("message", "msg", "log", "@message", "textPayload")
_TIME_KEYS: Final = ("@timestamp", "timestamp", "time", "ts", "timeMillis", "instant", "datetime")
_NO_TIME_PREFIX: Final = 400
NO_OFFSET: Final = timedelta(0)


class LogLine(Record, frozen=True, kw_only=True):
    """A line without its wrapper: the text as the program wrote it, and the wrapper's time."""

    text: str
    wrapper_time: datetime | None = None


def unwrap(line: str) -> LogLine:
    """`line` without a JSON wrapper (docker, Logstash, log4j's JSON layouts), if it has one."""
    start = line.find("{")
    if start < 0 or '"' not in line[start : start + 40]:
        return LogLine(text=line)
    try:
        body, _ = json.JSONDecoder().raw_decode(line, start)
    except (ValueError, RecursionError):
        return LogLine(text=line)
    if not isinstance(body, dict):
        return LogLine(text=line)
    for key in _MESSAGE_KEYS:
        text = body.get(key)
        if isinstance(text, str):
            at = next((t for k in _TIME_KEYS if (t := _wrapper_time(body.get(k)))), None)
            return LogLine(text=text, wrapper_time=at)
    return LogLine(text=line)


def time_of(prefix: str, offset: timedelta = NO_OFFSET) -> datetime | None:
    """The time in a line's prefix, aware and in UTC; None when there is no date and time.

    A time with a zone wins over one without; without a zone the log's clock is taken to be
    `offset` ahead of UTC.
    """
    best: datetime | None = None
    for match in _TIME.finditer(prefix[:_NO_TIME_PREFIX]):
        zone = match[8]
        if best is not None and zone is None:
            continue
        try:
            at = datetime(*(int(match[i]) for i in range(1, 7)), tzinfo=UTC)  # type: ignore[misc,arg-type]
            at += timedelta(microseconds=int((match[7] or "0").ljust(6, "0")[:6]))
            at -= _offset_of(zone) if zone else offset
        except (ValueError, OverflowError):
            continue
        if zone:
            return at
        best = at
    return best


def _offset_of(zone: str) -> timedelta:
    if zone in ("Z", "UTC"):
        return NO_OFFSET
    sign = -1 if zone[0] == "-" else 1
    return sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))


def _wrapper_time(value: object) -> datetime | None:
    if isinstance(value, str):
        return time_of(value)
    if isinstance(value, dict):
        seconds, nanos = value.get("epochSecond"), value.get("nanoOfSecond", 0)
        if not isinstance(seconds, int) or not isinstance(nanos, int):
            return None
        return _epoch(seconds * 1000 + nanos / 1e6)
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Ten digits before the point are seconds until the year 2286, thirteen milliseconds.
        return _epoch(value if value > 1e11 else value * 1000)
    return None


def _epoch(millis: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(millis / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
