"""Hand-made stories of one group: its records and requests, and what is read in its tables."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from rebal.groups.compact import Partitions
from rebal.groups.model import Subscription
from rebal.groups.wire import offsets_topic as records
from rebal.groups.wire.consumer_protocol import ConsumerAssignment
from rebal.groups.wire.offsets_topic import GroupMetadata, GroupMetadataMember
from rebal.inspectors.clock import micros
from rebal.inspectors.fleet.schemas import TIMELINE
from rebal.inspectors.fleet.timeline.facts import pack_request
from rebal.inspectors.logs.requests.lines import MemberEntry, Protocol, Request
from tests.encoders import encode_assignment, encode_subscription
from tests.fleet.timeline_input import Row, record
from tests.groups.test_offsets_records import TOPIC_ID, written, written_group

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
