"""What a rebalance cost: which protocol each member ran, and the partitions that it stopped."""

from __future__ import annotations

from typing import Final

from rebal.groups.model import GroupType, RebalanceProtocol
from rebal.inspectors.fleet.timeline.facts import LoggedGeneration, LoggedMember, RequestFacts
from rebal.inspectors.fleet.timeline.members import MemberSpan
from rebal.inspectors.fleet.timeline.protocol import Kind, Profile, Protocols
from rebal.inspectors.fleet.timeline.rebalances import Change, Generation, may_be_slow
from rebal.inspectors.fleet.timeline.values import NOTHING, Member, PartitionBits


class Cost:
    """The rebalance from `old` (None: not known) to `new`; `before` is what the log says of `old`.

    `protocol` is the group's after it, None: cannot tell. `stopped` counts the partitions that
    members which stayed had to stop (KIP-429): all that an EAGER one had, and of a COOPERATIVE one
    those it gave up; None where a member had some and its protocol is not known. By the records
    each had got its assignment; the log of the generation before may show that one had not yet.
    """

    __slots__ = (
        "_before",
        "_bits",
        "_change",
        "_facts",
        "_new",
        "_old",
        "_protocols",
        "_same",
        "protocol",
        "stopped",
    )

    def __init__(
        self,
        old: Generation | None,
        new: Generation,
        change: Change,
        facts: RequestFacts,
        *,
        protocols: Protocols,
        before: LoggedGeneration | None,
        bits: PartitionBits,
    ) -> None:
        self._old, self._new, self._change, self._facts = old, new, change, facts
        self._protocols, self._before, self._bits = protocols, before, bits
        self._same = (
            old is not None
            and old.assignor == new.assignor
            and old.type is new.type
            and old.protocol_type == new.protocol_type
        )
        profiles: set[Profile] = set()
        stopped: int | None = 0
        for span, member in change.stayed():
            profile = self._profile(span, member)
            profiles.add(profile)
            if stopped is not None and span.member.count:
                now = self._stopped(profile, span, member)
                stopped = None if now is None else stopped + now
        for member in change.new:
            profiles.add(self._of_kind(member, new, bool(member.subscription.owned), False))
            revoked = self._revoked_late(member)
            stopped = None if stopped is None or revoked is None else stopped + revoked
        self.protocol = protocols.of_group(frozenset(profiles))
        told = old.size is not None if old is not None else new.number == 1
        self.stopped = stopped if told else None

    def _profile(self, span: MemberSpan, member: Member) -> Profile:
        """The member's, the one of the generation before where nothing of it changed."""
        profile, logged = span.profile, self._facts.members
        usable = profile is not None and self._same
        if usable and profile is not None and logged:
            usable = _tells(logged.get(member.member_id), profile.kind)
        if usable and profile is not None and _goes_on(profile, span.member, member):
            return profile
        kept, gave_up = self._showed(span, member)
        if usable and profile is not None and profile.kind[6:8] == (kept, gave_up):
            return profile
        span.profile = profile = self._of_kind(member, self._new, kept, gave_up)
        return profile

    def _of_kind(
        self, member: Member, generation: Generation, kept: bool, gave_up: bool
    ) -> Profile:
        """The profile of the member's kind in a generation."""
        logged = self._facts.members.get(member.member_id) or _UNHEARD
        return self._protocols.profile(
            Kind(
                generation.type,
                generation.protocol_type,
                generation.assignor,
                logged.assignors,
                logged.software_name,
                logged.software_version,
                kept,
                gave_up,
                member.identity.protocol_type if generation.type is GroupType.CONSUMER else None,
            )
        )

    def _showed(self, span: MemberSpan, member: Member) -> tuple[bool, bool]:
        """Whether the member kept what it had when it rejoined, whether it was seen to give up."""
        said, before, old = member.subscription, span.member.subscription, self._old
        if said.owned:
            return True, False
        if old is None or not span.member.assignment.partitions or said.says_the_same(before):
            return span.profile is not None and span.profile.kind.kept, False
        synced = self._before is not None and member.member_id in self._before.synced
        return False, synced and said.owned is not None and said.generation == old.number

    def _revoked_late(self, member: Member) -> int | None:
        """How many partitions a new member revokes that was past max.poll.interval.ms before.

        Java before 2.4 revokes what it had when it polls again and joins under a new member id; 2.4
        and later call it lost (KIP-429). None where no log tells that from a restart.
        """
        logged, facts = self._facts.members.get(member.member_id), self._facts
        if logged is not None and logged.software_name is not None:
            return 0
        gone = [one.member for one in self._change.gone]
        if logged is not None and logged.before is not None:
            counts = [one.count for one in gone if one.member_id == logged.before]
            left = facts.left.get(logged.before)
            had = left.had if left is not None else None
            return next((None if count < 0 else count for count in counts), had)
        may_be = facts.away.pop(member.process, False) or any(
            one.process == member.process and may_be_slow(one, facts, self._old, self._new)
            for one in gone
        )
        return None if may_be else 0

    def _stopped(self, profile: Profile, span: MemberSpan, member: Member) -> int | None:
        """How many partitions one member stopped, by how it ran as it rejoined."""
        ran = profile
        if not self._same and self._old is not None:
            ran = self._of_kind(member, self._old, *profile.kind[6:8])
        had, given = span.member.assignment.partitions, member.assignment.partitions
        if had is None or ran.protocol is None:
            return None
        before = self._before
        if before is not None and member.member_id in before.unsynced - before.synced:
            had = member.subscription.owned or NOTHING
        if ran.protocol is RebalanceProtocol.EAGER:
            return had.count
        if given is None:
            return None
        if given is had:
            return 0
        return (self._bits.of(had) & ~self._bits.of(given)).bit_count()


_UNHEARD: Final = LoggedMember()


def _goes_on(profile: Profile, before: Member, member: Member) -> bool:
    """Does what a member's records say leave it of its kind."""
    if not profile.holds:
        return False
    if member.subscription.owned:
        return profile.kind.kept
    return member.subscription.says_the_same(before.subscription)


def _tells(logged: LoggedMember | None, kind: Kind) -> bool:
    """Does the log tell of the member what its kind holds."""
    if logged is None:
        return kind.assignors is None and kind.software_name is None
    return logged.assignors == kind.assignors and logged.software_name == kind.software_name
