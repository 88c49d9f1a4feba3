"""`RawGroup`: a consumer group of bare protocol speakers, with its own record of the coordinator.

Each member is one connection that sends JoinGroup, SyncGroup, Heartbeat and LeaveGroup, so that any
list can be sent at any moment and hundreds of groups are made in seconds. A JoinGroup waits for the
rebalance: it is sent by `knock` and answered in `settle`. `RawGroup.held` is what the coordinator
should remember, written down from what was sent: it reads nothing that the coordinator holds.
"""

import selectors
import socket
import struct
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kafka.protocol.parser import KafkaProtocol
from rebal.groups.compact import Partitions
from rebal.groups.model import Subscription
from rebal.groups.wire.consumer_protocol import ConsumerAssignment
from rebal.inspectors.kafka import probe
from rebal.inspectors.kafka.wire import message
from tests.encoders import encode_assignment, encode_subscription
from tests.kafka.broker import Broker

PATIENCE = 20.0


class Wire:
    """One connection: a request is sent now, its answer is read when it is there."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._socket: socket.socket | None = None

    def fileno(self) -> int:
        assert self._socket is not None
        return self._socket.fileno()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def send(self, request: Any) -> None:
        if self._socket is None:
            host, port = self._broker.bootstrap.split(":")
            self._socket = socket.create_connection((host, int(port)), timeout=10)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._parser = KafkaProtocol(client_id="raw")
        self._parser.send_request(request)
        self._socket.sendall(self._parser.send_bytes())

    def receive(self, timeout: float) -> Any:
        """The next answer, or None where it does not come in time."""
        end = time.monotonic() + timeout
        while ready([self], max(0.0, end - time.monotonic())):
            assert self._socket is not None
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionResetError("the broker closed a raw member's connection")
            for _, answer in self._parser.receive_bytes(data):
                return answer
        return None

    def ask(self, request: Any) -> Any:
        self.send(request)
        answer = self.receive(PATIENCE)
        assert answer is not None, f"no answer to {type(request).__name__}"
        return answer


def ready(wires: Sequence[Wire], timeout: float) -> list[Wire]:
    """Those of `wires` with something to read within `timeout`."""
    if not wires:
        return []
    with selectors.PollSelector() as selector:
        for wire in wires:
            selector.register(wire, selectors.EVENT_READ, wire)
        return [key.data for key, _ in selector.select(timeout)]


def join_request(
    group: str,
    member_id: str,
    sent: Mapping[str, bytes],
    *,
    session_ms: int,
    rebalance_ms: int = 60_000,
    instance_id: str | None = None,
    protocol_type: str = "consumer",
) -> Any:
    """JoinGroup v7 of one member: assignor → its subscription."""
    return message(
        JoinGroupRequest, 7, group_id=group, session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms, member_id=member_id, group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[{"name": name, "metadata": data} for name, data in sent.items()],
    )  # fmt: skip


def sync_request(
    group: str,
    member_id: str,
    generation: int,
    given: Mapping[str, bytes],
    instance_id: str | None = None,
) -> Any:
    """SyncGroup v3; a leader's `given` are member id → assignment."""
    return message(
        SyncGroupRequest, 3, group_id=group, generation_id=generation, member_id=member_id,
        group_instance_id=instance_id,
        assignments=[{"member_id": each, "assignment": data} for each, data in given.items()],
    )  # fmt: skip


def leave_request(group: str, found: Mapping[str, str | None]) -> Any:
    """LeaveGroup of members: member id → instance id."""
    wanted = [{"member_id": each, "group_instance_id": i} for each, i in found.items()]
    return message(LeaveGroupRequest, 3, group_id=group, members=wanted)


