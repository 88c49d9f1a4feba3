"""RB304: state that is rebuilt at each assignment."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import EAGER, Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule
from rebal.planner.rules.scope import ahead, narrowing_step


@rule(
    "RB304",
    Severity.ASK,
    "Is state rebuilt whenever partitions are assigned?",
    reference="line/decaton#98; ConsumerRebalanceListener",
)
def state_per_assignment(context: Context) -> Iterator[Finding]:
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
    if not context.planning or not context.classic or context.goal == EAGER:
        return
    if ahead(context):
        yield found(
            "does the code build producers, caches or workers when partitions are assigned? After "
            "the change it receives only new partitions, and must keep the state of the others.",
            before_step=narrowing_step(context),
        )
