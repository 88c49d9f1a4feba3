"""Times and JSON wrappers of log lines in any layout."""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from rebal.groups.model import Record

_TIME: Final = re.compile(
    r"(?<!\d)(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
    r"(?: ?(Z|UTC|[+-]\d\d:?\d\d|(?<! )[+-]\d\d)(?![\w:]))?"
)
# The preferred ones first: stores add the time at which they received a line.
_TIME_KEYS: Final = (
    *("@timestamp", "timestamp", "time", "_time", "ts", "timeMillis", "instant", "datetime"),
    *("__REALTIME_TIMESTAMP", "date", "asctime", "TimeGenerated"),
)
# Fields that tell two programs apart. Docker's `stream` is that of one program.
_ORIGIN: Final = re.compile(
    r"(?i)^(?!.*thread).*(?:pod|container|host|instance|stream|task|pid|unit|file\.path)"
)
_LIST: Final = re.compile(rb'\s*(?:\{\s*"(?:events|logEvents|[rR]ecords)":\s*)?\[\s*\{\s*"')
_LONGEST_ENTRY: Final = 100_000
_NO_TIME_PREFIX: Final = 400
NO_OFFSET: Final = timedelta(0)
Zone = timedelta | tzinfo | None
"""The zone of times that have none: an offset from UTC, a time zone, or None (not known)."""


class Stamp(NamedTuple):
    """The time of a line; `local`: it is in the log's unknown zone, stored as if it were UTC."""

    at: datetime
    local: bool


class Block(NamedTuple):
    """The begin of a block of settings: its kind, its line's number, time and start.

    `origin` is what a JSON wrapper says of the program.
    """

    of: str
    number: int
    stamp: Stamp | None
    origin: str
    start: str


class LogText(NamedTuple):
    """One line without its wrapper, the program that wrote it, and its time.

    `block` is the begin of a block, whose first setting the line is. `key` is that of a setting,
    with its `value`; a block without a key has no settings that could be read. Both are empty for
    other lines, which end the program's block.
    """

    program: str
    text: str
    number: int
    stamp: Stamp | None
    block: Block | None = None
    key: str = ""
    value: str = ""


class LogLine(Record, frozen=True, kw_only=True):
    """A line without its JSON wrapper: the text that the program wrote and the wrapper's time.

    `field` is the path of the text in the wrapper, `origin` the fields that name the program.
    """

    text: str
    field: str = ""
    origin: str = ""
    wrapper_time: Stamp | None = None


def unwrap(
    line: str, wanted: re.Pattern[str] | None, zone: Zone = NO_OFFSET, field: str = ""
) -> Iterator[LogLine]:
    """Yield the lines in the JSON that `line` contains.

    The text of an entry is its longest string that matches `wanted` or stands at `field`; the JSON
    may be one entry (Docker, GELF, log4j's layouts) or hold many in a list (exports).
    """
    start = min((at for each in "{[" if (at := line.find(each)) >= 0), default=-1)
    brace = line.find("{", max(start, 0))
    if brace < 0 or '"' not in line[brace : brace + 40]:
        return
    # A prefix may hold some of its own: `app[17]: {…}`, `{pod="a"} {…}`.
    for begin in sorted({start, brace, line.find('{"')} - {-1}):
        try:
            body, _ = json.JSONDecoder().raw_decode(line, begin)
            found = list(_entries(body, wanted, zone, field))
        except (ValueError, RecursionError):
            continue
        if found:
            yield from (
                replace(one, origin=f"{line[:begin]} {one.origin}".strip()) for one in found
            )
            return