def consumer_heartbeat(broker: Broker, group: str, member_id: str = "") -> str:
    """Join a group with KIP-848's protocol, or leave it as `member_id`; the new member's id.

    ConsumerGroupHeartbeat v0, written by hand: kafka-python has no such message.
    """
    epoch = -1 if member_id else 0
    request = struct.pack(">hhih3sb", 68, 0, 1, 3, b"raw", 0)
    request += _compact(group) + _compact(member_id) + struct.pack(">ibbi", epoch, 0, 0, 60_000)
    request += struct.pack(">b", 2) + _compact("raw") + struct.pack(">bbb", 0, 1, 0)
    host, port = broker.bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as plain:
        plain.sendall(struct.pack(">i", len(request)) + request)
        with plain.makefile("rb") as answers:
            answer = answers.read(struct.unpack(">i", answers.read(4))[0])
    # Correlation id, tags and throttle time come before the error; then its text, and the id.
    (code,) = struct.unpack(">h", answer[9:11])
    assert code == 0, f"ConsumerGroupHeartbeat was answered with {code}"
    return answer[13 : 12 + answer[12]].decode()


def _compact(text: str) -> bytes:
    return struct.pack(">b", len(text) + 1) + text.encode()


NONE, UNKNOWN_MEMBER, INCONSISTENT, SESSION, REBALANCING = 0, 25, 23, 26, 27
ILLEGAL_GENERATION, MEMBER_ID_REQUIRED, FULL, FENCED = 22, 79, 81, 82
_LOADING = {14, 15, 16}
SESSION_MS = 300_000


@dataclass(eq=False)
class RawMember:
    """One member. `error` is the code of its last join (None: it waits for the rebalance)."""

    wire: Wire
    assignors: tuple[str, ...]
    instance_id: str | None = None
    protocol_type: str = "consumer"
    session_ms: int = SESSION_MS
    member_id: str = ""
    generation: int = -1
    error: int | None = NONE
    alive: bool = True
    joins: int = 0
    counted: tuple[str, ...] = ()

    @property
    def waiting(self) -> bool:
        return self.error is None

    def subscription(self) -> bytes:
        """Its user data differ from join to join."""
        data = self.joins.to_bytes(4)
        return encode_subscription(Subscription(version=0, topics=("raw",), user_data=data))


