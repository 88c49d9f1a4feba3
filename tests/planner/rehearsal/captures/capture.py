"""A capture as its README describes it: what the brokers wrote, and what was done to each group."""

import base64
import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from rebal.groups.clients import families, family_of
from rebal.groups.errors import RebalError
from rebal.groups.model import CoordinatorKind
from rebal.groups.wire.consumer_protocol import decode_assignment, decode_subscription
from rebal.groups.wire.offsets_topic import (
    ConsumerGroupMember,
    CurrentAssignment,
    GroupEpoch,
    GroupKey,
    GroupMetadata,
    GroupMetadataKey,
    MemberKey,
    OffsetCommitKey,
    decode_consumer_group_record,
    decode_group_metadata,
    decode_key,
)
from rebal.planner.rehearsal.engine.memory import Brokers
from tests.software import family as by_name

Owned = frozenset[tuple[str, int]]
EPOCH, MEMBER, CURRENT = 3, 5, 8


@dataclass(frozen=True)
class Fact:
    """One record about a KIP-848 group; `value` is None for a tombstone."""

    at: float
    kind: int
    member_id: str
    value: Any


@dataclass
class OnlineGroup:
    """What the records of a group say at one moment; its type is KIP-848's while it has an epoch.

    `current` holds each member's epoch, whether it is at rest, and its partitions by topic id.
    """

    epoch: int | None = None
    members: dict[str, ConsumerGroupMember] = field(default_factory=dict)
    current: dict[str, CurrentAssignment] = field(default_factory=dict)

    @property
    def at_rest(self) -> bool:
        """Whether every member has reached the group's epoch and has nothing to revoke."""
        return self.members.keys() == self.current.keys() and all(
            one.member_epoch == self.epoch and one.state == 0 for one in self.current.values()
        )

    @property
    def assignor(self) -> str:
        """The server-side assignor: a member's wish, or the brokers' default."""
        wishes = [one.server_assignor for one in self.members.values() if one.server_assignor]
        return wishes[0] if wishes else "uniform"

    def owned(self, topics: dict[str, str]) -> dict[str, Owned]:
        return {
            id_: frozenset(
                (topics.get(topic, topic), number)
                for topic, numbers in one.assigned
                for number in numbers
            )
            for id_, one in self.current.items()
        }


def fact(at: float, key: GroupKey, raw: bytes | None) -> Fact | None:
    """Read a record; None for one that says nothing about members and epochs."""
    if key.version not in (EPOCH, MEMBER, CURRENT):
        return None
    member_id = key.member_id if isinstance(key, MemberKey) else ""
    value = None if raw is None else decode_consumer_group_record(key.version, raw)
    return Fact(at, key.version, member_id, value)


def folded(facts: list[Fact], until: float) -> OnlineGroup:
    """What the records say at this moment."""
    group = OnlineGroup()
    for one in facts:
        if one.at > until:
            break
        if one.kind == EPOCH:
            group.epoch = one.value.epoch if isinstance(one.value, GroupEpoch) else None
        else:
            known: dict[str, Any] = group.members if one.kind == MEMBER else group.current
            if one.value is None:
                known.pop(one.member_id, None)
            else:
                known[one.member_id] = one.value
    return group


def topic_names(facts: list[Fact]) -> dict[str, str]:
    """Topic id → name, where every member subscribes to one topic only."""
    topics = {t for one in facts if one.kind == MEMBER and one.value for t in one.value.topics}
    ids = {t for one in facts if one.kind == CURRENT and one.value for t, _ in one.value.assigned}
    return dict.fromkeys(ids, next(iter(topics))) if len(topics) == len(ids) == 1 else {}


_MARK = "Completed request:"
_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d{3})\]")
_TOLD = re.compile(
    r"Member (?P<member>\S+) in group (?P<group>\S+) has failed"
    r"|(?P<begins>Preparing to rebalance group) (?P<began>\S+) in state"
    r"|Stabilized group (?P<joined>\S+) generation|Group (?P<left>\S+) with generation"
)
_SETTING = re.compile(r"\bgroup\.([a-z.]+)=(\d+)")
BEAT = "CONSUMER_GROUP_HEARTBEAT"
_KEPT = frozenset({"JOIN_GROUP", "LEAVE_GROUP", "HEARTBEAT", "SYNC_GROUP", BEAT})
REJECTIONS = frozenset({23, 26, 81, 82})


