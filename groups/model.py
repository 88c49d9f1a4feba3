"""The model of a consumer group at one moment: start at `GroupSnapshot` and `Member`.

Every record is frozen and typed; times are aware UTC datetimes; durations are milliseconds;
partition lists are `Partitions` by topic name. What is not known is None (or `unknown`), never a
guess. A fact without evidence of its own rests on `GroupSnapshot.evidence`.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec

from rebal.groups.compact import NO_LAG, NO_REPLICAS, ByTopic, Lags, Partitions, Replicas

if TYPE_CHECKING:
    TopicPartitions = Mapping[str, Partitions]
else:
    # Any mapping will do in Python; a document's is read as a whole, not entry by entry.
    TopicPartitions = ByTopic
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its zone; a document with a naive one is rejected."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all records: immutable; documents omit default values, unknown fields are ignored."""


class GroupType(StrEnum):
    """KIP-848's group types; `unknown` where the broker did not say."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    STREAMS = "streams"
    SHARE = "share"
    UNKNOWN = "unknown"


class GroupState(StrEnum):
    """Group states, spelt as Kafka's tools print them."""

    STABLE = "Stable"
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"
    DEAD = "Dead"
    UNKNOWN = "Unknown"


class RebalanceProtocol(StrEnum):
    """KIP-429's rebalance protocols, `mixed` (a group whose members differ) and `cannot tell`."""

    EAGER = "EAGER"
    COOPERATIVE = "COOPERATIVE"
    MIXED = "mixed"
    CANNOT_TELL = "cannot tell"


class Tri(StrEnum):
    """Answer with three values, of a rule, a gate or a check: yes, no or cannot tell."""

    YES = "yes"
    NO = "no"
    CANNOT_TELL = "cannot tell"


class CoordinatorKind(StrEnum):
    """Coordinator implementation, which decides tied votes: Java since Kafka 4.0, Scala before."""

    JAVA = "java"
    SCALA = "scala"
    UNKNOWN = "unknown"


class Source(StrEnum):
    """Source of a piece of evidence."""

    DESCRIBE = "describe"
    SUBSCRIPTION = "subscription bytes"
    CLIENT_BYTES = "client bytes"
    PROBE = "probe"
    REQUEST_LOG = "request log"
    CLIENT_LOG = "client log"
    BROKER_LOG = "broker log"
    OFFSETS_TOPIC = "offsets topic"
    CONFIG_FILE = "config file"
    ASSUMED = "assumed by the user"


class Knowledge(StrEnum):
    """Degree to which a member's assignor list is known."""

    EXACT = "exact"
    DECLARED = "declared"
    BOUNDED = "bounded"
    UNKNOWN = "unknown"


class KubernetesWorkload(Record, frozen=True, kw_only=True):
    """The Kubernetes object whose pods run a client: a Deployment, StatefulSet, DaemonSet, Rollout.

    `namespace` is empty where its manifest names none.
    """

    kind: str
    name: str
    namespace: str = ""


class Evidence(Record, frozen=True, kw_only=True):
    """One reason to believe a fact: its source, its time and the detail that was seen.

    `at` is when it was seen, or when a configuration file was last written. `workload` is the
    Kubernetes object whose manifest declares the fact (None: it is not from a manifest, or an
    earlier version of rebal recorded it).
    """

    source: Source
    at: Moment | None = None
    detail: str = ""
    workload: KubernetesWorkload | None = None


class AssignorList(Record, frozen=True, kw_only=True):
    """A member's `partition.assignment.strategy` as far as it is known, as assignor names.

    `list` is in order of preference when `knowledge` is exact or declared, else empty. `at_least`
    are names proven to be in the list that the member runs with, `lacks` names proven not to be in
    it; both are empty when `knowledge` is exact. `classes` are the Java classes of `list`, in its
    order; empty unless they are known and one of them is custom. `since` is when the client was
    built with this list, where its own log shows it.
    """

    knowledge: Knowledge = Knowledge.UNKNOWN
    list: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    since: Moment | None = None
    at_least: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    def holds(self, assignor: str) -> Tri:
        """Return whether the running list contains `assignor`; `cannot tell` if not proven."""
        if self.knowledge is Knowledge.EXACT:
            return Tri.YES if assignor in self.list else Tri.NO
        if assignor in self.at_least:
            return Tri.YES
        return Tri.NO if assignor in self.lacks else Tri.CANNOT_TELL


