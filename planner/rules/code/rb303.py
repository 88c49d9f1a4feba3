"""RB303: commits during a rebalance fail in a new way."""

from rebal.planner.context import CONSUMER
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, found, rule
from rebal.planner.rules.scope import ahead, classic, no_downgrade, planning

_JAVA = (
    "commitSync may throw RebalanceInProgressException during a rebalance: the code must poll and "
    "commit again."
)
_KIP848 = (
    "a commit may fail with STALE_MEMBER_EPOCH (Java: CommitFailedException) while partitions "
    "move: the code must poll and commit again what it still owns."
)


@rule(
    "RB303",
    Severity.ASK,
    "Does the code handle commits that fail while partitions move?",
    reference="Kafka upgrade notes for 2.5; KafkaConsumer.commitSync; KIP-848 (OffsetCommit); "
    "getsentry/arroyo#419; Blizzard/node-rdkafka#1146",
    applies=(planning, classic, no_downgrade),
    traits=(Trait.REVIEW,),
)
def commit_in_rebalance(context: Context) -> Findings:
    """Under COOPERATIVE and KIP-848 members consume during a rebalance, and their commits may fail.

    Why it matters: under COOPERATIVE Java's commitSync may throw RebalanceInProgressException.
    Under KIP-848 the coordinator rejects a commit with an older member epoch (STALE_MEMBER_EPOCH,
    113), which Java reports as CommitFailedException. The member is still in the group, and the
    commit may be retried after the next poll. Code that treats every failed commit as fatal stops
    at the first rebalance.

    How to find out: search for commitSync, commitAsync and the exceptions caught around them; in
    Spring for the container's error handlers; in bindings of librdkafka for commit() and the
    commit callback.

    How to answer it: call poll, and commit again what is still owned.
    """
    kip848 = context.goal == CONSUMER
    families = ("java", "librdkafka", None) if kip848 else ("java", None)
    asked = [facts for facts in ahead(context) if facts.family in families]
    if asked:
        yield found(
            "does the code of these members commit offsets itself? Then "
            f"{_KIP848 if kip848 else _JAVA}",
            members=asked,
            before_step=None if kip848 else context.narrow_step,
        )
