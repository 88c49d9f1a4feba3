"""One rebalance: what it changed for the members, its cause, and its cost in stopped partitions.

With the request log, the cause is the first event after the previous rebalance: a member left, a
new member's join began, or a member rejoined and gave a reason (KIP-800). Without it, the cause
follows from the records: new members, missing members, and other differences. None: cannot tell.

groups/protocol.py decides which rebalance protocol the members ran in a generation. A fleet has few
kinds of members (elected assignor, list, software, what they kept), so each kind, and each mixture
of kinds in a group, is computed once.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal

from msgspec import Struct

from rebal.groups.clients import family_of
from rebal.groups.compact import Partitions
from rebal.groups.model import (
    AssignorList,
    Evidence,
    Group,
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    RanProtocol,
    RebalanceProtocol,
    Software,
    Source,
    Subscription,
)
from rebal.groups.protocol import group_protocol, member_protocol
from rebal.inspectors.fleet.timeline.facts import (
    MILLI,
    NEARLY,
    UNKNOWN_MEMBER,
    RequestFacts,
)
from rebal.inspectors.fleet.timeline.values import (
    EMPTY_ASSIGNMENT,
    Assignment,
    GenerationMember,
    Named,
    Partition,
    partitions_in,
)

# How many traits of members, and mixtures of them, are remembered.
_KINDS: Final = 16_384
_KEPT_ONE: Final = {"": Partitions((0,))}
_NEVER_MIND: Final = datetime.fromtimestamp(0, UTC)
_LOGGED: Final = (Evidence(source=Source.REQUEST_LOG),)
GroupTraits = tuple[GroupType, str | None, str | None]
"""Traits of a generation: the group's type, its protocol type and the elected assignor."""
LoggedClient = tuple[tuple[str, ...] | None, str | None, str | None]
"""A member's assignor list, its software and the software's version; None: not known."""
UNLOGGED_CLIENT: Final = (None, None, None)
MemberTraits = tuple[LoggedClient, bool, bool, str | None]
"""Traits of a member that decide its rebalance protocol: its logged client, whether it named owned
partitions when it joined, whether it named none although it had some, and its protocol type."""
_NONE: Final[frozenset[Partition]] = frozenset()
# Names of an enumeration are looked up slowly.
_RAN = _EAGER, _COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE

Cause = Literal[
    "first member joined",
    "member joined",
    "member left",
    "members joined and left",
    "session expired",
    "poll timeout expired",
    "static member replaced",
    "assignor list changed",
    "subscription changed",
    "topics changed",
    "cooperative follow-up",
    "last rebalance failed",
    "leader rejoined",
    "member rejoined",
]
"""Causes of a rebalance, in `rebalances.cause`."""

RESTARTED: Final = "replaced by a restart of the same instance"
FENCED: Final = "fenced: another process joined with the same group.instance.id"
"""A reason in `members.left_reason` that the member did not give itself. The broker answered
FENCED_INSTANCE_ID to a member after another one took its instance id (KIP-345): its process was
alive. Only a request log shows it."""

# Reasons of members that only follow.
_FOLLOWED: Final = (
    "group is already rebalancing",
    "need to re-join with the given member-id",
    "beginning to manage the group lifecycle",
)
_CAUSES_BY_REASON: Final[tuple[tuple[str, Cause], ...]] = (
    ("need to revoke partitions", "cooperative follow-up"),
    ("after revoking what we lost", "cooperative follow-up"),
    ("followup rebalance", "cooperative follow-up"),
    ("cached metadata has changed", "topics changed"),
    ("metadata has changed", "topics changed"),
    ("subscription", "subscription changed"),
    ("rebalance failed", "last rebalance failed"),
)


class Generation(Struct, kw_only=True, array_like=True):
    """One generation of a group, as its records or a request log show it.

    Times are microseconds since 1970 (None: not known). `completed` is when its rebalance ended.
    `ended` is the time of its last record, which may be later: for example, the restart of a static
    member writes it again. `timed` is whether these times can be trusted for durations. `size` is
    the number of members, None if the source shows only that the generation existed. `source` is
    `TOPIC` or `LOG`.
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


Owners = dict[str, frozenset[Partition]]
"""Partitions without an owner between two rounds of a cooperative rebalance, by last owner."""


class MemberSpan(Struct, eq=False, array_like=True):
    """A member of the group, unchanged since `first_generation`.

    `generation` is the generation id in its subscription. `joined_at` is None if the member may
    have joined before the first generation that is known. `timed` is whether `joined_at` can be
    trusted for durations. `kept` is whether it named owned partitions when it last joined.
    """

    member: GenerationMember
    generation: int | None
    first_generation: int | None
    first_at: int
    joined_at: int | None = None
    timed: bool = True
    kept: bool = False

    @property
    def member_id(self) -> str:
        """The member's id."""
        return self.member.member_id


