"""What a group's sources hold at each moment: log lines and offsets records, as Kafka writes them.

`Witness` stands between the members and the model of their coordinator and writes each request into
a `Book`: the request logs of the brokers (`kafka.request.logger` at DEBUG), the Java clients' own
logs, and the records in `__consumer_offsets`. Only texts and bytes leave the book.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from rebal.groups.assignors import Owned
from rebal.groups.assignors.spec import TopicPartition
from rebal.groups.compact import Partitions
from rebal.groups.model import Subscription
from rebal.groups.wire.consumer_protocol import ConsumerAssignment, StickyUserData, encode_sticky
from rebal.groups.wire.offsets_topic import GroupMetadata, GroupMetadataMember
from rebal.planner.rehearsal.engine.agenda import Agenda, Chance
from rebal.planner.rehearsal.engine.consumer import Consumer
from rebal.planner.rehearsal.engine.consumer_group import Server
from rebal.planner.rehearsal.engine.coordinator import ClassicGroup
from rebal.planner.rehearsal.engine.group import SimulatedGroup
from rebal.planner.rehearsal.engine.member import Process, SimulatedMember
from rebal.planner.rehearsal.engine.memory import (
    Assigned,
    Beat,
    BeatAnswer,
    Brokers,
    ClassicClient,
    Client,
    Error,
    JoinAnswer,
    JoinRequest,
    Stored,
    SyncAnswer,
    Watcher,
)
from tests.encoders import encode_assignment, encode_subscription
from tests.groups.test_offsets_records import written_group

BEGAN = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)
GROUP, TOPIC = "checkout", "orders"
CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
# Family → (JoinGroup version, name and version in the request log)
_SPEAKS = {
    "librdkafka": (5, "confluent-kafka-python", "2.16.1-rdkafka-2.16.0"),
    "kafka-python": (7, "kafka-python", "3.0.12"),
    "franz-go": (9, "kgo", "v1.22.1"),
}
INCOMPATIBLE = (
    "The group member's supported protocols are incompatible with those of existing members or "
    "first group member tried to join with empty protocol type or empty protocol list."
)
_FATAL = {
    Error.INCONSISTENT_GROUP_PROTOCOL: INCOMPATIBLE,
    Error.GROUP_MAX_SIZE_REACHED: "The group has reached its maximum size",
    Error.FENCED_INSTANCE_ID: "The group instance id Optional[{}] has been fenced by another "
    "member.",
}


@dataclass
class Life:
    """One process from its start to its end, and what it printed (Java alone prints)."""

    process: Process
    pod: str
    host: str
    port: int
    member_id: str = ""
    lines: list[bytes] = field(default_factory=list)

    @property
    def java(self) -> tuple[int, ...] | None:
        """The release of its Java client; None for another client."""
        return _release(self.process) if self.process.family == "java" else None


def _release(process: Process) -> tuple[int, ...]:
    return tuple(int(part) for part in (process.version or "3.9.1").split(".")[:2])


@dataclass(frozen=True)
class OffsetsRecord:
    """One GroupMetadata record: its bytes, when it was written, in which leader epoch."""

    at: float
    epoch: int
    value: bytes


class Book:
    """All that brokers and clients have written; times are seconds of `agenda`.

    `own` are the processes with an EAGER class of their own named cooperative-sticky. `drift` are
    the seconds by which the clients' clocks are ahead of the brokers'.
    """

    def __init__(
        self, agenda: Agenda, *, shift: int, cluster_id: str, network: int, epoch: int
    ) -> None:
        self.cluster_id = cluster_id
        self.broker = 1
        self.epoch = epoch
        self.loaded_at = 0.0
        self.in_place = False
        self.requests: dict[int, list[bytes]] = {}
        self.own: set[str] = set()
        self.lives: list[Life] = []
        self.records: list[OffsetsRecord] = []
        self._agenda = agenda
        self._shift = timedelta(hours=shift)
        self.drift = 0.0
        self._port = 40_000
        self._hosts: dict[str, str] = {}
        self._network = network
        self._completed = self._stable = 0.0
        self._last: int | None = None

    # --- times ----------------------------------------------------------------------------------

    def moment(self) -> datetime:
        return BEGAN + timedelta(seconds=self._agenda.now)

    @property
    def address(self) -> str:
        return f"10.{self._network}.0.{self.broker}"

    def _stamp(self, ahead: float = 0.0) -> str:
        at = self.moment() + self._shift + timedelta(seconds=ahead)
        text = at.isoformat(" ", "milliseconds")
        return text[:19] + "," + text[20:23]

    # --- processes ------------------------------------------------------------------------------

    def life(self, process: Process) -> Life:
        host = self._hosts.setdefault(process.name, f"10.1.{self._network}.{1 + len(self._hosts)}")
        self._port += 1
        made = Life(
            process, f"[pod/{process.name}-{self._network}{self._port}/app]", host, self._port
        )
        self.lives.append(made)
        return made

    def print(self, life: Life, *texts: str) -> None:
        """Write lines into the log of a Java client."""
        if life.java is not None:
            stamp = self._stamp(self.drift)
            life.lines += [f"[{stamp}] INFO {text}\n".encode() for text in texts]

    def built(self, life: Life) -> None:
        """Print what a consumer prints when it is built."""
        process, stamp = life.process, self._stamp(self.drift)
        if life.java is None:
            return
        package = "org.apache.kafka.clients.consumer."
        known = {name: package + made for name, made in CLASSES.items()}
        if process.name in self.own:
            known["cooperative-sticky"] = "com.acme.OwnAssignor"
        classes = ", ".join(f"class {known[name]}" for name in process.assignors)
        settings = (
            ("client.id", process.client_id),
            ("group.id", GROUP),
            ("group.instance.id", process.instance_id or "null"),
            ("group.protocol", process.protocol),
            ("max.poll.interval.ms", f"{process.rebalance * 1000:.0f}"),
            ("partition.assignment.strategy", f"[{classes}]"),
            ("session.timeout.ms", f"{process.session * 1000:.0f}"),
        )
        block = "".join(f"\t{name} = {value}\n" for name, value in settings)
        life.lines += [
            line.encode()
            for line in f"[{stamp}] INFO ConsumerConfig values: \n{block}\n".splitlines(True)
        ]
        started = round((self.moment().timestamp() + self.drift) * 1000)
        self.print(life, f"Kafka version: {process.version}", f"Kafka startTimeMs: {started}")
        self.say(life, f"Cluster ID: {self.cluster_id}")

    def say(self, life: Life, *texts: str) -> None:
        process = life.process
        instance = f"instanceId={process.instance_id}, " if process.instance_id else ""
        who = f"[Consumer {instance}clientId={process.client_id}, groupId={GROUP}] "
        self.print(life, *(who + text for text in texts))

    def closed(self, life: Life) -> None:
        classic = life.process.protocol == "classic"
        if classic and life.process.instance_id is None and life.member_id:
            self.say(
                life,
                f"Member {life.member_id} sending LeaveGroup request to coordinator "
                f"{self.address}:9092 (id: 2147483646 rack: null) due to the consumer is being "
                "closed",
            )
        self.print(life, f"App info kafka.consumer for {life.process.client_id} unregistered")

    # --- the request log ------------------------------------------------------------------------

    def request(
        self,
        life: Life,
        api: tuple[str, int],
        asked: dict[str, Any],
        answered: dict[str, Any],
        seconds: float = 0.002,
    ) -> None:
        """Write a completed request into the log of the broker that the client is connected to."""
        process = life.process
        java = ("apache-kafka-java", process.version or "3.9.1")
        _, name, release = _SPEAKS.get(process.family, (0, *java))
        line = {
            "isForwarded": False,
            "requestHeader": {
                "requestApiVersion": api[1],
                "clientId": process.client_id,
                "requestApiKeyName": api[0],
            },
            "request": {"groupId": GROUP, **asked},
            "response": {"throttleTimeMs": 0, **answered},
            "connection": f"{self.address}:9092-{life.host}:{life.port}-0-0",
            "totalTimeMs": seconds * 1000,
            "clientInformation": {"softwareName": name, "softwareVersion": release},
        }
        text = json.dumps(line, separators=(",", ":"))
        whole = f"[{self._stamp()}] DEBUG Completed request:{text} (kafka.request.logger)\n"
        self.requests.setdefault(self.broker, []).append(whole.encode())

    def join(self, life: Life, request: JoinRequest, answer: JoinAnswer, since: float) -> None:
        family = life.process.family
        since_32 = life.java is not None and life.java >= (3, 2)
        version = _SPEAKS[family][0] if family in _SPEAKS else 9 if since_32 else 7
        names = request.assignors
        metadata = b64encode(subscription_bytes(life.process, request, names[0])).decode()
        error = answer.error
        leads = answer.leader and not error
        self.request(
            life,
            ("JOIN_GROUP", version),
            {
                "sessionTimeoutMs": round(request.session * 1000),
                "rebalanceTimeoutMs": round(request.rebalance * 1000),
                "memberId": request.member_id,
                "groupInstanceId": request.instance_id,
                "protocolType": "consumer",
                "protocols": [{"name": name, "metadata": metadata} for name in names],
            },
            {
                "errorCode": int(error),
                "generationId": answer.generation,
                "protocolType": "consumer" if not error else None,
                "protocolName": answer.assignor or None,
                "leader": answer.member_id if leads else "",
                "skipAssignment": answer.skip_assignment,
                "memberId": answer.member_id or request.member_id,
                "members": [
                    {"memberId": one.member_id, "groupInstanceId": one.instance_id, "metadata": ""}
                    for one in (answer.members if leads else ())
                ],
            },
            self._agenda.now - since,
        )

    def leave(self, life: Life, member_id: str, error: Error) -> None:
        member = {"memberId": member_id, "groupInstanceId": None, "reason": None}
        answer = {"memberId": member_id, "groupInstanceId": None, "errorCode": 0}
        self.request(
            life, ("LEAVE_GROUP", 5), {"members": [member]},
            {"errorCode": int(error), "members": [] if error else [answer]},
        )  # fmt: skip

    def beat(self, life: Life, request: Beat, answer: BeatAnswer) -> None:
        """Write a heartbeat of KIP-848 that joins (epoch 0) or leaves."""
        life.member_id = request.member_id
        self.request(
            life,
            ("CONSUMER_GROUP_HEARTBEAT", 1),
            {
                "memberId": request.member_id,
                "memberEpoch": request.epoch,
                "instanceId": request.instance_id,
                "rebalanceTimeoutMs": round(request.rebalance * 1000),
                "subscribedTopicNames": list(request.topics or ()),
                "serverAssignor": request.assignor or None,
            },
            {
                "errorCode": int(answer.error),
                "memberId": request.member_id,
                "memberEpoch": answer.epoch,
                "heartbeatIntervalMs": 5000,
                "assignment": None,
            },
        )

    # --- __consumer_offsets ---------------------------------------------------------------------

    def completed(self) -> None:
        self._completed = self._agenda.now

    def stored(self, record: Stored) -> None:
        """Append the group's record; its state's time is that of the last change of state."""
        now = self._agenda.now
        again = self._last == record.generation
        since = self._stable if again else self._completed
        if not again:
            self._stable = now
        self._last = record.generation
        value = GroupMetadata(
            version=3,
            protocol_type="consumer",
            generation=record.generation,
            protocol=record.assignor,
            leader=record.leader,
            state_timestamp_ms=round((BEGAN + timedelta(seconds=since)).timestamp() * 1000),
            members=tuple(
                GroupMetadataMember(
                    member_id=request.member_id,
                    instance_id=request.instance_id,
                    client_id=request.client_id,
                    client_host="/10.1.0.1",
                    rebalance_timeout_ms=round(request.rebalance * 1000),
                    session_timeout_ms=round(request.session * 1000),
                    subscription=subscription_bytes(
                        life_of(client).process, request, record.assignor or ""
                    ),
                    assignment=assignment_bytes(partitions),
                )
                for request, client, partitions in record.members
            ),
        )
        self.records.append(OffsetsRecord(now, self.epoch, written_group(value)))

    def loaded(self, broker: int) -> None:
        """Note that `broker` leads the group's partition in a new leader epoch."""
        self.in_place = broker == self.broker
        self.broker = broker
        self.epoch += 1
        self.loaded_at = self._agenda.now


