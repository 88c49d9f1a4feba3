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

    `log` and `line` are where it stands (empty where the source is no log). `origin` names whose
    log it is (one broker's, or one client's), of which one file may hold several: its lines are of
    one clock, in the order of its time. With `local` its times are that clock's own, written as if
    they were UTC: the log prints no zone. `at` is None where that clock cannot be placed in time,
    and where the moment does not matter.
    """

    log: str = ""
    line: int = 0
    origin: str = ""
    local: bool = False
    group_id: str
    at: datetime | None = None
    evidence: Evidence


class Where(TypedDict):
    """The fields of `Seen` that say where a line stands."""

    log: str
    line: int
    origin: str
    local: bool


class LogRead(Record, frozen=True, kw_only=True):
    """One origin's part of a log: what is needed to convert its times and to find its group.

    `last_at` is its newest time (a local time if `local`); the file was last written at
    `written_at` and read at `read_at`. `anchors` are moments that it prints both in its own clock
    and as milliseconds since 1970. `cluster_ids` are the clusters that its clients were connected
    to; `broker` is the address and port of the broker that wrote it, `broker_id` its id (None: not
    printed). `members` are group ids and member ids in lines that show nothing else.
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
    """One join that a client sent: its assignor list, and what tells the client."""

    list: tuple[str, ...] = ()
    client_id: str = ""
    instance_id: str | None = None
    host: str = ""
    connection: str = ""
    software: Software | None = None


class Joined(Join, frozen=True, kw_only=True):
    """One join that was seen: an exact, ordered assignor list bound to a member id.

    `replaced_member_id` is set when a static member's restart took another member id's place;
    `generation_id` and the timeouts (milliseconds) are None when the source does not say. `classes`
    are those of `list` in its order, as `AssignorList` has them; `built_at` is its `since`. With
    classes and no list, one of them is an assignor whose name the source does not show; with
    neither, the source shows no list. `accepted`
    is False where the coordinator only gave the client its member id (MEMBER_ID_REQUIRED, 79): the
    client has that list, and the coordinator does not hold it yet. `new` is True where the member
    id was new then; else it may have been in the group before.
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
    """A join that the coordinator rejected for good. Fields are as in `Refusal`.

    `at` is when it was last.
    """

    times: int = 1
    error: str = "INCONSISTENT_GROUP_PROTOCOL"


class Left(Seen, frozen=True, kw_only=True):
    """One member that left by request, or whose session `expired` (in a broker's log).

    `client_id` and `host` are of the client that asked, where it asked for itself.
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
    """One load of the group by its coordinator, which then remembers the elected assignor alone."""


class Converted(Seen, frozen=True, kw_only=True):
    """One conversion between the classic and the consumer protocol, or why it failed."""

    what: str


class Introduced(Seen, frozen=True, kw_only=True):
    """The client software of one KIP-848 member, from its heartbeats, which show no
    assignor list.
    """

    member_id: str
    software: Software


class Ran(Seen, frozen=True, kw_only=True):
    """The rebalance protocol of one member: its rejoin shows it, or its log prints it (Streams).

    `upgrade_from` is the setting as it was printed (empty: not set; None: not seen).
    """

    member_id: str
    value: RebalanceProtocol
    upgrade_from: str | None = None


class Declared(DeclaredAssignors, frozen=True, kw_only=True):
    """Configuration that the next start of `replicas` processes uses (None: count not in the file).

    `list` is empty when the list is left unset; `spelled` is it as Kafka's own key has it.
    `group_id`, `client_id` and `instance_id` are None when the file does not set them, or sets them
    from a placeholder. `family` is a key of groups/data/clients.yaml. `brokers` are the bootstrap
    servers. `by_pod`: its instance id has a pod's name in it that no file shows. `profile` is the
    one that it is of: a name, or an expression of Spring. `sources` are those of its
    ConfigMaps.
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
    """Return the observations of one kind in lists, by the value of one of their fields."""
    found: dict[Any, list[_T]] = {}
    for one in seen:
        if isinstance(one, kind):
            found.setdefault(getattr(one, field), []).append(one)
    return found