class Transition:
    """A rebalance from the generation `old` (None: not known) to `new`, with its member changes.

    `stayed` are the members of both, each as it was and as it is. `changed` are those of them whose
    subscription or assignment changed. `missing` are the members missing in `new`. `replaced` maps
    the new id of a restarted static member to its old span. `joined` are the other new members.
    `left` are the other missing members, and those in the argument `slipped`, which left when `old`
    was written again: if a KIP-848 group becomes classic, its first record has the old number and
    lacks the last member that left.

    `logged` is what the log shows of `new`, and `before` what it shows of `old` (None: nothing).
    Both are None if `new` has the number of `old`.
    """

    def __init__(
        self,
        old: Generation | None,
        new: Generation,
        before: Mapping[str, MemberSpan],
        members: Named,
        facts: RequestFacts,
        *,
        slipped: Sequence[MemberSpan] = (),
    ) -> None:
        self.old, self.new, self.members, self.facts = old, new, members, facts
        shown = facts.generations if old is None or old.number != new.number else {}
        self.logged = shown.get(new.number)
        self.before = None if old is None else shown.get(old.number)
        by_id = {member.member_id: member for member in members}
        self.stayed = [(before[key], one) for key, one in by_id.items() if key in before]
        self.new_members = [one for key, one in by_id.items() if key not in before]
        self.changed = [(span, member) for span, member in self.stayed if span.member is not member]
        self.missing = [span for key, span in before.items() if key not in by_id]
        instances = {one.member.instance_id: one for one in self.missing}
        self.replaced = {
            member.member_id: instances[member.instance_id]
            for member in self.new_members
            if member.instance_id is not None and member.instance_id in instances
        }
        self.joined = [one for one in self.new_members if one.member_id not in self.replaced]
        back = {member.member_id for member in self.new_members}
        self.left = [one for one in slipped if one.member_id not in back]
        self.left += [one for one in self.missing if one not in self.replaced.values()]

    @property
    def members_known(self) -> bool:
        """Return whether the members before and after the rebalance are known.

        If `old` is None, those before are known only if `new` is generation 1: there were none.
        """
        return self.new.size is not None and (
            self.new.number == 1 if self.old is None else self.old.size is not None
        )

    @property
    def began(self) -> int | None:
        """Return when the first join of the rebalance began (None: the log does not show it)."""
        return None if self.logged is None else self.logged.began(self.new.ended)

    @property
    def sure(self) -> bool:
        """Return whether the log covers all that happened since `old` was completed."""
        if self.old is None or self.logged is None or self.facts.since is None:
            return False
        return (
            bool(self.logged.joins or self.logged.synced) and self.facts.since <= self.old.completed
        )


def moved(of: Transition, withheld: Owners) -> tuple[int | None, Owners]:
    """Return how many partitions got another owner, and the partitions without an owner now.

    `withheld` are the partitions that had no owner before the rebalance. Both maps have, by member
    id, the partitions that the member was the last to own. A partition that a static member has
    before and after its restart has the same owner. If an assignment is not known, the results are
    None and an empty map.
    """
    pairs = [
        (member.member_id, span.member.assignment, member.assignment)
        for span, member in of.changed
        if span.member.assignment != member.assignment
    ]
    for member in of.new_members:
        before = of.replaced.get(member.member_id)
        had = EMPTY_ASSIGNMENT if before is None else before.member.assignment
        pairs.append((member.member_id, had, member.assignment))
    pairs += [(span.member_id, span.member.assignment, EMPTY_ASSIGNMENT) for span in of.left]
    if not pairs:
        return 0, withheld
    last, now = dict(withheld), {}
    for member_id, old, new in pairs:
        if -1 in (old.count, new.count):
            return None, {}
        last[member_id] = partitions_in(old) | withheld.get(member_id, _NONE)
        now[member_id] = partitions_in(new)
    lost, got = _NONE.union(*last.values()), _NONE.union(*now.values())
    count = sum(len((has & lost) - last[member_id]) for member_id, has in now.items())
    free = lost - got
    return count, {member_id: had & free for member_id, had in last.items() if had & free}


