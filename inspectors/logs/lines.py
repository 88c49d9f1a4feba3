"""Log lines in any layout: unwrap JSON, find times, and recognize lines by their forms.

A `Form` is a pattern whose named groups are fields: `group_id`, `member_id`, `instance_id`,
`client_id`, `generation_id`, `assignors`, `reason`. A field with `_` at its end is the same field
at another position in the line. Each program has a table with one row for each form; `shown_by`
matches a line against it.
"""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import chain
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from rebal.groups.evidence.observations import (
    Converted,
    Introduced,
    Joined,
    Left,
    Loaded,
    LogRead,
    Observation,
    Rebalanced,
    Where,
)
from rebal.groups.model import Evidence, Record, Software, Source
from rebal.inspectors import clock
from rebal.inspectors.files import TextInput

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
# The zone of times that have none: an offset from UTC, a time zone, or None (not known).
Zone = timedelta | tzinfo | None


class Stamp(NamedTuple):
    """The time of a log line, in UTC.

    If `local` is True, the log's time zone is unknown, and the time is stored as if it were UTC.
    """

    at: datetime
    local: bool


class Block(NamedTuple):
    """The first line of a printed configuration, such as `ConsumerConfig values:`.

    `of` is the kind (`Consumer`), `number` the line's number, and `start` the text before the kind,
    without times. `origin` is the program's name in a JSON wrapper.
    """

    of: str
    number: int
    stamp: Stamp | None
    origin: str
    start: str


class LogText(NamedTuple):
    """One log line without its wrapper, the program that wrote it, and its time.

    If the line is a setting of a printed configuration, `key` and `value` are that setting; the
    first setting also has the configuration's first line as `block`. A `block` with an empty key
    stands for a configuration of which no setting could be read. Any other line has neither, and
    ends the program's configuration.
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
    """Yield the log lines of a program inside the JSON in `line`; nothing if there is none.

    The JSON is one log entry (Docker, GELF, log4j's layouts), or holds a list of them (the export
    of a log store). From each entry, the longest string that matches the pattern `wanted`, or is at
    the path `field`, is yielded. `zone` is the zone of times that show none.
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
    """Yield (number, line), counted from 1; each entry of a JSON list of log entries is one line.

    If the list is printed over several lines, an entry has the number of its first line, and lines
    outside the entries are left out.
    """
    first = next(lines, b"")
    entries = (_apart(line) if _LIST.match(line) else (line,) for line in chain((first,), lines))
    every = enumerate(chain.from_iterable(entries), 1)
    return _printed(every) if first.strip() in (b"{", b"[") else every


def _apart(line: bytes) -> Iterable[bytes]:
    """Return each log entry of the JSON list in `line` as one line; if it is no JSON, the line."""
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
    """Yield `value` and each value in its objects, with its path of keys joined by dots.

    Values inside lists are not yielded.
    """
    yield path, value
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _nodes(each, f"{path}.{key}" if path else key)


