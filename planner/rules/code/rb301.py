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
    "Does a rebalance listener expect the full set of partitions?",
    reference="Kafka upgrade notes for 2.4; ConsumerRebalanceListener; spring-kafka#1448",
)
def listener(context: Context) -> Iterator[Finding]:
    """Under COOPERATIVE, application code that handles rebalances receives only the differences.

    Why it matters: onPartitionsAssigned gets only the NEW partitions, perhaps none.
    onPartitionsRevoked gets only the revoked ones and is never called with an empty set.
    onPartitionsLost calls it by default, and commits fail there. Code that clears its state on
    revoke and rebuilds it on assign loses the partitions that it kept. Code that pauses, seeks or
    commits there acts on the wrong set.

    How to find out: search for ConsumerRebalanceListener, ConsumerAwareRebalanceListener,
    onPartitionsAssigned, setConsumerRebalanceListener; in Go for OnPartitionsAssigned; in other
    languages for the rebalance callback.

    How to answer it: make the code treat both calls as differences before the bounce that drops the
    old assignor. Without a listener there is nothing to do.
    """
    if not context.planning or not context.classic or context.goal == EAGER:
        return
    if ahead(context):
        yield found(
            "does application code handle rebalances (ConsumerRebalanceListener or a callback)? "
            "After the change it receives only new and revoked partitions, not the full set.",
            before_step=narrowing_step(context),
        )
