"""The cost of a rebalance: the protocol that each member ran, the partitions that it stopped."""

from __future__ import annotations

from typing import Final

from rebal.groups.model import GroupType, RebalanceProtocol
from rebal.inspectors.fleet.timeline.facts import LoggedMember, RequestFacts
from rebal.inspectors.fleet.timeline.members import MemberSpan
from rebal.inspectors.fleet.timeline.protocol import Kind, Protocols
from rebal.inspectors.fleet.timeline.rebalances import Generation, Rebalance, may_be_slow
from rebal.inspectors.fleet.timeline.values import NOTHING, Member, partitions_in

_UNHEARD: Final = LoggedMember()


class Kinds:
    """The kinds of members that there are in one generation."""

    def __init__(self, generation: Generation, facts: RequestFacts, protocols: Protocols) -> None:
        self.generation = generation
        self._logged = facts.members
        self._protocols = protocols
        self._found: dict[tuple[object, ...], Kind] = {}

    def of(self, member: Member, kept: bool, gave_up: bool) -> Kind:
        """Return the member's kind, if it kept partitions or gave up all (`Kind`)."""
        logged, speaks = self._logged.get(member.member_id, _UNHEARD), member.identity.protocol_type
        said = logged.assignors, logged.software_name, logged.software_version
        found = self._found.get((said, kept, gave_up, speaks))
        if found is None:
            now = self.generation
            found = self._found[said, kept, gave_up, speaks] = Kind(
                now.type, now.protocol_type, now.assignor, *said, kept, gave_up,
                speaks if now.type is GroupType.CONSUMER else None,
            )  # fmt: skip
        return found

    def protocol(self) -> str | None:
        """Return the protocol that the group ran, by all that were asked for."""
        return self._protocols.of_group(frozenset(self._found.values()))


def cost_of(of: Rebalance, protocols: Protocols) -> tuple[str | None, int | None]:
    """Return the group's protocol after a rebalance (None: cannot tell), and what was stopped.

    That counts the partitions that members which stayed had to stop (KIP-429): all that an EAGER
    one had, and of a COOPERATIVE one those it gave up; None where a member had some and its
    protocol is not known. By the records each had got its assignment; the log of the generation
    before may show that one had not yet.
    """
    old, new = of.old, of.new
    now = then = Kinds(new, of.facts, protocols)
    if old is not None:
        same = (old.assignor, old.type, old.protocol_type)
        if same != (new.assignor, new.type, new.protocol_type):
            then = Kinds(old, of.facts, protocols)
    counts: list[int | None] = []
    for span, member in of.change.stayed:
        gave_up = False
        if member is not span.member:
            span.kept, gave_up = _showed(of, span, member)
        kind = now.of(member, span.kept, gave_up)
        if span.member.assignment.count:
            ran = kind if then is now else then.of(member, span.kept, gave_up)
            counts.append(_stopped(of, protocols.ran(ran), span, member))
    for member in of.change.new:
        now.of(member, bool(member.subscription.owned), False)
        counts.append(_revoked_late(of, member))
    told = old.size is not None if old is not None else new.number == 1
    known = [count for count in counts if count is not None]
    return now.protocol(), sum(known) if told and len(known) == len(counts) else None


def _showed(of: Rebalance, span: MemberSpan, member: Member) -> tuple[bool, bool]:
    """Return whether the member kept what it had when it rejoined, and whether it gave it up."""
    said, before = member.subscription, span.member
    if said.owned:
        return True, False
    had = before.assignment.partitions
    if of.old is None or not had or said == before.subscription:
        return span.kept, False
    synced = of.before is not None and member.member_id in of.before.synced
    rejoined = of.change.generations[member] == of.old.number
    return False, synced and said.owned is not None and rejoined


def _revoked_late(of: Rebalance, member: Member) -> int | None:
    """Return the number of partitions that a new member revokes that was past max.poll.interval.ms.

    Java before 2.4 revokes what it had when it polls again and joins under a new member id; 2.4
    and later call it lost (KIP-429). None where no log tells that from a restart.
    """
    logged, facts = of.facts.members.get(member.member_id), of.facts
    if logged is not None and logged.software_name is not None:
        return 0
    gone = [one.member for one in of.change.gone]
    if logged is not None and logged.before is not None:
        counts = [one.assignment.count for one in gone if one.member_id == logged.before]
        left = facts.left.get(logged.before)
        had = left.had if left is not None else None
        return next((None if count < 0 else count for count in counts), had)
    may_be = facts.away.pop(member.process, False) or any(
        one.process == member.process and may_be_slow(one, of) for one in gone
    )
    return None if may_be else 0


def _stopped(
    of: Rebalance, ran: RebalanceProtocol | None, span: MemberSpan, member: Member
) -> int | None:
    """Return the number of partitions that one member stopped, by the protocol that it ran."""
    had, given = span.member.assignment.partitions, member.assignment.partitions
    if had is None or ran is None:
        return None
    before = of.before
    if before is not None and member.member_id in before.unsynced - before.synced:
        had = member.subscription.owned or NOTHING
    if ran is RebalanceProtocol.EAGER:
        return had.count
    if given is None:
        return None
    return 0 if given is had else len(partitions_in(had) - partitions_in(given))
