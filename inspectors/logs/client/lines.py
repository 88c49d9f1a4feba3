"""Lines of a Java client's log: the program that wrote each, and its meaning for a group."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, cast

from rebal.groups.model import Record
from rebal.inspectors.errors import JOIN_REJECTIONS
from rebal.inspectors.logs.lines import Stamp, Zone, better, stamp_of, unwrap

# `kubectl logs --prefix`, and docker compose's `service-1  | `.
_PREFIX: Final = re.compile(r"(\[pod/[^\]\s]+\]|[\w.-]+ +\|) ")
# `kubectl logs --timestamps`, and the container runtime's own files.
_STAMP: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.?\d*(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?"
)
_SETTING: Final = re.compile(r"\s+([a-z][\w.]*) = ?(.*)")
_CONTEXT: Final = r"\[(?:Consumer|Worker) (?:instanceId=(.*?), )?clientId=(.*?), groupId=(.*?)\] "
# Connect's own layout ends a line with the class that wrote it.
_CLASS: Final = r"(?: \([\w.$]+(?::\d+)?\))?$"
_CONFIG: Final = re.compile(r"\b(Consumer|Distributed|Streams)Config values: ?$")
_VERSION: Final = re.compile(r"\bKafka version ?: (\S+)" + _CLASS)
_WORKER: Final = re.compile(r"\[Worker ")
_PROTOCOL: Final = re.compile(
    r"\bstream-thread \[(.*?)\] (Eager|Cooperative) rebalancing (?:protocol is )?enabled now"
    r"(?: for upgrade from (\S+)\.x)?" + _CLASS
)
_JOINED: Final = re.compile(_CONTEXT + r"Successfully joined group with generation (.+)$")
_GENERATION: Final = re.compile(
    r"Generation\{generationId=(-?\d+), memberId='(.*)', protocol='(.*)'\}"
)
_LEADER: Final = re.compile(_CONTEXT + r"Finished assignment for group at generation (\d+): ")
_LEFT: Final = re.compile(
    _CONTEXT + r"Member (\S.*?) sending LeaveGroup request to coordinator .*?(?: due to (.*))?$"
)
# The texts of `JOIN_REJECTIONS`, in their order.
_REFUSED: Final = re.compile(
    _CONTEXT + r"(?:JoinGroup|Attempt to join group) failed(?: due to fatal error)?: "
    r"(?:(The group member's supported protocols are incompatible)|(The session timeout is not)"
    r"|(The (?:consumer )?group has reached its max(?:imum)? size)"
    r"|(The group instance id .* fenced))"
)
_GIVEN: Final = re.compile(
    _CONTEXT + r"Request joining group due to: need to re-join with the given member-id(?:: (\S+))?"
)
# With both, the line names the member id that is no longer valid.
_LOST: Final = re.compile(
    _CONTEXT + r"Attempt to heartbeat with Generation\{generationId=-?\d+, memberId='(.+?)', .*"
    r"resetting generation"
)
_RESET: Final = re.compile(
    _CONTEXT + r"Resetting generation (?:and member id )?(?:due to: |after )encounter"
)
# Only a client that is a member of the group prints one of these.
_MEMBER: Final = re.compile(
    _CONTEXT + r"(?:Attempt to heartbeat failed since group is rebalancing"
    r"|Request joining group due to: (?:group is already rebalancing|cached metadata has changed"
    r"|need to revoke partitions|encountered )"
    r"|Requesting to re-join the group and trigger rebalance"
    r"|(?:Revoke previously|Lost previously|Giving away all|Adding newly) assigned partitions"
    r"|Successfully synced group|Finished assignment for group|Notifying assignor about)"
)
_JOINING: Final = re.compile(_CONTEXT + r"\(Re-\)joining group" + _CLASS)
_CLUSTER: Final = re.compile(_CONTEXT + r"Cluster ID: (\S+)" + _CLASS)
_START: Final = re.compile(r"\bKafka startTimeMs: (\d{12,14})" + _CLASS)
_CLOSED: Final = re.compile(r"App info kafka\.(?:consumer|connect) for (.*) unregistered" + _CLASS)
WANTED: Final = re.compile(
    rb"(?:Consumer|Distributed|Streams)Config values|Kafka (?:version|startTimeMs)|groupId="
    rb"|App info"
    rb"|InconsistentGroupProtocolException|rebalancing (?:protocol is )?enabled now"
)


Of = Literal["Consumer", "Distributed", "Streams"]


class Setting(Record, frozen=True, kw_only=True):
    """One `key = value` line of a configuration block."""

    key: str
    value: str


class ConfigStart(Record, frozen=True, kw_only=True):
    """`ConsumerConfig values:`, or a Connect worker's or Streams program's; settings follow."""

    of: Of = "Consumer"


class Version(Record, frozen=True, kw_only=True):
    """`Kafka version:`, that of the process's client library."""

    version: str


