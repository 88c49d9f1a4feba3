"""RB123: the new client library cannot run beside the members' own."""

from rebal.planner.rules.registry import (
    Context,
    Findings,
    PathKind,
    Risk,
    Severity,
    Trait,
    Tri,
    found,
    rule,
)
from rebal.planner.rules.scope import planning, stable


def _replaced(context: Context) -> bool:
    return context.client is not None


@rule(
    "RB123",
    Severity.BLOCK,
    "The new client library cannot run beside the members' own",
    reference="Kafka: ClassicGroup.supportsProtocols; confluentinc/confluent-kafka-javascript#208; "
    "RB104, RB119",
    applies=(planning, stable, _replaced),
    traits={Trait.OTHER_PATH},
    accepts=Risk.STOP_FOR_CLIENT,
    handled_by={PathKind.LIBRARY_STOP},
)
def no_bridge(context: Context) -> Findings:
    """Old and new members share no assignor that both libraries understand: the group stops once.

    Why it matters: the coordinator admits a member only if one assignor, by name, is in every list,
    and the leader's library assigns for all members. Only range and roundrobin need no user data,
    so these two can bridge two libraries. librdkafka and kafka-python cannot put one of them beside
    cooperative-sticky, and segmentio/kafka-go sends a subscription that most others cannot read.

    How to find out: the members' lists and clients (rebal inspect).

    How to fix it: agree on an interruption and record it: --ignore RB123 --reason "who agreed, and
    for when". All members stop, the group is seen Empty, all start with the new library; committed
    offsets stay. Or give the new library a group id of its own, with the offsets copied before it
    starts: nothing stops, and what both groups read meanwhile is processed twice. The plan has the
    commands.

    Cannot tell: the client of a member is not known, and decides it.
    """
    bridge = context.bridge
    if bridge.verdict is not Tri.YES:
        yield found(
            f"{context.client} cannot run beside the members' own library: {bridge.why}."
            if bridge.verdict is Tri.NO
            else f"{context.client} may be unable to run beside the members' own: {bridge.why}.",
            result=Tri.YES if bridge.verdict is Tri.NO else Tri.CANNOT_TELL,
            members=bridge.members,
            fix="Agree on the interruption and record it, or take a new group id with the offsets "
            "copied, as the plan's step says."
            if bridge.verdict is Tri.NO
            else f"Restart nothing before the client is known. {context.settle(bridge.members)}",
            commands=() if bridge.verdict is Tri.NO else context.stating(bridge.members),
        )
