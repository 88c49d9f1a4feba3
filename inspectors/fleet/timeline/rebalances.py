"""One rebalance: what it changed for the members, why it was, and its row in `rebalances`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

from rebal.groups.model import GroupType
from rebal.inspectors.fleet.timeline import causes
from rebal.inspectors.fleet.timeline.log import MILLI, NEARLY, Log, Round
from rebal.inspectors.fleet.timeline.members import Standing
from rebal.inspectors.fleet.timeline.values import NOTHING, Places, Seen, sums_of

TOPIC: Final = "offsets topic"
LOG: Final = "request log"


class Generation:
    """One generation as a source shows it; times in microseconds, None: not known.

    `members` is None where the source shows only that it was. `source` is `TOPIC` or `LOG`.
    """

    __slots__ = (
        "assignor",
        "completed",
        "ended",
        "leader",
        "members",
        "number",
        "protocol_type",
        "source",
        "started",
        "sums",
        "timed",
        "type",
    )

    def __init__(
        self,
        number: int,
        ended: int,
        members: Sequence[Seen] | None,
        source: str,
        *,
        assignor: str | None = None,
        leader: str | None = None,
        protocol_type: str | None = None,
        group_type: GroupType = GroupType.CLASSIC,
        started: int | None = None,
        timed: bool = True,
    ) -> None:
        self.number = number
        self.ended = ended
        # `ended` moves on when the generation is written again, this does not
        self.completed = ended
        self.members = members
        self.sums = sums_of(members or ())
        self.source = source
        self.assignor = assignor
        self.leader = leader
        self.protocol_type = protocol_type
        self.type = group_type
        self.started = started
        # is `ended` evidence of when
        self.timed = timed


class Change:
    """Who came, went and changed between the standing members and a generation.

    `changed` are members that stayed and said or got something else; all others are as they were.
    `slipped` are those that went while the generation before was written again: when a KIP-848
    group becomes a classic one, its first record has the old number, without the last one to leave.
    """

    __slots__ = ("_before", "changed", "gone", "new", "replaced", "slipped")

    def __init__(self, before: Mapping[str, Standing], after: Generation) -> None:
        self._before = before
        self.new: list[Seen] = []
        self.changed: list[tuple[Standing, Seen]] = []
        self.gone: list[Standing] = []
        self.slipped: Sequence[Standing] = ()
        # new member id -> the one of the same instance before
        self.replaced: dict[str, Standing] = {}
        members = after.members or ()
        stayed = 0
        for seen in members:
            standing = before.get(seen.member_id)
            if standing is None:
                self.new.append(seen)
                continue
            stayed += 1
            if seen is not standing.seen:
                self.changed.append((standing, seen))
        if stayed != len(before):
            ids = {seen.member_id for seen in members}
            self.gone = [one for key, one in before.items() if key not in ids]
        if self.gone and self.new:
            instances = {
                one.seen.head.instance_id: one
                for one in self.gone
                if one.seen.head.instance_id is not None
            }
            for seen in self.new:
                if seen.head.instance_id in instances:
                    self.replaced[seen.member_id] = instances[seen.head.instance_id]

    def stayed(self) -> list[tuple[Standing, Seen]]:
        """All members that stayed, each as it was and as it is; ask before they are brought on."""
        changed = {id(standing): seen for standing, seen in self.changed}
        gone = set(map(id, self.gone))
        return [
            (one, changed.get(id(one), one.seen))
            for one in self._before.values()
            if id(one) not in gone
        ]

    @property
    def really_new(self) -> list[Seen]:
        """New members that are not an old one's restart."""
        if not self.replaced:
            return self.new
        return [seen for seen in self.new if seen.member_id not in self.replaced]

    @property
    def really_gone(self) -> list[Standing]:
        """Members that went, and nobody with their instance id came."""
        if not self.replaced and not self.slipped:
            return self.gone
        back = {id(one) for one in self.replaced.values()}
        return [*self.slipped, *(one for one in self.gone if id(one) not in back)]


Owners = dict[str, int]
"""Partitions that nobody owns between two rounds of a cooperative rebalance, as bits by their last
owner."""


def count_of(owners: Owners) -> int:
    """How many partitions they are."""
    return sum(bits.bit_count() for bits in owners.values())


def moved(change: Change, withheld: Owners, places: Places) -> tuple[int | None, Owners]:
    """Partitions that have another owner than the last one they had; and those withheld now.

    A static member's restart is the same owner. None where an assignment is not known.
    """
    pairs = [
        (old.seen.given.partitions, seen.given.partitions, seen.member_id)
        for old, seen in change.changed
        if not old.seen.given.says_the_same(seen.given)
    ]
    pairs += [
        (one.seen.given.partitions, seen.given.partitions, seen.member_id)
        for seen in (change.new if change.replaced else ())
        if (one := change.replaced.get(seen.member_id)) is not None
    ]
    pairs += [(NOTHING, seen.given.partitions, seen.member_id) for seen in change.really_new]
    pairs += [
        (one.seen.given.partitions, NOTHING, one.seen.member_id) for one in change.really_gone
    ]
    if not pairs:
        return 0, withheld
    lost = got = twice = kept_by_owner = 0
    for old, new, _ in pairs:
        if old is None or new is None:
            return None, {}
        before, after = old.bits(places), new.bits(places)
        lost |= before
        twice |= got & after
        got |= after
        kept_by_owner += (before & after).bit_count()
    count = (lost & got).bit_count() - kept_by_owner
    if not (twice or withheld or lost & ~got):
        return count, withheld
    had = [(old.bits(places), member_id) for old, _, member_id in pairs if old is not None]
    has = [(new.bits(places), member_id) for _, new, member_id in pairs if new is not None]
    if twice:
        # some are given to several members
        count = sum((lost & bits).bit_count() for bits, _ in has) - kept_by_owner
    if withheld:
        nobodys = reduce(or_, withheld.values())
        for bits, member_id in has:
            count += (bits & nobodys & ~withheld.get(member_id, 0)).bit_count()
    return count, _withheld(withheld, had, lost & ~got, got)


