"""The timeline's input, made without Spark: from captures in files, row by row, or as stories.

A story is of one group: its records and requests, and what is read in its tables.
"""

import base64
import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from rebal.groups.compact import Partitions
from rebal.groups.model import Subscription
from rebal.groups.wire import offsets_topic as records
from rebal.groups.wire.consumer_protocol import ConsumerAssignment
from rebal.groups.wire.offsets_topic import GroupMetadata, GroupMetadataMember
from rebal.inspectors.clock import micros
from rebal.inspectors.fleet.runs import effective_times
from rebal.inspectors.fleet.schemas import MADE, OPEN, TABLES, TIMELINE, WAITING
from rebal.inspectors.fleet.sources.requests import RequestLines
from rebal.inspectors.fleet.timeline.facts import DISORDER, pack_request, unpack_request
from rebal.inspectors.fleet.timeline.group import Options, TimelineRow, make_tables
from rebal.inspectors.logs.lines import Zone
from rebal.inspectors.logs.requests.lines import MemberEntry, Protocol, Request
from tests.encoders import encode_assignment, encode_subscription
from tests.fleet.conftest import lines_in
from tests.groups.test_offsets_records import TOPIC_ID, written, written_group

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


SECOND = 1_000_000
START = 1_700_000_000 * SECOND
_TEXT = ("member_id", "client_id", "log", "host", "broker", "connection")
_LISTS = ("members", "assignments", "left")
_NOTHING = (
    dict.fromkeys(Request.__struct_fields__)
    | dict.fromkeys(_TEXT, "")
    | dict.fromkeys(_LISTS, ())
    | {"protocols": (Protocol("range", b"x"),)}
    | {"api_version": 9, "error": 0, "line": 0, "total_ms": 0.0, "assignment": b""}
    | dict.fromkeys(("new", "local", "skip_assignment"), False)
)
"""What a request says that says nothing."""


@dataclass
class M:
    """One member of a generation: partitions of topic `t` unless said otherwise."""

    id: str
    has: Sequence[int] = ()
    owned: Sequence[int] | None = ()
    topics: Sequence[str] = ("t",)
    instance: str | None = None
    client: str | None = None
    version: int = 3
    generation: int = -1
    session: int = 10_000
    rebalance: int = 60_000
    sent: bytes | None = None
    rack: str | None = None

    def subscription(self) -> bytes:
        if self.sent is not None:
            return self.sent
        owned = {"t": Partitions(self.owned)} if self.owned else {}
        return encode_subscription(
            Subscription(
                version=self.version,
                topics=tuple(self.topics),
                owned_partitions=owned if self.version >= 1 else None,
                generation_id=self.generation if self.version >= 2 else None,
                rack_id=self.rack if self.version >= 3 else None,
            )
        )

    def assignment(self) -> bytes:
        topic = self.topics[0] if self.topics else "t"
        partitions = {topic: Partitions(self.has)} if self.has else {}
        return encode_assignment(ConsumerAssignment(version=3, partitions=partitions))

    def in_group(self, version: int = 3) -> GroupMetadataMember:
        """As a value of this version says it."""
        return GroupMetadataMember(
            member_id=self.id,
            instance_id=self.instance if version >= 3 else None,
            client_id=self.client or self.id,
            client_host="/h",
            rebalance_timeout_ms=self.rebalance,
            session_timeout_ms=self.session,
            subscription=self.subscription(),
            assignment=self.assignment(),
        )


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