class Join(Record, frozen=True, kw_only=True):
    """A join that succeeded; `member_id` is empty for clients before 2.4, which do not print it."""

    instance_id: str | None
    client_id: str
    group_id: str
    generation_id: int | None
    member_id: str
    assignor: str | None
    worker: bool = False


class Built(Record, frozen=True, kw_only=True):
    """The rebalance protocol that a Streams consumer was built for (printed since 2.4)."""

    client_id: str
    is_eager: bool
    upgrade_from: str | None


class Leader(Record, frozen=True, kw_only=True):
    """The leader's line about the assignment of a new generation.

    A returning static leader prints none.
    """

    client_id: str
    group_id: str
    generation_id: int


class Leave(Record, frozen=True, kw_only=True):
    """A member that left by request."""

    instance_id: str | None
    client_id: str
    group_id: str
    member_id: str
    reason: str | None
    worker: bool = False


class Given(Record, frozen=True, kw_only=True):
    """A member id that a client was given (empty: releases 3.0 to 3.2 do not print it)."""

    instance_id: str | None
    client_id: str
    group_id: str
    member_id: str
    worker: bool = False


StandingOf = Literal["member", "joining", "lost", "reset"]


class Standing(Record, frozen=True, kw_only=True):
    """A line that shows the state of a client, other than a join.

    `of` is member (only a member of the group prints it), joining (a join is sent), lost (the named
    member id is no longer valid) or reset (the client lost its id, which the line does not name).
    """

    of: StandingOf
    instance_id: str | None
    client_id: str
    group_id: str
    member_id: str = ""
    worker: bool = False


class ClusterId(Record, frozen=True, kw_only=True):
    """The cluster that the client is connected to."""

    group_id: str
    cluster_id: str


class Started(Record, frozen=True, kw_only=True):
    """The moment of the line in milliseconds since 1970, beside the log's own time."""

    at_ms: int


class Refusal(Record, frozen=True, kw_only=True):
    """A join that was rejected for good; `error` is Kafka's name."""

    instance_id: str | None
    client_id: str
    group_id: str
    worker: bool = False
    error: str = "INCONSISTENT_GROUP_PROTOCOL"


class Closed(Record, frozen=True, kw_only=True):
    """A consumer object that was closed; a later one with the same client id is another object."""

    client_id: str


class RefusalText(Record, frozen=True, kw_only=True):
    """The name of the rejection's exception, in a line that does not name the group."""


Event = (
    Setting
    | ConfigStart
    | Version
    | Join
    | Built
    | Leader
    | Leave
    | Given
    | Standing
    | ClusterId
    | Started
    | Refusal
    | Closed
    | RefusalText
)


class LogText(Record, frozen=True, kw_only=True):
    """One line as its program wrote it, with the program and the time."""

    program: str
    text: str
    stamp: Stamp | None


