"""Lines of a request log, applied to one group: member facts, assignor lists, rejections, leaves.

Error 23 is a rejected join. Error 79 is the normal first answer to a dynamic member's first join
(KIP-394). Joins with other errors change nothing. Joins with empty metadata are rebal's own
read-only probes.
"""

from typing import Final

from rebal.inspectors.errors import error_code
from rebal.inspectors.fleet.schemas import Rows
from rebal.inspectors.fleet.timeline import history, incidents
from rebal.inspectors.fleet.timeline.facts import (
    MILLI,
    NEARLY,
    UNKNOWN_MEMBER,
    LoggedLeave,
    RequestFacts,
    is_steady,
    keep_newest,
)
from rebal.inspectors.fleet.timeline.history import LoggedChange, TimelineState
from rebal.inspectors.fleet.timeline.rebalances import RESTARTED
from rebal.inspectors.logs.requests.lines import (
    CONSUMER_HEARTBEAT,
    FENCED,
    JOIN,
    LEAVE,
    SYNC,
    Outcome,
    Request,
)

_LIST_REJECTED: Final = error_code("INCONSISTENT_GROUP_PROTOCOL")
# The member epoch of a static member's last heartbeat when it closes (KIP-848).
_AWAY: Final = -2


def note(state: TimelineState, rows: Rows, at: int | None, request: Request) -> None:
    """Apply the line `request` to the group's facts.

    A line without a time (`at` is None) is used only if it is a join (`_join`).
    """
    if state.facts.since is None:
        state.facts.since = at
    api, error = request.api, request.error
    if error == FENCED and request.member_id and at is not None and not request.is_probe:
        _fenced(state, rows, request, at)
    if api == JOIN:
        _join(state, rows, at, request)
    if at is None or api == JOIN:
        return
    if api == SYNC and error != FENCED:
        found = state.facts.synced(request, at)
        if found is not None and request.assignments and not state.recorded:
            state.logged.append(LoggedChange(at, found.number))
        return
    if error:
        return
    if api == LEAVE:
        for one in request.left:
            member_id = one.member_id or state.facts.instances.get(one.group_instance_id or "")
            if member_id:
                state.facts.leave(member_id, at, one.reason or None, request.connection)
    elif api == CONSUMER_HEARTBEAT:
        _heartbeat(state, at, request)


def says_nothing_new(state: TimelineState, request: Request) -> bool:
    """Return whether this is a heartbeat of a known KIP-848 member that changed nothing.

    The lake has only some of these heartbeats, for each task stores only the first one in its part
    of a log. So the caller ignores them: else the tables would depend on how logs are split.
    """
    known = state.facts.members.get(request.member_id, UNKNOWN_MEMBER).last_epoch
    return request.api == CONSUMER_HEARTBEAT and is_steady(request) and known == request.generation


def _join(state: TimelineState, rows: Rows, at: int | None, request: Request) -> None:
    """Apply a join.

    Of a line without a time (`at` is None), only the assignor list and the reason are used.
    """
    facts, outcome = state.facts, request.outcome
    names = tuple(one.name for one in request.protocols)
    if outcome is Outcome.REJECTED and request.error == _LIST_REJECTED:
        state.lists.rejected(request, at, names)
        state.metrics.rejected += 1
        if at is not None:
            facts.reject(request.instance_id or request.client_id, at)
            state.incidents.rejected(request, names, at, rows)
        return
    member_id, instance_id = request.member_id, request.instance_id
    if outcome not in (Outcome.ACCEPTED, Outcome.ID_GIVEN) or not member_id:
        return
    replaced = None if at is None else _takes_place(facts, instance_id, member_id)
    state.lists.joined(request, at, names, replaced)
    logged = facts.member(member_id)
    if logged.assignors is None:
        logged.reason = request.reason
    logged.assignors = names
    if at is None:
        return
    left = facts.left.get(facts.left_on.pop(request.connection, ""))
    if left is not None and left.member_id != member_id and _was_slow(state, rows, left, request):
        logged.before = left.member_id
    logged.note_request(request, at)
    logged.session_timeout_ms = request.session_timeout_ms
    logged.rebalance_timeout_ms = request.rebalance_timeout_ms
    logged.replaced = replaced or logged.replaced
    if outcome is Outcome.ID_GIVEN:
        return
    start, now, number = _start(at, request), state.generation, request.generation or 0
    if logged.joined_at is None:
        logged.joined_at = at
        if number == 1 and _begins_again(state, start):
            history.apply_logged(state, rows, None)
            history.end(state, rows, None, None, start - 1)
    late = now is not None and now.number == number and start >= now.completed
    if (late or facts.joined(request, at, start) is None) and replaced is not None:
        _restarted(state, request, at, replaced)


