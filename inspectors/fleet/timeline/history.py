"""A group's state and its generations in order: makes the rows of `rebalances` and `members`.

Each time that the group is created again, a new incarnation begins.

The state is all that a group's timeline has noted. `encode` writes it as one document, so that the
next scan continues from it. `decode` returns the same state, and the group's next rows are applied
to it as if the scan had never stopped. Buffers, decoded values and topic names that all groups
share are not in the state. A document is msgpack of the types below only: it names no class and no
function. A document with another `SCHEMA` number is ignored, and the group's rows are made again
from its records. A damaged document ends the scan.
"""

from typing import Final, Literal, NamedTuple

from msgspec import MsgspecError, Struct, field, structs
from msgspec.msgpack import Decoder, Encoder

from rebal.groups.errors import DocumentError
from rebal.groups.model import GroupType
from rebal.inspectors.fleet.schemas import Rows
from rebal.inspectors.fleet.timeline import incidents
from rebal.inspectors.fleet.timeline.consumer import ConsumerGroupRecords
from rebal.inspectors.fleet.timeline.facts import (
    LOG,
    MILLI,
    TOPIC,
    UNKNOWN_MEMBER,
    Lists,
    LoggedGeneration,
    LoggedMember,
    RequestFacts,
    keep_newest,
)
from rebal.inspectors.fleet.timeline.incidents import Incidents
from rebal.inspectors.fleet.timeline.rebalances import (
    Generation,
    MemberSpan,
    Owners,
    Transition,
    cause,
    cost_of,
    departure,
    may_be_slow,
    moved,
)
from rebal.inspectors.fleet.timeline.values import (
    UNKNOWN_ASSIGNMENT,
    UNKNOWN_SUBSCRIPTION,
    GenerationMember,
    Named,
    read_assignment,
    read_subscription,
    shown,
)

SCHEMA: Final = 7
"""The version of the types in a saved state. Raise it with every change of such a type."""


class LoggedChange(NamedTuple):
    """An event that a request log shows and that is applied at its own time.

    The leader of `generation` sent the assignments, which completed it. If `before` is set, it is a
    static member's restart in that generation instead: the member id `before` was replaced by `now`
    (KIP-345).
    """

    at: int
    generation: int
    before: str | None = None
    now: str = ""
    leader: str | None = None


class Tombstone(Struct, array_like=True):
    """A tombstone of a group of this `type`: the group was deleted, or converted to the other type.

    `at` is the effective time, `own_at` the record's own timestamp.
    """

    at: int
    own_at: int
    type: GroupType


class Metrics(Struct, array_like=True):
    """KIP-429's rebalance metrics of one group, from the rebalances that were seen.

    They count rebalances of the group, not of one client. A generation that leaves the group empty
    is not counted. `timed` is the number of rebalances with a known latency. Latencies are
    milliseconds, times microseconds since 1970.
    """

    total: int = 0
    failures: int = 0
    rejected: int = 0
    timed: int = 0
    latency_total: float = 0.0
    latency_max: float = 0.0
    last_at: int | None = None

    def completed(self, at: int, latency_ms: float | None) -> None:
        """Note a rebalance that was completed at `at`."""
        self.total += 1
        self.last_at = at if self.last_at is None else max(at, self.last_at)
        if latency_ms is not None:
            self.timed += 1
            self.latency_total += latency_ms
            self.latency_max = max(self.latency_max, latency_ms)

    def columns(self, log: bool) -> dict[str, int | float | None]:
        """Return the columns from `rebalance_total` to `refused_total`, by name.

        `log` is whether the request log was read: only it shows rejections.
        """
        timed = self.timed > 0
        return {
            "rebalance_total": self.total,
            "rebalance_latency_avg_ms": self.latency_total / self.timed if timed else None,
            "rebalance_latency_max_ms": self.latency_max if timed else None,
            "rebalance_latency_total_ms": self.latency_total if timed else None,
            "failed_rebalance_total": self.failures,
            "last_rebalance_at": self.last_at,
            "refused_total": self.rejected if log else None,
        }


