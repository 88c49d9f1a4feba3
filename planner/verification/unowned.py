"""Partitions without an owner in a Stable group: `without_owner`, `owner_for`.

In a classic group a COOPERATIVE rebalance takes two rounds. A static member that restarts between
them joins without a rebalance and owns nothing, so nobody revokes what the first round took from it
and begins the second one (KIP-429, KIP-345; ConsumerCoordinator.onJoinComplete). The coordinator
rebalances once the rebalance timeout, max.poll.interval.ms, is over, as the old process has not
synced (seen on 4.1.1).

A KIP-848 group that was converted after its topic had grown has the partitions of before until its
next epoch, and a static member that restarts brings none (seen on 4.1.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors.server import SERVER_NAMES
from rebal.groups.clients import assignors
from rebal.groups.model import GroupSnapshot, GroupState, GroupType
from rebal.planner.advice.actions import rebalance_of, wait, worded
from rebal.planner.context import Context
from rebal.planner.facts import listed
from rebal.planner.plan import Advice
from rebal.planner.verification.journal import JournalEntry

# By then a second round has begun: members poll, and their heartbeats are 3 s apart.
_SECOND_ROUND: Final = timedelta(seconds=10)


def without_owner(context: Context) -> tuple[str, ...]:
    """Return the partitions of subscribed topics that no member owns; Kafka's assignors leave none.

    Empty where the members' assignments are not known, or where an assignor that is not Kafka's is
    elected.
    """
    snapshot = context.snapshot
    online = snapshot.group.type is GroupType.CONSUMER
    known = SERVER_NAMES if online else assignors().keys() - context.borrowed
    if snapshot.group.assignor not in known or not _is_at_rest(snapshot):
        return ()
    asked = {topic for member in snapshot.members for topic in member.subscribed_topics}
    owned = {
        (topic, number)
        for member in snapshot.members
        for topic, numbers in member.assignment.items()
        for number in numbers
    }
    return tuple(
        f"{topic.name}-{number}"
        for topic in snapshot.topics
        if topic.name in asked
        for number in range(topic.partitions)
        if (topic.name, number) not in owned
    )


def _is_at_rest(snapshot: GroupSnapshot) -> bool:
    group = snapshot.group
    if group.state is not GroupState.STABLE:
        return False
    if group.type is GroupType.CLASSIC and group.protocol_type == "consumer":
        return all(member.subscription is not None for member in snapshot.members)
    return group.type is GroupType.CONSUMER


def owner_for(context: Context, entries: Sequence[JournalEntry], unowned: Sequence[str]) -> Advice:
    """Return the advice that has a rebalance assign the partitions `unowned`.

    The second round of a rebalance may still come, until the members were the same for 10 s.
    """
    why = f"{listed(unowned)} {'has' if len(unowned) == 1 else 'have'} no owner"
    ids = {facts.member.member_id for facts in context.members}
    same = [entry.at for entry in entries if entry.ids == ids]
    if not same or context.snapshot.captured_at - same[0] < _SECOND_ROUND:
        return wait(f"{why} yet")
    dynamic = [facts for facts in context.members if not facts.static]
    made = rebalance_of(context, dynamic)
    return worded(replace(made, also=(why,)))