class Timeouts(Record, frozen=True, kw_only=True):
    """A member's own timeouts in milliseconds; None: not known.

    `session_ms` is how long the coordinator keeps the member after its last heartbeat
    (`session.timeout.ms`), `rebalance_ms` how long a rebalance waits for it (JoinGroup's rebalance
    timeout; consumers send `max.poll.interval.ms`, KIP-62). `held_back_ms` is how long a Connect
    worker, when it leads, holds a lost worker's tasks back (`scheduled.rebalance.max.delay.ms`,
    KIP-415).
    """

    session_ms: int | None = None
    rebalance_ms: int | None = None
    held_back_ms: int | None = None
    evidence: tuple[Evidence, ...] = ()


class DeclaredAssignors(Record, frozen=True, kw_only=True):
    """Configuration of a member's NEXT start, read from a configuration file.

    `list` is empty when the file leaves the assignor list unset; `group_protocol` is
    `group.protocol`; `classic_only` names other settings of the file that KIP-848 clients reject.
    `max_surge` is the maxSurge of a Kubernetes Deployment (None: not known, or no Deployment). The
    timeouts are in milliseconds (None: the file leaves them unset); `Timeouts` explains them.
    `upgrade_from` is Kafka Streams' upgrade.from (None: unset). `created_at` is when the newest of
    the Kubernetes objects that declare the configuration was created (None: not known); the
    configuration cannot be older.
    """

    list: tuple[str, ...] = ()
    group_protocol: str | None = None
    classic_only: tuple[str, ...] = ()
    session_timeout_ms: int | None = None
    max_poll_interval_ms: int | None = None
    held_back_ms: int | None = None
    max_surge: str | None = None
    upgrade_from: str | None = None
    created_at: Moment | None = None
    evidence: Evidence


class RanProtocol(Record, frozen=True, kw_only=True):
    """Rebalance protocol that a member was observed to run, where its list does not show it.

    A Streams member prints it when it starts. Any member shows it when it rejoins: it has kept its
    partitions (COOPERATIVE) or revoked them (EAGER). It never changes while the member runs.
    `upgrade_from` is the value of upgrade.from in the same log (empty: printed as not set; None:
    not seen).
    """

    value: RebalanceProtocol
    upgrade_from: str | None = None
    evidence: tuple[Evidence, ...] = ()


class Software(Record, frozen=True, kw_only=True):
    """Client software: its KIP-511 name (`apache-kafka-java`), or as much as its bytes show.

    `version` is exact; `version_range` is text such as `>= 3.4` where only bounds are known.
    `family` is a key of groups/data/clients.yaml.
    """

    family: str | None = None
    name: str | None = None
    version: str | None = None
    version_range: str | None = None
    evidence: tuple[Evidence, ...] = ()


class Subscription(Record, frozen=True, kw_only=True):
    """A member's subscription as it sent it (ConsumerProtocolSubscription v0..v3).

    `owned_partitions` is None below v1 (the version has no such field; some clients leave it out of
    v1 too), empty when sent empty. `generation_id` is None below v2, `rack_id` None below v3 or
    when null. `user_data` is the raw bytes, None when null.
    """

    version: int
    topics: tuple[str, ...] = ()
    owned_partitions: TopicPartitions | None = None
    generation_id: int | None = None
    rack_id: str | None = None
    user_data: bytes | None = None

    @property
    def owned_count(self) -> int:
        """Number of owned partitions; above 0 only if the member kept them (KIP-429)."""
        return sum(map(len, (self.owned_partitions or {}).values()))