class TimelineState(Struct, kw_only=True, array_like=True):
    """The state of one group's timeline. Times are effective, in microseconds since 1970.

    `generation` is the newest completed generation, `members` are its members. `slipped` are
    members that left when this generation was written again. `assigned` is how many partitions it
    assigned. `withheld` maps a member id to the partitions that the member was the last to own and
    that nobody owns now. `cut` is whether records after this generation may be missing. `newest`
    has the newest offset of the group's records, by partition, and `latest` is their latest
    timestamp. `recorded` is whether the group has records; if not, `logged` are log events to be
    applied at their own times.
    """

    schema: Literal[7] = SCHEMA
    group_id: str
    type: GroupType = GroupType.UNKNOWN
    protocol_type: str | None = None
    partition: int | None = None
    sources: set[str] = set()
    first_at: int | None = None
    last_at: int = 0
    latest: int | None = None
    told_until: int = 0
    newest: dict[int, int] = {}
    incarnation: int = 1
    ended: bool = False
    deleted_at: int | None = None
    dying: Tombstone | None = None
    generation: Generation | None = None
    members: dict[str, MemberSpan] = {}
    slipped: list[MemberSpan] = []
    protocol: str | None = None
    assigned: int = 0
    withheld: Owners = {}
    cut: bool = False
    consumer: ConsumerGroupRecords | None = None
    has_member_records: bool = False
    recorded: bool = False
    logged: list[LoggedChange] = []
    facts: RequestFacts = field(default_factory=RequestFacts)
    lists: Lists = field(default_factory=Lists)
    incidents: Incidents = field(default_factory=Incidents)
    metrics: Metrics = field(default_factory=Metrics)


_ANEW: Final = "scan again with --full, which reads all that the sources still hold."
_decode: Final = Decoder(TimelineState).decode
encode: Final = Encoder().encode
"""The encoder of a state; the state can be used afterwards."""


def decode(data: bytes, group_id: str) -> TimelineState:
    """Return the state of the group `group_id` that the document `data` holds.

    Raises:
        DocumentError: the document is damaged, has another schema, or is another group's.
    """
    try:
        state = _decode(data)
    except (MsgspecError, ValueError) as error:
        raise DocumentError(
            f"the lake's state of group {group_id} is damaged ({error}): {_ANEW}"
        ) from None
    if state.group_id != group_id:
        raise DocumentError(f"the lake's state of group {group_id} is another group's: {_ANEW}")
    return state


# A longer gap of generation numbers is missing input, not so many rebalances that failed.
_MOST_SKIPPED: Final = 100


def revive(state: TimelineState, rows: Rows, at: int) -> None:
    """Begin the group's next incarnation at `at`, if the present one was ended by a deletion."""
    if state.ended:
        state.ended = False
        state.incarnation += 1
        incidents.add(rows, "recreated", at, f"incarnation {state.incarnation}")


def advance(state: TimelineState, rows: Rows, new: Generation, members: Named) -> None:
    """Make `new` the group's present generation, and write the rows that this change gives.

    `members` are the members of `new`. If `new` has the number of the present generation, that
    generation is written again, which is no rebalance. If its number is lower, the group was
    created again, and the present generation ends first.
    """
    if state.generation is not None and new.number < state.generation.number:
        end(state, rows, None, None, state.generation.completed)
    revive(state, rows, new.ended)
    catch_up(state, rows, new.number)
    state.cut = False
    old = state.generation
    logged = state.facts.generations.get(new.number)
    if logged is not None:
        logged.applied = True
        new.started = new.started or logged.began(new.ended)
    if new.size is None:
        _close(state, rows, None, None)
        state.protocol, state.slipped = None, []
    is_again = old is not None and old.number == new.number
    new.completed = old.completed if old is not None and is_again else new.ended
    if logged is not None and new.size is not None and not is_again:
        logged.ended = new.ended
    rebalance = Transition(
        old, new, state.members, members, state.facts, slipped=() if is_again else state.slipped
    )
    state.slipped = [*state.slipped, *rebalance.left] if is_again else []
    if not is_again:
        _rebalanced(state, rows, rebalance)
    _settle(state, rows, rebalance)
    if old is not None and is_again and old.type is not new.type:
        # what members ran before is no hint
        for span in state.members.values():
            span.kept = span.member.owns
    state.generation = new
    for number in [number for number in state.facts.generations if number < new.number]:
        del state.facts.generations[number]


