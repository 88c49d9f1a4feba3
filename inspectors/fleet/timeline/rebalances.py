"""One rebalance: what it changed for the members, why it was, and its row in `rebalances`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from rebal.groups.model import GroupType
from rebal.inspectors.fleet.timeline import causes
from rebal.inspectors.fleet.timeline.facts import MILLI, NEARLY, LoggedGeneration, RequestFacts
from rebal.inspectors.fleet.timeline.members import MemberSpan
from rebal.inspectors.fleet.timeline.values import (
    NOTHING,
    Member,
    Named,
    Partition,
    partitions_in,
)

TOPIC: Final = "offsets topic"
LOG: Final = "request log"
_NONE: Final[frozenset[Partition]] = frozenset()


class Generation(Struct, kw_only=True, array_like=True):
    """One generation as a source shows it; times in microseconds, None: not known.

    `size` is how many members it has, None where the source shows only that it was. `source` is
    `TOPIC` or `LOG`. `ended` moves on when the generation is written again, `completed` does not;
    `timed` is whether they are evidence of when.
    """

    number: int
    ended: int
    source: str
    size: int | None = None
    completed: int = 0
    assignor: str | None = None
    leader: str | None = None
    protocol_type: str | None = None
    type: GroupType = GroupType.CLASSIC
    started: int | None = None
    timed: bool = True

    def __post_init__(self) -> None:
        """Say when it was completed, unless that is known."""
        self.completed = self.completed or self.ended


class Change:
    """Difference between the present members and those of a generation: new, gone and changed.

    `stayed` are all that are in both, each as it was and as it is, until they are brought on;
    `changed` are those of them that said or got something else. `replaced` are static members that
    came back, by their new ids. `slipped` are those that went while the generation before was
    written again: when a KIP-848 group becomes a classic one, its first record has the old number,
    without the last one to leave.
    """

    def __init__(self, before: Mapping[str, MemberSpan], members: Named) -> None:
        self.members = members
        self.new: list[Member] = []
        self.stayed: list[tuple[MemberSpan, Member]] = []
        self.slipped: Sequence[MemberSpan] = ()
        self.replaced: dict[str, MemberSpan] = {}
        left = dict(before)
        for member in members:
            span = left.pop(member.identity.member_id, None)
            if span is None:
                self.new.append(member)
            else:
                self.stayed.append((span, member))
        self.changed = [(span, member) for span, member in self.stayed if span.member is not member]
        self.gone = list(left.values())
        instances = {one.member.identity.instance_id: one for one in self.gone}
        for member in self.new:
            span = instances.get(member.identity.instance_id)
            if span is not None and member.identity.instance_id is not None:
                self.replaced[member.member_id] = span

    @property
    def really_new(self) -> list[Member]:
        """New members that are not an old one's restart."""
        if not self.replaced:
            return self.new
        return [member for member in self.new if member.member_id not in self.replaced]

    @property
    def really_gone(self) -> list[MemberSpan]:
        """Members that went, and nobody with their instance id came."""
        if not self.replaced and not self.slipped:
            return self.gone
        back = {id(one) for one in self.replaced.values()}
        return [*self.slipped, *(one for one in self.gone if id(one) not in back)]


Owners = dict[str, frozenset[Partition]]
"""Partitions that nobody owns between two rounds of a cooperative rebalance, by last owner."""


class Rebalance(NamedTuple):
    """A rebalance from `old` (None: not known) to `new`: who changed, and what the log shows.

    `logged` and `before` are what the log shows of `new` and of `old`.
    """

    old: Generation | None
    new: Generation
    change: Change
    facts: RequestFacts
    logged: LoggedGeneration | None = None
    before: LoggedGeneration | None = None

    @property
    def began(self) -> int | None:
        """Return when the first join of it began."""
        return None if self.logged is None else self.logged.began(self.new.ended)

    @property
    def sure(self) -> bool:
        """Return whether the log showed all that happened since `old`."""
        if self.old is None or self.logged is None or self.facts.since is None:
            return False
        seen = bool(self.logged.joins or self.logged.synced)
        return seen and self.facts.since <= self.old.completed


def moved(change: Change, withheld: Owners) -> tuple[int | None, Owners]:
    """Partitions that have another owner than the last one they had; and those withheld now.

    A static member's restart is the same owner. None where an assignment is not known.
    """
    pairs = [
        (member.member_id, span.member.assignment.partitions, member.assignment.partitions)
        for span, member in change.changed
        if span.member.assignment != member.assignment
    ]
    for member in change.new:
        before = change.replaced.get(member.member_id)
        had = NOTHING if before is None else before.member.assignment.partitions
        pairs.append((member.member_id, had, member.assignment.partitions))
    for span in change.really_gone:
        pairs.append((span.member_id, span.member.assignment.partitions, NOTHING))
    if not pairs:
        return 0, withheld
    last, now = dict(withheld), {}
    for member_id, old, new in pairs:
        if old is None or new is None:
            return None, {}
        last[member_id] = partitions_in(old) | withheld.get(member_id, _NONE)
        now[member_id] = partitions_in(new)
    lost, got = _NONE.union(*last.values()), _NONE.union(*now.values())
    count = sum(len((has & lost) - last[member_id]) for member_id, has in now.items())
    free = lost - got
    if not free:
        return count, {}
    return count, {member_id: had & free for member_id, had in last.items() if had & free}