@dataclass
class Story:
    """Rows in the making; times are seconds since the story's beginning."""

    group: str = "g"
    rows: list[Row] = field(default_factory=list)
    offset: int = 0
    line: int = 0

    def put(self, at: float, kind: int, value: bytes | None, member: str | None = None) -> None:
        key = struct.pack(">h", kind) + text(self.group)
        key += text(member) if member is not None else b""
        self.rows.append(record(self.group, START + round(at * SECOND), self.offset, key, value))
        self.offset += 1

    def generation(
        self,
        at: float,
        number: int,
        members: Sequence[M],
        assignor: str | None = "range",
        *,
        stamp: float | None = None,
        protocol_type: str = "consumer",
    ) -> None:
        """A GroupMetadataValue v3."""
        value = GroupMetadata(
            version=3,
            protocol_type=protocol_type,
            generation=number,
            protocol=assignor if members else None,
            leader=members[0].id if members else None,
            state_timestamp_ms=START // 1000 + round((at if stamp is None else stamp) * 1000),
            members=tuple(one.in_group() for one in members),
        )
        self.put(at, 2, written_group(value))

    def tombstone(self, at: float) -> None:
        self.put(at, 2, None)

    def write(self, at: float, value: records.Value, member: str | None = None) -> None:
        """A record of KIP-848."""
        kind, data = written(value)
        self.put(at, kind, data, member)

    def epoch(self, at: float, epoch: int) -> None:
        self.write(at, records.GroupEpoch(epoch=epoch))

    def target_epoch(self, at: float, epoch: int) -> None:
        self.write(at, records.TargetEpoch(assignment_epoch=epoch))

    def member(self, at: float, member: M, names: Sequence[str] | None = None) -> None:
        """`names` is the list of a member that speaks the classic protocol."""
        value = records.ConsumerGroupMember(
            instance_id=member.instance,
            client_id=member.client or member.id,
            client_host="/h",
            topics=tuple(member.topics),
            rebalance_timeout_ms=member.rebalance,
        )
        if names is not None:
            sent = member.subscription()
            lists = tuple(records.SupportedProtocol(name=name, metadata=sent) for name in names)
            value = replace(value, session_timeout_ms=member.session, supported_protocols=lists)
        self.write(at, value, member.id)

    def target(self, at: float, member: str, has: Sequence[int]) -> None:
        self.write(at, records.TargetAssignment(partitions=_of_topic(has)), member)

    def current(
        self, at: float, member: str, epoch: int, has: Sequence[int], state: int = 0
    ) -> None:
        value = records.CurrentAssignment(
            member_epoch=epoch,
            previous_member_epoch=epoch - 1,
            state=state,
            assigned=_of_topic(has),
        )
        self.write(at, value, member)

    def gone(self, at: float, member: str) -> None:
        for kind in (8, 7, 5):
            self.put(at, kind, None, member)

    def reach(
        self,
        at: float,
        epoch: int,
        given: Mapping[str, Sequence[int]],
        joined: Sequence[M] = (),
        *,
        done: float | None = None,
    ) -> None:
        """An epoch with its target, which all members have reached at `done` (None: at once)."""
        for one in joined:
            self.member(at, one)
        self.epoch(at, epoch)
        for member, has in given.items():
            self.target(at, member, has)
        self.target_epoch(at, epoch)
        for member, has in given.items():
            self.current(at if done is None else done, member, epoch, has)

    def unmake(self, at: float, *members: str) -> None:
        """The tombstones of a KIP-848 group with these members."""
        for one in members:
            self.gone(at, one)
        self.put(at, 6, None)
        self.put(at, 3, None)

    def ask(self, at: float, api: str, **fields: Any) -> None:
        """One line of the request log."""
        self.line += 1
        said = Request(**{**_NOTHING, "group_id": self.group, "api": api, **fields})
        row = {
            **dict.fromkeys(TIMELINE.names),
            "group_id": self.group,
            "at": START + round(at * SECOND),
            "value": pack_request(said),
            "source": "log",
            "position": self.line,
        }
        self.rows.append(row)

    def join(
        self,
        at: float,
        member: str,
        generation: int | None,
        names: Sequence[str] = ("range",),
        **fields: Any,
    ) -> None:
        fields = {"software_name": "apache-kafka-java", "software_version": "3.9.1", **fields}
        self.ask(
            at,
            "JOIN_GROUP",
            member_id=member,
            generation=generation,
            client_id=fields.pop("client_id", member),
            host=fields.pop("host", "/h"),
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocol=names[0],
            protocols=tuple(Protocol(name, b"x") for name in names),
            **fields,
        )

    def refuse(self, at: float, client: str, names: Sequence[str], **fields: Any) -> None:
        self.join(at, "", None, names, error=23, client_id=client, **fields)

    def beat(self, at: float, member: str, asked: int, answered: int, **more: Any) -> None:
        """A heartbeat of KIP-848: the epochs that the member has, and is told."""
        who = {"member_id": member, "client_id": member, "host": "/h", **more}
        self.ask(at, "CONSUMER_GROUP_HEARTBEAT", generation=asked, member_epoch=answered, **who)

    def leave(self, at: float, member: str, reason: str | None = None) -> None:
        left = (MemberEntry(member, reason=reason),)
        self.ask(at, "LEAVE_GROUP", left=left)

    def round(
        self,
        at: float,
        number: int,
        members: Sequence[M],
        lists: Mapping[str, Sequence[str]] | None = None,
        *,
        took: float = 0.5,
        assignor: str | None = None,
        **fields: Any,
    ) -> None:
        """A whole rebalance as the log shows it: joins that took `took` seconds, then the syncs.

        With an `assignor` its record too, in between.
        """
        if assignor is not None:
            self.generation(at + 0.05, number, members, assignor)
        lists = lists or {}
        leader = members[0].id
        handed = tuple(
            MemberEntry(m.id, group_instance_id=m.instance, metadata=m.subscription())
            for m in members
        )
        given = tuple(MemberEntry(m.id, assignment=m.assignment()) for m in members)
        for one in reversed(members):
            self.join(
                at,
                one.id,
                number,
                lists.get(one.id, ("range",)),
                client_id=one.client or one.id,
                instance_id=one.instance,
                leader=leader,
                members=handed if one.id == leader else (),
                total_ms=took * 1000,
                session_timeout_ms=one.session,
                rebalance_timeout_ms=one.rebalance,
                **fields,
            )
        for one in members:
            self.ask(
                at + 0.1,
                "SYNC_GROUP",
                member_id=one.id,
                generation=number,
                assignments=given if one.id == leader else (),
            )


def _of_topic(has: Sequence[int]) -> records.TopicIdPartitions:
    return ((TOPIC_ID, tuple(has)),) if has else ()


def at(moment: datetime | None) -> float | None:
    """Seconds since the story's beginning."""
    return None if moment is None else (micros(moment) - START) / SECOND


def only(rows: list[Row], **wanted: Any) -> Row:
    found = [row for row in rows if all(row[k] == v for k, v in wanted.items())]
    assert len(found) == 1, found
    return found[0]


def facts(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def numbers(row: Row, column: str = "assignment") -> list[int]:
    return [n for one in row[column] for n in one["partitions"]]