@dataclass(frozen=True)
class Request:
    """One request of the broker's request log; times in seconds since 1970.

    `came` is when the broker received it, `done` when it answered.
    """

    api: str
    client_id: str
    software: str | None
    version: str | None
    came: float
    done: float
    error: int
    asked: dict[str, Any]
    answered: dict[str, Any]

    @property
    def member_id(self) -> str:
        return str(self.answered.get("memberId") or self.asked.get("memberId") or "")

    @property
    def assignors(self) -> tuple[str, ...]:
        return tuple(one["name"] for one in self.asked.get("protocols") or ())

    @property
    def joins(self) -> bool:
        """Whether a new process asks to be a member: by JoinGroup, or a heartbeat of epoch 0."""
        return self.api == "JOIN_GROUP" or (self.api == BEAT and self.asked["memberEpoch"] == 0)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of its subscription; none where its bytes are not the consumer protocol's."""
        if self.api == BEAT:
            return tuple(self.asked.get("subscribedTopicNames") or ())
        try:
            sent = decode_subscription(base64.b64decode(self.asked["protocols"][0]["metadata"]))
        except (RebalError, IndexError):
            return ()
        return sent.topics

    @property
    def leaves(self) -> bool:
        """Whether a member leaves: by LeaveGroup, or a heartbeat of a negative epoch."""
        return self.api == "LEAVE_GROUP" or (self.api == BEAT and self.asked["memberEpoch"] < 0)


@dataclass(frozen=True)
class Record:
    """One record of the group in the offsets topic; `value` is None for a tombstone."""

    at: float
    value: GroupMetadata | None

    def partitions(self) -> dict[str, Owned]:
        """Member id → its partitions; none where the bytes are not the consumer protocol's."""
        assert self.value is not None
        found: dict[str, Owned] = {}
        for member in self.value.members:
            pairs: set[tuple[str, int]] = set()
            if member.assignment:
                given = decode_assignment(member.assignment).partitions
                pairs = {(topic, number) for topic, some in given.items() for number in some}
            found[member.member_id] = frozenset(pairs)
        return found


@dataclass(frozen=True)
class Grown:
    """A topic that had `before` partitions and has `count` since `at`."""

    at: float
    topic: str
    before: int
    count: int


@dataclass
class Group:
    """One group of a capture.

    `rebalances` is when its coordinator began one (true) and when all had joined (false), `failed`
    when it removed which member.
    """

    name: str
    timeline: list[dict[str, Any]]
    printed: list[dict[str, Any]]
    requests: list[Request] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    rebalances: list[tuple[float, bool]] = field(default_factory=list)
    failed: dict[str, float] = field(default_factory=dict)

    def joins(self) -> Iterator[Request]:
        return (one for one in self.requests if one.api == "JOIN_GROUP")

    def start_of(self, request: Request) -> dict[str, Any]:
        """The start of the process that made it; Streams puts its own ending behind a client id."""
        names = (request.client_id, request.client_id.partition("-StreamThread-")[0])
        *_, last = (
            event
            for event in self.timeline
            if event["action"] == "start"
            and event["client_id"] in names
            and event["t_ms"] <= 1000 * request.done
        )
        return last


@dataclass
class Capture:
    """Groups by name, partition counts by topic, the broker, and when the capture was taken.

    `grown` are the topics that got more partitions, `topic_ids` as Kafka prints them.
    """

    groups: dict[str, Group]
    topics: dict[str, int]
    brokers: Brokers
    begin: float
    end: float
    grown: list[Grown]
    topic_ids: dict[str, str]


@cache
def read(folder: Path) -> Capture:
    """Read one capture."""
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    groups = {
        name: Group(
            name,
            sorted(one["timeline"], key=lambda event: event["t_ms"]),
            sorted(one["seen_by_clients"], key=lambda event: event["t_ms"]),
        )
        for name, one in truth["groups"].items()
    }
    for group, request in _requests(folder / "kafka-request.log.gz"):
        if group in groups:
            groups[group].requests.append(request)
    for one in groups.values():
        one.requests.sort(key=lambda request: (request.came, request.done))
    for told, at in _told(folder / "broker-group-coordinator.log.gz"):
        named = groups.get(told["group"] or "")
        if named is not None and told["member"]:
            named.failed[told["member"]] = at
        elif named is not None:
            named.rebalances.append((at, told["begins"] is not None))
    topics = _offsets(folder, groups)
    grown = [
        Grown(one["t_ms"] / 1000, one["topic"], one["before"], one["partitions"])
        for one in truth.get("topics", ())
    ]
    topics |= {one.topic: one.before for one in reversed(grown)}
    brokers = _brokers(folder, truth.get("broker", ""))
    begin, end = truth["t_begin_ms"] / 1000, truth["t_end_ms"] / 1000
    return Capture(groups, topics, brokers, begin, end, grown, truth.get("topic_ids", {}))


