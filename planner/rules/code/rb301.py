"""RB301: rebalance listeners that expect the full set."""

from rebal.planner.rules.registry import Context, Findings, Severity, Trait, found, rule
from rebal.planner.rules.scope import classic, narrowing_step, no_downgrade, planning, unfinished


@rule(
    "RB301",
    Severity.ASK,
    "Does a rebalance listener expect the full set of partitions?",
    reference="Kafka upgrade notes for 2.4; ConsumerRebalanceListener; spring-kafka#1448",
    applies=(planning, classic, no_downgrade, unfinished),
    traits=(Trait.REVIEW,),
)
def listener(context: Context) -> Findings:
    """Under COOPERATIVE, application code that handles rebalances receives only the differences.

    Why it matters: onPartitionsAssigned gets only the NEW partitions, perhaps none.
    onPartitionsRevoked gets only the revoked ones and is never called with an empty set.
    onPartitionsLost calls it by default, and commits fail there. Code that clears its state on
    revoke and rebuilds it on assign loses the partitions that it kept. Code that pauses, seeks or
    commits there acts on the wrong set.

    How to find out: search for ConsumerRebalanceListener, ConsumerAwareRebalanceListener,
    onPartitionsAssigned, setConsumerRebalanceListener, setRebalanceListener (Kafka 4.4); in Go for
    OnPartitionsAssigned; in other languages for the rebalance callback. Before KIP-848 search for
    enforceRebalance() too: there it only logs a warning.

    How to answer it: make the code treat both calls as differences before the bounce that drops the
    old assignor. Without a listener there is nothing to do.
    """
    yield found(
        "does application code handle rebalances (ConsumerRebalanceListener or a callback)? "
        "After the change it receives only new and revoked partitions, not the full set.",
        before_step=narrowing_step(context),
    )