def _withheld(before: Owners, had: Sequence[tuple[int, str]], revoked: int, got: int) -> Owners:
    """Those of before that nobody got, and what was revoked, of its last owner."""
    kept: Owners = {}
    taken = 0
    old = [(bits & ~got, member_id) for member_id, bits in before.items()]
    last = [(bits & revoked, member_id) for bits, member_id in reversed(had)]
    for bits, member_id in [*last, *old]:
        free = bits & ~taken
        if free:
            taken |= free
            kept[member_id] = kept.get(member_id, 0) | free
    return kept


def went(standing: Standing, log: Log, began: int | None, ended: int, sure: bool) -> str | None:
    """Why a member is gone; `sure` is whether the log showed everything since it was last there."""
    seen = standing.seen
    left = log.left.get(seen.member_id)
    if left is not None:
        return left.reason or causes.LEFT
    if not sure:
        return None
    person = log.persons.get(seen.member_id)
    limit = seen.head.rebalance_timeout_ms or (person.rebalance_timeout_ms if person else None)
    if began is not None and limit and ended - began >= NEARLY * limit * MILLI:
        return causes.NOT_REJOINED
    return causes.EXPIRED


def client_of(seen: Seen) -> tuple[str | None, str | None]:
    """Return by what a dynamic member's process can be known again: its client id and its host."""
    return seen.head.client_id, seen.head.host


def may_be_slow(gone: Standing, log: Log, old: Generation | None, new: Generation) -> bool:
    """Return whether a member that went can have been a Java client before 2.4 that was too slow.

    That is one with a subscription of version 0, in its place for max.poll.interval.ms at least,
    of which no log shows a LEAVE_GROUP.
    """
    head = gone.seen.head
    longest = head.rebalance_timeout_ms
    return (
        gone.seen.sent.version == 0
        and head.instance_id is None
        and head.member_id not in log.left
        and old is not None
        and longest is not None
        and not (old.timed and new.timed and new.ended - old.completed < NEARLY * longest * MILLI)
    )


def cause(
    old: Generation, new: Generation, change: Change, log: Log, round_: Round | None,
    *, sure: bool, added: int, withheld: int,
) -> str | None:  # fmt: skip
    """What began the rebalance from `old` to `new`; None: cannot tell.

    `added` is how many partitions more are given than in `old`, `withheld` how many were held back
    until now.
    """
    gone, came = change.really_gone, change.really_new
    told = None
    if round_ is not None or log.left:
        told = _logged(new, change, log, round_, sure)
        if told == causes.EXPIRED:
            return told
    if change.replaced and not (gone or came):
        if old.assignor != new.assignor or any(_other_list(k, log) for k in change.replaced):
            return causes.LISTS
        return causes.REPLACED
    if not old.members and old.members is not None and came:
        return causes.FIRST
    if came and round_ is not None and _was_empty(change, log, round_.began(new.ended)):
        return causes.FIRST
    plain = _plain(change, added, withheld)
    if told is not None and not (told in (causes.LEADER, causes.REJOINED) and plain):
        return told
    return plain or told


def _was_empty(change: Change, log: Log, began: int | None) -> bool:
    """Had all members left before the first join: no line tells of an empty generation."""
    if began is None or not change.gone or not log.left:
        return False
    lefts = [log.left.get(one.seen.member_id) for one in change.gone]
    return all(left is not None and left.at <= began for left in lefts) and not change.stayed()


def _logged(
    new: Generation, change: Change, log: Log, round_: Round | None, sure: bool
) -> str | None:
    """What the log says began it."""
    gone, came = change.really_gone, change.really_new
    hints: list[causes.Hint] = []
    ended = new.ended
    began = round_.began(ended) if round_ is not None else None
    for one in gone:
        left = log.left.get(one.seen.member_id)
        if left is not None:
            hints.append(causes.Hint(left.at, causes.of_leave(left.reason)))
    joins = round_.joins if round_ is not None else {}
    stayed = {seen.member_id for _, seen in change.stayed()} if joins else set[str]()
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
    expired = sure and any(went(one, log, began, ended, sure) == causes.EXPIRED for one in gone)
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
        old.seen.sent.topics is not None and old.seen.sent.topics != seen.sent.topics
        for old, seen in change.changed
    ):
        return causes.SUBSCRIPTION
    if added > 0:
        return causes.FOLLOW_UP if added <= withheld else causes.TOPICS
    return None


def _other_list(member_id: str, log: Log) -> bool:
    """Did the restart of a static member bring another list than the one before it."""
    person = log.persons.get(member_id)
    before = log.persons.get(person.replaced) if person is not None and person.replaced else None
    if person is None or before is None or before.assignors is None:
        return False
    return person.assignors != before.assignors
