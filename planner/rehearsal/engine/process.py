"""A consumer's process as it is set up, and what its client family makes of that."""

from collections.abc import Mapping
from typing import Final

from rebal.groups.assignors import Owned
from rebal.groups.clients import family, protocols_of, version_tuple
from rebal.groups.model import RebalanceProtocol, Record, Tri

_COOPERATIVE: Final = RebalanceProtocol.COOPERATIVE
_EAGER: Final = RebalanceProtocol.EAGER
Protocols = Mapping[str, frozenset[RebalanceProtocol]]
NO_PROTOCOLS: Final[Protocols] = {}
_JAVA: Final = ("java", "streams")
CALLBACKS: Final = ("revoked", "assigned", "lost")


class Process(Record, frozen=True, kw_only=True):
    """One consumer: its settings, its client and its habits; times in seconds.

    `name` is what scripts and results call it. `assignors` is partition.assignment.strategy,
    `session`, `rebalance` and `heartbeat` are session.timeout.ms, max.poll.interval.ms and
    heartbeat.interval.ms. It polls every `poll` seconds. It joins again `slow` seconds after it
    has prepared for a rebalance that it was told of (with KIP-848: says so late that it has revoked
    partitions). Its listener takes `on_revoked`,
    `on_assigned` and `on_lost` seconds; `fails_in` names those of `CALLBACKS` that throw.
    `protocol` is group.protocol: classic, consumer or streams; with consumer, `remote_assignor` is
    group.remote.assignor (empty: the brokers' default), and the brokers decide `session` and
    `heartbeat`.
    `held_back` is scheduled.rebalance.max.delay.ms of a Connect worker (family `connect`).
    """

    name: str
    client_id: str = ""
    instance_id: str | None = None
    family: str = "java"
    version: str | None = None
    protocol: str = "classic"
    remote_assignor: str = ""
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    topics: tuple[str, ...] = ()
    rack: str | None = None
    session: float = 45.0
    rebalance: float = 300.0
    heartbeat: float = 3.0
    poll: float = 0.5
    slow: float = 0.0
    on_revoked: float = 0.0
    on_assigned: float = 0.0
    on_lost: float = 0.0
    fails_in: tuple[str, ...] = ()
    held_back: float = 300.0


class RunningProcess(Record, frozen=True, kw_only=True):
    """A process that is in the group when a simulation begins, and what it owns then."""

    process: Process
    member_id: str
    owned: Owned = ()
    generation: int | None = None


def refusal(process: Process) -> str:
    """Return why the client itself rejects these settings; empty if it starts."""
    if process.protocol != "classic":
        return ""
    client = family(process.family)
    kinds = {protocols_of(name, process.family) for name in process.assignors}
    cooperative = any(kind is not None and _COOPERATIVE in kind for kind in kinds)
    eager = any(kind == frozenset({_EAGER}) for kind in kinds)
    if cooperative and client.cooperative(process.version) is Tri.NO:
        return f"this version of {client.title} has no cooperative assignor"
    if client.mixed_list == "refused" and cooperative and eager:
        return f"{client.title}: eager and cooperative assignors exclude each other"
    return ""


def fixed_protocol(process: Process, own: Protocols = NO_PROTOCOLS) -> RebalanceProtocol | None:
    """Return the rebalance protocol that the client fixes when it is built; None: by the vote.

    `own` are the protocols that custom assignors support, by name.
    """
    if process.family == "connect" or family(process.family).follows_vote:
        return None
    supported = (_supported(process, name, own) for name in process.assignors)
    return _COOPERATIVE if all(_COOPERATIVE in each for each in supported) else _EAGER


def voted_protocol(
    process: Process, elected: str, own: Protocols = NO_PROTOCOLS
) -> RebalanceProtocol:
    """Return the protocol of a client that follows the vote."""
    return _COOPERATIVE if _COOPERATIVE in _supported(process, elected, own) else _EAGER


def _supported(process: Process, name: str, own: Protocols) -> frozenset[RebalanceProtocol]:
    return own.get(name) or protocols_of(name, process.family) or frozenset({_EAGER})


def retries_after(process: Process, rejected: int) -> float:
    """Return the seconds after which a client whose join was rejected tries again; 0.0: it ends.

    It was `rejected` so often in a row. librdkafka waits 2 s (captured), franz-go from 250 ms twice
    as long each time, 5 s at the most (kgo.RetryBackoffFn), sarama about 1 s.
    """
    if process.family == "franz-go":
        return min(0.25 * 2.0 ** min(rejected - 1, 10), 5.0)
    return {"librdkafka": 2.0, "sarama": 1.0}.get(process.family, 0.0)


def joins_for_topics(process: Process) -> bool:
    """Return whether it joins again for topics that do not fit what it was assigned by.

    As the leader where metadata lacks topics that it has assigned by, and as any member where it is
    assigned a topic that it does not subscribe to (ConsumerCoordinator.onJoinComplete): a static
    member that returns with another subscription is given the assignment of before.
    """
    return process.family in _JAVA


def rejoins_in_poll(process: Process) -> bool:
    """Return whether the client joins again only when the application polls."""
    return process.family not in ("connect", "franz-go", "kafkajs", "sarama", "segmentio")


def leaves_on_close(process: Process) -> bool:
    """Return whether a clean stop leaves the group: static members and Streams do not (KIP-345)."""
    return process.instance_id is None and family(process.family).leaves_on_close


def sends_generation(process: Process) -> bool:
    """Return whether its JoinGroup holds the generation of its last assignment.

    Versions 2 and later of the subscription do (KIP-792), and the user data of Kafka's two sticky
    assignors: so it changes with each generation.
    """
    version = version_tuple(process.version)
    newer = process.family in _JAVA and (version is None or version >= (3, 4))
    return newer or not {"sticky", "cooperative-sticky"}.isdisjoint(process.assignors)


def skips_assignment(process: Process) -> bool:
    """Return whether it understands skipAssignment (JoinGroup v9, KIP-814)."""
    version = version_tuple(process.version)
    return process.family in _JAVA and (version is None or version >= (3, 2))
