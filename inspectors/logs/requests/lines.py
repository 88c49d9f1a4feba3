"""Parser of lines of the broker's request log: `parse` makes one `Request` of a line.

A line is `Completed request:{…}` in any layout (KIP-673; brokers since 2.8). Evidence for live
groups and the fleet's tables are both made from `Request`.
"""

import re
from datetime import datetime
from enum import Enum
from functools import lru_cache
from itertools import chain, repeat
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from rebal.groups.errors import WireError
from rebal.groups.model import Subscription
from rebal.groups.wire.consumer_protocol import decode_subscription
from rebal.inspectors.errors import JOIN_REJECTIONS, error_code, error_name
from rebal.inspectors.logs.lines import Stamp, Zone, better, log_origin, stamp_of, unwrap

MARK: Final = b"Completed request:"
_LONGEST_NAME: Final = 100
_QUOTES: Final = 3
# Where quotes are not escaped, no text within the JSON can look like this.
_PLAIN_NAME: Final = b'"requestApiKeyName":"'
# Found anywhere in a line of another layout; the decoded header decides.
_WANTED: Final = re.compile(
    rb"(?:\b(?:JOIN|SYNC|LEAVE)_GROUP\b|\bCONSUMER_GROUP_HEARTBEAT\b)|apiKey=(?:JOIN|SYNC|LEAVE)_GROUP"
)
_NO_ERROR: Final = re.compile(rb'"errorCode\\*":\s*0\b')
# A member's heartbeat in the usual layout, with the connection at its end.
_SUCCESSFUL_HEARTBEAT: Final = re.compile(
    rb'"requestApiKeyName":"HEARTBEAT".*?"groupId":"([^"\\]+)","generationId":\d+,'
    rb'"memberId":"([^"\\]+)".*?"errorCode":0\b.*?"connection":"([^"\\]*)"'
)
JOIN, SYNC, LEAVE = "JOIN_GROUP", "SYNC_GROUP", "LEAVE_GROUP"
HEARTBEAT, CONSUMER_HEARTBEAT = "HEARTBEAT", "CONSUMER_GROUP_HEARTBEAT"
COMMIT = "OFFSET_COMMIT"
_APIS: Final = (JOIN, SYNC, LEAVE, CONSUMER_HEARTBEAT)
_PLAIN_APIS: Final = frozenset(api.encode() for api in _APIS)
FENCED: Final = error_code("FENCED_INSTANCE_ID")
_IS_FENCED: Final = re.compile(rb'"errorCode\\*":\s*%d\b' % FENCED)
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class Outcome(Enum):
    """The outcome of a JoinGroup request for the member that sent it.

    id given: MEMBER_ID_REQUIRED, the normal first answer to a dynamic member (KIP-394). rejected:
    one of `JOIN_REJECTIONS`, the client stops. failed: any other error, the client tries again.
    probe: the request is rebal's own read-only probe, not a member's.
    """

    ACCEPTED = "accepted"
    ID_GIVEN = "id given"
    REJECTED = "rejected"
    FAILED = "failed"
    PROBE = "probe"


class Protocol(msgspec.Struct, frozen=True):
    """One entry of a join's ordered assignor list, with the metadata that the member sent."""

    name: str = ""
    metadata: bytes = b""

    @property
    def subscription(self) -> Subscription | None:
        """The decoded metadata; None if the bytes are no consumer subscription."""
        try:
            return decode_subscription(self.metadata)
        except WireError:
            return None


class MemberEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One member listed in a leader's JoinGroup response or SyncGroup request, or in a leave."""

    member_id: str = ""
    group_instance_id: str | None = None
    metadata: bytes = b""
    assignment: bytes = b""
    reason: str | None = None
    error_code: _Int32 = 0


class _Sent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of `Request` and of a logged message's body: the fields with the same name in both."""

    instance_id: str | None = None
    protocol_type: str | None = None
    reason: str | None = None
    session_timeout_ms: _Int32 | None = None
    rebalance_timeout_ms: _Int32 | None = None
    leader: str | None = None
    skip_assignment: bool = False
    member_epoch: _Int32 | None = None
    server_assignor: str | None = None


