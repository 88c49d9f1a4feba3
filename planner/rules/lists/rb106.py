"""RB106: a Java member with a mixed list runs EAGER, whatever is elected."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Knowledge, Tri
from rebal.planner.admission.advice import restart_fix
from rebal.planner.clients import cooperative
from rebal.planner.context import CONSUMER, EAGER, Context, Facts
from rebal.planner.kinds import kept_partitions
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import Trait, found, rule


@rule(
    "RB106",
    Severity.WARN,
    "A Java member with a mixed list stays EAGER, whatever is elected",
    reference="Kafka: ConsumerCoordinator (the highest protocol common to its own list); KIP-429",
    traits={Trait.PASSING},
)
def still_eager(context: Context) -> Iterator[Finding]:
    """The group elected a cooperative assignor, and members with mixed lists still run EAGER.

    Why it matters: a Java consumer chooses its rebalance protocol once, when it is built: the
    highest one that ALL assignors of its own list support. With [cooperative-sticky, range] that
    is EAGER for as long as the object lives: it stops all its partitions at each rebalance. Tools
    that print the elected assignor make such a group look finished. franz-go differs: it follows
    the vote.

    How to find out: the members' exact lists (--request-log, --client-log); after a rebalance, a
    member that follows COOPERATIVE sends the partitions it owns, an EAGER one sends none.

    How to fix it: do the second bounce: restart each of them with the cooperative assignor alone.

    Cannot tell: only circumstances point to Java. It says nothing of a list with an assignor of the
    application's own, which may be COOPERATIVE, whatever its name.

    It does not fire while an eager assignor is elected: then everybody can see that.
    """
    if not context.classic or not context.elected or context.goal in (CONSUMER, EAGER):
        return
    if cooperative(context.elected) is not Tri.YES:
        return
    for proven, result in ((True, Tri.YES), (False, Tri.CANNOT_TELL)):
        named = [
            facts
            for facts in context.members
            if facts.family == "java"
            and facts.family_proven is proven
            and facts.member.assignors.knowledge is Knowledge.EXACT
            and context.holds_old(facts) is Tri.YES
            and _runs_eager(context, facts)
        ]
        if not named:
            continue
        one = len(named) == 1
        guess = "" if proven else " (if the guess is right that this is Java)"
        yield found(
            f"{context.named(named)} still {'runs' if one else 'run'} EAGER although "
            f"{context.elected} is elected, because an eager assignor is in "
            f"{'its list' if one else 'their lists'}{guess}.",
            result=result,
            members=named,
            fix=restart_fix(context, named, (context.target,)),
        )


def _runs_eager(context: Context, facts: Facts) -> bool:
    """Return whether one of Kafka's eager assignors in its list leaves this Java member EAGER."""
    return not kept_partitions(facts.member) and any(
        cooperative(name) is Tri.NO and not context.own_class(facts, name)
        for name in facts.member.assignors.list
    )
