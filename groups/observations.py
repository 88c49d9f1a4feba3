"""What the readers saw of members, before it is bound to a group's members by evidence.merge()."""

from __future__ import annotations

from datetime import datetime

from rebal.groups.model import Evidence, RebalanceProtocol, Record, Software


class Joined(Record, frozen=True, kw_only=True):
    """One join that was seen: an exact, ordered assignor list bound to a member id.

    `replaced_member_id` is set when a static member's restart took another member id's place;
    `generation_id` and the timeouts (milliseconds) are None when the source does not say. `classes`
    are those of `list` in its order, as `AssignorList` has them; `built_at` is its `since`. With
    classes and no list, one of them is an assignor whose name the source does not show. `accepted`
    is False where the coordinator only gave the client its member id (MEMBER_ID_REQUIRED, 79): the
    client has that list, and the coordinator does not hold it yet.
    """

    group_id: str
    member_id: str
    list: tuple[str, ...]
    accepted: bool = True
    classes: tuple[str, ...] = ()
    built_at: datetime | None = None
    at: datetime | None = None
    client_id: str = ""
    instance_id: str | None = None
    host: str = ""
    software: Software | None = None
    reason: str | None = None
    generation_id: int | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    held_back_ms: int | None = None
    protocol_type: str = "consumer"
    replaced_member_id: str | None = None
    evidence: Evidence


class Refused(Record, frozen=True, kw_only=True):
    """A join that the coordinator refused with INCONSISTENT_GROUP_PROTOCOL (23), so many times.

    `at` is when it was last.
    """

    group_id: str
    list: tuple[str, ...] = ()
    at: datetime | None = None
    times: int = 1
    client_id: str = ""
    instance_id: str | None = None
    host: str = ""
    software: Software | None = None
    evidence: Evidence


class Left(Record, frozen=True, kw_only=True):
    """One member that left by request (a kill or a static stop leaves no trace)."""

    group_id: str
    member_id: str
    at: datetime | None = None
    instance_id: str | None = None
    reason: str | None = None
    evidence: Evidence


class Rebalanced(Record, frozen=True, kw_only=True):
    """One completed rebalance: the coordinator handed out `generation_id` at `at`."""

    group_id: str
    generation_id: int
    at: datetime
    assignor: str | None = None
    evidence: Evidence


class Introduced(Record, frozen=True, kw_only=True):
    """The client software of one KIP-848 member: its heartbeats show that, and no list."""

    group_id: str
    member_id: str
    software: Software
    evidence: Evidence


class Ran(Record, frozen=True, kw_only=True):
    """The rebalance protocol that one Streams member showed: printed, or seen when it rejoined.

    `upgrade_from` is the setting as it was printed (empty: not set; None: not seen).
    """

    group_id: str
    member_id: str
    value: RebalanceProtocol
    evidence: Evidence
    upgrade_from: str | None = None


class Declared(Record, frozen=True, kw_only=True):
    """What the next start of `replicas` processes will use (None: the file does not say how many).

    `list` is empty when the list is left unset (`list_set` is False then). `group_id`, `client_id`
    and `instance_id` are None when the file does not set them, or sets them from a placeholder.
    `group_protocol` is `group.protocol`, `family` a key of groups/data/clients.yaml; `classic_only`
    names settings, apart from the list, that KIP-848 clients refuse. Timeouts are in milliseconds;
    `upgrade_from` is Kafka Streams' setting.
    """

    where: str
    group_id: str | None = None
    client_id: str | None = None
    instance_id: str | None = None
    list: tuple[str, ...] = ()
    list_set: bool = False
    group_protocol: str | None = None
    classic_only: tuple[str, ...] = ()
    session_timeout_ms: int | None = None
    max_poll_interval_ms: int | None = None
    held_back_ms: int | None = None
    family: str | None = None
    replicas: int | None = None
    max_surge: str | None = None
    upgrade_from: str | None = None
    evidence: Evidence


Observation = Joined | Refused | Left | Rebalanced | Introduced | Ran | Declared
