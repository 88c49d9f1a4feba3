"""A group's generations one after another: rows of `rebalances`, and the members they leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rebal.groups.model import GroupType
from rebal.inspectors.fleet.timeline import causes, incidents
from rebal.inspectors.fleet.timeline.cost import Cost
from rebal.inspectors.fleet.timeline.facts import MILLI, LoggedGeneration, keep_newest
from rebal.inspectors.fleet.timeline.members import MemberSpan, Place, go_on, like, write
from rebal.inspectors.fleet.timeline.rebalances import (
    LOG,
    TOPIC,
    Change,
    Generation,
    cause,
    count_of,
    may_be_slow,
    moved,
    went,
)
from rebal.inspectors.fleet.timeline.shared import Shared
from rebal.inspectors.fleet.timeline.state import GroupState
from rebal.inspectors.fleet.timeline.values import Member, PartitionBits

_MOST_SKIPPED: Final = 100
"""A longer gap of generation numbers is missing input, not so many rebalances that failed."""


class History:
    """One group's generations; a new `incarnation` begins each time it is created again."""

    def __init__(self, state: GroupState, shared: Shared) -> None:
        self.state = state
        self.rows = shared.rows
        self.protocols = shared.protocols
        self.bits = PartitionBits(state.blocks)

    def advance(self, new: Generation, members: Sequence[Member]) -> None:
        """The next generation, or the same one written again."""
        state = self.state
        if state.generation is not None and new.number < state.generation.number:
            self.end(new.ended, None, told=False)
        if state.ended:
            state.ended = False
            state.incarnation += 1
            incidents.recreated(new.ended, state.incarnation, self.rows)
        self._unfinished(new.number)
        state.cut = False
        old = state.generation
        logged = state.logged.get(new.number)
        if logged is not None:
            logged.applied = True
            new.started = new.started or logged.began(new.ended)
        if new.size is None:
            self._close(None, None)
            state.protocol, state.slipped = None, []
            self._rebalanced(old, new, members, None, logged)
            self._now_is(new)
            return
        change = Change(state.members, members)
        if old is not None and old.number == new.number:
            new.completed = old.completed
            state.slipped += change.really_gone
            self._settle(old, new, change, None, sure=False)
            if old.type is not new.type:
                # what members ran before is no hint
                for span in state.members.values():
                    span.profile = None
            state.generation = new
            return
        if state.slipped:
            back = {member.member_id for member in change.new}
            change.slipped = [one for one in state.slipped if one.member_id not in back]
            state.slipped = []
        if logged is not None:
            logged.ended = new.ended
        sure = self._sure(old, logged)
        self._rebalanced(old, new, members, change, logged)
        self._settle(old, new, change, logged, sure=sure)
        self._now_is(new)

    def _now_is(self, new: Generation) -> None:
        self.state.generation = new
        logged = self.state.logged
        for key in [key for key in logged if key < new.number]:
            del logged[key]

    def replace(
        self, generation: int | None, before: str, member_id: str, leader: str | None, at: int
    ) -> None:
        """A static member's restart that only the log shows: the same member by another id."""
        now, span = self.state.generation, self.state.members.get(before)
        if now is None or now.number != generation or span is None:
            return
        logged = self.state.facts.member(member_id)
        members = [one.member for key, one in self.state.members.items() if key != before]
        members.append(span.member.under(member_id, logged.client_id, logged.host))
        new = Generation(
            number=generation,
            ended=at,
            source=LOG,
            size=len(members),
            assignor=now.assignor,
            leader=leader or now.leader,
            protocol_type=now.protocol_type,
            type=now.type,
        )
        self.advance(new, members)

    def end(self, at: int, reason: str | None, told: bool = True) -> None:
        """The group was deleted at `at`; `told` is False where only what comes after shows it."""
        state = self.state
        self._leave_at_last()
        self._close(at if told else None, reason)
        if told:
            incidents.deleted(at, self.rows)
        state.ended = True
        state.generation, state.protocol, state.assigned, state.withheld = None, None, 0, {}
        state.slipped = []

    def finish(self) -> int | None:
        """The end of the input: those who are there now are current; how many (None: not known)."""
        state = self.state
        self._unfinished(None)
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

    def _sure(self, old: Generation | None, logged: LoggedGeneration | None) -> bool:
        """Did the log show all that happened since `old`."""
        seen = logged is not None and bool(logged.joins or logged.synced)
        since = self.state.facts.since
        return old is not None and seen and since is not None and since <= old.completed

    def _rebalanced(
        self, old: Generation | None, new: Generation, members: Sequence[Member],
        change: Change | None, logged: LoggedGeneration | None,
    ) -> None:  # fmt: skip
        """The rebalance's row; a new group's first record (generation 0) is none.

        `change` is None where the generation's members are not known.
        """
        state, facts = self.state, self.state.facts
        cost = None
        if change is not None:
            before = state.logged.get(old.number) if old is not None else None
            cost = Cost(
                old, new, change, facts, protocols=self.protocols, before=before, bits=self.bits
            )
        if new.number == 0:
            return
        was_known = old.size is not None if old is not None else new.number == 1
        known = change if was_known else None
        counts = [member.count for member in members]
        assigned = None if change is None or -1 in counts else sum(counts)
        began = None
        if old is not None and known is not None:
            began = cause(
                old, new, known, facts, logged, sure=self._sure(old, logged),
                added=(assigned or 0) - state.assigned, withheld=count_of(state.withheld),
            )  # fmt: skip
        elif old is None and new.number == 1 and new.size:
            began = causes.FIRST
        latency = None
        if new.started is not None and new.timed:
            latency = (new.ended - new.started) / MILLI
        moved_now, withheld = None, state.withheld
        state.withheld = {}
        if known is not None:
            moved_now, state.withheld = moved(known, withheld, self.bits)
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
            protocol=cost.protocol if cost is not None else None,
            leader=new.leader,
            members=new.size,
            joined=None if known is None else [one.member_id for one in known.really_new],
            left=None if known is None else [one.member_id for one in known.really_gone],
            refused=refused if facts.since is not None else None,
            partitions=assigned,
            moved=moved_now,
            stopped=cost.stopped if cost is not None else None,
            evidence=new.source,
        )
        state.protocol = cost.protocol if cost is not None else None
        state.assigned = assigned or 0
        if new.size != 0:
            state.metrics.completed(new.ended, latency)
        state.incidents.rebalanced(new, members, self.rows)

    def _settle(
        self, old: Generation | None, new: Generation, change: Change,
        logged: LoggedGeneration | None, *, sure: bool,
    ) -> None:  # fmt: skip
        """Bring the members to the new generation."""
        state, facts, last = self.state, self.state.facts, self._last()
        now = Place(state.incarnation, new.number, new.leader, new.ended)
        for span in change.gone:
            if may_be_slow(span.member, facts, old, new):
                keep_newest(facts.away, span.member.process, True)
            at, reason = self._departure(span, change, new, logged, sure)
            self._leave(span, at, reason)
            others = like(state.members, span.member)
            closed = span.member_id in facts.left or not new.timed
            state.incidents.left(span, at, reason, others, self.rows, closed=closed)
        go_on(change.changed, last, now, facts, self.rows)
        known = (old is not None and old.size is not None) or new.number <= 1
        for member in change.new:
            joined_at = new.ended if known or member.member_id in change.replaced else None
            state.members[member.member_id] = MemberSpan(
                member, new.number, new.ended, joined_at, new.timed
            )

    def _departure(
        self, span: MemberSpan, change: Change, new: Generation,
        logged: LoggedGeneration | None, sure: bool,
    ) -> tuple[int, str | None]:  # fmt: skip
        """When and why a member went."""
        facts = self.state.facts
        if change.replaced and any(span is one for one in change.replaced.values()):
            fenced = span.member_id in facts.fenced
            return new.ended, causes.FENCED if fenced else causes.RESTARTED
        left = facts.left.get(span.member_id)
        began = logged.began(new.ended) if logged is not None else None
        reason = went(span.member, facts, began, new.ended, sure)
        if left is not None:
            left.had = None if span.member.count < 0 else span.member.count
            return left.at, reason
        if reason == causes.EXPIRED:
            self.state.incidents.expired(span.member, began or new.ended, self.rows)
        return new.ended, reason

    def _unfinished(self, until: int | None) -> None:
        """Generations that were begun and never completed, up to `until` (None: the input's end).

        A number that the records skip had its joins, and its assignment never came, unless records
        may be missing there; at the end of the input a rebalance may still be on.
        """
        old = self.state.generation
        begun = {
            key: found
            for key, found in self.state.logged.items()
            if not found.applied
            and (found.joins or found.synced)
            and (until is None or key < until)
        }
        numbers = set(begun)
        if (
            until is not None
            and old is not None
            and old.source == TOPIC
            and not self.state.cut
            and old.type is GroupType.CLASSIC
            and until - old.number <= _MOST_SKIPPED
        ):
            numbers |= set(range(old.number + 1, until))
        for number in sorted(numbers):
            if old is None or number > old.number:
                self._failed(number, begun.get(number), last=until is None)

    def _failed(self, number: int, logged: LoggedGeneration | None, last: bool) -> None:
        if logged is not None:
            logged.applied = True
        if logged is not None and logged.synced:
            # It was completed, though nobody shows its members.
            self.advance(
                Generation(
                    number=number, ended=logged.last_at, source=LOG, assignor=logged.assignor,
                    leader=logged.leader, protocol_type=logged.protocol_type,
                ),
                (),
            )  # fmt: skip
            return
        if last:
            return
        state, found = self.state, logged or LoggedGeneration(number)
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

    def catch_up(self, before: int) -> None:
        """Write the rebalances of which nothing more can come: last heard of before this time."""
        late = [
            number
            for number, one in self.state.logged.items()
            if not one.applied and one.last_at < before
        ]
        if late:
            self._unfinished(max(late) + 1)