class Line:
    """A client as its coordinator knows it: answers pass through and are written down."""

    def __init__(
        self, client: SimulatedMember, life: Life, book: Book, now: Callable[[], float]
    ) -> None:
        self.client, self.life = client, life
        self._book, self._now = book, now
        self._asked: tuple[float, JoinRequest] | None = None

    @property
    def skips_assignment(self) -> bool:
        return self._classic.skips_assignment

    @property
    def instance_id(self) -> str | None:
        return self.life.process.instance_id

    @property
    def _classic(self) -> Consumer:
        assert isinstance(self.client, Consumer)
        return self.client

    def asks(self, request: JoinRequest) -> None:
        self._asked = self._now(), request
        self._book.say(self.life, "(Re-)joining group")

    def joined(self, answer: JoinAnswer) -> None:
        if self.client.alive and self._asked is not None:
            self._written(answer)
        self._classic.joined(answer)

    def _written(self, answer: JoinAnswer) -> None:
        assert self._asked is not None
        book, life, error = self._book, self.life, answer.error
        since, request = self._asked
        book.join(life, request, answer, since)
        given = life.java is not None and life.java >= (3, 0)
        if error is Error.NONE:
            life.member_id = answer.member_id
            book.say(
                life,
                "Successfully joined group with generation Generation{generationId="
                f"{answer.generation}, memberId='{answer.member_id}', protocol="
                f"'{answer.assignor}'}}",
            )
        elif error is Error.MEMBER_ID_REQUIRED and given:
            told = f": {answer.member_id}" if life.java and life.java >= (3, 3) else ""
            why = f"need to re-join with the given member-id{told}"
            book.say(life, f"Request joining group due to: {why}")
        elif error is Error.UNKNOWN_MEMBER_ID:
            self._reset("JOIN_GROUP")
        elif error in _FATAL:
            why = _FATAL[error].format(life.process.instance_id)
            book.say(life, f"JoinGroup failed due to fatal error: {why}")

    def synced(self, answer: SyncAnswer) -> None:
        self._classic.synced(answer)

    def wake(self) -> None:
        self.client.wake()

    def heard(self, error: Error, member_id: str, generation: int) -> None:
        """Print what a heartbeat's answer makes the client print."""
        if error is Error.REBALANCE_IN_PROGRESS:
            self._book.say(self.life, "Request joining group due to: group is already rebalancing")
        elif error in (Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION):
            self._book.say(
                self.life,
                f"Attempt to heartbeat with Generation{{generationId={generation}, memberId="
                f"'{member_id}', protocol='range'}} and group instance id Optional.empty failed "
                f"due to {error.name}, resetting generation",
            )
            self._reset("HEARTBEAT", error)

    def _reset(self, request: str, error: Error = Error.UNKNOWN_MEMBER_ID) -> None:
        told = f"encountered {error.name} from {request} response"
        self._book.say(
            self.life,
            f"Resetting generation and member id due to: {told}",
            f"Request joining group due to: {told}",
        )


