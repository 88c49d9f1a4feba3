"""Observations of members, before `evidence.merge` binds them to a group's members."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, TypedDict, TypeVar

from rebal.groups.model import (
    DeclaredAssignors,
    Evidence,
    RebalanceProtocol,
    Record,
    Software,
)


class Seen(Record, frozen=True, kw_only=True):
    """Observation of a group at one moment, mostly from one line of a log.

    `log` and `line` are the log's name and the line number (empty and 0: the source is no log).
    `origin` is the broker or client whose log it is; one file may hold the logs of several. All
    lines of one origin are dated by one clock and are in the order of its time. With `local`, the
    times are that clock's local time, written as if they were UTC, because the log prints no zone.
    `at` is None where the offset of that clock is unknown, and where the moment does not matter.
    """

    log: str = ""
    line: int = 0
    origin: str = ""
    local: bool = False
    group_id: str
    at: datetime | None = None
    evidence: Evidence


class Where(TypedDict):
    """Position of a log line, as keyword arguments for the fields of `Seen` with these names."""

    log: str
    line: int
    origin: str
    local: bool


class LogRead(Record, frozen=True, kw_only=True):
    """One origin's part of a log: facts to convert its times to UTC and to recognise its group.

    `last_at` is its newest time (a local time if `local`); the file was last written at
    `written_at` and read at `read_at`. `anchors` are moments that it prints twice, as pairs: in its
    own clock, and in UTC (from milliseconds since 1970). `cluster_ids` are the clusters that its
    clients were connected to; `broker` is the address and port of the broker that wrote it,
    `broker_id` its id (None: not printed, or the log ends with its shutdown). `members` are pairs
    of group id and member id from lines that show nothing else.
    """

    group_id: None = None
    log: str = ""
    origin: str
    kind: Literal["request", "client", "broker"] = "request"
    local: bool = False
    last_at: datetime | None = None
    written_at: datetime | None = None
    read_at: datetime | None = None
    anchors: tuple[tuple[datetime, datetime], ...] = ()
    cluster_ids: tuple[str, ...] = ()
    broker: str = ""
    broker_id: int | None = None
    members: frozenset[tuple[str, str]] = frozenset()


class Join(Seen, frozen=True, kw_only=True):
    """One join that a client sent: its assignor list, and the ids that identify the client."""

    list: tuple[str, ...] = ()
    client_id: str = ""
    instance_id: str | None = None
    host: str = ""
    connection: str = ""
    software: Software | None = None


class Joined(Join, frozen=True, kw_only=True):
    """One observed join: an exact, ordered assignor list with the member id of its sender.

    `replaced_member_id` is the member id that a restarted static member had before (None: none was
    replaced); `generation_id` and the timeouts (milliseconds) are None when the source does not
    show them. `classes` and `built_at` are `classes` and `since` of `AssignorList`. With classes
    and no list, the source does not show the name of at least one assignor; with neither, it shows
    no list at all. `accepted` is False where the coordinator only gave the client its member id
    (MEMBER_ID_REQUIRED, 79): the client has that list, and the coordinator does not hold it yet.
    `new` is True where the member id was new then; else it may have been in the group before.
    """

    member_id: str
    accepted: bool = True
    new: bool = False
    classes: tuple[str, ...] = ()
    built_at: datetime | None = None
    reason: str | None = None
    generation_id: int | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    held_back_ms: int | None = None
    protocol_type: str = "consumer"
    replaced_member_id: str | None = None


class Refused(Join, frozen=True, kw_only=True):
    """A join that the coordinator rejected with an error that is not retriable.

    The fields are as in `Refusal`; `at` is the time of the last of `times` rejections.
    """

    times: int = 1
    error: str = "INCONSISTENT_GROUP_PROTOCOL"


class Left(Seen, frozen=True, kw_only=True):
    """One member that left by request, or whose session `expired` (in a broker's log).

    `client_id` and `host` are the member's own; empty where an administrator removed it, or where
    the log does not show them.
    """

    member_id: str
    client_id: str = ""
    instance_id: str | None = None
    host: str = ""
    reason: str | None = None
    expired: bool = False


class Rebalanced(Seen, frozen=True, kw_only=True):
    """One completed rebalance: the coordinator started `generation_id` at `at`."""

    generation_id: int
    assignor: str | None = None


class Loaded(Seen, frozen=True, kw_only=True):
    """One load of the group from `__consumer_offsets` by its coordinator.

    After it, the coordinator knows only the elected assignor of each member's list.
    """


class Converted(Seen, frozen=True, kw_only=True):
    """One conversion of the group between the classic and consumer protocols, or a failed attempt.

    `what` describes it.
    """

    what: str


class Introduced(Seen, frozen=True, kw_only=True):
    """Client software of one KIP-848 member, from its heartbeats, which show no assignor list."""

    member_id: str
    software: Software


class Ran(Seen, frozen=True, kw_only=True):
    """Rebalance protocol that one member was observed to run.

    Its rejoin shows it, or the log of a Kafka Streams member prints it.

    `upgrade_from` is the value of upgrade.from as printed (empty: not set; None: not seen).
    """

    member_id: str
    value: RebalanceProtocol
    upgrade_from: str | None = None


class Declared(DeclaredAssignors, frozen=True, kw_only=True):
    """Configuration of a consumer's next start, as one place in a configuration file declares it.

    `where` names that place. `replicas` is the number of processes that start with it (None: not in
    the file). `list` is empty when the assignor list is left unset; `spelled` is the list as
    written under Kafka's own key (`partition.assignment.strategy`). `group_id`, `client_id` and
    `instance_id` are None when the file does not set them, or sets them from a placeholder.
    `family` is a key of groups/data/clients.yaml. `brokers` are the bootstrap servers. `by_pod` is
    True if the instance id contains the name of its pod, which the file does not show. `profile` is
    the Spring profile for which it applies, as a name or an expression (None: every profile).
    `sources` are the files of the ConfigMaps that it uses.
    """

    where: str
    group_id: str | None = None
    client_id: str | None = None
    instance_id: str | None = None
    spelled: tuple[str, ...] = ()
    heartbeat_ms: int | None = None
    family: str | None = None
    replicas: int | None = None
    brokers: str | None = None
    by_pod: bool = False
    profile: str | None = None
    sources: tuple[str, ...] = ()


Observation = (
    Joined
    | Refused
    | Left
    | Rebalanced
    | Loaded
    | Converted
    | Introduced
    | Ran
    | LogRead
    | Declared
)
_T = TypeVar("_T")


def by_field(seen: Iterable[Observation], kind: type[_T], field: str) -> dict[Any, list[_T]]:
    """Return the observations of class `kind`, grouped by the value of their field `field`."""
    found: dict[Any, list[_T]] = {}
    for one in seen:
        if isinstance(one, kind):
            found.setdefault(getattr(one, field), []).append(one)
    return found