def _brokers(folder: Path, broker: str) -> Brokers:
    """The broker's settings as far as the README names them, else Kafka's defaults."""
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    read = {key: int(value) for key, value in _SETTING.findall(text)}
    version = re.search(r"(\d+)\.(\d+)", broker)
    number = (int(version[1]), int(version[2])) if version is not None else (4, 1)
    usual, delays = Brokers(), number >= (4, 3)

    def seconds(key: str, default: float) -> float:
        return read[key] / 1000 if key in read else default

    return Brokers(
        kind=CoordinatorKind.SCALA if number < (4, 0) else CoordinatorKind.JAVA,
        initial_delay=seconds("initial.rebalance.delay.ms", usual.initial_delay),
        max_size=read.get("max.size", usual.max_size),
        min_session=seconds("min.session.timeout.ms", 1.0),
        max_session=seconds("max.session.timeout.ms", usual.max_session),
        consumer_heartbeat=seconds("consumer.heartbeat.interval.ms", usual.consumer_heartbeat),
        consumer_session=seconds("consumer.session.timeout.ms", usual.consumer_session),
        assignment_interval=seconds("consumer.assignment.interval.ms", 1.0) if delays else 0.0,
        first_epoch=int(delays),
    )


def family(software: str, version: str | None, request: Request | None) -> str:
    """Return the client family, as the broker saw it or as the story calls it."""
    low = software.lower()
    # Streams and Connect are Java clients to the broker.
    for key in ("streams", "connect"):
        if key in low:
            return key
    named = request and family_of(request.software, request.version)
    if named:
        return named
    told = by_name(software) if software else "java"
    return told if told in families() else family_of(low, version) or "java"


def _requests(path: Path) -> Iterator[tuple[str, Request]]:
    decoder = json.JSONDecoder()
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            stamp, at = _STAMP.match(line), line.find(_MARK)
            if stamp is None or at < 0 or not any(f'"{api}"' in line for api in _KEPT):
                continue
            one, _ = decoder.raw_decode(line[at + len(_MARK) :])
            head, asked = one["requestHeader"], one["request"]
            done = datetime.fromisoformat(stamp[1].replace(",", ".")).replace(tzinfo=UTC)
            who = one.get("clientInformation") or {}
            yield (
                asked["groupId"],
                Request(
                    head["requestApiKeyName"],
                    head.get("clientId") or "",
                    who.get("softwareName"),
                    who.get("softwareVersion"),
                    done.timestamp() - one["totalTimeMs"] / 1000,
                    done.timestamp(),
                    one["response"].get("errorCode", 0),
                    asked,
                    one["response"],
                ),
            )


def _told(path: Path) -> Iterator[tuple[dict[str, str | None], float]]:
    """Yield what the coordinator's log tells of rebalances and of members that it removed."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            stamp, found = _STAMP.match(line), _TOLD.search(line)
            if stamp and found:
                at = datetime.fromisoformat(stamp[1].replace(",", ".")).replace(tzinfo=UTC)
                group = found["group"] or found["began"] or found["joined"] or found["left"]
                yield {**found.groupdict(), "group": group}, at.timestamp()


def stored(folder: Path) -> list[dict[str, Any]]:
    """The records of `__consumer_offsets` as they are, in the order of each partition."""
    with gzip.open(folder / "consumer_offsets.jsonl.gz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return sorted(records, key=lambda one: (one["partition"], one["offset"]))


def _offsets(folder: Path, groups: dict[str, Group]) -> dict[str, int]:
    """Fill in the groups' records; return how many partitions each topic has."""
    topics: defaultdict[str, int] = defaultdict(int)
    for one in stored(folder):
        key = decode_key(base64.b64decode(one["key"]))
        if isinstance(key, OffsetCommitKey):
            topics[key.topic] = max(topics[key.topic], key.partition + 1)
        raw, at = one["value"], one["timestamp"] / 1000
        if isinstance(key, GroupKey) and key.group_id in groups:
            told = fact(at, key, None if raw is None else base64.b64decode(raw))
            groups[key.group_id].facts += [] if told is None else [told]
        if not isinstance(key, GroupMetadataKey) or key.group_id not in groups:
            continue
        value = None if raw is None else decode_group_metadata(base64.b64decode(raw))
        record = Record(at, value)
        groups[key.group_id].records.append(record)
        if value is not None and value.protocol_type == "consumer":
            for pairs in _assigned(record):
                for topic, number in pairs:
                    topics[topic] = max(topics[topic], number + 1)
    return dict(topics)


def _assigned(record: Record) -> Iterator[Owned]:
    try:
        yield from record.partitions().values()
    except RebalError:
        return