def departure(gone: MemberSpan, of: Rebalance) -> tuple[int, str | None]:
    """Return when a member left, and why (None: cannot tell)."""
    facts, at, member = of.facts, of.new.ended, gone.member
    if any(one is gone for one in of.change.replaced.values()):
        return at, causes.FENCED if gone.member_id in facts.fenced else causes.RESTARTED
    left = facts.left.get(gone.member_id)
    if left is not None:
        return left.at, left.reason or causes.LEFT
    if not of.sure:
        return at, None
    logged = facts.members.get(gone.member_id)
    longest = logged.rebalance_timeout_ms if logged is not None else None
    limit = member.identity.rebalance_timeout_ms or longest
    if of.began is not None and limit and at - of.began >= NEARLY * limit * MILLI:
        return at, causes.NOT_REJOINED
    return at, causes.EXPIRED


def may_be_slow(gone: Member, of: Rebalance) -> bool:
    """Return whether a member that went can have been a Java client before 2.4 that was too slow.

    That is one with a subscription of version 0, in its place for max.poll.interval.ms at least,
    of which no log shows a LEAVE_GROUP.
    """
    longest, old, new = gone.identity.rebalance_timeout_ms, of.old, of.new
    return (
        gone.subscription.version == 0
        and gone.identity.instance_id is None
        and gone.member_id not in of.facts.left
        and old is not None
        and longest is not None
        and not (old.timed and new.timed and new.ended - old.completed < NEARLY * longest * MILLI)
    )


def cause(of: Rebalance, added: int, withheld: Owners) -> str | None:
    """Return the cause of the rebalance; None: cannot tell.

    `added` is how many partitions more are given than in `old`, `withheld` those that were held
    back until now.
    """
    old, change, facts = of.old, of.change, of.facts
    gone, came = change.really_gone, change.really_new
    told = _logged(of) if of.logged is not None or facts.left else None
    if told == causes.EXPIRED:
        return told
    if change.replaced and not (gone or came):
        other_assignor = old is not None and old.assignor != of.new.assignor
        if other_assignor or any(_other_list(key, facts) for key in change.replaced):
            return causes.LISTS
        return causes.REPLACED
    if came and ((old is not None and old.size == 0) or _was_empty(of)):
        return causes.FIRST
    plain = _plain(change, added, len(_NONE.union(*withheld.values())))
    if told is not None and not (told in (causes.LEADER, causes.REJOINED) and plain):
        return told
    return plain or told


def _was_empty(of: Rebalance) -> bool:
    """Had all members left before the first join: no line tells of an empty generation."""
    began, change = of.began, of.change
    if began is None or not change.gone:
        return False
    lefts = [of.facts.left.get(one.member_id) for one in change.gone]
    return all(left is not None and left.at <= began for left in lefts) and not change.stayed


def _logged(of: Rebalance) -> str | None:
    """Return the cause that the log shows."""
    change, facts, ended = of.change, of.facts, of.new.ended
    gone = change.really_gone
    lefts = [facts.left[one.member_id] for one in gone if one.member_id in facts.left]
    hints = [causes.Hint(left.at, causes.of_leave(left.reason)) for left in lefts]
    joins = of.logged.joins if of.logged is not None else {}
    stayed = {member.member_id for _, member in change.stayed} if joins else set[str]()
    for member_id, (start, at, reason) in joins.items():
        if start >= ended:
            continue
        leads = member_id == of.new.leader
        told = causes.of_rejoin(reason, leads)
        if member_id not in stayed:
            if member_id not in change.replaced:
                hints.append(causes.Hint(start, causes.JOINED))
        elif told is not None:
            hints.append(causes.Hint(start, told))
        elif not gone and reason is None and not change.new:
            hints.append(causes.Hint(at, causes.LEADER if leads else ""))
    if not lefts and any(departure(one, of)[1] == causes.EXPIRED for one in gone):
        rejoined = [start for key, (start, _, _) in joins.items() if key in stayed]
        new_joins = [hint.at for hint in hints if hint.cause == causes.JOINED]
        if not new_joins or (rejoined and min(rejoined) < min(new_joins)):
            return causes.EXPIRED
    return causes.first(hint for hint in hints if hint.cause)


def _plain(change: Change, added: int, withheld: int) -> str | None:
    """Return the cause that the two generations alone show."""
    gone, came = change.really_gone, change.really_new
    if gone or came:
        return causes.BOTH if gone and came else causes.JOINED if came else causes.LEFT
    if any(
        span.member.subscription.topics is not None
        and span.member.subscription.topics != member.subscription.topics
        for span, member in change.changed
    ):
        return causes.SUBSCRIPTION
    if added > 0:
        return causes.FOLLOW_UP if added <= withheld else causes.TOPICS
    return None


def _other_list(member_id: str, facts: RequestFacts) -> bool:
    """Did the restart of a static member bring another list than the one before it."""
    now = facts.members.get(member_id)
    before = facts.members.get(now.replaced) if now is not None and now.replaced else None
    if now is None or before is None or before.assignors is None:
        return False
    return now.assignors != before.assignors