class Request(_Sent, frozen=True, kw_only=True):
    """One completed request of a group's member.

    `at` is the time of completion (`local`: in the log's unknown zone, stored as if it were UTC);
    the request arrived `total_ms` earlier. `log` and `line` give its place: `line` increases within
    the log. `host` is the client's address without its port; `broker` is the address and port that
    the client was connected to. `new`: the request had no member id.

    `generation` is the response's for an accepted join, the request's for all others (a KIP-848
    heartbeat's member epoch: 0 joins, -1 and -2 leave); `member_epoch` is that heartbeat's answer.
    `protocols` is the member's ordered assignor list, `protocol` the elected assignor. `members`
    are the members in a leader's JoinGroup response, `assignments` the assignments in a leader's
    SyncGroup request, `assignment` the member's own one, `left` the members that a LeaveGroup
    removed.
    """

    api: str
    api_version: int
    error: int
    group_id: str
    member_id: str
    new: bool
    client_id: str
    at: datetime | None
    local: bool
    total_ms: float | None
    log: str
    line: int
    host: str
    broker: str
    connection: str
    software_name: str | None
    software_version: str | None
    generation: int | None
    protocol: str | None
    protocols: tuple[Protocol, ...]
    members: tuple[MemberEntry, ...]
    assignments: tuple[MemberEntry, ...]
    assignment: bytes
    left: tuple[MemberEntry, ...]
    subscribed_topics: tuple[str, ...] | None

    @property
    def origin(self) -> str:
        """One name for all parts of a rotated log that one broker wrote; they share one clock."""
        return log_origin(self.log, self.broker)

    @property
    def is_probe(self) -> bool:
        """True if every protocol of the join has empty metadata; no consumer sends such a join."""
        return self.api == JOIN and not any(each.metadata for each in self.protocols)

    @property
    def outcome(self) -> Outcome:
        """The outcome of a JoinGroup request; it has no meaning for other requests."""
        if self.is_probe:
            return Outcome.PROBE
        if not self.error:
            return Outcome.ACCEPTED
        if error_name(self.error) == "MEMBER_ID_REQUIRED":
            return Outcome.ID_GIVEN
        return Outcome.REJECTED if error_name(self.error) in JOIN_REJECTIONS else Outcome.FAILED


class Unread(NamedTuple):
    """The result for a line without a `Request`.

    `problem` says why the line cannot be read; empty if it is a request of another kind.
    """

    problem: str = ""


OTHER: Final = Unread()
_BROKEN: Final = Unread("the line is cut off, or is no valid JSON")


class _Header(msgspec.Struct, rename="camel"):
    request_api_key_name: str
    request_api_version: _Int32 = 0
    client_id: str | None = None


class _Software(msgspec.Struct, rename="camel"):
    software_name: str | None = None
    software_version: str | None = None


class _Body(_Sent, frozen=True, kw_only=True):
    """The fields of group requests and of their responses (Kafka's message schemas)."""

    error_code: _Int32 = 0
    group_id: str | None = None
    member_id: str | None = None
    group_instance_id: str | None = None
    generation_id: _Int32 | None = None
    protocol_name: str | None = None
    protocols: tuple[Protocol, ...] | None = None
    members: tuple[MemberEntry, ...] | None = None
    assignments: tuple[MemberEntry, ...] | None = None
    # Bytes in a sync's response, an object in a KIP-848 heartbeat's.
    assignment: bytes | dict[str, Any] | None = None
    subscribed_topic_names: tuple[str, ...] | None = None


class _Line(msgspec.Struct, rename="camel"):
    request_header: _Header
    request: _Body
    response: _Body | None = None
    connection: str = ""
    total_time_ms: float | None = None
    client_information: _Software | None = None


_DECODER: Final = msgspec.json.Decoder(_Line)


def is_cut_off(raw: bytes) -> bool:
    """Return whether a line of the request log ends before the name of its request."""
    at = raw.find(b"requestApiKeyName")
    quotes = raw.count(b'"', at, at + _LONGEST_NAME)
    return b"RequestHeader(" not in raw if at < 0 else quotes < _QUOTES


def may_concern_group(raw: bytes, heartbeats: bool = False) -> bool:
    """Return False if `parse` would certainly return no `Request` for a line, else True.

    It is a cheap check, because most lines are requests of other kinds. `heartbeats` is as in
    `parse`.
    """
    at = raw.find(_PLAIN_NAME)
    if at >= 0:
        at += len(_PLAIN_NAME)
        api = raw[at : raw.find(b'"', at)]
        wanted = api in _PLAIN_APIS
    else:
        at, api = 0, raw
        wanted = b"_GROUP" in raw and _WANTED.search(raw) is not None
    if wanted or not heartbeats:
        return wanted
    if b"OFFSET_COMMIT" in api:
        return is_fenced(raw)
    return b"HEARTBEAT" in api and not _NO_ERROR.search(raw, at)


def is_fenced(raw: bytes) -> bool:
    """Return whether the line may show a member that was fenced (FENCED_INSTANCE_ID)."""
    return b"82" in raw and _IS_FENCED.search(raw) is not None


