"""One rebalance: what it changed for the members, why it was, and its row in `rebalances`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

from msgspec import Struct

from rebal.groups.model import GroupType
from rebal.inspectors.fleet.timeline import causes
from rebal.inspectors.fleet.timeline.facts import MILLI, NEARLY, LoggedGeneration, RequestFacts
from rebal.inspectors.fleet.timeline.members import MemberSpan
from rebal.inspectors.fleet.timeline.values import NOTHING, Member, PartitionBits

TOPIC: Final = "offsets topic"
LOG: Final = "request log"


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
    """Who came, went and changed between the members there are and those of a generation.

    `changed` are members that stayed and said or got something else; all others are as they were.
    `slipped` are those that went while the generation before was written again: when a KIP-848
    group becomes a classic one, its first record has the old number, without the last one to leave.
    """

    __slots__ = ("_before", "changed", "gone", "new", "replaced", "slipped")

    def __init__(self, before: Mapping[str, MemberSpan], members: Sequence[Member]) -> None:
        self._before = before
        self.new: list[Member] = []
        self.changed: list[tuple[MemberSpan, Member]] = []
        self.gone: list[MemberSpan] = []
        self.slipped: Sequence[MemberSpan] = ()
        # new member id -> the one of the same instance before
        self.replaced: dict[str, MemberSpan] = {}
        stayed = 0
        for member in members:
            span = before.get(member.member_id)
            if span is None:
                self.new.append(member)
                continue
            stayed += 1
            if member is not span.member:
                self.changed.append((span, member))
        if stayed != len(before):
            ids = {member.member_id for member in members}
            self.gone = [one for key, one in before.items() if key not in ids]
        if self.gone and self.new:
            instances = {
                one.member.identity.instance_id: one
                for one in self.gone
                if one.member.identity.instance_id is not None
            }
            for member in self.new:
                if member.identity.instance_id in instances:
                    self.replaced[member.member_id] = instances[member.identity.instance_id]

    def stayed(self) -> list[tuple[MemberSpan, Member]]:
        """All members that stayed, each as it was and as it is; ask before they are brought on."""
        changed = {id(span): member for span, member in self.changed}
        gone = set(map(id, self.gone))
        return [
            (one, changed.get(id(one), one.member))
            for one in self._before.values()
            if id(one) not in gone
        ]

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


Owners = dict[str, bytes]
"""Partitions that nobody owns between two rounds of a cooperative rebalance, by their last owner,
as bits (little-endian)."""


def count_of(owners: Owners) -> int:
    """How many partitions they are."""
    return sum(_bits(raw).bit_count() for raw in owners.values())


def moved(change: Change, withheld: Owners, bits: PartitionBits) -> tuple[int | None, Owners]:
    """Partitions that have another owner than the last one they had; and those withheld now.

    A static member's restart is the same owner. None where an assignment is not known.
    """
    pairs = [
        (span.member.assignment.partitions, member.assignment.partitions, member.member_id)
        for span, member in change.changed
        if span.member.assignment != member.assignment
    ]
    pairs += [
        (one.member.assignment.partitions, member.assignment.partitions, member.member_id)
        for member in (change.new if change.replaced else ())
        if (one := change.replaced.get(member.member_id)) is not None
    ]
    pairs += [(NOTHING, one.assignment.partitions, one.member_id) for one in change.really_new]
    pairs += [
        (one.member.assignment.partitions, NOTHING, one.member_id) for one in change.really_gone
    ]
    if not pairs:
        return 0, withheld
    had, has = [], []
    for old, new, member_id in pairs:
        if old is None or new is None:
            return None, {}
        had.append((bits.of(old), member_id))
        has.append((bits.of(new), member_id))
    lost = got = twice = kept_by_owner = 0
    for (before, _), (after, _) in zip(had, has, strict=True):
        lost |= before
        twice |= got & after
        got |= after
        kept_by_owner += (before & after).bit_count()
    count = (lost & got).bit_count() - kept_by_owner
    if not (twice or withheld or lost & ~got):
        return count, withheld
    if twice:
        # some are given to several members
        count = sum((lost & after).bit_count() for after, _ in has) - kept_by_owner
    if withheld:
        free = {member_id: _bits(raw) for member_id, raw in withheld.items()}
        nobodys = reduce(or_, free.values())
        for after, member_id in has:
            count += (after & nobodys & ~free.get(member_id, 0)).bit_count()
    return count, _withheld(withheld, had, lost & ~got, got)


def _withheld(before: Owners, had: Sequence[tuple[int, str]], revoked: int, got: int) -> Owners:
    """Those of before that nobody got, and what was revoked, of its last owner."""
    kept: dict[str, int] = {}
    taken = 0
    old = [(_bits(raw) & ~got, member_id) for member_id, raw in before.items()]
    last = [(bits & revoked, member_id) for bits, member_id in reversed(had)]
    for bits, member_id in [*last, *old]:
        free = bits & ~taken
        if free:
            taken |= free
            kept[member_id] = kept.get(member_id, 0) | free
    return {key: bits.to_bytes(bits.bit_length() // 8 + 1, "little") for key, bits in kept.items()}


def _bits(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


def went(
    member: Member, facts: RequestFacts, began: int | None, ended: int, sure: bool
) -> str | None:
    """Why a member is gone; `sure` is whether the log showed everything since it was last there."""
    left = facts.left.get(member.member_id)
    if left is not None:
        return left.reason or causes.LEFT
    if not sure:
        return None
    logged = facts.members.get(member.member_id)
    longest = logged.rebalance_timeout_ms if logged is not None else None
    limit = member.identity.rebalance_timeout_ms or longest
    if began is not None and limit and ended - began >= NEARLY * limit * MILLI:
        return causes.NOT_REJOINED
    return causes.EXPIRED


def may_be_slow(gone: Member, facts: RequestFacts, old: Generation | None, new: Generation) -> bool:
    """Return whether a member that went can have been a Java client before 2.4 that was too slow.

    That is one with a subscription of version 0, in its place for max.poll.interval.ms at least,
    of which no log shows a LEAVE_GROUP.
    """
    longest = gone.identity.rebalance_timeout_ms
    return (
        gone.subscription.version == 0
        and gone.identity.instance_id is None
        and gone.member_id not in facts.left
        and old is not None
        and longest is not None
        and not (old.timed and new.timed and new.ended - old.completed < NEARLY * longest * MILLI)
    )


def cause(
    old: Generation, new: Generation, change: Change, facts: RequestFacts,
    logged: LoggedGeneration | None, *, sure: bool, added: int, withheld: int,
) -> str | None:  # fmt: skip
    """What began the rebalance from `old` to `new`; None: cannot tell.

    `added` is how many partitions more are given than in `old`, `withheld` how many were held back
    until now.
    """
    gone, came = change.really_gone, change.really_new
    told = None
    if logged is not None or facts.left:
        told = _logged(new, change, facts, logged, sure)
        if told == causes.EXPIRED:
            return told
    if change.replaced and not (gone or came):
        if old.assignor != new.assignor or any(_other_list(k, facts) for k in change.replaced):
            return causes.LISTS
        return causes.REPLACED
    if old.size == 0 and came:
        return causes.FIRST
    if came and logged is not None and _was_empty(change, facts, logged.began(new.ended)):
        return causes.FIRST
    plain = _plain(change, added, withheld)
    if told is not None and not (told in (causes.LEADER, causes.REJOINED) and plain):
        return told
    return plain or told


def _was_empty(change: Change, facts: RequestFacts, began: int | None) -> bool:
    """Had all members left before the first join: no line tells of an empty generation."""
    if began is None or not change.gone or not facts.left:
        return False
    lefts = [facts.left.get(one.member_id) for one in change.gone]
    return all(left is not None and left.at <= began for left in lefts) and not change.stayed()


def _logged(
    new: Generation, change: Change, facts: RequestFacts, logged: LoggedGeneration | None,
    sure: bool,
) -> str | None:  # fmt: skip
    """What the log says began it."""
    gone, came = change.really_gone, change.really_new
    hints: list[causes.Hint] = []
    ended = new.ended
    began = logged.began(ended) if logged is not None else None
    for one in gone:
        left = facts.left.get(one.member_id)
        if left is not None:
            hints.append(causes.Hint(left.at, causes.of_leave(left.reason)))
    joins = logged.joins if logged is not None else {}
    stayed = {member.member_id for _, member in change.stayed()} if joins else set[str]()
    for member_id, (start, at, reason) in joins.items():
        if start >= ended:
            continue
        if member_id not in stayed:
            if member_id not in change.replaced:
                hints.append(causes.Hint(start, causes.JOINED))
            continue
        told = causes.of_rejoin(reason, member_id == new.leader)
        if told is not None:
            hints.append(causes.Hint(start, told))
        elif not came and not gone and reason is None and not change.new:
            hints.append(causes.Hint(at, causes.LEADER if member_id == new.leader else ""))
    expired = sure and any(
        went(one.member, facts, began, ended, sure) == causes.EXPIRED for one in gone
    )
    if expired and not any(hint.cause in (causes.LEFT, causes.SLOW) for hint in hints):
        rejoined = [start for key, (start, _, _) in joins.items() if key in stayed]
        new_joins = [hint.at for hint in hints if hint.cause == causes.JOINED]
        if not new_joins or (rejoined and min(rejoined) < min(new_joins)):
            return causes.EXPIRED
    return causes.first(hint for hint in hints if hint.cause)


def _plain(change: Change, added: int, withheld: int) -> str | None:
    """What the two generations alone show."""
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
