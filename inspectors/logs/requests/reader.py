"""The broker's request log: who joined with which assignors, who was refused, who left.

Reads the JSON lines of `kafka.request.logger` at DEBUG (KIP-673; brokers >= 2.8) in any layout:
`Completed request:{…}` with whatever stands before and after it, or that line inside a JSON
wrapper. A join answered with error 0 or 79 (MEMBER_ID_REQUIRED, KIP-394: the normal first answer)
binds an exact, ordered assignor list to a member id; errors 23, 26, 81 and 82 are rejections.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypedDict

from rebal.groups.clients import family_of
from rebal.groups.errors import WireError
from rebal.groups.evidence.observations import (
    Introduced,
    Joined,
    Left,
    LogRead,
    Observation,
    Ran,
    Rebalanced,
    Refused,
)
from rebal.groups.model import Evidence, RebalanceProtocol, Record, Software, Source
from rebal.groups.wire.consumer_protocol import decode_assignment, decode_subscription
from rebal.inspectors.logs.lines import Stamp, Zone, stamp_of
from rebal.inspectors.logs.requests.lines import (
    BROKEN,
    MARK,
    NOT_JSON,
    OTHER,
    Request,
    objects,
    origin,
    parse,
    present,
    text_in,
)
from rebal.inspectors.logs.text_input import TextInput, TextSource

# The errors of JOIN_GROUP after which clients give up; 23 is the only one of a list.
REJECTIONS: Final[Mapping[int, str]] = {
    23: "INCONSISTENT_GROUP_PROTOCOL",
    26: "INVALID_SESSION_TIMEOUT",
    81: "GROUP_MAX_SIZE_REACHED",
    82: "FENCED_INSTANCE_ID",
}


class Where(TypedDict):
    """The fields of `Seen`."""

    log: str
    line: int
    origin: str
    local: bool


def seen(request: Request) -> Where:
    """Where the request stands."""
    return Where(log=request.log, line=request.line, origin=request.origin, local=request.local)


class History:
    """What earlier requests said that later ones need, per group."""

    def __init__(self) -> None:
        self.instances: dict[tuple[str, str], str] = {}
        self.generations: dict[str, int] = {}
        # (group, member id) -> the generation in which it was last given partitions
        self.given: dict[tuple[str, str], int] = {}
        self.introduced: set[tuple[str, str]] = set()


def joined(request: Request, history: History) -> Sequence[Observation]:
    """The join of one member, and the rebalance it completed if it shows one.

    A leader is handed the members of a new generation; followers' answers, and those to a
    restarted static member (same generation, KIP-345; `skipAssignment`, KIP-814), prove no
    rebalance.
    """
    body, answer = request.request, request.response
    member_id = text_in(answer, "memberId") or text_in(body, "memberId")
    if not member_id:
        return ()
    instance_id = text_in(body, "groupInstanceId") or None
    replaced = None
    if instance_id is not None:
        key = (request.group_id, instance_id)
        before = history.instances.get(key)
        if before is not None and before != member_id:
            replaced = before
        history.instances[key] = member_id
    generation = answer.get("generationId")
    handed_out = generation if request.error == 0 and isinstance(generation, int) else None
    join = Joined(
        **seen(request),
        group_id=request.group_id,
        member_id=member_id,
        list=_assignors(request),
        accepted=request.error == 0,
        new=not text_in(body, "memberId"),
        at=request.at,
        client_id=request.client_id,
        instance_id=instance_id,
        host=request.host,
        connection=request.connection,
        software=_software(request),
        reason=text_in(body, "reason") or None,
        generation_id=handed_out,
        session_timeout_ms=_timeout(body, "sessionTimeoutMs"),
        # JoinGroup v0 has none: the coordinator takes the session timeout for both.
        rebalance_timeout_ms=_timeout(body, "rebalanceTimeoutMs")
        or _timeout(body, "sessionTimeoutMs"),
        protocol_type=text_in(body, "protocolType") or "consumer",
        replaced_member_id=replaced,
        evidence=_evidence(request),
    )
    if handed_out is None or not answer.get("members") or answer.get("skipAssignment") is True:
        return (join,)
    return (join, *_rebalanced(request, handed_out, text_in(answer, "protocolName"), history))


def synced(request: Request, history: History) -> Sequence[Observation]:
    """The rebalance that the leader's SYNC_GROUP completed; a follower's shows none."""
    generation = request.request.get("generationId")
    if request.error or not isinstance(generation, int) or not request.request.get("assignments"):
        return ()
    assignor = text_in(request.response, "protocolName") or text_in(request.request, "protocolName")
    return _rebalanced(request, generation, assignor, history)


def introduced(request: Request, history: History) -> Sequence[Observation]:
    """The software of a KIP-848 member, at the first of its heartbeats; a heartbeat has no list."""
    member_id = text_in(request.response, "memberId") or text_in(request.request, "memberId")
    software = _software(request)
    key = (request.group_id, member_id)
    if request.error or not member_id or software is None or key in history.introduced:
        return ()
    history.introduced.add(key)
    return (
        Introduced(
            **seen(request),
            group_id=request.group_id,
            member_id=member_id,
            software=software,
            evidence=_evidence(request),
        ),
    )


def refused(request: Request) -> Observation:
    """A join that was answered with one of `REJECTIONS`."""
    return Refused(
        **seen(request),
        error=REJECTIONS[request.error],
        group_id=request.group_id,
        list=_assignors(request),
        at=request.at,
        client_id=request.client_id,
        instance_id=text_in(request.request, "groupInstanceId") or None,
        host=request.host,
        connection=request.connection,
        software=_software(request),
        evidence=_evidence(request),
    )


def left(request: Request, history: History) -> Sequence[Observation]:
    """The members that left: one in LEAVE_GROUP <= v2, a list of them since v3 (KIP-345).

    An administrator may remove a static member by its instance id alone; its member id is then
    the last one that was seen for it, or the answer's, else empty.
    """
    if request.error:
        return ()
    if "members" not in request.request:
        member_id = text_in(request.request, "memberId")
        leaver = Left(
            **seen(request),
            group_id=request.group_id,
            member_id=member_id,
            at=request.at,
            evidence=_evidence(request),
        )
        return (leaver,) if member_id else ()
    answers = objects(request.response.get("members"))
    found = []
    for index, member in enumerate(objects(request.request["members"])):
        answer = answers[index] if index < len(answers) else {}
        if answer.get("errorCode"):
            continue
        instance_id = text_in(member, "groupInstanceId") or None
        key = (request.group_id, instance_id or "")
        member_id = text_in(member, "memberId") or text_in(answer, "memberId")
        member_id = member_id or history.instances.get(key, "")
        history.instances.pop(key, None)
        if member_id or instance_id:
            found.append(
                Left(
                    **seen(request),
                    group_id=request.group_id,
                    member_id=member_id,
                    at=request.at,
                    instance_id=instance_id,
                    reason=text_in(member, "reason") or None,
                    evidence=_evidence(request),
                )
            )
    return tuple(found)


def _rebalanced(
    request: Request, generation: int, assignor: str, history: History
) -> Sequence[Observation]:
    if request.at is None or history.generations.get(request.group_id) == generation:
        return ()
    history.generations[request.group_id] = generation
    return (
        Rebalanced(
            **seen(request),
            group_id=request.group_id,
            generation_id=generation,
            at=request.at,
            assignor=assignor or None,
            evidence=_evidence(request),
        ),
    )


def _timeout(body: Mapping[str, Any], key: str) -> int | None:
    value = body.get(key)
    return value if isinstance(value, int) and 0 < value < 2**31 else None


def _assignors(request: Request) -> tuple[str, ...]:
    return tuple(
        name for p in objects(request.request.get("protocols")) if (name := text_in(p, "name"))
    )


def _software(request: Request) -> Software | None:
    if request.software_name is None:
        return None
    return Software(
        family=family_of(request.software_name, request.software_version),
        name=request.software_name,
        version=request.software_version,
        evidence=(_evidence(request),),
    )


def _evidence(request: Request) -> Evidence:
    return Evidence(
        source=Source.REQUEST_LOG,
        at=request.at,
        detail=f"{request.where} {request.api} v{request.version}",
    )


_STREAM = "stream"


def remember_given(request: Request, history: History) -> None:
    """Keep whether a SYNC_GROUP gave its member partitions, for its next join."""
    generation = request.request.get("generationId")
    member_id = text_in(request.request, "memberId")
    if request.error or not member_id or not isinstance(generation, int):
        return
    history.given.pop((request.group_id, member_id), None)
    try:
        given = decode_assignment(_bytes(text_in(request.response, "assignment"))).partitions
    except WireError:
        return
    if any(len(numbers) for numbers in given.values()):
        history.given[request.group_id, member_id] = generation


def kept(request: Request, history: History) -> tuple[Ran, ...]:
    """What a member's join shows of the rebalance protocol it runs; nothing where it does not."""
    protocols = objects(request.request.get("protocols"))
    member_id = text_in(request.request, "memberId")
    if [text_in(p, "name") for p in protocols] != [_STREAM] or not member_id:
        return ()
    try:
        sent = decode_subscription(_bytes(text_in(protocols[0], "metadata")))
    except WireError:
        return ()
    count = sum(map(len, (sent.owned_partitions or {}).values()))
    given = history.given.get((request.group_id, member_id))
    if count:
        value, what = RebalanceProtocol.COOPERATIVE, f"kept {count} partitions"
    elif given is not None and given == sent.generation_id:
        value, what = RebalanceProtocol.EAGER, "gave up all its partitions"
    else:
        return ()
    detail = f"{request.where} {request.api} v{request.version}: {what}"
    said = Evidence(source=Source.REQUEST_LOG, at=request.at, detail=detail)
    ran = Ran(
        **seen(request),
        group_id=request.group_id,
        member_id=member_id,
        value=value,
        evidence=said,
    )
    return (ran,)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