class RawGroup:
    """One group. Members are joined in three steps: `knock`, other requests, `settle`.

    `held` maps a member id to the assignors that the coordinator should remember of it. `loaded`
    says that the coordinator was loaded since the group was made, `rebalanced` that a generation
    was completed since, and `fresh` holds the ids of members whose join was accepted since.
    `online` is the id of the KIP-848 member that converted the group.
    """

    def __init__(self, broker: Broker, *, rebalance_ms: int = 60_000) -> None:
        self.broker = broker
        self.id = f"raw-{uuid.uuid4().hex}"
        self.rebalance_ms = rebalance_ms
        self.members: list[RawMember] = []
        self.held: dict[str, tuple[str, ...]] = {}
        self.instances: dict[str, str] = {}
        self.elected: str | None = None
        self.generation = -1
        self.synced = -1
        self.loaded = False
        self.rebalanced = True
        self.fresh: set[str] = set()
        self.online: str | None = None
        self.control = Wire(broker)

    # --- joining --------------------------------------------------------------------------------

    def form(self, members: Iterable[RawMember]) -> list[RawMember]:
        """Members that join one after the other and end in one generation."""
        made = list(members)
        for member in made:
            assert self.knock(member) in (None, NONE), f"{member.assignors}: {member.error}"
            if member is made[0]:
                self._receive(PATIENCE)
        self.settle()
        return made

    def member(self, *assignors: str, instance: str | None = None, **more: Any) -> RawMember:
        return RawMember(Wire(self.broker), assignors, instance, **more)

    def join(self, *assignors: str, instance: str | None = None, **more: Any) -> RawMember:
        """A new member (or a static one's restart) that joins until the group is settled."""
        made = self.member(*assignors, instance=instance, **more)
        if self.knock(made) in (None, NONE):
            self.settle()
        return made

    def knock(self, member: RawMember, *, first_only: bool = False) -> int | None:
        """Join without waiting for the rebalance: the error code, or None where it waits.

        A dynamic member that is answered 79 joins again with its id. `first_only`: it does not, and
        the answer is waited for.
        """
        self._send_join(member)
        if member.instance_id is None and not member.member_id:
            self._until_loaded(member)
            if member.error == MEMBER_ID_REQUIRED and not first_only:
                self._send_join(member)
        if member.waiting:
            # A rejection comes soon, and a KIP-848 group's answer; else a join may wait.
            soon = 0.0 if member in self.members else 0.03
            self._receive(PATIENCE if self.online or first_only else soon, [member])
        if member.error in (None, NONE) and member not in self.members:
            self.members.append(member)
        return member.error

    def rebalance(self, member: RawMember | None = None) -> None:
        """A member joins again, with changed user data: every live member joins again."""
        chosen = member or next(m for m in self.members if m.alive)
        before = self.generation
        self._send_join(chosen)
        self.settle()
        assert self.generation > before

    def settle(self, timeout: float = PATIENCE) -> None:
        """Heartbeat, join and sync as clients do, until every live member is in one generation."""
        end = time.monotonic() + timeout
        while True:
            self._receive(0.05)
            self._sync()
            moved = self._heartbeat()
            if not moved and not any(m.waiting for m in self._live()):
                return
            assert time.monotonic() < end, f"{self.id} did not settle: {self.shown()}"

    def _live(self) -> list[RawMember]:
        return [m for m in self.members if m.alive]

    def _send_join(self, member: RawMember) -> None:
        member.joins += 1
        member.error = None
        member.wire.send(
            join_request(
                self.id,
                member.member_id,
                dict.fromkeys(member.assignors, member.subscription()),
                session_ms=member.session_ms,
                rebalance_ms=self.rebalance_ms,
                instance_id=member.instance_id,
                protocol_type=member.protocol_type,
            )
        )

    def _until_loaded(self, member: RawMember) -> None:
        end = time.monotonic() + PATIENCE
        self._answered(member, member.wire.receive(PATIENCE))
        while member.error in _LOADING:
            assert time.monotonic() < end, f"the coordinator of {self.id} is loading for too long"
            time.sleep(0.1)
            self._send_join(member)
            self._answered(member, member.wire.receive(PATIENCE))

    def _receive(self, timeout: float, only: Sequence[RawMember] | None = None) -> None:
        """Read the joins' answers that are there within `timeout`."""
        waiting = [m for m in (only or self.members) if m.waiting and m.alive]
        answered = ready([m.wire for m in waiting], timeout)
        for member in waiting:
            if member.wire in answered:
                self._answered(member, member.wire.receive(PATIENCE))
                if member.error in _LOADING:
                    time.sleep(0.1)
                    self._send_join(member)

    def _answered(self, member: RawMember, answer: Any) -> None:
        assert answer is not None, f"{self.id}: a join was not answered"
        member.error = answer.error_code
        member.member_id = answer.member_id or member.member_id
        if answer.error_code == NONE:
            self._accepted(member, answer)
        elif answer.error_code in (UNKNOWN_MEMBER, FENCED):
            member.alive = False

    def _accepted(self, member: RawMember, answer: Any) -> None:
        if member.instance_id is not None:
            before = self.instances.get(member.instance_id)
            self.instances[member.instance_id] = member.member_id
            if before not in (None, member.member_id):
                self.held.pop(before, None)
        self.held[member.member_id] = member.assignors
        self.fresh.add(member.member_id)
        self.elected = answer.protocol_name
        if answer.generation_id > self.generation:
            self.generation = answer.generation_id
            self.rebalanced = True
        member.counted = tuple(each.member_id for each in answer.members)
        member.generation = -answer.generation_id
        if member.counted and answer.leader == member.member_id:
            self._evict(answer.members)

    def _evict(self, counted: Sequence[Any]) -> None:
        """Members that a completed rebalance has left out: dynamic ones that did not join."""
        # Replaced static members too: their own answers, with new ids, are still to be read.
        replaced = {self.instances.get(each.group_instance_id) for each in counted}
        for gone in set(self.held) - {each.member_id for each in counted}:
            static = gone in self.instances.values() and gone not in replaced
            assert not static, "a static member was evicted by a rebalance"
            del self.held[gone]

    def _sync(self) -> None:
        """Members whose join was answered and that have not synced: a negative generation.

        While others wait, only those do whose leader syncs or has: a follower's join may be
        answered later than its leader's.
        """
        due = [m for m in self._live() if m.error == NONE and m.generation < 0]
        self.synced = max([self.synced, *(-m.generation for m in due if m.counted)])
        if any(m.waiting for m in self._live()):
            due = [m for m in due if -m.generation <= self.synced]
        for member in due:
            given = dict.fromkeys(member.counted, b"")
            who = (self.id, member.member_id, -member.generation)
            member.wire.send(sync_request(*who, given, member.instance_id))
        for member in due:
            answer = member.wire.receive(PATIENCE)
            assert answer is not None, f"{self.id}: a sync was not answered"
            member.generation, member.counted = -member.generation, ()
            self._told(member, answer.error_code)

    def _heartbeat(self) -> bool:
        """Heartbeats of all; whether one of them had to join again."""
        beating = [m for m in self._live() if m.error == NONE and m.generation >= 0]
        for member in beating:
            member.wire.send(self._beat(member))
        codes = [member.wire.receive(PATIENCE).error_code for member in beating]
        if _LOADING & set(codes):
            time.sleep(0.1)
            return True
        before = [m.joins for m in beating]
        for member, code in zip(beating, codes, strict=True):
            self._told(member, code)
        return before != [m.joins for m in beating]

    def _beat(self, member: RawMember) -> Any:
        return HeartbeatRequest(
            version=3,
            group_id=self.id,
            generation_id=abs(member.generation),
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )

    def _told(self, member: RawMember, code: int) -> None:
        if code in (UNKNOWN_MEMBER, FENCED):
            member.error, member.alive = code, False
        elif code in (REBALANCING, ILLEGAL_GENERATION):
            self._send_join(member)
        else:
            assert code == NONE, f"{self.id}: error {code}"

    def rejoin(self) -> None:
        """Every live member joins again and nobody syncs: the group is CompletingRebalance."""
        for member in self._live():
            self._send_join(member)
        for _ in self._live():
            self._receive(PATIENCE)
        assert not any(m.waiting for m in self._live()), f"{self.id}: {self.shown()}"

    # --- leaving --------------------------------------------------------------------------------

    def leave(self, *members: RawMember) -> None:
        """Members leave by request (a static one too, as an operator would remove it)."""
        wanted = {m.member_id: m.instance_id for m in members}
        answer = self.control.ask(leave_request(self.id, wanted))
        codes = [answer.error_code, *(each.error_code for each in answer.members)]
        assert set(codes) == {NONE}, f"LeaveGroup was answered with {codes}"
        for member in members:
            self.expire(member)

    def expire(self, member: RawMember) -> None:
        """The coordinator counts the member no more: it left, or its session has ended."""
        self.die(member)
        self.held.pop(member.member_id, None)
        self.instances.pop(member.instance_id or "", None)

    def die(self, member: RawMember) -> None:
        """The member says nothing more; the coordinator counts it until its session ends."""
        member.alive = False
        member.wire.close()

    # --- the coordinator ------------------------------------------------------------------------

    def describe(self) -> Any:
        """DescribeGroups' answer: state, protocol, members."""
        request = DescribeGroupsRequest(
            version=4, groups=[self.id], include_authorized_operations=False
        )
        end = time.monotonic() + PATIENCE
        while True:
            described = self.control.ask(request).groups[0]
            if described.error_code not in _LOADING:
                return described
            assert time.monotonic() < end, f"the coordinator of {self.id} is loading for too long"
            time.sleep(0.1)

    def holds(self, assignor: str) -> int:
        """The read-only probe's error code: 25 where every remembered list holds `assignor`."""
        fresh = uuid.uuid4().hex
        request = probe.join_request(
            self.id,
            assignor,
            member_id=f"probe-{fresh}",
            instance_id=f"probe-{fresh}-{fresh}",
            session_timeout_ms=10_000,
            version=7,
        )
        return int(self.control.ask(request).error_code)

    def remembered(self) -> dict[str, tuple[str, ...]]:
        """`held`, with the lists of joins that wait for the rebalance (a new id is not known)."""
        found = dict(self.held)
        for member in self.members:
            if member.waiting and member.alive:
                if member.instance_id is not None and not member.member_id:
                    found.pop(self.instances.get(member.instance_id, ""), None)
                found[member.member_id or f"waiting {member.instance_id}"] = member.assignors
        return found

    def has(self, member: RawMember) -> bool:
        """Does the coordinator count this member now?

        A static member learns its id with the answer: an entry of its instance id that nobody else
        was given is its own.
        """
        found = {each.member_id: each.group_instance_id for each in self.describe().members}
        if member.member_id or member.instance_id is None:
            return member.member_id in found
        known = self.instances.get(member.instance_id)
        return any(i == member.instance_id and each != known for each, i in found.items())

    def reloaded(self) -> None:
        """The broker was started again: every list should be the elected assignor alone.

        Those of a KIP-848 group's classic members are stored whole.
        """
        if self.online is None:
            self.held = {each: tuple(filter(None, [self.elected])) for each in self.held}
        self.loaded, self.rebalanced, self.fresh = True, False, set()
        self.disconnect()

    def disconnect(self) -> None:
        """Close the connections; each is opened again when it is needed."""
        for wire in (self.control, *(m.wire for m in self.members)):
            wire.close()

    def convert(self) -> None:
        """A KIP-848 member joins: the group is converted, its classic members stay in it."""
        self.online = consumer_heartbeat(self.broker, self.id)

    def end(self) -> None:
        """Remove every member that the coordinator counts, and the group."""
        try:
            if self.online is not None:
                consumer_heartbeat(self.broker, self.id, self.online)
            here = {m.member_id: m.group_instance_id for m in self.describe().members}
            self.control.ask(leave_request(self.id, here))
            self.control.ask(DeleteGroupsRequest(version=1, groups_names=[self.id]))
        finally:
            self.disconnect()

    def shown(self) -> str:
        return "; ".join(
            f"{m.instance_id or 'dynamic'} {list(m.assignors)} error {m.error} "
            f"generation {m.generation} {'alive' if m.alive else 'dead'}"
            for m in self.members
        )