def apply_logged(state: TimelineState, rows: Rows, before: int | None) -> None:
    """Apply the events that only the request log shows and that are earlier than `before`.

    None applies all of them.
    """
    logged = state.logged
    while logged and (before is None or logged[0].at < before):
        event = logged.pop(0)
        if event.before is None:
            catch_up(state, rows, event.generation + 1)
        else:
            _replace(state, rows, event)


def _replace(state: TimelineState, rows: Rows, event: LoggedChange) -> None:
    """Apply a static member's restart that only the log shows: the same member by another id."""
    now, span = state.generation, state.members.get(event.before or "")
    if now is None or now.number != event.generation or span is None:
        return
    logged = state.facts.member(event.now)
    members = {one.member: one.generation for one in state.members.values() if one is not span}
    members[span.member.under(event.now, logged.client_id, logged.host)] = span.generation
    new = structs.replace(
        now,
        ended=event.at,
        source=LOG,
        size=len(members),
        leader=event.leader or now.leader,
        timed=True,
    )
    advance(state, rows, new, members)


def end(state: TimelineState, rows: Rows, at: int | None, reason: str | None, until: int) -> None:
    """End the group's present incarnation, and write the last rows of its members.

    `at` is when the group was deleted (None: only a later incarnation shows that it was), and
    `reason` is why its members left. Log facts from after `until` are kept for the next
    incarnation.
    """
    facts = state.facts
    later = {n: one for n, one in facts.generations.items() if one.after(until)}
    facts.generations = {n: one for n, one in facts.generations.items() if n not in later}
    catch_up(state, rows, None)
    facts.generations = later
    _leave_at_last(state, rows)
    _close(state, rows, at, reason)
    if at is not None:
        incidents.add(rows, "deleted", at, "group deleted")
    state.ended = True
    state.generation, state.protocol, state.assigned, state.withheld = None, None, 0, {}
    state.slipped = []


def finish(state: TimelineState, rows: Rows) -> int | None:
    """Write the present members' last rows as current, because the input has ended.

    Returns how many members there are now (None: not known).
    """
    catch_up(state, rows, None)
    _leave_at_last(state, rows)
    count = len(state.members)
    _close(state, rows, None, None, current=True)
    state.incidents.finish(rows, ended=state.ended)
    known = state.generation is not None and state.generation.size is not None
    return 0 if state.ended else count if known else None


def _close(
    state: TimelineState,
    rows: Rows,
    left_at: int | None,
    reason: str | None,
    current: bool = False,
) -> None:
    """Write the last row of every present member and remove it from the state.

    The group or the input has ended, or the members of the next generation are not known.
    """
    for span in state.members.values():
        write(state, rows, span, left_at=left_at, left_reason=reason, current=current)
    state.members = {}


def _leave(
    state: TimelineState, rows: Rows, span: MemberSpan, left_at: int, reason: str | None,
    *, closed: bool,
) -> None:  # fmt: skip
    """Write the last row of a member that left, and remove it from the state.

    `closed` is True if it sent LEAVE_GROUP, and also if it is not known when it left.
    """
    del state.members[span.member_id]
    write(state, rows, span, left_at=left_at, left_reason=reason)
    state.incidents.left(
        span, left_at, reason, (one.member for one in state.members.values()), rows, closed=closed
    )


def write(
    state: TimelineState,
    rows: Rows,
    span: MemberSpan,
    *,
    last: Generation | None = None,
    incarnation: int | None = None,
    left_at: int | None = None,
    left_reason: str | None = None,
    current: bool = False,
) -> None:
    """Write a row of `members` for `span`, up to the generation `last` (None: the present one)."""
    last = last or state.generation
    assert last is not None
    # the clock of the log's broker may be behind the records'
    left_at = None if left_at is None else max(left_at, span.first_at)
    logged = state.facts.members.get(span.member_id, UNKNOWN_MEMBER)
    member = span.member if logged.replaced is None else _with_logged_client(span.member, logged)
    sent, given = member.subscription, member.assignment
    rows.add(
        "members",
        incarnation=incarnation or state.incarnation,
        first_generation=span.first_generation,
        last_generation=last.number,
        subscription_generation=span.generation,
        leader=None if last.leader is None else last.leader == member.member_id,
        first_at=span.first_at,
        last_at=max(last.ended, span.first_at),
        joined_at=logged.joined_at or span.joined_at,
        joined_reason=logged.reason,
        left_at=left_at,
        left_reason=left_reason,
        current=current,
        # What its records leave open is as the log shows it.
        member_id=member.member_id,
        instance_id=member.instance_id or logged.instance_id or None,
        client_id=member.client_id or logged.client_id or None,
        host=member.host or logged.host or None,
        protocol_type=member.protocol_type,
        software_name=logged.software_name,
        software_version=logged.software_version,
        session_timeout_ms=member.session_timeout_ms or logged.session_timeout_ms or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms or logged.rebalance_timeout_ms or None,
        subscription_version=sent.version,
        topics=sent.topics,
        topic_regex=member.regex,
        owned=sent.owned,
        rack_id=sent.rack,
        user_data=sent.user_data,
        assignment=given.partitions,
        assignment_user_data=given.user_data,
        target=member.target,
        assignors=logged.assignors,
        error=sent.error or given.error,
    )


