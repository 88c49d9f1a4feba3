"""Times and JSON wrappers of log lines in any layout."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from rebal.groups.model import Record

_TIME: Final = re.compile(
    r"(?<!\d)(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"(?: ?(Z|UTC|[+-]\d\d:?\d\d)(?![\w:]))?"
)
_MESSAGE_KEYS: Final = ("message", "msg", "log", "@message", "textPayload")
_TIME_KEYS: Final = ("@timestamp", "timestamp", "time", "ts", "timeMillis", "instant", "datetime")
_NO_TIME_PREFIX: Final = 400
NO_OFFSET: Final = timedelta(0)
Zone = timedelta | tzinfo | None
"""The zone of times that have none: an offset from UTC, a time zone, or None (not known)."""


class Stamp(NamedTuple):
    """The time of a line; `local`: it is in the log's unknown zone, stored as if it were UTC."""

    at: datetime
    local: bool


class LogLine(Record, frozen=True, kw_only=True):
    """A line without its wrapper: the text that the program wrote, and the wrapper's time."""

    text: str
    wrapper_time: Stamp | None = None


def unwrap(line: str, zone: Zone = NO_OFFSET) -> LogLine:
    """Return `line` without its JSON wrapper, if any (docker, Logstash, log4j's JSON layouts)."""
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
            at = next((t for k in _TIME_KEYS if (t := _wrapper_time(body.get(k), zone))), None)
            return LogLine(text=text, wrapper_time=at)
    return LogLine(text=line)


def stamp_of(prefix: str, zone: Zone = NO_OFFSET) -> Stamp | None:
    """Return the time in a line's prefix, in UTC; None if there is no date and time.

    A time with a zone is preferred to one without; the latter is read as a time of `zone`.
    """
    best: Stamp | None = None
    for match in _TIME.finditer(prefix[:_NO_TIME_PREFIX]):
        zone_text = match[8]
        if best is not None and zone_text is None:
            continue
        try:
            at = datetime(*(int(match[i]) for i in range(1, 7)), tzinfo=UTC)  # type: ignore[misc,arg-type]
            at += timedelta(microseconds=int((match[7] or "0").ljust(6, "0")[:6]))
            if zone_text:
                return Stamp(at - _offset_of(zone_text), local=False)
            best = Stamp(_in_zone(at, zone), local=zone is None)
        except (ValueError, OverflowError):
            continue
    return best


def better(one: Stamp | None, other: Stamp | None) -> Stamp | None:
    """Return the better of two times: one with a zone, else the first that is not None."""
    if one is None or (one.local and other is not None and not other.local):
        return other
    return one


def _in_zone(local: datetime, zone: Zone) -> datetime:
    if isinstance(zone, tzinfo):
        return local.replace(tzinfo=zone).astimezone(UTC)
    return local if zone is None else local - zone


def _offset_of(zone: str) -> timedelta:
    if zone in ("Z", "UTC"):
        return NO_OFFSET
    sign = -1 if zone[0] == "-" else 1
    return sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))


def _wrapper_time(value: object, zone: Zone) -> Stamp | None:
    if isinstance(value, str):
        return stamp_of(value, zone)
    at = _number_time(value)
    return None if at is None else Stamp(at, local=False)


def _number_time(value: object) -> datetime | None:
    if isinstance(value, dict):
        seconds, nanos = value.get("epochSecond"), value.get("nanoOfSecond", 0)
        if not isinstance(seconds, int) or not isinstance(nanos, int):
            return None
        return _epoch(seconds * 1000 + nanos / 1e6)
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Until the year 2286, seconds have ten digits before the point and milliseconds thirteen.
        return _epoch(value if value > 1e11 else value * 1000)
    return None


def _epoch(millis: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(millis / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
