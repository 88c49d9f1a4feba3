"""The broker's request log as evidence: joins, rejections, leaves, completed rebalances.

A join that is accepted, or answered with MEMBER_ID_REQUIRED (KIP-394: the normal first answer),
binds an exact, ordered assignor list to a member id. Rejections are the errors after which a client
stops (`JOIN_REJECTIONS`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter

from rebal.groups.clients import eager_only, family, family_of, software_of
from rebal.groups.errors import WireError
from rebal.groups.evidence.logs import ends_with_newest
from rebal.groups.evidence.observations import (
    Introduced,
    Joined,
    Left,
    LogRead,
    Observation,
    Ran,
    Rebalanced,
    Refused,
    Where,
)
from rebal.groups.model import Evidence, RebalanceProtocol, Source, Tri
from rebal.groups.wire.consumer_protocol import decode_assignment
from rebal.inspectors.errors import error_name
from rebal.inspectors.files import TextInput, TextSource
from rebal.inspectors.logs.lines import LogReading, Part, Stamp, Zone, log_origin, numbered, split
from rebal.inspectors.logs.requests import lines
from rebal.inspectors.logs.requests.lines import (
    FENCED,
    MARK,
    Outcome,
    Request,
    heartbeat_of,
    is_fenced,
    parse,
)


def read_request_log(sources: Sequence[TextSource], tz_offset: Zone = None) -> LogReading:
    """Return the joins, rejections, leaves and completed rebalances in one or several request logs.

    Times are those at which a request was COMPLETED; a join waits for the rebalance. A time without
    a zone has the offset `tz_offset` from UTC. If that is None, the time is stored as if it were
    UTC, and the observation is marked `local`. Sources may be given in any order.

    Raises:
        DocumentError: a source cannot be read. Damaged lines give a note.
    """
    tally: Counter[str] = Counter()
    logs: list[LogRead] = []
    requests: list[Request] = []
    for source in map(TextInput, sources):
        found_here, parts = _read(source, tz_offset, tally)
        requests += found_here
        logs += parts
    times = [one.at for one in requests]
    if None not in times and (len(sources) > 1 or not ends_with_newest(times)):
        requests.sort(key=attrgetter("at"))
    history = _History()
    return LogReading(
        observations=tuple(each for one in requests for each in _observe(one, history)),
        logs=tuple(logs),
        notes=tuple(_notes(requests, tally)),
    )


def _notes(requests: Sequence[Request], tally: Counter[str]) -> Iterator[str]:
    """Yield a note for each fault: no join in the logs, gz data cut off, lines that cannot be read.

    `tally` has the number of all `lines`, of `unread` lines, and of sources that were `cut off`.
    """
    if all(
        one.api != lines.JOIN or one.outcome in (Outcome.PROBE, Outcome.FAILED) for one in requests
    ):
        yield (
            f"--request-log: none of the {tally['lines']:,} lines is a member's join. A stable "
            "group sends none; leave the log on while one member restarts."
        )
    if tally["cut off"]:
        yield "--request-log: gz data ends too early; fetch the file again, whole."
    if tally["unread"]:
        yield (
            f"--request-log: {tally['unread']:,} lines could not be read: they were cut off, or "
            "are in the format of brokers before 2.8. Their evidence is missing."
        )


def _read(
    source: TextInput, tz_offset: Zone, tally: Counter[str]
) -> tuple[list[Request], list[LogRead]]:
    """Return the group requests in `source`, and a description of each broker's part of the log.

    The function adds the source to the counts in `tally`: `lines`, `unread` and `cut off`.
    """
    requests: list[Request] = []
    parts: dict[str, Part] = {}

    def part_of(broker: str) -> Part:
        log = LogRead(log=source.name, origin=log_origin(source.name, broker), broker=broker)
        return parts.setdefault(broker, Part(source, log))

    number, last = 0, b""
    for number, raw in numbered(source.lines()):
        if MARK not in raw:
            continue
        last = raw
        if (heartbeat := heartbeat_of(raw)) is not None:
            group_id, member_id, broker = heartbeat
            part_of(broker).members.add((group_id, member_id))
        parsed = parse(raw, source.name, number, tz_offset, heartbeats=is_fenced(raw))
        if isinstance(parsed, Request):
            requests.append(parsed)
            part_of(parsed.broker).take(Stamp(parsed.at, parsed.local) if parsed.at else None)
        else:
            tally["unread"] += bool(parsed.problem)
    tally["lines"] += number
    tally["cut off"] += source.cut_off
    for part in parts.values():
        part.take(next((line.stamp for line in split(last[:10_000], number, tz_offset)), None))
    return requests, [part.read() for part in parts.values()]


class _History:
    def __init__(self) -> None:
        # (group, instance id) -> the member id that it had last
        self.instances: dict[tuple[str, str], str] = {}
        self.generations: dict[str, int] = {}
        # (group, member id) -> the generation that last assigned it partitions, and their topics
        self.assigned: dict[tuple[str, str], tuple[int, frozenset[str]]] = {}
        self.introduced: set[tuple[str, str]] = set()
        # (group, member id): a fenced member's commits and heartbeats fail until it notices.
        self.fenced: set[tuple[str, str]] = set()
        # (group, member id) that kept partitions when it rejoined, and that gave them all up
        self.kept: set[tuple[str, str]] = set()
        self.gave_up: set[tuple[str, str]] = set()


def _observe(request: Request, history: _History) -> Sequence[Observation]:
    fenced = request.error == FENCED and request.instance_id is not None
    match request.api:
        case lines.JOIN if request.outcome is Outcome.REJECTED:
            return (_rejected(request),)
        case lines.JOIN if request.outcome in (Outcome.ACCEPTED, Outcome.ID_GIVEN):
            return (*_joined(request, history), *_ran(request, history))
        case _ if fenced and request.api != lines.JOIN:
            key = (request.group_id, request.member_id)
            known = key in history.fenced
            history.fenced.add(key)
            return () if known else (_rejected(request),)
        case lines.SYNC:
            _remember_assigned(request, history)
            if not request.error and request.assignments:
                return _rebalanced(request, history)
        case lines.LEAVE:
            return tuple(_left(request, history))
        case lines.CONSUMER_HEARTBEAT:
            return _introduced(request, history)
    return ()


def _joined(request: Request, history: _History) -> Sequence[Observation]:
    """Return the join of one member, and the rebalance that it completed if the response shows one.

    The response to a leader lists the members of a new generation. The responses to followers, and
    to a restarted static member (same generation, KIP-345; `skipAssignment`, KIP-814), prove no
    rebalance.
    """
    if not request.member_id:
        return ()
    replaced = None
    if request.instance_id is not None:
        key = (request.group_id, request.instance_id)
        before = history.instances.get(key)
        replaced = before if before != request.member_id else None
        history.instances[key] = request.member_id
    session_ms = _positive(request.session_timeout_ms)
    join = Joined(
        **_where(request),
        group_id=request.group_id,
        member_id=request.member_id,
        list=_assignors(request),
        accepted=not request.error,
        new=request.new,
        at=request.at,
        client_id=request.client_id,
        instance_id=request.instance_id,
        host=request.host,
        connection=request.connection,
        software=software_of(request.software_name, request.software_version, _evidence(request)),
        reason=request.reason,
        generation_id=request.generation,
        session_timeout_ms=session_ms,
        # JoinGroup v0 has none: the coordinator uses the session timeout for both.
        rebalance_timeout_ms=_positive(request.rebalance_timeout_ms) or session_ms,
        protocol_type=request.protocol_type or "consumer",
        replaced_member_id=replaced,
        evidence=_evidence(request),
    )
    shows = request.members and not request.skip_assignment
    return (join, *(_rebalanced(request, history) if shows else ()))


def _introduced(request: Request, history: _History) -> Sequence[Observation]:
    """Return the client software that a KIP-848 member's heartbeat shows.

    The result is empty unless it is the member's first successful heartbeat.
    """
    software = software_of(request.software_name, request.software_version, _evidence(request))
    key = (request.group_id, request.member_id)
    if request.error or not request.member_id or software is None or key in history.introduced:
        return ()
    history.introduced.add(key)
    return (
        Introduced(
            **_where(request),
            group_id=request.group_id,
            member_id=request.member_id,
            software=software,
            evidence=_evidence(request),
        ),
    )


def _rejected(request: Request) -> Observation:
    return Refused(
        **_where(request),
        error=error_name(request.error),
        group_id=request.group_id,
        list=_assignors(request),
        at=request.at,
        client_id=request.client_id,
        instance_id=request.instance_id,
        host=request.host,
        connection=request.connection,
        software=software_of(request.software_name, request.software_version, _evidence(request)),
        evidence=_evidence(request),
    )


def _left(request: Request, history: _History) -> Iterator[Observation]:
    """Yield the members that a LeaveGroup removed.

    For a static member named only by its instance id, the member id is the last one known for it.
    """
    for member in () if request.error else request.left:
        before = history.instances.pop((request.group_id, member.group_instance_id or ""), "")
        if member.member_id or member.group_instance_id:
            # An administrator's request has the client id of a tool.
            own = member.member_id.startswith(f"{request.client_id}-")
            yield Left(
                **_where(request),
                group_id=request.group_id,
                member_id=member.member_id or before,
                at=request.at,
                client_id=request.client_id if own else "",
                instance_id=member.group_instance_id or None,
                host=request.host if own else "",
                reason=member.reason or None,
                evidence=_evidence(request),
            )


def _rebalanced(request: Request, history: _History) -> Sequence[Observation]:
    generation = request.generation
    if request.at is None or generation in (None, history.generations.get(request.group_id)):
        return ()
    assert generation is not None
    history.generations[request.group_id] = generation
    return (
        Rebalanced(
            **_where(request),
            group_id=request.group_id,
            generation_id=generation,
            at=request.at,
            assignor=request.protocol,
            evidence=_evidence(request),
        ),
    )


def _remember_assigned(request: Request, history: _History) -> None:
    """Record the generation and the topics that a SyncGroup response assigned to its member.

    `_ran` compares the member's next join with them.
    """
    if request.error or not request.member_id or request.generation is None:
        return
    key = (request.group_id, request.member_id)
    history.assigned.pop(key, None)
    try:
        assigned = decode_assignment(request.assignment).partitions
    except WireError:
        return
    topics = frozenset(topic for topic, numbers in assigned.items() if len(numbers))
    if topics:
        history.assigned[key] = request.generation, topics


def _ran(request: Request, history: _History) -> Sequence[Observation]:
    """Return the rebalance protocol that a member's rejoin shows, if its assignor list does not.

    The list does not show it for a Kafka Streams member, whose list is always [stream], and for a
    member whose list names no EAGER assignor: a custom class may have the name of a known assignor.

    A join that names owned partitions is COOPERATIVE; except for Streams, that is returned only if
    the member was EAGER before. A join that names none, though its generation had assigned the
    member partitions of a topic that it still wants, is EAGER (KIP-429; generations by KIP-792).
    Except for Streams, a member that kept partitions in an earlier join is not EAGER: it may never
    have received the assignment.
    """
    names = _assignors(request)
    streams = names == ("stream",)
    if request.new or not (streams or _reads_cooperative(names, request)):
        return ()
    sent = request.protocols[0].subscription
    if sent is None:
        return ()
    key, kept = (request.group_id, request.member_id), sent.owned_count
    if kept:
        history.kept.add(key)
        if not streams and key not in history.gave_up:
            return ()
        value, shown = RebalanceProtocol.COOPERATIVE, f"kept {kept} partitions"
    elif streams or key not in history.kept:
        generation, topics = history.assigned.get(key, (None, frozenset()))
        if generation is None or generation != sent.generation_id or topics.isdisjoint(sent.topics):
            return ()
        history.gave_up.add(key)
        value, shown = RebalanceProtocol.EAGER, "revoked all its partitions"
    else:
        return ()
    return (
        Ran(
            **_where(request),
            group_id=request.group_id,
            member_id=request.member_id,
            value=value,
            evidence=_evidence(request, f": {shown}"),
        ),
    )


def _reads_cooperative(names: Sequence[str], request: Request) -> bool:
    """Return whether the assignor list `names` reads as that of a COOPERATIVE member.

    True if the list is not empty, names no known EAGER assignor, and the client runs the protocol
    that its whole list supports, not that of the elected assignor. Even then the member may run
    EAGER: a custom EAGER class may have any name, even that of a COOPERATIVE assignor.
    """
    fixed = not family(family_of(request.software_name, request.software_version)).follows_vote
    return fixed and bool(names) and not any(eager_only(name) is Tri.YES for name in names)


def _where(request: Request) -> Where:
    return Where(log=request.log, line=request.line, origin=request.origin, local=request.local)


def _positive(value: int | None) -> int | None:
    return value if value is not None and value > 0 else None


def _assignors(request: Request) -> tuple[str, ...]:
    return tuple(protocol.name for protocol in request.protocols if protocol.name)


def _evidence(request: Request, shown: str = "") -> Evidence:
    return Evidence(
        source=Source.REQUEST_LOG,
        at=request.at,
        detail=f"{request.log}:{request.line} {request.api} v{request.api_version}" + shown,
    )
