"""The cost of a rebalance: the protocol that each member ran, the partitions that it stopped."""

from rebal.groups.model import RebalanceProtocol
from rebal.inspectors.fleet.timeline.facts import MILLI, UNHEARD
from rebal.inspectors.fleet.timeline.protocol import UNLOGGED, Kind, group_ran, ran
from rebal.inspectors.fleet.timeline.rebalances import (
    MemberSpan,
    Rebalance,
    may_be_slow,
)
from rebal.inspectors.fleet.timeline.values import NOTHING, Assignment, Member, partitions_in


def cost_of(of: Rebalance) -> tuple[str | None, int | None]:
    """Return the group's protocol after a rebalance (None: cannot tell), and what was stopped.

    That counts the partitions that members which stayed had to stop (KIP-429): all that an EAGER
    one had, and of a COOPERATIVE one those it gave up; None where a member had some and its
    protocol is not known. By the records each had got its assignment; the log of the generation
    before may show that one had not yet.
    """
    now, then = [(one.type, one.protocol_type, one.assignor) for one in (of.new, of.old or of.new)]
    logged = {
        member_id: (one.assignors, one.software_name, one.software_version)
        for member_id, one in of.facts.members.items()
    }
    late = frozenset() if of.before is None else of.before.unsynced - of.before.synced
    protocols: dict[Kind, RebalanceProtocol] = {}
    counts: list[int | None] = []
    for span, member in of.stayed:
        had, gave_up = span.member.assignment, False
        if member is not span.member:
            if _never_opened(of, span, member):
                had = NOTHING
            else:
                span.kept, gave_up = _showed(of, span, member)
        kind = logged.get(member.member_id, UNLOGGED), span.kept, gave_up, member.protocol_type
        if kind not in protocols:
            protocols[kind] = ran(then, kind)
        if had.count:
            if late and member.member_id in late and had.count > 0:
                had = Assignment(member.subscription.owned or ())
            counts.append(_stopped(protocols[kind], had, member.assignment))
    kinds = set(protocols)
    for member in of.new_members:
        said = logged.get(member.member_id, UNLOGGED)
        kinds.add((said, member.owns, False, member.protocol_type))
        counts.append(_revoked_late(of, member))
    is_known = of.told and None not in counts
    return group_ran(now, frozenset(kinds)), sum(filter(None, counts)) if is_known else None


def _showed(of: Rebalance, span: MemberSpan, member: Member) -> tuple[bool, bool]:
    """Return whether the member kept what it had when it rejoined, and whether it gave it up."""
    said, before = member.subscription, span.member
    if member.owns:
        return True, False
    if of.old is None or before.assignment.count < 1 or said == before.subscription:
        return span.kept, False
    synced = of.before is not None and member.member_id in of.before.synced
    rejoined = of.members[member] == of.old.number
    return False, synced and said.owned is not None and rejoined


def _never_opened(of: Rebalance, span: MemberSpan, member: Member) -> bool:
    """Return whether a static member restarted with other topics than those of its assignment.

    The process before it had closed them. The new one got the assignment without a rebalance,
    drops it because it does not subscribe to all of its topics, and rejoins at once.
    """
    old, had, topics = of.old, span.member.assignment.partitions, member.subscription.topics
    joined, longest = span.joined_at or 0, member.rebalance_timeout_ms or 0
    if old is None or joined <= old.completed or had is None or topics is None:
        return False
    return of.new.ended - joined <= longest * MILLI and not {topic for topic, _ in had} <= set(
        topics
    )


def _revoked_late(of: Rebalance, member: Member) -> int | None:
    """Return the number of partitions that a new member revokes that was past max.poll.interval.ms.

    Java before 2.4 revokes what it had when it polls again and joins under a new member id; 2.4
    and later call it lost (KIP-429). None where no log tells that from a restart.
    """
    facts, gone = of.facts, [one.member for one in of.gone]
    logged = facts.members.get(member.member_id, UNHEARD)
    if logged.software_name is not None:
        return 0
    if logged.before is not None:
        counts = [one.assignment.count for one in gone if one.member_id == logged.before]
        had = facts.left[logged.before].had if logged.before in facts.left else None
        return next((None if count < 0 else count for count in counts), had)
    may_be = facts.away.pop(member.process, False) or any(
        one.process == member.process and may_be_slow(one, of) for one in gone
    )
    return None if may_be else 0


def _stopped(ran: RebalanceProtocol, had: Assignment, given: Assignment) -> int | None:
    """Return the number of partitions that one member stopped, by the protocol that it ran."""
    if ran is RebalanceProtocol.EAGER and had.count >= 0:
        return had.count
    if ran is not RebalanceProtocol.COOPERATIVE or -1 in (had.count, given.count):
        return None
    return 0 if had is given else len(partitions_in(had) - partitions_in(given))
