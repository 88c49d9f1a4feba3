"""Generations and members of which only a request log tells, and no record.

A rebalance of a classic group is known by what its leader was handed and what it sent. A member of
a KIP-848 group is known by its heartbeats: one names the member, its topics and its epoch, the
answer its next epoch; the assignment has topic ids and is not kept. So there is one row a member,
from its first epoch to its last.
"""

from __future__ import annotations

from collections.abc import Mapping

from rebal.inspectors.fleet.timeline.facts import LoggedGeneration, LoggedMember, RequestFacts
from rebal.inspectors.fleet.timeline.members import MemberSpan, Place, write
from rebal.inspectors.fleet.timeline.rebalances import LOG, Generation
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.fleet.timeline.state import GroupState
from rebal.inspectors.fleet.timeline.values import (
    NOT_GIVEN,
    UNTOLD,
    Identity,
    Member,
    Named,
    Sent,
    Subscription,
    read_assignment,
    read_subscription,
)


def generation_of(logged: LoggedGeneration, facts: RequestFacts) -> tuple[Generation, Named]:
    """Return the generation that a log shows, and its members where it shows all of them."""
    members = {}
    consumer = logged.protocol_type in (None, "consumer")
    given = logged.assignments or {}
    for member_id in sorted(logged.members.keys() | given.keys()) if given else ():
        instance_id, sent = logged.members.get(member_id, (None, None))
        known = facts.members.get(member_id, LoggedMember())
        identity = Identity(
            member_id,
            instance_id or known.instance_id,
            known.client_id,
            known.host,
            known.rebalance_timeout_ms,
            known.session_timeout_ms,
            "classic",
        )
        said = read_subscription(sent) if sent and consumer else Sent(UNTOLD)
        assigned = read_assignment(given.get(member_id, b"")) if consumer else NOT_GIVEN
        members[Member(identity, said.subscription, assigned)] = said.generation
    generation = Generation(
        number=logged.number,
        ended=logged.last_at if logged.ended is None else logged.ended,
        source=LOG,
        size=len(members) if given else None,
        assignor=logged.assignor,
        leader=logged.leader,
        protocol_type=logged.protocol_type or ("consumer" if given else None),
    )
    return generation, members


def heard_at(members: Mapping[str, LoggedMember]) -> int | None:
    """Return the last time of those who sent such heartbeats; None: nobody did."""
    return max(
        (one.last_at for one in members.values() if one.first_epoch is not None), default=None
    )


def write_members(
    state: GroupState, members: Mapping[str, LoggedMember], rows: Rows, stay: bool = True
) -> None:
    """Rows of those who sent such heartbeats; `stay` is whether who has not gone is there still."""
    for member_id, logged in sorted(members.items()):
        if logged.first_epoch is None:
            continue
        identity = Identity(
            member_id,
            logged.instance_id,
            logged.client_id,
            logged.host,
            logged.rebalance_timeout_ms,
            None,
            "consumer",
        )
        member = Member(identity, Subscription(topics=logged.topics))
        write(
            MemberSpan(member, None, logged.first_epoch, logged.first_at),
            Place(logged.incarnation, logged.last_epoch, None, logged.last_at),
            state.facts,
            rows,
            left_at=logged.left_at,
            left_reason=logged.left_reason,
            current=stay and not logged.gone,
        )
