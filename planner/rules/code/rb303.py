"""RB303: commits during a rebalance fail in a new way."""

from rebal.planner.rules.registry import Context, Findings, Severity, found, rule
from rebal.planner.rules.scope import classic, planning, upgrade


@rule(
    "RB303",
    Severity.ASK,
    "Does the code handle RebalanceInProgressException from commitSync?",
    reference="Kafka upgrade notes for 2.5; KafkaConsumer.commitSync",
    applies=(planning, classic, upgrade),
)
def commit_in_rebalance(context: Context) -> Findings:
    """Under COOPERATIVE a member keeps consuming during a rebalance, and its commits may fail.

    Why it matters: commitSync may throw RebalanceInProgressException. The member is still in the
    group, and the commit may be retried after the next poll. Code that treats every failed commit
    as fatal stops at the first rebalance.

    How to find out: search for commitSync, commitAsync and the exceptions caught around them
    (CommitFailedException alone is not enough); in Spring for the container's error handlers.

    How to answer it: catch RebalanceInProgressException, call poll, and commit again what is still
    owned.
    """
    java = [
        facts
        for facts in context.members
        if facts.family in ("java", None) and facts not in context.settled
    ]
    if java:
        yield found(
            "does the code of these members commit offsets itself? Then commitSync may throw "
            "RebalanceInProgressException during a rebalance: the code must poll and commit again.",
            members=java,
            before_step=context.narrow_step,
        )