class Running(msgspec.Struct, frozen=True, omit_defaults=True):
    """Work of one Connect worker for one connector.

    `itself` is True if the worker runs the connector; `tasks` are the numbers of the tasks it runs.
    """

    connector: str
    itself: bool = False
    tasks: tuple[int, ...] = ()


class WorkerState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Connect worker: its REST address and its work (None: not known).

    `running` is in the order in which the worker holds its work. `leader` is True if it leads the
    group and assigns the work. `held_back_ms` is above 0 while a lost worker's tasks wait for its
    return (KIP-415).
    """

    url: str
    running: tuple[Running, ...] | None = None
    leader: bool = False
    held_back_ms: int = 0

    @property
    def connectors(self) -> int | None:
        """Number of connectors that the worker runs; None if its work is not known."""
        return None if self.running is None else sum(one.itself for one in self.running)

    @property
    def tasks(self) -> int | None:
        """Number of tasks that the worker runs; None if its work is not known."""
        return None if self.running is None else sum(len(one.tasks) for one in self.running)


class Member(Record, frozen=True, kw_only=True):
    """One member, identified by its member id. Evidence is bound to a member by this id only.

    `assignment` is what it owns now; `target_assignment` and `member_epoch` are KIP-848's.
    `assignment_user_data` is the raw user data of a classic assignment (None: null or not known).
    `protocol_type` is `classic` or `consumer` in a KIP-848 group (KIP-1099), None elsewhere.
    `timeouts` are those of its classic joins; with KIP-848 the broker decides them. `joined_at` is
    when the coordinator last accepted a join of this member id (error 0), by the log that shows it;
    None if no log shows one, or if the offset of that log's clock is unknown. `first_joined_at` is
    when the coordinator gave it this member id.
    """

    member_id: str
    client_id: str = ""
    host: str = ""
    instance_id: str | None = None
    rack: str | None = None
    software: Software | None = None
    assignors: AssignorList = AssignorList()
    declared: DeclaredAssignors | None = None
    timeouts: Timeouts | None = None
    ran: RanProtocol | None = None
    worker: WorkerState | None = None
    subscription: Subscription | None = None
    subscription_error: str | None = None
    subscribed_topics: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    assignment: TopicPartitions = {}
    assignment_user_data: bytes | None = None
    target_assignment: TopicPartitions | None = None
    member_epoch: int | None = None
    protocol_type: str | None = None
    joined_at: Moment | None = None
    first_joined_at: Moment | None = None
    join_reason: str | None = None
    evidence: tuple[Evidence, ...] = ()

    def __post_init__(self) -> None:
        """Replace an empty assignment by the default value, so that documents omit it."""
        if not self.assignment:
            msgspec.structs.force_setattr(self, "assignment", {})

    @property
    def kept_partitions(self) -> int:
        """Number of partitions it kept at its last join: only COOPERATIVE members keep any."""
        return 0 if self.subscription is None else self.subscription.owned_count


class Coordinator(Record, frozen=True, kw_only=True):
    """The group's coordinator.

    `rebalanced_since_load` says whether a rebalance has completed since the coordinator loaded the
    group. Right after a load, every member's list in its memory is [the elected assignor] alone.

    `leader_epoch` is the leader epoch of the group's partition of `__consumer_offsets`; each load
    raises it. It is None if the partition was not read (no probe, no permission), or if a load may
    leave the epoch unchanged: on a one-broker cluster before Kafka 4.0. `loaded_at` is the time of
    the first record appended in that epoch, by the broker's clock: the group was loaded no later
    than that. A join accepted later is in the coordinator's memory; an earlier one may or may not
    be. `loaded_at` is None if `leader_epoch` is None, in epoch 0 (the group was never loaded), and
    before the epoch's first record.
    """

    broker_id: int
    host: str = ""
    port: int = 0
    kind: CoordinatorKind = CoordinatorKind.UNKNOWN
    rebalanced_since_load: Tri = Tri.CANNOT_TELL
    rebalanced_why: str = ""
    loaded_at: Moment | None = None
    leader_epoch: int | None = None


class Group(Record, frozen=True, kw_only=True):
    """The group's own facts: id, state, type, assignor, generation or epochs, and coordinator.

    `assignor` is in use now: the elected assignor, or the server-side assignor of a KIP-848 group.
    `generation_at` is when all members of `generation` had joined, by the broker's clock; None
    where the group's stored record was not read.
    """

    group_id: str
    state: GroupState = GroupState.UNKNOWN
    type: GroupType = GroupType.UNKNOWN
    protocol_type: str | None = None
    assignor: str | None = None
    generation: int | None = None
    generation_at: Moment | None = None
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    coordinator: Coordinator | None = None

    @property
    def coordinator_id(self) -> int | None:
        """Broker id of the group's coordinator; None where it is not known."""
        return self.coordinator.broker_id if self.coordinator is not None else None