def stamp_of(prefix: str, zone: Zone = NO_OFFSET) -> Stamp | None:
    """Return the time in a line's prefix, in UTC; None if there is no date and time.

    A time with a zone is preferred to one without, which is read as a time in `zone`.
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
    """Return the first of two times that has a zone; if none has, the first that is not None."""
    return other if one is None or (one.local and other is not None and not other.local) else one


def _wrapper_time(value: object, zone: Zone) -> Stamp | None:
    """Return the time in a field of a JSON wrapper; None if it holds no time.

    It may be text, a number since 1970 in any unit, or log4j's `instant`.
    """
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


def log_origin(log: str, broker: str) -> str:
    """Return one name for all parts of a rotated log that one broker wrote: they share one clock.

    It is the folder, the file's name without numbers and endings, and the broker. Logs of other
    names may be another cluster's, whose brokers have the same ids.
    """
    folder, separator, name = log.rpartition("/")
    # What differs in the parts' names: a number or a date, and how it is packed.
    own = re.sub(r"[\W\d_]|(?<=\.)(?:gz|bz2|xz|zst|lz4)$", "", name)
    return f"{folder}{separator}{own} {broker}"


# The meaning of a line for one member or group.
#
# given: the coordinator made a member id. sent: a join with a list is sent. joined: it was
# accepted. left: by request. expired: no heartbeat in time. rebalanced: a generation began. loaded:
# the coordinator loaded the group. converted: between the classic and the consumer protocol, or why
# not. member: a line that only names a member. named: it shows its client too. The others belong to
# `inspectors.logs.families`.
Kind = Literal[
    "given",
    "sent",
    "joined",
    "left",
    "expired",
    "rebalanced",
    "loaded",
    "converted",
    "member",
    "named",
    "rejected",
    "setting",
    "identity",
    "misused",
]
# The program's name before a line: `kubectl logs --prefix`, docker compose's, and whatever stands
# before librdkafka's own format, but for times.
_NAME: Final = re.compile(r"(.*?)%[0-7]\|(\d{9,11}\.\d{3})\||(\[pod/[^\]\s]+\]|[\w.-]+ +\|) ")
_TIMES: Final = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?|std(?:out|err) [FP]")
_LONGEST: Final = 1 << 14
# The fields with a program's own text; that of a collector comes first.
_MESSAGES: Final = ("log", "@message", "textPayload", "LogMessage", "line", "message", "msg")
# An entry of a list as Python's clients and Java's print it; nothing within its metadata looks so.
_ASSIGNOR: Final = re.compile(
    r"\('([^']+)', ConsumerProtocolSubscription\(|\(protocol_name='([^']+)', protocol_metadata="
    r"|JoinGroupRequestProtocol\(name='([^']+)', metadata="
)
_NONE: Final = ("", "None", "null", "<nil>", "not provided")


def split(raw: bytes, number: int, zone: Zone) -> Iterator[LogText]:
    """Yield the log line in `raw`; if it is a JSON wrapper, each line of the message inside.

    A line longer than 16 KiB yields nothing.
    """
    if len(raw) > _LONGEST:
        return
    line = raw.decode("utf-8", "replace").rstrip("\r\n")
    start = line.find("{")
    head = line[: max(start, 0)]
    # A line of the program's own may hold JSON too.
    wrapped = start >= 0 and not _TIMES.sub("", head).strip(" []")
    keys = (key for key in _MESSAGES if wrapped and f'"{key}"' in line)
    inner = next((each for key in keys for each in unwrap(line, None, zone, key)), None)
    if inner is None or (inner.wrapper_time or stamp_of(inner.text[:60], zone)) is None:
        # In JSON that is not known as a wrapper the program's own quotes are escaped.
        yield _named(re.sub(r"\\+\"", '"', line), number, stamp_of(line, zone))
        return
    for text in inner.text.splitlines():
        at = better(stamp_of(text[:60], zone), inner.wrapper_time)
        yield _named(text, number, better(at, stamp_of(head, zone)), inner.origin)


def _named(text: str, number: int, stamp: Stamp | None, origin: str = "") -> LogText:
    match = _NAME.match(text)
    before = (match[1] or match[3] or "") if match is not None else ""
    if match is not None and match[2]:
        stamp = Stamp(datetime.fromtimestamp(float(match[2]), UTC), local=False)
    return LogText(" ".join(_TIMES.sub("", f"{origin} {before}").split()), text, number, stamp)


class LogReading(Record, frozen=True, kw_only=True):
    """The observations read from logs; `notes` tell the operator what could not be used.

    `logs` describe the logs themselves, one for each program that wrote them.
    """

    observations: tuple[Observation, ...] = ()
    logs: tuple[LogRead, ...] = ()
    notes: tuple[str, ...] = ()


class Form(NamedTuple):
    """One form of log line: a pattern, and its meaning `kind`.

    `family` is the client family that prints it (empty: a broker).
    """

    family: str
    kind: Kind
    pattern: re.Pattern[str]


class Shown(NamedTuple):
    """A recognized log line: its form, and the values of the form's fields."""

    form: Form
    fields: dict[str, str]

    def get(self, name: str) -> str:
        """Return the value of a field; empty if the line does not have it."""
        return self.fields.get(name, "")


