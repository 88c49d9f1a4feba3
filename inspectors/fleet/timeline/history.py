"""A group's generations one after another: rows of `rebalances`, and the members they leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from rebal.groups.model import GroupType
from rebal.inspectors.fleet.timeline import causes, incidents
from rebal.inspectors.fleet.timeline.cost import cost_of
from rebal.inspectors.fleet.timeline.events import Logged
from rebal.inspectors.fleet.timeline.facts import MILLI, LoggedGeneration, keep_newest
from rebal.inspectors.fleet.timeline.logged import generation_of
from rebal.inspectors.fleet.timeline.members import MemberSpan, Place, go_on, like, write
from rebal.inspectors.fleet.timeline.rebalances import (
    LOG,
    TOPIC,
    Change,
    Generation,
    Rebalance,
    cause,
    departure,
    may_be_slow,
    moved,
)
from rebal.inspectors.fleet.timeline.shared import Shared
from rebal.inspectors.fleet.timeline.state import GroupState
from rebal.inspectors.fleet.timeline.values import Member

_MOST_SKIPPED: Final = 100
"""A longer gap of generation numbers is missing input, not so many rebalances that failed."""


class History:
    """One group's generations; a new `incarnation` begins each time it is created again."""

    def __init__(self, state: GroupState, shared: Shared) -> None:
        self.state = state
        self.rows = shared.rows
        self.protocols = shared.protocols

    def advance(self, new: Generation, members: Sequence[Member]) -> None:
        """The next generation, or the same one written again."""
        state = self.state
        if state.generation is not None and new.number < state.generation.number:
            self.end(None, None, state.generation.completed)
        if state.ended:
            state.ended = False
            state.incarnation += 1
            now, said = (new.ended, new.ended), f"incarnation {state.incarnation}"
            incidents.add(self.rows, incidents.RECREATED, now, said)
        self.catch_up(new.number)
        state.cut = False
        old = state.generation
        logged = state.facts.generations.get(new.number)
        if logged is not None:
            logged.applied = True
            new.started = new.started or logged.began(new.ended)
        if new.size is None:
            self._close(None, None)
            state.protocol, state.slipped = None, []
            self._rebalanced(old, new, members, None)
            self._now_is(new)
            return
        change = Change(state.members, members)
        if old is not None and old.number == new.number:
            new.completed = old.completed
            state.slipped += change.really_gone
            self._settle(Rebalance(old, new, change, state.facts))
            if old.type is not new.type:
                # what members ran before is no hint
                for span in state.members.values():
                    span.kept = bool(span.member.subscription.owned)
            state.generation = new
            return
        if state.slipped:
            back = {member.member_id for member in change.new}
            change.slipped = [one for one in state.slipped if one.member_id not in back]
            state.slipped = []
        if logged is not None:
            logged.ended = new.ended
        before = state.facts.generations.get(old.number) if old is not None else None
        rebalance = Rebalance(old, new, change, state.facts, logged, before)
        self._rebalanced(old, new, members, rebalance)
        self._settle(rebalance)
        self._now_is(new)

    def _now_is(self, new: Generation) -> None:
        self.state.generation = new
        logged = self.state.facts.generations
        for key in [key for key in logged if key < new.number]:
            del logged[key]

    def hear(self, event: Logged) -> None:
        """What the log shows of a generation; where there are records, one of it will come."""
        if not self.state.recorded:
            self.state.logged.append(event)

    def apply_logged(self, before: int | None) -> None:
        """Apply what the log alone shows, up to this time (None: all)."""
        logged = self.state.logged
        while logged and (before is None or logged[0].at < before):
            event = logged.pop(0)
            if event.before is None:
                self.catch_up(event.generation + 1)
            else:
                self._replace(event)

    def begin_again(self, start: int) -> None:
        """Who joined at `start` is in another group of this name: only the log shows it."""
        self.apply_logged(None)
        self.end(None, None, start - 1)

    def _replace(self, event: Logged) -> None:
        """A static member's restart that only the log shows: the same member by another id."""
        now, span = self.state.generation, self.state.members.get(event.before or "")
        if now is None or now.number != event.generation or span is None:
            return
        logged = self.state.facts.member(event.now)
        members = [one.member for key, one in self.state.members.items() if key != event.before]
        members.append(span.member.under(event.now, logged.client_id, logged.host))
        leader = event.leader or now.leader
        new = structs.replace(
            now, ended=event.at, source=LOG, size=len(members), leader=leader, timed=True
        )
        self.advance(new, members)

    def end(self, at: int | None, reason: str | None, until: int) -> None:
        """The group was deleted at `at`; None: only what comes after shows it.

        What a log shows after `until` belongs to the next one.
        """
        state, facts = self.state, self.state.facts
        later = {n: one for n, one in facts.generations.items() if one.after(until)}
        facts.generations = {n: one for n, one in facts.generations.items() if n not in later}
        self.catch_up(None)
        facts.generations = later
        self._leave_at_last()
        self._close(at, reason)
        if at is not None:
            incidents.add(self.rows, incidents.DELETED, (at, at), causes.DELETED)
        state.ended = True
        state.generation, state.protocol, state.assigned, state.withheld = None, None, 0, {}
        state.slipped = []

    def finish(self) -> int | None:
        """The end of the input: those who are there now are current; how many (None: not known)."""
        state = self.state
        self.catch_up(None)
        self._leave_at_last()
        count = len(state.members)
        self._close(None, None, current=True)
        state.incidents.finish(self.rows)
        if state.ended:
            return 0
        return None if state.generation is None or state.generation.size is None else count

    def _close(self, left_at: int | None, reason: str | None, current: bool = False) -> None:
        """Every member's last row: the group ended, or what comes next is not known."""
        last, facts = self._last(), self.state.facts
        for span in self.state.members.values():
            write(
                span, last, facts, self.rows, left_at=left_at, left_reason=reason, current=current
            )
        self.state.members = {}

    def _leave(self, span: MemberSpan, left_at: int | None, reason: str | None) -> None:
        """A member that is no longer there."""
        del self.state.members[span.member_id]
        facts = self.state.facts
        write(span, self._last(), facts, self.rows, left_at=left_at, left_reason=reason)

    def _leave_at_last(self) -> None:
        """Of those who are there: who left after the last rebalance; no later one tells of it."""
        state, now = self.state, self.state.generation
        if now is None or not state.facts.left:
            return
        for span in list(state.members.values()):
            left = state.facts.left.get(span.member_id)
            if left is not None and left.at > now.ended:
                reason = left.reason or causes.LEFT
                self._leave(span, left.at, reason)
                others = like(state.members, span.member)
                state.incidents.left(span, left.at, reason, others, self.rows, closed=True)

    def _last(self) -> Place:
        now = self.state.generation
        if now is None:
            return Place(self.state.incarnation, None, None, 0)
        return Place(self.state.incarnation, now.number, now.leader, now.ended)

    def _rebalanced(
        self, old: Generation | None, new: Generation, members: Sequence[Member],
        rebalance: Rebalance | None,
    ) -> None:  # fmt: skip
        """The rebalance's row; a new group's first record (generation 0) is none.

        `rebalance` is None where the generation's members are not known.
        """
        state, facts = self.state, self.state.facts
        protocol = stopped = assigned = None
        if rebalance is not None:
            protocol, stopped = cost_of(rebalance, self.protocols)
        if new.number == 0:
            return
        was_known = old.size is not None if old is not None else new.number == 1
        known = rebalance.change if was_known and rebalance is not None else None
        counts = [member.assignment.count for member in members]
        if rebalance is not None and -1 not in counts:
            assigned = sum(counts)
        began = None
        if old is not None and known is not None and rebalance is not None:
            began = cause(rebalance, (assigned or 0) - state.assigned, state.withheld)
        elif old is None and new.number == 1 and new.size:
            began = causes.FIRST
        latency = None
        if new.started is not None and new.timed:
            latency = (new.ended - new.started) / MILLI
        moved_now, withheld = None, state.withheld
        state.withheld = {}
        if known is not None:
            moved_now, state.withheld = moved(known, withheld)
        refused = facts.take_refused(new.ended)
        self.rows.add(
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
            joined=None if known is None else [one.member_id for one in known.really_new],
            left=None if known is None else [one.member_id for one in known.really_gone],
            refused=refused if facts.since is not None else None,
            partitions=assigned,
            moved=moved_now,
            stopped=stopped,
            evidence=new.source,
        )
        state.protocol = protocol
        state.assigned = assigned or 0
        if new.size != 0:
            state.metrics.completed(new.ended, latency)
        state.incidents.rebalanced(new, members, self.rows)

    def _settle(self, of: Rebalance) -> None:
        """Bring the members to the new generation."""
        state, facts, last, new = self.state, self.state.facts, self._last(), of.new
        now = Place(state.incarnation, new.number, new.leader, new.ended)
        for span in of.change.gone:
            if may_be_slow(span.member, of):
                keep_newest(facts.away, span.member.process, True)
            at, reason = departure(span, of)
            left, count = facts.left.get(span.member_id), span.member.assignment.count
            if left is not None:
                left.had = None if count < 0 else count
            elif reason == causes.EXPIRED:
                who, went = span.member.identity, of.began or new.ended
                name = who.instance_id or who.client_id or who.member_id
                said, ids = f"{name} left without a LEAVE_GROUP", (who.member_id,)
                incidents.add(self.rows, incidents.EXPIRED, (went, went), said, members=ids)
            self._leave(span, at, reason)
            others = like(state.members, span.member)
            closed = left is not None or not new.timed
            state.incidents.left(span, at, reason, others, self.rows, closed=closed)
        go_on(of.change.changed, last, now, facts, self.rows)
        known = (of.old is not None and of.old.size is not None) or new.number <= 1
        for member in of.change.new:
            joined_at = new.ended if known or member.member_id in of.change.replaced else None
            kept = bool(member.subscription.owned)
            state.members[member.member_id] = MemberSpan(
                member, new.number, new.ended, joined_at, new.timed, kept
            )

    def catch_up(self, until: int | None) -> None:
        """Write the generations up to `until` (None: the input's end) that have no record.

        A number that the records skip had its joins, and its assignment never came, unless records
        may be missing there; at the end of the input a rebalance may still be on.
        """
        state, generations = self.state, self.state.facts.generations
        for number in sorted(generations):
            logged = generations.get(number)
            if logged is not None and (until is None or number < until):
                self._complete_logged(logged)
        old = state.generation
        if until is None:
            return
        numbers = {
            number
            for number, one in generations.items()
            if number < until and one.joins and not one.applied
        }
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
                self._failed(number, generations.get(number))

    def _complete_logged(self, logged: LoggedGeneration) -> None:
        """Go on to a generation that only the log shows, if it was completed."""
        state, now = self.state, self.state.generation
        is_past = now is not None and logged.number <= now.number
        if logged.applied or is_past or not logged.completed:
            return
        logged.applied = True
        if logged.assignments:
            state.type = GroupType.CLASSIC if state.type is GroupType.UNKNOWN else state.type
            state.protocol_type = logged.protocol_type or state.protocol_type
        self.advance(*generation_of(logged, state.facts))

    def _failed(self, number: int, logged: LoggedGeneration | None) -> None:
        state, found = self.state, logged or LoggedGeneration(number)
        found.applied = True
        ended = found.last_at if logged is not None else None
        self.rows.add(
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
