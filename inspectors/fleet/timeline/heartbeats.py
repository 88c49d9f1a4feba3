"""Members of a KIP-848 group of which only the request log tells: their heartbeats.

A heartbeat names the member, its topics and its epoch, the answer its next epoch; the assignment
has topic ids and is not kept. So there is one row a member, from its first epoch to its last.
"""

from __future__ import annotations

from collections.abc import Mapping

from rebal.inspectors.fleet.timeline.facts import LoggedMember
from rebal.inspectors.fleet.timeline.members import MemberSpan, Place, write
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.fleet.timeline.state import GroupState
from rebal.inspectors.fleet.timeline.values import Identity, Member, Subscription


def heard_at(members: Mapping[str, LoggedMember]) -> int | None:
    """When one of those who sent such heartbeats was heard last; None: nobody did."""
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
            MemberSpan(member, logged.first_epoch, logged.first_at),
            Place(logged.incarnation, logged.last_epoch, None, logged.last_at),
            state.facts,
            rows,
            left_at=logged.left_at,
            left_reason=logged.left_reason,
            current=stay and not logged.gone,
        )