class Part:
    """The lines that one program wrote in one log source; their times are of one clock."""

    def __init__(self, source: TextInput, log: LogRead) -> None:
        self.members: set[tuple[str, str]] = set()
        self.anchors: list[tuple[datetime, datetime]] = []
        # A dict keeps equal ids once, in order.
        self.cluster_ids: dict[str, None] = {}
        self._source = source
        self._log = log
        self._local = False
        self._last_at: datetime | None = None

    def take(self, stamp: Stamp | None) -> None:
        """Record the time of one line (None: it shows none) for the result of `read`."""
        if stamp is not None:
            self._local = self._local or stamp.local
            self._last_at = stamp.at if self._last_at is None else max(self._last_at, stamp.at)

    def place(self, line: LogText) -> tuple[Evidence, Where]:
        """Return the evidence of an observation made from one line, and the line's position.

        The evidence names the log, the line's number and its time (None: the line shows none).
        """
        log, stamp = self._log, line.stamp
        return Evidence(
            source=Source.BROKER_LOG if log.kind == "broker" else Source.CLIENT_LOG,
            at=stamp.at if stamp else None,
            detail=f"{self._source.name}:{line.number}",
        ), Where(
            log=log.log,
            line=line.number,
            origin=log.origin,
            local=stamp is not None and stamp.local,
        )

    def read(self) -> LogRead:
        """Return the facts about this program's log: its newest time, clusters and member ids.

        Call it after the whole source was read.
        """
        return replace(
            self._log,
            local=self._local,
            last_at=self._last_at,
            written_at=self._source.written_at,
            read_at=clock.now(),
            anchors=tuple(self.anchors),
            cluster_ids=tuple(self.cluster_ids),
            members=frozenset(self.members),
        )


def forms(rows: Iterable[tuple[str, Kind, str]]) -> tuple[Form, ...]:
    """Return the rows (family, kind, pattern text) as forms with compiled patterns."""
    return tuple(Form(family, kind, re.compile(pattern)) for family, kind, pattern in rows)


def shown_by(table: Iterable[Form], text: str) -> Shown | None:
    """Return the first form in `table` that matches the line, with its fields; None if none."""
    for form in table:
        if match := form.pattern.search(text):
            return Shown(
                form,
                {k.rstrip("_"): v for k, v in match.groupdict("").items() if v not in _NONE},
            )
    return None


def observation_of(
    shown: Shown, evidence: Evidence, where: Where, software: Software | None = None
) -> Observation | None:
    """Return the observation that one recognized line shows, with the client's `software`.

    None: the line's kind is one that the caller handles, such as a rejection or a setting, or the
    line lacks the member id or the time that the observation needs.
    """
    kind, fields, at = shown.form.kind, shown.fields, evidence.at
    group_id, member_id = shown.get("group_id"), shown.get("member_id")
    instance_id = fields.get("instance_id")
    match kind:
        case "left" | "expired":
            return Left(
                **where,
                group_id=group_id,
                member_id=member_id,
                at=at,
                instance_id=instance_id,
                reason="session expired" if kind == "expired" else fields.get("reason"),
                expired=kind == "expired",
                evidence=evidence,
            )
        case "rebalanced" if at is not None:
            return Rebalanced(
                **where,
                group_id=group_id,
                generation_id=int(fields["generation_id"]),
                at=at,
                evidence=evidence,
            )
        case "loaded":
            return Loaded(**where, group_id=group_id, at=at, evidence=evidence)
        case "converted":
            return Converted(
                **where, group_id=group_id, what=shown.get("what"), at=at, evidence=evidence
            )
        case "named" if software is not None:
            return Introduced(
                **where,
                group_id=group_id,
                member_id=member_id,
                software=software,
                evidence=evidence,
            )
        case "given" | "identity" | "sent" | "joined" if member_id:
            return Joined(
                **where,
                group_id=group_id,
                member_id=member_id,
                list=tuple(map("".join, _ASSIGNOR.findall(shown.get("assignors")))),
                accepted=kind == "joined",
                new=kind in ("given", "identity"),
                at=at,
                client_id="" if instance_id else client_of(member_id),
                instance_id=instance_id,
                software=software,
                reason=fields.get("reason"),
                generation_id=int(fields["generation_id"]) if "generation_id" in fields else None,
                evidence=evidence,
            )
    return None


def client_of(member_id: str) -> str:
    """Return the member id without the coordinator's UUID: a dynamic member's client id.

    For a static member the result is its instance id; not every client prints that it is static.
    The result is empty if the member id does not end in a UUID.
    """
    match = re.search(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$", member_id)
    return member_id[: match.start()] if match else ""