def departure(gone: MemberSpan, of: Transition) -> tuple[int, str | None]:
    """Return when a member left, and why (None: cannot tell)."""
    facts, at = of.facts, of.new.ended
    if gone in of.replaced.values():
        return at, FENCED if gone.member_id in facts.fenced else RESTARTED
    left = facts.left.get(gone.member_id)
    if left is not None:
        return left.at, left.reason or "member left"
    if not of.sure:
        return at, None
    limit = (
        gone.member.rebalance_timeout_ms
        or facts.members.get(gone.member_id, UNKNOWN_MEMBER).rebalance_timeout_ms
    )
    late = of.began is not None and limit and at - of.began >= NEARLY * limit * MILLI
    return at, "did not rejoin in time" if late else "session expired"


def may_be_slow(gone: GenerationMember, of: Transition) -> bool:
    """Return whether a missing member may be a Java client before 2.4 that polled too late.

    Such a client is not static, has a subscription of version 0, and sent no LEAVE_GROUP that a log
    shows. Its last generation lasted at least max.poll.interval.ms, as far as times are known.
    """
    longest, old, new = gone.rebalance_timeout_ms, of.old, of.new
    return (
        gone.subscription.version == 0
        and gone.instance_id is None
        and gone.member_id not in of.facts.left
        and old is not None
        and longest is not None
        and not (old.timed and new.timed and new.ended - old.completed < NEARLY * longest * MILLI)
    )


def cause(of: Transition, added: int, withheld: Owners) -> Cause | None:
    """Return the cause of the rebalance; None: cannot tell.

    `added` is how many more partitions are assigned than before this rebalance. `withheld` maps a
    member to the partitions that it was the last to own and that nobody has owned since.
    """
    old, facts = of.old, of.facts
    logged_cause = _logged(of) if of.logged is not None or facts.left else None
    if logged_cause == "session expired":
        return logged_cause
    if of.replaced and not (of.left or of.joined):
        other = old is not None and old.assignor != of.new.assignor
        changed = other or any(map(facts.list_before, of.replaced))
        return "assignor list changed" if changed else "static member replaced"
    if of.joined and ((old is not None and old.size == 0) or _was_empty(of)):
        return "first member joined"
    plain = _plain(of, added, len(_NONE.union(*withheld.values())))
    return (
        plain or logged_cause
        if logged_cause in (None, "leader rejoined", "member rejoined")
        else logged_cause
    )


def _was_empty(of: Transition) -> bool:
    """Return whether the log shows that all members had left before the first join of a rebalance.

    The group was empty then, but no log line shows an empty generation.
    """
    began, lefts = of.began, [of.facts.left.get(one.member_id) for one in of.missing]
    return (
        began is not None
        and bool(lefts)
        and not of.stayed
        and all(left is not None and left.at <= began for left in lefts)
    )


def _logged(of: Transition) -> Cause | None:
    """Return the cause that the log shows, which is the first event; None: it shows none."""
    left, ended = of.facts.left, of.new.ended
    lefts = [left[one.member_id] for one in of.left if one.member_id in left]
    hints: list[tuple[int, Cause]] = [
        (one.at, "poll timeout expired" if is_slow(one.reason) else "member left") for one in lefts
    ]
    joins = of.logged.joins if of.logged is not None else {}
    stayed = {member.member_id for _, member in of.stayed} if joins else set[str]()
    for member_id, (start, at, reason) in joins.items():
        if start >= ended:
            continue
        leads = member_id == of.new.leader
        if member_id not in stayed:
            if member_id not in of.replaced:
                hints.append((start, "member joined"))
        elif (rejoin_cause := of_rejoin(reason, leads)) is not None:
            hints.append((start, rejoin_cause))
        elif leads and reason is None and not (of.left or of.new_members):
            hints.append((at, "leader rejoined"))
    if not lefts and any(departure(one, of)[1] == "session expired" for one in of.left):
        rejoined = [start for key, (start, _, _) in joins.items() if key in stayed]
        new_joins = [at for at, cause in hints if cause == "member joined"]
        if not new_joins or (rejoined and min(rejoined) < min(new_joins)):
            return "session expired"
    return min(hints)[1] if hints else None


