"""A group's generations one after another: rows of `rebalances`, and the members they leave."""

from __future__ import annotations

from typing import Final

from rebal.groups.model import GroupType
from rebal.inspectors.fleet.timeline import causes
from rebal.inspectors.fleet.timeline.cost import Cost
from rebal.inspectors.fleet.timeline.incidents import Incidents
from rebal.inspectors.fleet.timeline.log import MILLI, Log, Round, keep_newest
from rebal.inspectors.fleet.timeline.members import Place, Roster, Standing
from rebal.inspectors.fleet.timeline.metrics import Metrics
from rebal.inspectors.fleet.timeline.protocol import Kind, Protocols
from rebal.inspectors.fleet.timeline.rebalances import (
    LOG,
    TOPIC,
    Change,
    Generation,
    Owners,
    cause,
    client_of,
    count_of,
    may_be_slow,
    moved,
    went,
)
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.fleet.timeline.values import Places

_MOST_SKIPPED: Final = 100
"""A longer gap of generation numbers is missing input, not so many rebalances that failed."""


class History:
    """One group's generations; a new `incarnation` begins each time it is created again."""

    def __init__(self, group_id: str, rows: Rows, protocols: Protocols, log: Log) -> None:
        self.group_id = group_id
        self.rows = rows
        self.protocols = protocols
        self.log = log
        self.roster = Roster(group_id, rows, log)
        self.metrics = Metrics()
        self.incidents = Incidents(group_id, rows)
        self.rounds: dict[int, Round] = log.era.rounds
        self.incarnation = 1
        self.now: Generation | None = None
        self.protocol: str | None = None
        self.assigned = 0
        self.places = Places()
        self.withheld: Owners = {}
        # who went when the newest generation was written again
        self.slipped: list[Standing] = []
        self.ended = False
        # records before the next one may be missing
        self.cut = False

    def share(self, rows: Rows, protocols: Protocols) -> None:
        """Use what this scan's groups share; of members' profiles the bytes hold the kinds."""
        self.rows = self.roster.rows = self.incidents.rows = rows
        self.protocols = protocols
        for standing in (*self.roster.members.values(), *self.slipped):
            kind = standing.profile
            if isinstance(kind, Kind):
                standing.profile = protocols.profile(kind._replace(type=GroupType(kind.type)))
        if self.now is not None:
            self.now.type = GroupType(self.now.type)

    def advance(self, new: Generation) -> None:
        """The next generation, or the same one written again."""
        old = self.now
        if old is not None and new.number < old.number:
            self.end(new.ended, None, told=False)
            old = None
        if self.ended:
            self.ended = False
            self.incarnation += 1
            self.incidents.recreated(new.ended, self.incarnation)
        self._unfinished(old, new.number)
        self.cut = False
        old = self.now
        round_ = self.rounds.get(new.number)
        if round_ is not None:
            round_.applied = True
            new.started = new.started or round_.began(new.ended)
        if new.members is None:
            self.roster.close(self._last(), None, None)
            self.protocol, self.slipped = None, []
            self._row(old, new, None, round_, None)
            self._now_is(new)
            return
        change = Change(self.roster.members, new)
        if old is not None and old.number == new.number:
            new.completed = old.completed
            self.slipped += change.really_gone
            self._settle(old, new, change, None)
            if old.type is not new.type:
                self.roster.forget_profiles()
            self.now = new
            return
        if self.slipped:
            back = {seen.member_id for seen in change.new}
            change.slipped = [one for one in self.slipped if one.seen.member_id not in back]
            self.slipped = []
        if round_ is not None:
            round_.ended = new.ended
        sure = old is not None and self._sure(old, round_)
        before = self.rounds.get(old.number) if old is not None else None
        cost = Cost(
            old, new, change, self.log,
            protocols=self.protocols, before=before, places=self.places,
        )  # fmt: skip
        self._row(old, new, change, round_, cost)
        self._settle(old, new, change, (round_, sure))
        self._now_is(new)

    def _now_is(self, new: Generation) -> None:
        self.now = new
        for key in [key for key in self.rounds if key < new.number]:
            del self.rounds[key]

    def replace(
        self, generation: int, before: str, member_id: str, leader: str | None, at: int
    ) -> None:
        """A static member's restart that only the log shows: the same member by another id."""
        now, standing = self.now, self.roster.members.get(before)
        if now is None or now.number != generation or standing is None:
            return
        person = self.log.person(member_id)
        seen = standing.seen.under(member_id, person.client_id, person.host)
        members = [one for one in self.roster.clients() if one.member_id != before]
        self.advance(
            Generation(
                generation,
                at,
                [*members, seen],
                LOG,
                assignor=now.assignor,
                leader=leader or now.leader,
                protocol_type=now.protocol_type,
                group_type=now.type,
            )
        )

    def end(self, at: int, reason: str | None, told: bool = True) -> None:
        """The group was deleted at `at`; `told` is False where only what comes after shows it."""
        self._leave_at_last()
        self.roster.close(self._last(), at if told else None, reason)
        if told:
            self.incidents.deleted(at)
        self.ended = True
        self.now, self.protocol, self.assigned, self.withheld = None, None, 0, {}
        self.slipped = []

    def finish(self) -> int | None:
        """The end of the input: those who are there now are current; how many (None: not known)."""
        self._unfinished(self.now, None)
        now = self.now
        self._leave_at_last()
        count = len(self.roster.members)
        self.roster.close(self._last(), None, None, True)
        self.incidents.finish()
        if self.ended:
            return 0
        return None if now is None or now.members is None else count

    def _leave_at_last(self) -> None:
        """Of those who are there: who left after the last rebalance; no later one tells of it."""
        if self.now is None:
            return
        for member_id in list(self.roster.members) if self.log.left else ():
            left = self.log.left.get(member_id)
            if left is not None and left.at > self.now.ended:
                reason = left.reason or causes.LEFT
                gone = self.roster.leave(member_id, self._last(), left.at, reason)
                others = self.roster.like(gone.seen)
                self.incidents.left(gone, left.at, reason, others, closed=True)

    def _last(self) -> Place:
        now = self.now
        if now is None:
            return Place(self.incarnation, None, None, 0)
        return Place(self.incarnation, now.number, now.leader, now.ended)

    def _sure(self, old: Generation, round_: Round | None) -> bool:
        """Did the log show all that happened since `old`."""
        seen = round_ is not None and bool(round_.joins or round_.synced)
        return seen and self.log.since is not None and self.log.since <= old.completed

    def _row(
        self, old: Generation | None, new: Generation, change: Change | None,
        round_: Round | None, cost: Cost | None,
    ) -> None:  # fmt: skip
        """The rebalance's row; a new group's first record (generation 0) is none."""
        if new.number == 0:
            return
        before_known = old.members is not None if old is not None else new.number == 1
        count = None if new.members is None else len(new.members)
        assigned = None if new.members is None else new.sums.assigned
        began = cause(
            old, new, change, self.log, round_, sure=self._sure(old, round_),
            added=(assigned or 0) - self.assigned, withheld=count_of(self.withheld),
        ) if old is not None and before_known and change is not None else None  # fmt: skip
        if old is None and new.number == 1 and count:
            began = causes.FIRST
        latency = None
        if new.started is not None and new.timed:
            latency = (new.ended - new.started) / MILLI
        moved_now = None
        if change is not None and before_known:
            moved_now, self.withheld = moved(change, self.withheld, self.places)
        else:
            self.withheld = {}
        refused = self.log.take_refused(new.ended)
        self.rows.add(
            "rebalances",
            (
                self.group_id,
                self.incarnation,
                new.number,
                new.started,
                new.ended,
                latency,
                began,
                False,
                old.assignor if old else None,
                new.assignor,
                self.protocol,
                cost.protocol if cost is not None else None,
                new.leader,
                count,
                tuple([seen.member_id for seen in change.really_new])
                if change is not None and before_known
                else None,
                tuple([one.seen.member_id for one in change.really_gone])
                if change is not None and before_known
                else None,
                refused if self.log.since is not None else None,
                assigned,
                moved_now,
                cost.stopped if cost is not None else None,
                new.source,
            ),
        )
        self.protocol = cost.protocol if cost is not None else None
        self.assigned = assigned or 0
        if count != 0:
            self.metrics.completed(new.ended, latency)
        self.incidents.rebalanced(new)

    def _settle(
        self, old: Generation | None, new: Generation, change: Change,
        rebalance: tuple[Round | None, bool] | None,
    ) -> None:  # fmt: skip
        """Bring the members to the new generation."""
        roster, last = self.roster, self._last()
        now = Place(self.incarnation, new.number, new.leader, new.ended)
        known = old is not None and old.members is not None
        for standing in change.gone:
            member_id = standing.seen.member_id
            if may_be_slow(standing, self.log, old, new):
                keep_newest(self.log.away, client_of(standing.seen), True)
            at, reason = self._departure(standing, change, new, rebalance)
            roster.leave(member_id, last, at, reason)
            others, closed = roster.like(standing.seen), member_id in self.log.left
            closed |= not new.timed
            self.incidents.left(standing, at or new.ended, reason, others, closed=closed)
        roster.go_on(change.changed, last, now)
        for seen in change.new:
            replaced = change.replaced.get(seen.member_id)
            first = known or new.number <= 1 or replaced is not None
            standing = roster.enter(seen, new.number, new.ended, new.ended if first else None)
            standing.timed = new.timed

    def _departure(
        self, standing: Standing, change: Change, new: Generation,
        rebalance: tuple[Round | None, bool] | None,
    ) -> tuple[int | None, str | None]:  # fmt: skip
        """When and why a member went."""
        if change.replaced and any(standing is one for one in change.replaced.values()):
            fenced = standing.seen.member_id in self.log.fenced
            return new.ended, causes.FENCED if fenced else causes.RESTARTED
        round_, sure = rebalance or (None, False)
        if round_ is None and not self.log.left:
            return new.ended, None
        began = round_.began(new.ended) if round_ is not None else None
        left = self.log.left.get(standing.seen.member_id)
        reason = went(standing, self.log, began, new.ended, sure)
        if left is not None:
            left.had = None if standing.seen.count < 0 else standing.seen.count
            return left.at, reason
        if reason == causes.EXPIRED:
            self.incidents.expired(standing, began or new.ended)
        return new.ended, reason

    def _unfinished(self, old: Generation | None, until: int | None) -> None:
        """Generations that were begun and never completed, up to `until` (None: the input's end).

        A number that the records skip had its joins, and its assignment never came, unless records
        may be missing there; at the end of the input a rebalance may still be on.
        """
        if not self.rounds and (until is None or old is None or until <= old.number + 1):
            return
        begun = {
            key: found
            for key, found in self.rounds.items()
            if not found.applied
            and (found.joins or found.synced)
            and (until is None or key < until)
        }
        numbers = set(begun)
        if (
            until is not None
            and old is not None
            and old.source == TOPIC
            and not self.cut
            and old.type is GroupType.CLASSIC
            and until - old.number <= _MOST_SKIPPED
        ):
            numbers |= set(range(old.number + 1, until))
        for number in sorted(numbers):
            if old is not None and number <= old.number:
                continue
            self._failed(number, begun.get(number), last=until is None)

    def _failed(self, number: int, round_: Round | None, last: bool) -> None:
        if round_ is not None:
            round_.applied = True
        if round_ is not None and round_.synced:
            # It was completed, though nobody shows its members.
            self.advance_unseen(number, round_)
            return
        if last:
            return
        joins = round_.joins if round_ is not None else {}
        started = min((start for start, _, _ in joins.values()), default=None)
        self.rows.add(
            "rebalances",
            (
                self.group_id, self.incarnation, number, started,
                round_.last_at if round_ is not None else None, None, None, True,
                self.now.assignor if self.now else None,
                round_.assignor if round_ is not None else None,
                self.protocol, None, round_.leader if round_ is not None else None,
                None, None, None, None, None, None, None,
                LOG if round_ is not None else TOPIC,
            ),
        )  # fmt: skip
        self.metrics.failed()
        self.incidents.failed(round_.last_at if round_ is not None else None)

    def catch_up(self, before: int) -> None:
        """Write the rebalances of which nothing more can come: last heard of before this time."""
        late = [
            number
            for number, one in self.rounds.items()
            if not one.applied and one.last_at < before
        ]
        if late:
            self._unfinished(self.now, max(late) + 1)

    def advance_unseen(self, number: int, round_: Round) -> None:
        """A generation of which only followers' lines are there."""
        self.advance(
            Generation(
                number, round_.last_at, None, LOG, assignor=round_.assignor,
                leader=round_.leader, protocol_type=round_.protocol_type,
            )
        )  # fmt: skip