_NO_ERROR: Final = 0
_MEMBER_ID_REQUIRED: Final = 79


class RequestLogCounts(Record, frozen=True, kw_only=True):
    """What was in the log. `requests` are lines of the request logger; the others are parts of it.

    `joins` succeeded or got their member id, `refusals` are rejections, `retries` other errors,
    `probes` joins with empty metadata (rebal's own question, no member); `not_json` lines are the
    format of brokers before 2.8; `broken` lines were cut off or are no valid JSON; `other` are
    requests of other kinds or groups. `first_at` and `last_at` bound the time that the log covers.
    """

    lines: int = 0
    requests: int = 0
    joins: int = 0
    refusals: int = 0
    retries: int = 0
    probes: int = 0
    syncs: int = 0
    leaves: int = 0
    consumer_heartbeats: int = 0
    other: int = 0
    not_json: int = 0
    broken: int = 0
    cut_off_sources: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None


class RequestLogReading(Record, frozen=True, kw_only=True):
    """What a request log shows of members, in the order of time, and how much was read.

    `logs` are observations too: of the brokers that wrote it.
    """

    observations: tuple[Observation, ...] = ()
    logs: tuple[LogRead, ...] = ()
    counts: RequestLogCounts = RequestLogCounts()


def read_request_log(
    sources: Sequence[TextSource],
    groups: Container[str] | None = None,
    tz_offset: Zone = None,
) -> RequestLogReading:
    """The joins, rejections, leaves and completed rebalances in one or several request logs.

    Times are those of the lines: when the request was COMPLETED (a join waits for the rebalance).
    A line without a zone is taken as of `tz_offset`; where that is not known its time is the log's
    own, written as UTC, and the observation is `local`. Sources may be given in any order; what
    they say is put in the order of time.

    Raises:
        DocumentError: a source cannot be read. Lines that make no sense are counted, never raised.
    """
    tally: dict[str, int] = {}
    logs = [_Log(TextInput(source)) for source in sources]
    requests: list[Request] = []
    for log in logs:
        requests += log.read(groups, tz_offset, tally)
    if len(sources) > 1 and all(r.at is not None for r in requests):
        requests.sort(key=_completed)
    history = History()
    found: list[Observation] = []
    for request in requests:
        found += _observe(request, history, tally)
    times = [stamp.at for log in logs for stamp in log.stamps]
    times += [r.at for r in requests if r.at is not None]
    return RequestLogReading(
        observations=tuple(found),
        logs=tuple(one for log in logs for one in log.origins()),
        counts=RequestLogCounts(
            first_at=min(times, default=None), last_at=max(times, default=None), **tally
        ),
    )


