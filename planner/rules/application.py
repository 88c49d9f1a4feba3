"""Rules about the application's own code (RB3xx): what it does when partitions move."""

from rebal.planner.clients import cooperative
from rebal.planner.context import CONSUMER
from rebal.planner.rules.registry import (
    Context,
    Findings,
    Severity,
    Trait,
    Tri,
    ahead,
    classic,
    found,
    narrowing_step,
    no_downgrade,
    planning,
    rule,
    unfinished,
    upgrade,
)


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


@rule(
    "RB302",
    Severity.ASK,
    "Does a librdkafka rebalance callback call assign()?",
    reference="librdkafka: INTRODUCTION.md; dotnetcore/CAP#1655; confluent-kafka-python#1040",
    applies=(planning, classic, no_downgrade),
    traits=(Trait.REVIEW,),
)
def incremental_assign(context: Context) -> Findings:
    """A binding's own rebalance callback must use the incremental calls under COOPERATIVE.

    Why it matters: with a callback that calls assign() and unassign(), a member joins but owns and
    consumes nothing, and only one log line shows it. It is the most common fault after such a
    change.

    How to find out: search for rebalance_cb, on_assign, on_revoke, SetPartitionsAssignedHandler and
    for assign( in them. The log line is: "Changes to the current assignment must be made using
    incremental_assign() or incremental_unassign() when rebalance protocol type is COOPERATIVE".

    How to answer it: use incremental_assign() and incremental_unassign() when the consumer's
    rebalance protocol is COOPERATIVE, or have no callback.
    """
    for proven, result in ((True, Tri.YES), (False, Tri.CANNOT_TELL)):
        named = [
            facts
            for facts in ahead(context)
            if facts.family == "librdkafka" and facts.family_proven is proven
        ]
        if named:
            yield found(
                f"does a rebalance callback in {context.named(named)} call assign()? After the "
                "change the member would consume nothing: the callback must call "
                "incremental_assign().",
                result=result,
                members=named,
            )


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


@rule(
    "RB304",
    Severity.ASK,
    "Is state rebuilt whenever partitions are assigned?",
    reference="line/decaton#98; ConsumerRebalanceListener",
    applies=(planning, classic, no_downgrade, unfinished),
    traits=(Trait.REVIEW,),
)
def state_per_assignment(context: Context) -> Findings:
    """Code with a producer, cache or worker for each partition must keep those of partitions that
    stay.

    Why it matters: under EAGER every rebalance revokes and assigns everything, so code may rebuild
    all its state each time. Under COOPERATIVE and KIP-848 it receives only the new partitions:
    state that is rebuilt as a whole is lost for the partitions that stayed, while their records
    keep coming. A transactional.id made from the assignment changes under a running producer.

    How to find out: search the assigned callback for what it creates (producers with a
    transactional.id, caches, thread pools, open files) and for what it clears first.

    How to answer it: keep state by partition: add it on assigned, drop it on revoked and on lost,
    and change nothing else.
    """
    yield found(
        "does the code build producers, caches or workers when partitions are assigned? After "
        "the change it receives only new partitions, and must keep the state of the others.",
        before_step=narrowing_step(context),
    )


@rule(
    "RB305",
    Severity.ASK,
    "Does the custom assignor place more than partitions?",
    reference="KIP-429 (ConsumerPartitionAssignor: cooperative assignors of one's own)",
    applies=(planning, upgrade, unfinished),
)
def other_resources(context: Context) -> Findings:
    """A custom assignor may assign standbys, locks or shards beside the partitions.

    Why it matters: the consumer revokes partitions before another member gets them, but it knows
    nothing of other resources. A cooperative assignor must apply the same rule to them itself:
    first take them from the old owner, then give them to the new one in the next rebalance.

    How to find out: read the assignor's code and what its user data carries. User data in an
    assignment is a sign of it.

    How to answer it: let the assignor give such a resource away only after its owner has reported
    that it is free, or leave the resource where it is.
    """
    name = context.elected
    if name is None or cooperative(name) is not Tri.CANNOT_TELL:
        return
    yield found(
        f"does {name} assign anything beside partitions (standbys, locks, shards)? Two members "
        "may then own it at once, unless the new assignor takes it from the old owner first.",
        members=[facts for facts in context.members if facts.member.assignment_user_data],
    )