class Topic(Record, frozen=True, kw_only=True):
    """A topic with partitions 0 to n-1, and the broker ids of each partition's replicas.

    `replicas` is empty if it is not known. `topic_id` is the id as Kafka prints it (KIP-516, 22
    characters of base64); None: not known.
    """

    name: str
    partitions: int
    replicas: Replicas = NO_REPLICAS
    topic_id: str | None = None

    def __post_init__(self) -> None:
        """Convert `replicas` from any sequence to `Replicas`."""
        if self.replicas is not NO_REPLICAS:
            kept = self.replicas if isinstance(self.replicas, Replicas) else Replicas(self.replicas)
            msgspec.structs.force_setattr(self, "replicas", kept or NO_REPLICAS)


class Broker(Record, frozen=True, kw_only=True):
    """A broker and its rack (None: none set)."""

    broker_id: int
    rack: str | None = None


class Cluster(Record, frozen=True, kw_only=True):
    """Facts about the cluster; `settings` are group-related broker configurations."""

    cluster_id: str | None = None
    brokers: tuple[Broker, ...] = ()
    version: str | None = None
    features: Mapping[str, int] = {}
    settings: Mapping[str, str] = {}


class ProbeAnswer(Record, frozen=True, kw_only=True):
    """Answer of the read-only probe for one assignor.

    `supported` says whether every assignor list in the coordinator's memory contains `assignor`.
    `error` is Kafka's error name when there is no answer (`supported` is then `cannot tell`).
    """

    assignor: str
    supported: Tri
    at: Moment
    error: str | None = None


class Probe(Record, frozen=True, kw_only=True):
    """Answers of one run of the read-only probe.

    `refused` is the reason why nothing was sent or why all answers are void (None: they are valid).
    """

    answers: tuple[ProbeAnswer, ...] = ()
    refused: str | None = None


class Refusal(Record, frozen=True, kw_only=True):
    """Rejected joins of one client with one assignor list; the error is not retriable.

    `times` is the number of rejections, `at` the time of the last one. `error` is Kafka's name:
    INCONSISTENT_GROUP_PROTOCOL (23), INVALID_SESSION_TIMEOUT (26), GROUP_MAX_SIZE_REACHED (81) or
    FENCED_INSTANCE_ID (82). The client is identified by its instance id, else by its client id and
    its address (`host`). `connection` is the broker's name for the client's last connection; it
    distinguishes clients at the same address.

    `rejoined_as` is the member id with which the same client was accepted afterwards, at
    `rejoined_at`: the rejection is resolved. It is None if the evidence shows no such join;
    `rejoined_at` alone is None if the offset of the log's clock is unknown. `shown_at` is the time
    of the first snapshot of a roll-out that showed the rejection (None: none did).
    """

    at: Moment | None = None
    times: int = 1
    error: str = "INCONSISTENT_GROUP_PROTOCOL"
    client_id: str = ""
    instance_id: str | None = None
    host: str = ""
    connection: str = ""
    list: tuple[str, ...] = ()
    software: Software | None = None
    rejoined_as: str | None = None
    rejoined_at: Moment | None = None
    shown_at: Moment | None = None
    evidence: Evidence