def _restarted(state: TimelineState, request: Request, at: int, replaced: str) -> None:
    """Note a static member's restart without a rebalance; `replaced` is its old member id."""
    member_id, number = request.member_id, request.generation or 0
    before, now = state.facts.list_before(member_id), state.facts.members[member_id].assignors
    if before:
        state.incidents.note_hidden_list(
            member_id, request.instance_id or member_id, before, now or (), at
        )
    if not state.recorded:
        state.logged.append(LoggedChange(at, number, replaced, member_id, request.leader))


def _takes_place(facts: RequestFacts, instance_id: str | None, member_id: str) -> str | None:
    """Note the member that has an instance id now; return the other member that had it, if any."""
    if instance_id is None:
        return None
    before = facts.instances.get(instance_id)
    facts.instances[instance_id] = member_id
    return before if before != member_id else None


def _begins_again(state: TimelineState, start: int) -> bool:
    """Return whether a new member's join in generation 1 belongs to a group that was created again.

    False if the group has records, for they show it. Otherwise the log must have a later generation
    than 1, whose last line is before the join, so that the join is not a late line.
    """
    newest = max(state.facts.generations.values(), key=lambda one: one.number, default=None)
    return (
        not state.recorded
        and newest is not None
        and newest.number + newest.heard > 1
        and newest.last_at < start
    )


def _was_slow(state: TimelineState, rows: Rows, left: LoggedLeave, request: Request) -> bool:
    """Return whether a member left because its process had exceeded max.poll.interval.ms.

    `left` is its LEAVE_GROUP, and `request` the next join on the same connection. It did if the
    leave came at least that interval after the member's last join: the heartbeat thread sends a
    LEAVE_GROUP once the interval has passed since the last poll, and a join needs a poll. (A client
    that closes does not join again on its connection. One that unsubscribes and subscribes again
    may, and may leave at any time.) The reason is then noted in `left`, because clients before
    KIP-800 do not send it.
    """
    before = state.facts.members.get(left.member_id)
    polled = before.last_at if before is not None else state.facts.since
    longest = request.rebalance_timeout_ms
    if polled is None or not longest or left.at - polled < NEARLY * longest * MILLI:
        return False
    left.reason = "poll timeout expired"
    if left.member_id not in state.members:
        incidents.add(
            rows,
            "slow member",
            left.at,
            f"{request.client_id or left.member_id}: poll timeout expired",
            members=(left.member_id,),
        )
    return True


def _fenced(state: TimelineState, rows: Rows, request: Request, at: int) -> None:
    """Note, once, a member that lost its instance id to another process while it still ran."""
    member_id = request.member_id
    if member_id not in state.facts.fenced:
        keep_newest(state.facts.fenced, member_id, at)
        incidents.add(
            rows,
            "duplicate instance id",
            at,
            f"{request.instance_id or member_id} was used by two processes at once",
            members=(member_id,),
        )


def _heartbeat(state: TimelineState, at: int, request: Request) -> None:
    member_id = request.member_id
    logged = state.facts.member(member_id)
    logged.note_request(request, at)
    asked, answered = request.generation, request.member_epoch
    if asked == _AWAY:
        return  # it keeps its place until its session expires or its instance comes back
    if asked is not None and asked < 0:
        state.facts.leave(member_id, at, None, None)
        logged.mark_left(at, "member left")
        return
    in_place = asked == 0 and _comes_back(state, member_id, answered, at)
    if asked == 0:
        # A member that was fenced, or a static one that was away, comes back with its id.
        state.facts.left.pop(member_id, None)
        logged.left_at, logged.left_reason, logged.gone = None, None, False
        logged.joined_at = at if logged.joined_at is None else logged.joined_at
    if request.subscribed_topics is not None:
        logged.topics = request.subscribed_topics
    if answered is not None and answered > (logged.last_epoch or 0):
        if logged.first_epoch is None:
            logged.first_epoch, logged.first_at = answered, at
            logged.incarnation = state.incarnation + state.ended
        logged.last_epoch = answered
        found = None if in_place else state.facts.generation(answered)
        if found is not None:
            found.last_at = max(found.last_at, at)
            found.synced.add(member_id)
            found.heard = True
            if asked == 0:
                found.joins[member_id] = (_start(at, request), at, None)


def _comes_back(state: TimelineState, member_id: str, epoch: int | None, at: int) -> bool:
    """Note that a static member rejoined by another id; return whether it kept its place.

    It kept its place if its epoch is that of the old id, which then counts as replaced.
    """
    facts = state.facts
    old = facts.members.get(
        _takes_place(facts, facts.members[member_id].instance_id, member_id) or ""
    )
    if old is None or old.gone:
        return False
    # with another epoch, its session may have expired before
    keeps = epoch is not None and epoch == old.last_epoch
    old.mark_left(at if keeps else None, RESTARTED if keeps else None)
    return keeps


def _start(at: int, request: Request) -> int:
    return at - round((request.total_ms or 0) * MILLI)
