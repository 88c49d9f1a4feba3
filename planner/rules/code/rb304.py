"""RB304: state that is built anew at each assignment."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import EAGER, Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule
from rebal.planner.rules.scope import ahead, narrowing_step


@rule(
    "RB304",
    Severity.ASK,
    "Is state rebuilt whenever partitions are assigned",
    reference="line/decaton#98; ConsumerRebalanceListener",
)
def state_per_assignment(context: Context) -> Iterator[Finding]:
    """Code that makes producers, caches or workers for its partitions must keep those it has.

    Why it matters: under EAGER every rebalance takes and gives everything, so code may build all
    its state anew each time. Under COOPERATIVE and KIP-848 only what is new is told: state that is
    rebuilt as a whole is lost for the partitions that stayed, while records go on coming. A
    transactional.id made from the assignment changes under a running producer.

    How to find out: search the assigned callback for what it creates: producers with a
    transactional.id, caches, thread pools, open files; and for what it clears first.

    How to answer it: keep state by partition: add it on assigned, drop it on revoked and on lost,
    touch nothing else.
    """
    if not context.planning or not context.classic or context.goal == EAGER:
        return
    if ahead(context):
        yield found(
            "does the code build producers, caches or workers for its partitions when they are "
            "assigned? It is told only what is new, and must keep the rest.",
            before_step=narrowing_step(context),
        )