class Departed(Record, frozen=True, kw_only=True):
    """A member that a log shows in the group and that is not in it now.

    Members that were replaced by a restart of the same client are left out, as far as logs show it.
    `list` is its assignor list (empty: not known). `classes` are as in `AssignorList`; if `list` is
    empty, no log shows the assignor name of at least one of them. `last_seen` is its last accepted
    join or its leave, whichever is later. `left` is True if it left by request (LEAVE_GROUP), at
    `left_at`; False if it left without a request (killed, session expired). Times are None if the
    offset of the log's clock is unknown.
    """

    member_id: str
    client_id: str = ""
    instance_id: str | None = None
    host: str = ""
    list: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    last_seen: Moment | None = None
    left: bool = False
    left_at: Moment | None = None
    reason: str | None = None
    evidence: Evidence


class Contradiction(Record, frozen=True, kw_only=True):
    """Contradiction in the evidence about a member, or about the group (`member_id` None).

    `what` describes it in a clause; `evidence` is the evidence concerned.
    """

    member_id: str | None = None
    what: str
    evidence: tuple[Evidence, ...] = ()


class Unmatched(Record, frozen=True, kw_only=True):
    """Evidence about this group that could not be bound to one of its members, and why not.

    `may_start` is True if it is a configuration file that may be the one with which some present
    member starts the next time.
    """

    what: str
    why: str
    evidence: Evidence
    may_start: bool = False


class GroupSnapshot(Record, frozen=True, kw_only=True):
    """One group at the moment `captured_at`, with everything that a plan or a simulation needs.

    `expected_members` is the member count the deployment should have (None: not known).
    `captured_at` is the brokers' time. The clock of the machine that read the group was
    `clock_ahead_ms` ahead of it (0: less than 2 s). If the clocks were not compared
    (`clock_compared`), `captured_at` is that machine's own time, and no log's time is compared with
    it. `undated_logs` is True if the times of some logs are not used, because their time zone is
    not known. `notes` name the facts that could not be read, one sentence each.
    """

    group: Group
    captured_at: Moment
    clock_ahead_ms: int = 0
    clock_compared: bool = True
    captured_by: str = ""
    redacted: bool = False
    cluster: Cluster = Cluster()
    evidence: tuple[Evidence, ...] = ()
    members: tuple[Member, ...] = ()
    topics: tuple[Topic, ...] = ()
    lag: Lags = NO_LAG
    probe: Probe | None = None
    refusals: tuple[Refusal, ...] = ()
    departed: tuple[Departed, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    unmatched: tuple[Unmatched, ...] = ()
    expected_members: int | None = None
    undated_logs: bool = False
    notes: tuple[str, ...] = ()

    @property
    def has_assignor_lists(self) -> bool:
        """True if members of this group's type have assignor lists: classic, or unknown type."""
        return self.group.type in (GroupType.CLASSIC, GroupType.UNKNOWN)

    @property
    def source(self) -> Source:
        """Source of the group's own facts: a describe request, or the offsets topic's records."""
        return next((item.source for item in self.evidence), Source.DESCRIBE)

    def described(self, detail: str) -> tuple[Evidence]:
        """Return evidence that says `detail`, with the source and time of the group's own facts."""
        return (Evidence(source=self.source, at=self.captured_at, detail=detail),)

    @property
    def probe_answers(self) -> tuple[ProbeAnswer, ...]:
        """Answers of the probe; empty if it was not run or is void."""
        return self.probe.answers if self.probe is not None and self.probe.refused is None else ()

    def __post_init__(self) -> None:
        """Convert `lag` from any sequence of `Lag` to `Lags`."""
        if self.lag is not NO_LAG:
            kept = self.lag if isinstance(self.lag, Lags) else Lags(self.lag)
            msgspec.structs.force_setattr(self, "lag", kept or NO_LAG)
