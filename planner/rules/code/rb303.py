"""RB303: commits during a rebalance fail in a new way."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import COOPERATIVE, Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule


@rule(
    "RB303",
    Severity.ASK,
    "Does the code handle RebalanceInProgressException from commitSync?",
    reference="Kafka upgrade notes for 2.5; KafkaConsumer.commitSync",
)
def commit_in_rebalance(context: Context) -> Iterator[Finding]:
    """Under COOPERATIVE a member keeps consuming during a rebalance, and its commits may fail.

    Why it matters: commitSync may throw RebalanceInProgressException. The member is still in the
    group, and the commit may be retried after the next poll. Code that treats every failed commit
    as fatal stops at the first rebalance.

    How to find out: search for commitSync, commitAsync and the exceptions caught around them
    (CommitFailedException alone is not enough); in Spring for the container's error handlers.

    How to answer it: catch RebalanceInProgressException, call poll, and commit again what is still
    owned.
    """
    if not context.planning or not context.classic or context.goal != COOPERATIVE:
        return
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
