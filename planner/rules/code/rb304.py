"""RB304: state that is rebuilt at each assignment."""

from rebal.planner.rules.registry import Context, Findings, Severity, Trait, found, rule
from rebal.planner.rules.scope import classic, narrowing_step, no_downgrade, planning, unfinished


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
