"""RB110: the number of rebalances of a large roll-out."""

from typing import Final

from rebal.planner.context import COOPERATIVE
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import by_lists, planning, stable
from rebal.planner.timeouts import in_words, of_family

# Below that many restarts each step's own cost says enough.
_MANY: Final = 20
# A member that leaves and joins: two rounds; the follow-up round of a cooperative join: one more.
_FIRST: Final = 2
_SECOND: Final = 3


@rule(
    "RB110",
    Severity.WARN,
    "Restarted one by one, these members cause very many rebalances",
    reference="KIP-429; Kafka: group.initial.rebalance.delay.ms, max.poll.interval.ms (arithmetic)",
    applies=(planning, by_lists, stable),
    traits={Trait.PASSING},
)
def many_rebalances(context: Context) -> Findings:
    """A dynamic member that restarts causes about two rebalances in bounce 1 and three in bounce 2.

    Why it matters: in bounce 1 each of them stops the whole group, in bounce 2 all members that
    were not restarted yet. A rebalance lasts until the slowest member has joined, at most its
    max.poll.interval.ms. A member that is killed, or cannot leave, adds its session timeout.

    How to find out: multiply: members to restart x rebalances x how long one takes today (the
    metric last-rebalance-seconds-ago and the coordinator's log show that).

    How to fix it: restart several members at once, so that they share their rebalances, and make
    sure that each closes properly. Or use static members, which cause none while they rejoin in
    time. The plan's cost of each step assumes one by one.

    It fires from 20 dynamic members on, where a roll-out one by one takes hours.
    """
    ahead = [
        facts for facts in context.members if facts not in context.settled and not facts.static
    ]
    rolling = not any(facts.takes_mixed is Tri.NO for facts in ahead)
    if len(ahead) < _MANY or not rolling:
        return
    first = 0 if len(context.holding) == len(context.members) else _FIRST * len(ahead)
    second = _SECOND if context.goal == COOPERATIVE else _FIRST
    total = first + second * len(ahead)
    own = in_words([of_family(facts.member, facts.family) for facts in ahead])
    yield found(
        f"{len(ahead)} members restarted one by one cause about {total} rebalances. Each member "
        f"that is killed instead of shut down adds its timeout: {own}.",
        members=ahead,
        fix="Use batches, which share rebalances (--batch N shows the cost), and make sure that "
        "each member closes properly.",
    )