def life_of(client: Client) -> Life:
    """Return the process behind a client as the coordinator knows it."""
    assert isinstance(client, Line)
    return client.life


class RecordedGroup(ClassicGroup):
    """A classic group whose records go into a book."""

    book: Book

    def _store(self) -> None:
        super()._store()
        self.book.stored(self.stored)


class Witness(SimulatedGroup):
    """The coordinator as the members call it; it writes down each request and its answer."""

    def __init__(
        self,
        agenda: Agenda,
        brokers: Brokers,
        watcher: Watcher,
        chance: Chance,
        *,
        server: Server,
        book: Book,
    ) -> None:
        self._book = book
        self._lines: dict[int, Line] = {}
        super().__init__(agenda, brokers, watcher, chance, server=server)

    def _classic(self, generation: int) -> RecordedGroup:
        made = RecordedGroup(self._agenda, self._brokers, self._watcher, self._chance, generation)
        made.book = self._book
        return made

    def line(self, client: Client) -> Line:
        found = self._lines.get(id(client))
        if found is None:
            assert isinstance(client, SimulatedMember)
            life = self._book.life(client.process)
            found = Line(client, life, self._book, lambda: self._agenda.now)
            self._lines[id(client)] = found
        return found

    def join(self, request: JoinRequest, client: ClassicClient) -> None:
        line = self.line(client)
        line.asks(request)
        super().join(request, line)

    def sync(
        self,
        member_id: str,
        generation: int,
        client: ClassicClient,
        assigned: Assigned | None = None,
    ) -> None:
        super().sync(member_id, generation, self.line(client), assigned)

    def heartbeat(self, member_id: str, generation: int, client: Client) -> Error:
        line = self.line(client)
        error = super().heartbeat(member_id, generation, line)
        line.heard(error, member_id, generation)
        return error

    def leave(self, member_id: str, client: Client, why: str = "a member left") -> None:
        life = next((one for one in self._book.lives if one.member_id == member_id), None)
        if life is not None:
            known = self.now.counts_member(member_id)
            self._book.leave(life, member_id, Error.NONE if known else Error.UNKNOWN_MEMBER_ID)
        super().leave(member_id, self.line(client), why)

    def heartbeats_stopped(self, member_id: str, last: float, client: Client) -> str:
        return super().heartbeats_stopped(member_id, last, self.line(client))

    def beat(self, request: Beat, client: Client) -> BeatAnswer:
        line, classic = self.line(client), not self.kip848
        answer = super().beat(request, line)
        if classic and self.kip848:
            # A conversion deletes the classic group's record.
            self._book.records.clear()
        if request.epoch <= 0:
            self._book.beat(line.life, request, answer)
        return answer


