"""RB109: static members restart without a rebalance."""

from rebal.groups.clients import WITHOUT_STATIC
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, found, rule
from rebal.planner.rules.scope import by_lists, planning


def _stays_static(context: Context) -> bool:
    return context.client not in WITHOUT_STATIC


@rule(
    "RB109",
    Severity.WARN,
    "A static member that restarts in time causes no rebalance",
    reference="KIP-345; KIP-814; KAFKA-10284; GroupMetadataManager: updateStaticMemberAndRebalance",
    applies=(planning, by_lists, _stays_static),
    traits={Trait.PASSING},
)
def static_members(context: Context) -> Findings:
    """Members with a group.instance.id rejoin within session.timeout.ms without a rebalance.

    Why it matters: a rebalance happens only if the elected assignor would change. So a new list (or
    a new subscription) can stay unused in the coordinator's memory, no other member rejoins, and
    the request log shows only the restarted member. A check that waits for a rebalance waits in
    vain. A static member gets a new member id at each restart: that is how to see the restart.

    How to find out: describe the group: members with an instance id, a new member id after the
    restart, and the member's JOIN_GROUP line in the request log.

    How to fix it: check after each restart instead of waiting. To make every member show its list,
    restart one dynamic member, call Consumer.enforceRebalance() where the application exposes it
    (KIP-568, Java from 2.5), or keep one static member down for longer than session.timeout.ms (its
    partitions stop for that long). Never start two processes with one instance id: the newer
    one fences the older one.
    """
    named = [facts for facts in context.members if facts.static and facts not in context.settled]
    if named:
        every = " (all members)" if len(named) == len(context.members) else ""
        yield found(
            f"no rebalance follows when {context.named(named)}{every} restarts within "
            "session.timeout.ms, and only the restarted member shows its list: "
            f"{'it is a static member' if len(named) == 1 else 'they are static members'}.",
            members=named,
            fix="After each restart check the new member id and its list; do not wait for a "
            "rebalance.",
        )
