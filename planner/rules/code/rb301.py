"""RB301: rebalance listeners that expect the full set."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import EAGER, Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule
from rebal.planner.rules.scope import ahead, narrowing_step


@rule(
    "RB301",
    Severity.ASK,
    "Does a rebalance listener expect the full set of partitions",
    reference="Kafka upgrade notes for 2.4; ConsumerRebalanceListener; spring-kafka#1448",
)
def listener(context: Context) -> Iterator[Finding]:
    """Application code that handles rebalances sees other calls under COOPERATIVE.

    Why it matters: onPartitionsAssigned gets only what is NEW, and may get nothing;
    onPartitionsRevoked gets only what is lost and is never called with an empty set;
    onPartitionsLost calls it by default, where commits fail. Code that clears its state on
    revoked and rebuilds it from assigned forgets the partitions that it kept, and code that
    pauses, seeks or commits in there works on the wrong set.

    How to find out: search for ConsumerRebalanceListener, ConsumerAwareRebalanceListener,
    onPartitionsAssigned, setConsumerRebalanceListener; in Go for OnPartitionsAssigned; in other
    languages for the rebalance callback.

    How to answer it: make the code treat both calls as differences before the narrowing bounce;
    a listener that is not there needs nothing.
    """
    if not context.planning or not context.classic or context.goal == EAGER:
        return
    if ahead(context):
        yield found(
            "does application code handle rebalances (ConsumerRebalanceListener or a callback)? "
            "After the change it is told differences, not the full set.",
            before_step=narrowing_step(context),
        )