_SESSION_MS = 1_800_000
PARTITIONS = 4


class Crowd:
    """Groups whose member owns the partitions 0 to 3 of `topic`, all committed at offset 0."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._wire = Wire(broker)
        self._topic = topic
        self._owned = {topic: Partitions(range(PARTITIONS))}

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    def add(self, group: str, assignors: Sequence[str]) -> str:
        """Make one group, and return its member's id."""
        member = self._join(group, assignors)
        self._commit(group, *member)
        return member[0]

    def empty(self, group: str) -> None:
        """Make one group whose member has left: its offsets keep it."""
        member_id = self.add(group, ["range"])
        answer = self._wire.ask(leave_request(group, {member_id: None}))
        assert answer.error_code == NONE

    def _join(self, group: str, assignors: Sequence[str]) -> tuple[str, int]:
        sent = {name: self._subscription(name) for name in assignors}
        member_id = ""
        while True:
            answer = self._wire.ask(join_request(group, member_id, sent, session_ms=_SESSION_MS))
            member_id = answer.member_id
            if answer.error_code == NONE:
                break
            assert answer.error_code == MEMBER_ID_REQUIRED, answer.error_code
        given = encode_assignment(ConsumerAssignment(version=0, partitions=self._owned))
        synced = self._wire.ask(
            sync_request(group, member_id, answer.generation_id, {member_id: given})
        )
        assert synced.error_code == NONE, synced.error_code
        return member_id, answer.generation_id

    def _commit(self, group: str, member_id: str, generation: int) -> None:
        commit = {"committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": None}
        partitions = [{"partition_index": number} | commit for number in range(PARTITIONS)]
        answer: Any = self._wire.ask(
            message(
                OffsetCommitRequest, 7, group_id=group, member_id=member_id,
                generation_id_or_member_epoch=generation, group_instance_id=None,
                topics=[{"name": self._topic, "partitions": partitions}],
            )
        )  # fmt: skip
        codes = {each.error_code for one in answer.topics for each in one.partitions}
        assert codes == {NONE}, codes

    def _subscription(self, assignor: str) -> bytes:
        """With cooperative-sticky a member keeps its partitions."""
        owned = self._owned if assignor == "cooperative-sticky" else {}
        sent = Subscription(version=1, topics=(self._topic,), owned_partitions=owned)
        return encode_subscription(sent)