def parse(
    raw: bytes, log: str, line: int, zone: Zone, heartbeats: bool = False
) -> Request | Unread:
    """Return the group request in a line of the request log, or the reason why there is none.

    The line contains `Completed request:`. `zone` is used for a time without a zone. Group requests
    are JoinGroup, SyncGroup, LeaveGroup and ConsumerGroupHeartbeat (KIP-848). If `heartbeats` is
    True, a Heartbeat that was answered with an error is one too, and an OffsetCommit that was
    answered with FENCED_INSTANCE_ID.
    """
    if not may_concern_group(raw, heartbeats):
        return OTHER
    # In a row of CSV each quote is two.
    raw = raw.replace(b'""', b'"') if b'{""' in raw else raw
    prefix, _, rest = raw.partition(MARK)
    at: Stamp | None = None
    if rest.startswith(b'{\\"') or b'"' in prefix:
        inner = next(unwrap(raw.decode("utf-8", "replace"), re.compile(MARK.decode()), zone), None)
        if inner is not None:
            at = inner.wrapper_time
            prefix, _, rest = inner.text.encode("utf-8", "replace").partition(MARK)
    if rest.startswith(b"RequestHeader("):
        return Unread("a broker before 2.8 wrote this line: it holds no JSON (KIP-673)")
    found = _decode(rest)
    if isinstance(found, Unread):
        return found
    api = found.request_header.request_api_key_name
    if api not in _APIS and not (heartbeats and api in (HEARTBEAT, COMMIT)):
        return OTHER
    if found.response is None or found.request.group_id is None:
        return _BROKEN
    return _record(
        found,
        found.response,
        better(stamp_of(prefix.decode("utf-8", "replace"), zone), at),
        log,
        line,
    )


def _record(found: _Line, answer: _Body, stamp: Stamp | None, log: str, line: int) -> Request:
    header, body = found.request_header, found.request
    api = header.request_api_key_name
    error = FENCED if api == COMMIT else answer.error_code
    software = found.client_information or _Software()
    broker, host = _ends(found.connection)
    generation = body.member_epoch if api == CONSUMER_HEARTBEAT else body.generation_id
    if api == JOIN:
        generation = None if error else answer.generation_id
    return Request(
        api=api,
        api_version=header.request_api_version,
        error=error,
        group_id=body.group_id or "",
        member_id=answer.member_id or body.member_id or "",
        new=not body.member_id,
        instance_id=body.group_instance_id or body.instance_id or None,
        client_id=header.client_id or "",
        at=stamp and stamp.at,
        local=stamp is not None and stamp.local,
        total_ms=found.total_time_ms,
        log=log,
        line=line,
        host=host,
        broker=broker,
        connection=found.connection,
        software_name=_known(software.software_name),
        software_version=_known(software.software_version),
        generation=generation,
        protocol_type=body.protocol_type or None,
        protocol=answer.protocol_name or body.protocol_name or None,
        protocols=body.protocols or (),
        reason=body.reason or None,
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        leader=answer.leader or None,
        skip_assignment=answer.skip_assignment,
        members=answer.members or () if api == JOIN else (),
        assignments=body.assignments or (),
        assignment=answer.assignment if isinstance(answer.assignment, bytes) else b"",
        left=_left(body, answer) if api == LEAVE else (),
        member_epoch=None if error else answer.member_epoch,
        subscribed_topics=body.subscribed_topic_names,
        server_assignor=body.server_assignor or None,
    )


def _left(body: _Body, answer: _Body) -> tuple[MemberEntry, ...]:
    """Return the members that a LeaveGroup removed: one up to v2, a list since v3 (KIP-345)."""
    if body.members is None:
        return (MemberEntry(member_id=body.member_id),) if body.member_id else ()
    return tuple(
        # An administrator may name a static member by its instance id alone.
        msgspec.structs.replace(member, member_id=member.member_id or answered.member_id)
        for member, answered in zip(
            body.members, chain(answer.members or (), repeat(MemberEntry())), strict=False
        )
        if not answered.error_code
    )


def _decode(rest: bytes) -> _Line | Unread:
    end = rest.rfind(b"}")
    while end > 0:
        try:
            return _DECODER.decode(rest[: end + 1])
        except (msgspec.DecodeError, RecursionError) as error:
            # A layout may put braces after the JSON; one that ends inside the JSON is cut off.
            if "trailing characters" not in str(error):
                return _BROKEN
        except UnicodeDecodeError:
            return _decode(rest.decode("utf-8", "replace").encode())
        end = rest.rfind(b"}", 0, end)
    return _BROKEN


@lru_cache(maxsize=1024)
def _ends(connection: str) -> tuple[str, str]:
    """Return the broker's address and port, and the client's address, in a logged connection id."""
    found = re.fullmatch(r"(.*:\d+)-(.+):\d+-\d+(?:-\d+)?", connection)
    return (found[1], found[2]) if found else ("", "")


def heartbeat_of(raw: bytes) -> tuple[str, str, str] | None:
    """Return the group, member id and broker of a classic member's successful heartbeat.

    None: the line is another request, or the heartbeat failed.
    """
    found = _SUCCESSFUL_HEARTBEAT.search(raw) if b'"requestApiKeyName":"HEARTBEAT"' in raw else None
    if found is None:
        return None
    group_id, member_id, connection = (part.decode("utf-8", "replace") for part in found.groups())
    return group_id, member_id, _ends(connection)[0]


def _known(name: str | None) -> str | None:
    """Return a client's software name or version; None if not given (KIP-511 logs `unknown`)."""
    return None if name in (None, "", "unknown") else name
