"""Hand-made stories of one group: its records and requests, and what is read in its tables."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rebal.groups.compact import Partitions
from rebal.groups.model import Subscription
from rebal.groups.wire.consumer_protocol import ConsumerAssignment
from rebal.inspectors.clock import micros
from rebal.inspectors.fleet.schemas import TIMELINE
from rebal.inspectors.fleet.timeline.facts import pack_request
from rebal.inspectors.logs.requests.lines import MemberEntry, Protocol, Request
from tests.encoders import encode_assignment, encode_subscription
from tests.fleet.timeline_input import Row, record

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
TOPIC_ID = uuid.UUID(int=7)
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
            )
        )

    def assignment(self) -> bytes:
        topic = self.topics[0] if self.topics else "t"
        partitions = {topic: Partitions(self.has)} if self.has else {}
        return encode_assignment(ConsumerAssignment(version=3, partitions=partitions))


def text(value: str | None) -> bytes:
    raw = None if value is None else value.encode()
    return struct.pack(">h", -1) if raw is None else struct.pack(">h", len(raw)) + raw


def compact(value: str | None) -> bytes:
    raw = None if value is None else value.encode()
    return b"\0" if raw is None else bytes([len(raw) + 1]) + raw


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


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
        leader = members[0].id if members else None
        out = struct.pack(">h", 3) + text(protocol_type) + struct.pack(">i", number)
        out += text(assignor if members else None) + text(leader)
        moment = START // 1000 + round((at if stamp is None else stamp) * 1000)
        out += struct.pack(">qi", moment, len(members))
        for one in members:
            out += text(one.id) + text(one.instance) + text(one.client or one.id) + text("/h")
            out += struct.pack(">ii", one.rebalance, one.session)
            out += blob(one.subscription()) + blob(one.assignment())
        self.put(at, 2, out)

    def tombstone(self, at: float) -> None:
        self.put(at, 2, None)

    def epoch(self, at: float, epoch: int) -> None:
        self.put(at, 3, struct.pack(">hi", 0, epoch) + b"\0")

    def target_epoch(self, at: float, epoch: int) -> None:
        self.put(at, 6, struct.pack(">hi", 0, epoch) + b"\0")

    def member(self, at: float, member: M, names: Sequence[str] | None = None) -> None:
        """Kind 5; `names` is the list of a member that speaks the classic protocol."""
        out = struct.pack(">h", 0) + compact(member.instance) + b"\0"
        out += compact(member.client or member.id) + compact("/h")
        out += bytes([len(member.topics) + 1]) + b"".join(map(compact, member.topics)) + b"\0"
        out += struct.pack(">i", member.rebalance) + b"\0"
        if names is None:
            out += b"\0"
        else:
            tag = b"\x01" + struct.pack(">i", member.session) + bytes([len(names) + 1])
            for name in names:
                sent = member.subscription()
                tag += compact(name) + bytes([len(sent) + 1]) + sent + b"\0"
            tag += b"\0"
            out += b"\x01\x00" + bytes([len(tag)]) + tag
        self.put(at, 5, out, member.id)

    def target(self, at: float, member: str, has: Sequence[int]) -> None:
        self.put(at, 7, struct.pack(">h", 0) + _ids(has) + b"\0", member)

    def current(
        self, at: float, member: str, epoch: int, has: Sequence[int], state: int = 0
    ) -> None:
        out = struct.pack(">hiib", 0, epoch, epoch - 1, state) + _ids(has) + b"\x01\0"
        self.put(at, 8, out, member)

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
        took: float = 0.5,
        **fields: Any,
    ) -> None:
        """A whole rebalance as the log shows it: joins that took `took` seconds, then the syncs."""
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


def _ids(has: Sequence[int]) -> bytes:
    """Partitions of the topic with `TOPIC_ID`."""
    if not has:
        return b"\1"
    packed = struct.pack(f">{len(has)}i", *has)
    return b"\2" + TOPIC_ID.bytes + bytes([len(has) + 1]) + packed + b"\0"


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