_STANDING: Final[tuple[tuple[StandingOf, re.Pattern[str]], ...]] = (
    ("lost", _LOST),
    ("reset", _RESET),
    ("joining", _JOINING),
    ("member", _MEMBER),
)


def texts(raw: bytes, zone: Zone) -> Iterator[LogText]:
    """Yield the line; for a JSON wrapper, each line of the message in it."""
    line = raw.decode("utf-8", "replace").rstrip("\r\n")
    program = ""
    prefix = _PREFIX.match(line)
    if prefix:
        program = prefix[1]
        line = line[prefix.end() :]
    at = stamp_of(line, zone)
    stamp = _STAMP.match(line)
    rest = line[stamp.end() :] if stamp else line
    if rest.startswith("{"):
        inner = unwrap(rest, zone)
        at = better(better(stamp_of(inner.text[:60], zone), inner.wrapper_time), at)
        for text in inner.text.splitlines():
            yield LogText(program=program, text=text, stamp=at)
        return
    yield LogText(program=program, text=rest, stamp=at)


def setting_of(text: str) -> Setting | None:
    """Return the line as a setting of a configuration block; None if it is not one."""
    match = _SETTING.fullmatch(text)
    return Setting(key=match[1], value=match[2].strip()) if match else None


def event_of(text: str) -> Event | None:
    """Return the line's meaning for the group; None if it has none. Settings need `setting_of`."""
    if match := _CONFIG.search(text):
        return ConfigStart(of=cast("Of", match[1]))
    if match := _PROTOCOL.search(text):
        return Built(client_id=match[1], is_eager=match[2] == "Eager", upgrade_from=match[3])
    if match := _VERSION.search(text):
        return Version(version=match[1])
    if match := _START.search(text):
        return Started(at_ms=int(match[1]))
    if match := _CLOSED.search(text):
        return Closed(client_id=match[1])
    if "groupId=" in text and (event := _group_event(text)):
        return event
    return RefusalText() if "InconsistentGroupProtocolException" in text else None


def _group_event(text: str) -> Event | None:
    worker = _WORKER.search(text) is not None
    if match := _JOINED.search(text):
        full = _GENERATION.search(match[4])
        plain = match[4].strip()
        number = full[1] if full else plain
        if not full and not plain.isdecimal():
            return None
        return Join(
            instance_id=match[1],
            client_id=match[2],
            group_id=match[3],
            generation_id=int(number) if len(number) < 12 else None,
            member_id=full[2] if full else "",
            assignor=full[3] if full else None,
            worker=worker,
        )
    if match := _LEADER.search(text):
        return Leader(client_id=match[2], group_id=match[3], generation_id=int(match[4][:11]))
    if match := _LEFT.search(text):
        return Leave(
            instance_id=match[1],
            client_id=match[2],
            group_id=match[3],
            member_id=match[4],
            reason=match[5],
            worker=worker,
        )
    if match := _REFUSED.search(text):
        error = next(
            e for e, matched in zip(JOIN_REJECTIONS, match.groups()[3:], strict=True) if matched
        )
        return Refusal(
            instance_id=match[1],
            client_id=match[2],
            group_id=match[3],
            worker=worker,
            error=error,
        )
    if match := _CLUSTER.search(text):
        return ClusterId(group_id=match[3], cluster_id=match[4])
    return _standing(text, worker)


def _standing(text: str, worker: bool) -> Event | None:
    """Return a line about a client between its start and its joins."""
    if match := _GIVEN.search(text):
        return Given(
            instance_id=match[1],
            client_id=match[2],
            group_id=match[3],
            member_id=match[4] or "",
            worker=worker,
        )
    for of, pattern in _STANDING:
        if match := pattern.search(text):
            return Standing(
                of=of,
                instance_id=match[1],
                client_id=match[2],
                group_id=match[3],
                member_id=match[4] if of == "lost" else "",
                worker=worker,
            )
    return None