def numbered(lines: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number; of JSON, each entry of a list as one line."""
    first = next(lines, b"")
    entries = (_apart(line) if _LIST.match(line) else (line,) for line in chain((first,), lines))
    every = enumerate(chain.from_iterable(entries), 1)
    return _printed(every) if first.strip() in (b"{", b"[") else every


def _apart(line: bytes) -> Iterable[bytes]:
    """Return the entries of a list that is one line of JSON, else the line."""
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return (line,)
    return [
        json.dumps(each).encode()
        for each in (body if isinstance(body, list) else next(iter(body.values())))
    ]


def _printed(lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    entry: list[bytes] = []
    begun, end = 0, b""
    for number, raw in lines:
        body = raw.strip()
        if body == b"{":
            # An entry of a list begins: what stands around the list is of no use.
            entry, begun, end = [], number, raw.rstrip()[:-1] + b"}"
        if len(entry) < _LONGEST_ENTRY:
            entry.append(body)
        if raw.rstrip().rstrip(b",") == end:
            yield begun, b"".join(entry).rstrip(b",")
            entry, end = [], b""


def _entries(
    body: object, wanted: re.Pattern[str] | None, zone: Zone, field: str
) -> Iterator[LogLine]:
    nodes = dict(_nodes(body))
    texts = [
        (path, value)
        for path, value in nodes.items()
        if isinstance(value, str) and (path == field or (wanted and wanted.search(value)))
    ]
    if not texts:
        for value in nodes.values():
            for each in value if isinstance(value, list) else ():
                for line in _entries(each, wanted, zone, field):
                    field = line.field
                    yield line
        return
    found, text = max(texts, key=lambda each: len(each[1]))
    named = {path.rpartition(".")[2]: value for path, value in reversed(nodes.items())}
    at = next((t for key in _TIME_KEYS if (t := _wrapper_time(named.get(key), zone))), None)
    origin = " ".join(
        str(value)
        for path, value in nodes.items()
        if path != found and isinstance(value, str | int) and value not in ("stdout", "stderr")
        and _ORIGIN.search(path)
    )  # fmt: skip
    inner = list(unwrap(text, wanted, zone, field)) if text.startswith("{") else []
    for each in inner:
        yield replace(
            each,
            origin=f"{origin} {each.origin}".strip(),
            wrapper_time=better(each.wrapper_time, at),
        )
    if not inner:
        yield LogLine(text=text, field=found, origin=origin, wrapper_time=at)


def _nodes(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield each value below `value` with its path; what a list contains has none."""
    yield path, value
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _nodes(each, f"{path}.{key}" if path else key)


def stamp_of(prefix: str, zone: Zone = NO_OFFSET) -> Stamp | None:
    """Return the time in a line's prefix, in UTC; None if there is no date and time.

    A time with a zone is preferred to one without; the latter is read as a time of `zone`.
    """
    best: Stamp | None = None
    for match in _TIME.finditer(prefix[:_NO_TIME_PREFIX]):
        time, offset = match.groups()
        if best is not None and offset is None:
            continue
        try:
            at = datetime.fromisoformat(
                time.replace("/", "-") + (offset or "Z").replace("UTC", "Z")
            )
            if offset:
                return Stamp(at.astimezone(UTC), local=False)
            if isinstance(zone, tzinfo):
                at = at.replace(tzinfo=zone).astimezone(UTC)
            best = Stamp(at - zone if isinstance(zone, timedelta) else at, local=zone is None)
        except (ValueError, OverflowError):
            continue
    return best


def better(one: Stamp | None, other: Stamp | None) -> Stamp | None:
    """Return the better of two times: one with a zone, else the first that is not None."""
    return other if one is None or (one.local and other is not None and not other.local) else one


def _wrapper_time(value: object, zone: Zone) -> Stamp | None:
    """Return the time in a field: text, a number since 1970 in any unit, or log4j's `instant`."""
    match value:
        case str() if not value.isdecimal():
            return stamp_of(value, zone)
        case str():
            number: float = int(value[:30])
        case int() | float() if not isinstance(value, bool):
            number = value
        case {"epochSecond": int(seconds), **more} if isinstance(
            nanos := more.get("nanoOfSecond", 0), int
        ):
            number = seconds * 1000 + nanos / 1e6
        case _:
            return None
    # Until the year 2286, seconds have ten digits before the point, milliseconds thirteen.
    while number > 1e14:
        number /= 1000
    millis = number if number > 1e11 else number * 1000
    try:
        return Stamp(datetime.fromtimestamp(millis / 1000, UTC), local=False)
    except (ValueError, OverflowError, OSError):
        return None


def origin(log: str, broker: str) -> str:
    """Return the name of the logs that one broker wrote in one folder.

    The parts of a rotated log share one clock. Logs of other names may be another cluster's, whose
    brokers have the same ids.
    """
    folder, separator, name = log.rpartition("/")
    # What differs in the parts' names: a number or a date, and how it is packed.
    own = re.sub(r"[\W\d_]|(?<=\.)(?:gz|bz2|xz|zst|lz4)$", "", name)
    return f"{folder}{separator}{own} {broker}"