def _with_logged_client(member: GenerationMember, logged: LoggedMember) -> GenerationMember:
    """Return a restarted static member with the client id and host of the log.

    Records keep those from before the restart.
    """
    host = logged.host
    if host is not None and member.host is not None and member.host.startswith("/"):
        host = f"/{host.removeprefix('/')}"
    return member.under(member.member_id, logged.client_id, host)


def _leave_at_last(state: TimelineState, rows: Rows) -> None:
    """Write the last rows of members that left after the last rebalance."""
    now = state.generation
    for span in list(state.members.values()) if state.facts.left else ():
        left = state.facts.left.get(span.member_id)
        if now is not None and left is not None and left.at > now.ended:
            _leave(state, rows, span, left.at, left.reason or "member left", closed=True)


def _rebalanced(state: TimelineState, rows: Rows, of: Transition) -> None:
    """Write the row of a rebalance; a new group's first record (generation 0) is no rebalance."""
    old, new = of.old, of.new
    protocol, stopped = cost_of(of)
    if new.number == 0:
        return
    counts = [member.assignment.count for member in of.members]
    assigned = None if new.size is None or -1 in counts else sum(counts)
    began = moved_now = None
    withheld, state.withheld = state.withheld, {}
    if old is not None and of.members_known:
        began = cause(of, (assigned or 0) - state.assigned, withheld)
    elif old is None and new.number == 1 and new.size:
        began = "first member joined"
    if of.members_known:
        moved_now, state.withheld = moved(of, withheld)
    started = new.started if new.timed else None
    latency = None if started is None else (new.ended - started) / MILLI
    rows.add(
        "rebalances",
        incarnation=state.incarnation,
        generation=new.number,
        started_at=new.started,
        ended_at=new.ended,
        latency_ms=latency,
        cause=began,
        failed=False,
        assignor_before=old.assignor if old is not None else None,
        assignor=new.assignor,
        protocol_before=state.protocol,
        protocol=protocol,
        leader=new.leader,
        members=new.size,
        joined=[one.member_id for one in of.joined] if of.members_known else None,
        left=[one.member_id for one in of.left] if of.members_known else None,
        refused=state.facts.take_rejected(new.ended) if state.facts.since is not None else None,
        partitions=assigned,
        moved=moved_now,
        stopped=stopped,
        evidence=new.source,
    )
    state.protocol = protocol
    state.assigned = assigned or 0
    if new.size != 0:
        state.metrics.completed(new.ended, latency)
    state.incidents.rebalanced(new, of.members, rows)


def _settle(state: TimelineState, rows: Rows, of: Transition) -> None:
    facts, new = state.facts, of.new
    for span in of.missing:
        if may_be_slow(span.member, of):
            keep_newest(facts.away, span.member.process, True)
        at, reason = departure(span, of)
        left, count = facts.left.get(span.member_id), span.member.assignment.count
        if left is not None:
            left.had = None if count < 0 else count
        elif reason == "session expired":
            who, went = span.member, of.began or new.ended
            name = who.instance_id or who.client_id or who.member_id
            detail = f"{name} left without a LEAVE_GROUP"
            incidents.add(rows, "session expired", went, detail, members=(who.member_id,))
        _leave(state, rows, span, at, reason, closed=left is not None or not new.timed)
    for span, member in of.changed:
        if shown(span.member) != shown(member):
            write(state, rows, span)
            span.first_generation, span.first_at = new.number, new.ended
        span.member = member
        span.kept |= member.owns
    for span, member in of.stayed:
        span.generation = of.members[member]
    known = (of.old is not None and of.old.size is not None) or new.number <= 1
    for member in of.new_members:
        joined_at = new.ended if known or member.member_id in of.replaced else None
        state.members[member.member_id] = MemberSpan(
            member, of.members[member], new.number, new.ended, joined_at, new.timed, member.owns
        )