def _plain(of: Transition, added: int, withheld: int) -> Cause | None:
    """Return the cause that the two generations show without a log; None: cannot tell.

    `added` is how many more partitions are assigned than before the rebalance, and `withheld` is
    how many partitions had lost their owner before it and got no other.
    """
    if of.left and of.joined:
        return "members joined and left"
    if of.left or of.joined:
        return "member joined" if of.joined else "member left"
    if any(
        span.member.subscription.topics is not None
        and span.member.subscription.topics != member.subscription.topics
        for span, member in of.changed
    ):
        return "subscription changed"
    more: Cause = "cooperative follow-up" if added <= withheld else "topics changed"
    return more if added > 0 else None


def is_slow(reason: str | None) -> bool:
    """Return whether a member left because it exceeded max.poll.interval.ms, by its `reason`."""
    return reason is not None and "poll timeout" in reason


def of_rejoin(reason: str | None, leads: bool) -> Cause | None:
    """Return the cause that a present member gives as the reason of its join (KIP-800).

    `leads` is whether it is the group leader. None: it gives no reason, as older clients, or says
    that it follows a rebalance that has begun.
    """
    if not reason or reason.startswith(_FOLLOWED):
        return None
    other: Cause = "leader rejoined" if leads else "member rejoined"
    return next((cause for text, cause in _CAUSES_BY_REASON if text in reason.lower()), other)


def cost_of(of: Transition) -> tuple[str | None, int | None]:
    """Return the group's protocol after a rebalance, and the number of stopped partitions.

    None: cannot tell. Stopped are the partitions of members that stayed (KIP-429): all of an EAGER
    member, the revoked ones of a COOPERATIVE member. The records show each member's assignment; the
    log of the previous generation may show that a member had not received it yet.
    """
    now, then = [(one.type, one.protocol_type, one.assignor) for one in (of.new, of.old or of.new)]
    logged = {
        member_id: (one.assignors, one.software_name, one.software_version)
        for member_id, one in of.facts.members.items()
    }
    late = frozenset() if of.before is None else of.before.unsynced - of.before.synced
    protocols: dict[MemberTraits, RebalanceProtocol] = {}
    counts: list[int | None] = []
    for span, member in of.stayed:
        had, gave_up = span.member.assignment, False
        if member is not span.member:
            if _never_opened(of, span, member):
                had = EMPTY_ASSIGNMENT
            else:
                span.kept, gave_up = _showed(of, span, member)
        kind = (
            logged.get(member.member_id, UNLOGGED_CLIENT) if logged else UNLOGGED_CLIENT,
            span.kept,
            gave_up,
            member.protocol_type,
        )
        protocol = protocols.get(kind)
        if protocol is None:
            protocol = protocols[kind] = ran(then, kind)
        if had.count:
            if late and member.member_id in late and had.count > 0:
                had = Assignment(member.subscription.owned or ())
            counts.append(
                had.count
                if protocol is _EAGER and had.count >= 0
                else _stopped(protocol, had, member.assignment)
            )
    kinds = set(protocols)
    for member in of.new_members:
        kinds.add(
            (
                logged.get(member.member_id, UNLOGGED_CLIENT),
                member.owns,
                False,
                member.protocol_type,
            )
        )
        counts.append(_revoked_late(of, member))
    is_known = of.members_known and None not in counts
    return group_ran(now, frozenset(kinds)), sum(filter(None, counts)) if is_known else None


def _showed(of: Transition, span: MemberSpan, member: GenerationMember) -> tuple[bool, bool]:
    """Return whether a member kept its partitions when it rejoined, and whether it revoked all.

    Both follow from the owned partitions that its join named. If the join does not show whether the
    member kept its partitions, the first item is `span.kept`, which earlier joins showed, and the
    second is False.
    """
    sent, before = member.subscription, span.member
    if member.owns:
        return True, False
    if of.old is None or before.assignment.count < 1 or sent == before.subscription:
        return span.kept, False
    synced = of.before is not None and member.member_id in of.before.synced
    return False, synced and sent.owned is not None and of.members[member] == of.old.number


def _never_opened(of: Transition, span: MemberSpan, member: GenerationMember) -> bool:
    """Return whether a static member restarted and does not subscribe to all assigned topics.

    Its old process had closed the partitions. The new process got the same assignment without a
    rebalance, dropped it, and rejoined at once: so its rejoin stops no partition.
    """
    old, had, topics = of.old, span.member.assignment.partitions, member.subscription.topics
    joined, longest = span.joined_at or 0, member.rebalance_timeout_ms or 0
    if old is None or joined <= old.completed or had is None or topics is None:
        return False
    return of.new.ended - joined <= longest * MILLI and not {topic for topic, _ in had} <= set(
        topics
    )


