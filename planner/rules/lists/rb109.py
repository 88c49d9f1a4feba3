"""RB109: static members restart without a rebalance."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import CONSUMER, Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import Trait, found, rule


@rule(
    "RB109",
    Severity.WARN,
    "A static member that restarts in time causes no rebalance",
    reference="KIP-345; KIP-814; KAFKA-10284; GroupMetadataManager: updateStaticMemberAndRebalance",
    traits={Trait.PASSING},
)
def static_members(context: Context) -> Iterator[Finding]:
    """Members with a group.instance.id come back within session.timeout.ms as if never away.

    Why it matters: no rebalance happens unless the vote itself would change, so a new list (or a
    new subscription) can lie unused in the coordinator's memory, nobody else joins again, and
    the request log shows the restarted member only. A gate that waits for a rebalance waits for
    nothing; one that assumes it sees nothing. A static member gets a new member id at each
    restart: that is how one tells.

    How to find out: describe the group: members with an instance id; a new member id after the
    restart; its JOIN_GROUP line in the request log.

    How to fix it: look after each restart instead of waiting. To make every member show its list,
    restart one dynamic member, or keep one static member away for longer than session.timeout.ms
    (its partitions stop for that long). Never start two processes with one instance id: the newer
    fences the older.
    """
    if not context.planning or not context.classic or context.goal == CONSUMER:
        return
    named = [
        facts
        for facts in context.members
        if facts.member.instance_id is not None and facts not in context.settled
    ]
    if named:
        every = " (all members)" if len(named) == len(context.members) else ""
        yield found(
            f"{context.named(named)}{every} {'is' if len(named) == 1 else 'are'} static: a restart "
            "within "
            "session.timeout.ms causes no rebalance, and shows only the member itself.",
            members=named,
            fix="After each restart look for the new member id and its list; do not wait for a "
            "rebalance.",
        )