def catch_up(state: TimelineState, rows: Rows, until: int | None) -> None:
    """Add rows for the generations below the number `until` that no record shows.

    If the request log shows that a generation was completed, it becomes the group's present one. If
    the log shows only joins of it, or the offsets topic's records skip its number, it is a failed
    rebalance: no assignment came. For a skipped number nothing is written if records may be missing
    there. `until` is None at the end of the input or of the group's incarnation: then the completed
    generations are added whatever their number, and none as failed.
    """
    generations = state.facts.generations
    for number in sorted(generations):
        logged = generations.get(number)
        if logged is not None and (until is None or number < until):
            _complete_logged(state, rows, logged)
    old = state.generation
    if until is None:
        return
    numbers = {n for n, one in generations.items() if n < until and one.joins and not one.applied}
    if (
        old is not None
        and old.source == TOPIC
        and not state.cut
        and old.type is GroupType.CLASSIC
        and until - old.number <= _MOST_SKIPPED
    ):
        numbers |= set(range(old.number + 1, until))
    for number in sorted(numbers):
        if old is None or number > old.number:
            _failed(state, rows, number, generations.get(number))


def _complete_logged(state: TimelineState, rows: Rows, logged: LoggedGeneration) -> None:
    """Make a newer generation that only the log shows the present one, if it was completed."""
    last = -1 if state.generation is None else state.generation.number
    if logged.applied or logged.number <= last or not logged.completed:
        return
    logged.applied = True
    if logged.assignments:
        state.type = GroupType.CLASSIC if state.type is GroupType.UNKNOWN else state.type
        state.protocol_type = logged.protocol_type or state.protocol_type
    advance(state, rows, *_generation_of(logged, state.facts))


def _generation_of(logged: LoggedGeneration, facts: RequestFacts) -> tuple[Generation, Named]:
    """Return the generation that a log shows, and its members.

    There are no members if the log does not show the assignments that the leader sent.
    """
    members, given = {}, logged.assignments or {}
    consumer = logged.protocol_type in (None, "consumer")
    for member_id in sorted(logged.members.keys() | given.keys()) if given else ():
        instance_id, sent = logged.members.get(member_id, (None, None))
        known = facts.members.get(member_id, UNKNOWN_MEMBER)
        subscription, number = (
            read_subscription(sent) if sent and consumer else (UNKNOWN_SUBSCRIPTION, None)
        )
        member = GenerationMember(
            member_id,
            instance_id or known.instance_id,
            known.client_id,
            known.host,
            known.rebalance_timeout_ms,
            known.session_timeout_ms,
            "classic",
            subscription,
            read_assignment(given.get(member_id, b"")) if consumer else UNKNOWN_ASSIGNMENT,
        )
        members[member] = number
    generation = Generation(
        number=logged.number,
        ended=logged.last_at if logged.ended is None else logged.ended,
        source=LOG,
        size=len(members) if given else None,
        assignor=logged.assignor,
        leader=logged.leader,
        protocol_type=logged.protocol_type or ("consumer" if given else None),
    )
    return generation, members


def _failed(state: TimelineState, rows: Rows, number: int, logged: LoggedGeneration | None) -> None:
    found = logged or LoggedGeneration(number)
    found.applied = True
    ended = found.last_at if logged is not None else None
    rows.add(
        "rebalances",
        incarnation=state.incarnation,
        generation=number,
        started_at=min((start for start, _, _ in found.joins.values()), default=None),
        ended_at=ended,
        failed=True,
        assignor_before=state.generation.assignor if state.generation is not None else None,
        assignor=found.assignor,
        protocol_before=state.protocol,
        leader=found.leader,
        evidence=LOG if logged is not None else TOPIC,
    )
    state.metrics.failures += 1
    state.incidents.failed(ended)
