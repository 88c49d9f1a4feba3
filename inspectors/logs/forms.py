"""Forms of log lines as a table, and the observation that a line of each kind is.

A `Form` is a pattern whose named groups are fields: `group_id`, `member_id`, `instance_id`,
`client_id`, `generation_id`, `assignors`, `reason`. A field with `_` at its end is the same one at
another place of the line. One row for each form of each program; one loop reads them all.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
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
from rebal.inspectors.logs.lines import LogText, Stamp, Zone, better, stamp_of, unwrap
from rebal.inspectors.logs.text_input import TextInput

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
"""The meaning of a line for one member or group.

given: the coordinator made a member id. sent: a join with a list is sent. joined: it was accepted.
left: by request. expired: no heartbeat in time. rebalanced: a generation began. loaded: the
coordinator loaded the group. converted: between the classic and the consumer protocol, or why not.
member: a line that only names a member. named: it shows its client too. The others belong to
`inspectors.logs.families`.
"""
# The program's name before a line: `kubectl logs --prefix`, docker compose's, and whatever stands
# before librdkafka's own format, but for times.
_NAME: Final = re.compile(r"(.*?)%[0-7]\|(\d{9,11}\.\d{3})\||(\[pod/[^\]\s]+\]|[\w.-]+ +\|) ")
_TIMES: Final = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?|std(?:out|err) [FP]")
_ESCAPED: Final = re.compile(r"\\+\"")
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
    """Yield the line; for a JSON wrapper, each line of the message in it. No line is very long."""
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
        yield _named(_ESCAPED.sub('"', line), number, stamp_of(line, zone))
        return
    for text in inner.text.splitlines():
        at = better(stamp_of(text[:60], zone), inner.wrapper_time)
        yield _named(text, number, better(at, stamp_of(head, zone)), inner.origin)


def _named(text: str, number: int, stamp: Stamp | None, origin: str = "") -> LogText:
    match = _NAME.match(text)
    before = (match[1] or match[3] or "") if match is not None else ""
    if match is not None and match[2]:
        stamp = Stamp(datetime.fromtimestamp(float(match[2]), UTC), local=False)
    program = " ".join(_TIMES.sub("", f"{origin} {before}").split())
    return LogText(program, text, number, stamp)


class LogReading(Record, frozen=True, kw_only=True):
    """The observations of logs, with sentences for the operator on what could not be used.

    `logs` are observations about the logs themselves, one for each program that wrote them.
    """

    observations: tuple[Observation, ...] = ()
    logs: tuple[LogRead, ...] = ()
    notes: tuple[str, ...] = ()


class Form(NamedTuple):
    """One form of line: the program's family (empty: a broker), its meaning and its pattern."""

    family: str
    kind: Kind
    pattern: re.Pattern[str]


class Shown(NamedTuple):
    """The form of one line, and the fields that it sets."""

    form: Form
    fields: dict[str, str]

    def get(self, name: str) -> str:
        """Return a field, empty where the line does not have it."""
        return self.fields.get(name, "")


class Part:
    """The lines of one source that one program wrote, with one clock."""

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
        """Remember the time of one of its lines, if it is the newest."""
        if stamp is not None:
            self._local = self._local or stamp.local
            self._last_at = stamp.at if self._last_at is None else max(self._last_at, stamp.at)

    def place(self, line: LogText) -> tuple[Evidence, Where]:
        """Return one of its lines as evidence, and where it stands."""
        log, stamp = self._log, line.stamp
        evidence = Evidence(
            source=Source.BROKER_LOG if log.kind == "broker" else Source.CLIENT_LOG,
            at=stamp.at if stamp else None,
            detail=f"{self._source.name}:{line.number}",
        )
        return evidence, Where(
            log=log.log,
            line=line.number,
            origin=log.origin,
            local=stamp is not None and stamp.local,
        )

    def read(self) -> LogRead:
        """Return the record of the log; call it after the whole source was read."""
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
    """Return the table with its patterns compiled."""
    return tuple(Form(family, kind, re.compile(pattern)) for family, kind, pattern in rows)


def shown_by(table: Iterable[Form], text: str) -> Shown | None:
    """Return the first form of the table that the line has."""
    for form in table:
        if match := form.pattern.search(text):
            values = match.groupdict("").items()
            return Shown(form, {k.rstrip("_"): v for k, v in values if v not in _NONE})
    return None


def observed(
    shown: Shown, evidence: Evidence, where: Where, software: Software | None = None
) -> Observation | None:
    """Return the observation of one line; None if its kind is none by itself."""
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
    """Return the client id of a dynamic member: its member id without the coordinator's UUID.

    Of a static member it is the instance id, which not every client prints.
    """
    match = re.search(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$", member_id)
    return member_id[: match.start()] if match else ""