def subscription_bytes(process: Process, request: JoinRequest, assignor: str) -> bytes:
    """Return the metadata that a client of this family sends for an assignor."""
    sent = request.subscription
    generation = -1 if sent.generation is None else sent.generation
    family = process.family
    version = 3
    if family == "kafka-python" or (family == "java" and _release(process) < (3, 4)):
        version = 1
    data: bytes | None = b"" if family in ("librdkafka", "kafka-python") else None
    if family == "java" and assignor == "cooperative-sticky":
        data = generation.to_bytes(4, "big", signed=True)
    elif (family == "franz-go" and assignor == "cooperative-sticky") or (
        family == "java" and assignor == "sticky" and sent.owned
    ):
        data = encode_sticky(
            StickyUserData(previous=tuple(sent.owned), generation=sent.generation or -1)
        )
    return encode_subscription(
        Subscription(
            version=version,
            topics=sent.topics,
            user_data=data,
            owned_partitions=by_topic(() if request.eager else sent.owned),
            generation_id=generation if version >= 2 else None,
            rack_id="" if family == "librdkafka" else None,
        )
    )


def assignment_bytes(partitions: Owned) -> bytes:
    made = ConsumerAssignment(version=1, partitions=by_topic(partitions), user_data=None)
    return encode_assignment(made)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, Partitions]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return {topic: Partitions(numbers) for topic, numbers in found.items()}
