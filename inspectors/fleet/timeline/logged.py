"""A rebalance of which there is no record: what its leader was handed and what it sent."""

from __future__ import annotations

from rebal.inspectors.fleet.timeline.facts import LoggedGeneration, LoggedMember, RequestFacts
from rebal.inspectors.fleet.timeline.rebalances import LOG, Generation
from rebal.inspectors.fleet.timeline.values import (
    NOT_GIVEN,
    UNTOLD,
    Identity,
    Member,
    read_assignment,
    subscription,
)


def generation_of(logged: LoggedGeneration, facts: RequestFacts) -> tuple[Generation, list[Member]]:
    """The generation that a log shows, and its members where it shows whom the leader told."""
    members = []
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
        said = subscription(sent) if sent and consumer else UNTOLD
        assigned = read_assignment(given.get(member_id, b"")) if consumer else NOT_GIVEN
        members.append(Member(identity, said, assigned))
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