def _revoked_late(of: Transition, member: GenerationMember) -> int | None:
    """Return how many partitions a new member revoked late, after exceeding max.poll.interval.ms.

    Java clients before 2.4 revoke them at the next poll and join with a new member id. Later
    versions call them lost (KIP-429), which counts 0. The result is None if the number is not
    known, or if the member may as well be a restarted process, because no log shows which it is.
    """
    facts, gone = of.facts, [one.member for one in of.missing]
    logged = facts.members.get(member.member_id, UNKNOWN_MEMBER)
    if logged.software_name is not None:
        return 0
    if logged.before is not None:
        counts = [one.assignment.count for one in gone if one.member_id == logged.before]
        had = facts.left[logged.before].had if logged.before in facts.left else None
        return next((None if count < 0 else count for count in counts), had)
    return (
        None
        if facts.away.pop(member.process, False)
        or any(one.process == member.process and may_be_slow(one, of) for one in gone)
        else 0
    )


def _stopped(protocol: RebalanceProtocol, had: Assignment, given: Assignment) -> int | None:
    """Return how many partitions a COOPERATIVE member stopped: those in `had` but not in `given`.

    These are its assignments before and after the rebalance. The result is None if `protocol` is
    another one, or an assignment is not known.
    """
    if protocol is not _COOPERATIVE or -1 in (had.count, given.count):
        return None
    return 0 if had is given else len(partitions_in(had) - partitions_in(given))


@lru_cache(maxsize=_KINDS)
def ran(group: GroupTraits, kind: MemberTraits) -> RebalanceProtocol:
    """Return the rebalance protocol that a member ran in a generation, or CANNOT_TELL.

    `group` has the group's type, protocol type and elected assignor in the generation. `kind` has
    what is known of the member: its assignor list, its software, and whether it kept partitions
    when it joined.
    """
    member = _member(group, kind, "m")
    return member_protocol(member, _snapshot(group, (member,))).value


@lru_cache(maxsize=_KINDS)
def group_ran(group: GroupTraits, kinds: frozenset[MemberTraits]) -> str | None:
    """Return EAGER, COOPERATIVE or mixed, as the members ran in a generation.

    `kinds` has what is known of each member; both arguments are as in `ran`. None: cannot tell, or
    there are no members.
    """
    members = tuple(_member(group, kind, str(n)) for n, kind in enumerate(sorted(kinds, key=repr)))
    # a KIP-848 group's coordinator stops nothing, its classic members may on their own
    if not members or (
        group[0] is GroupType.CONSUMER and any(ran(group, kind) not in _RAN for kind in kinds)
    ):
        return None
    answer = group_protocol(_snapshot(group, members)).value
    return None if answer is RebalanceProtocol.CANNOT_TELL else str(answer)


def _member(group: GroupTraits, kind: MemberTraits, name: str) -> Member:
    (assignors, software, version), kept, gave_up, speaks = kind
    family = family_of(software, version)
    if assignors is not None and "stream" in assignors and family == "java":
        family = "streams"  # the consumers inside Kafka Streams introduce themselves as Java's
    ran = None
    if kept or gave_up:
        ran = RanProtocol(value=_COOPERATIVE if kept else _EAGER, evidence=_LOGGED)
    return Member(
        member_id=name,
        software=None
        if software is None
        else Software(family=family, name=software, version=version, evidence=_LOGGED),
        assignors=AssignorList()
        if assignors is None
        else AssignorList(knowledge=Knowledge.EXACT, list=assignors, evidence=_LOGGED),
        ran=ran,
        subscription=Subscription(version=1, owned_partitions=_KEPT_ONE) if kept else None,
        protocol_type=speaks if group[0] is GroupType.CONSUMER else None,
    )


def _snapshot(group: GroupTraits, members: tuple[Member, ...]) -> GroupSnapshot:
    group_type, protocol_type, assignor = group
    return GroupSnapshot(
        group=Group(
            group_id="g",
            state=GroupState.STABLE,
            type=group_type,
            protocol_type=protocol_type,
            assignor=assignor,
        ),
        captured_at=_NEVER_MIND,
        members=members,
    )