def _completed(request: Request) -> datetime:
    assert request.at is not None
    return request.at


class _Log:
    """One source: `read` gives its requests, then `origins` the brokers that wrote it."""

    def __init__(self, source: TextInput) -> None:
        self._source = source
        self._brokers: dict[str, bool] = {}
        self._present: dict[str, set[tuple[str, str]]] = {}
        # Those of its first and of its last line.
        self.stamps: list[Stamp] = []

    def read(
        self, groups: Container[str] | None, tz_offset: Zone, tally: dict[str, int]
    ) -> list[Request]:
        """The requests of these groups (None: of all); all lines are counted."""
        source = self._source
        requests: list[Request] = []
        lines = marked = 0
        first = last = b""
        for raw in source.lines():
            lines += 1
            if MARK not in raw:
                continue
            marked += 1
            last = raw
            first = first or raw
            heartbeat = present(raw)
            if heartbeat is not None:
                group_id, member_id, broker = heartbeat
                if groups is None or group_id in groups:
                    self._present.setdefault(broker, set()).add((group_id, member_id))
            parsed = parse(raw, f"{source.name}:{lines}", tz_offset)
            if isinstance(parsed, Request):
                if groups is None or parsed.group_id in groups:
                    requests.append(parsed)
                    self._brokers[parsed.broker] = parsed.local
                else:
                    _count(tally, "other")
            else:
                _count(tally, _TALLY[parsed])
        _count(tally, "lines", lines)
        _count(tally, "requests", marked)
        _count(tally, "cut_off_sources", int(source.cut_off))
        ends = (stamp_of(raw[:400].decode("utf-8", "replace"), tz_offset) for raw in (first, last))
        self.stamps = [stamp for stamp in ends if stamp is not None]
        return requests

    def origins(self) -> Iterator[LogRead]:
        """The brokers whose requests it holds."""
        name = self._source.name
        for broker in dict.fromkeys([*self._brokers, *self._present]):
            local = self._brokers.get(broker, any(stamp.local for stamp in self.stamps))
            yield LogRead(
                log=name,
                origin=origin(name, broker),
                local=local,
                last_at=max((stamp.at for stamp in self.stamps), default=None),
                written_at=self._source.written_at,
                read_at=datetime.now(UTC),
                broker=broker,
                members=frozenset(self._present.get(broker, ())),
            )


_TALLY: Final[Mapping[str, str]] = {BROKEN: "broken", NOT_JSON: "not_json", OTHER: "other"}


def _observe(request: Request, history: History, tally: dict[str, int]) -> Sequence[Observation]:
    if request.api == "JOIN_GROUP":
        if request.error in REJECTIONS:
            if request.is_probe:
                _count(tally, "probes")
                return ()
            _count(tally, "refusals")
            return (refused(request),)
        if request.error in (_NO_ERROR, _MEMBER_ID_REQUIRED) and not request.is_probe:
            _count(tally, "joins")
            return (*joined(request, history), *kept(request, history))
        _count(tally, "probes" if request.is_probe else "retries")
        return ()
    if request.api == "SYNC_GROUP":
        _count(tally, "syncs")
        remember_given(request, history)
        return synced(request, history)
    if request.api == "LEAVE_GROUP":
        leavers = left(request, history)
        _count(tally, "leaves", len(leavers))
        return leavers
    _count(tally, "consumer_heartbeats")
    return introduced(request, history)


def _count(tally: dict[str, int], what: str, by: int = 1) -> None:
    tally[what] = tally.get(what, 0) + by
