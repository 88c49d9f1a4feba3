"""RB409: KIP-848 does not follow racks everywhere yet."""

from rebal.planner.rules.registry import Context, Findings, Severity, found, rule
from rebal.planner.rules.scope import to_consumer


@rule(
    "RB409",
    Severity.WARN,
    "Under KIP-848 the assignment does not follow racks as before",
    reference="KAFKA-19387; Kafka: docs/operations/consumer-rebalance-protocol",
    applies=(to_consumer,),
)
def racks(context: Context) -> Findings:
    """The broker's assignors do not yet handle client.rack as the clients' assignors do.

    Why it matters: members that read from a replica in their own rack may get partitions that have
    none there. That means more traffic between racks and more cost, and nothing fails.

    How to find out: members that send a rack (their subscription, or client.rack).

    How to fix it: measure the traffic with the first members; stay on the classic protocol where
    racks matter.
    """
    named = [
        facts
        for facts in context.members
        if facts.member.rack or (facts.member.subscription and facts.member.subscription.rack_id)
    ]
    if named:
        yield found(
            f"{context.named(named)} may read from replicas in other racks: the broker's assignors "
            "do not fully follow client.rack.",
            members=named,
            fix="Measure the traffic between racks after the first members.",
        )
