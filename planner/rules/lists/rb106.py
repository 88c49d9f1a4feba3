"""RB106: a Java member with a mixed assignor list runs EAGER, whatever is elected."""

from rebal.groups.model import Knowledge
from rebal.planner.advice.steps import restart_fix
from rebal.planner.clients import cooperative
from rebal.planner.rules.registry import Context, Facts, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import by_lists, no_downgrade


@rule(
    "RB106",
    Severity.WARN,
    "A Java member with a mixed assignor list stays EAGER, whatever is elected",
    reference="Kafka: ConsumerCoordinator (the highest protocol common to its own list); KIP-429",
    applies=(by_lists, no_downgrade),
    traits={Trait.PASSING},
)
def still_eager(context: Context) -> Findings:
    """The group elected a cooperative assignor, but members with mixed lists still run EAGER.

    Why it matters: a Java consumer chooses its rebalance protocol once, when it is built: the
    highest one that ALL assignors of its own list support. With [cooperative-sticky, range] that is
    EAGER for as long as the consumer lives, and it stops all its partitions at each rebalance.
    Tools that print the elected assignor make such a group look finished. franz-go differs: it
    follows the elected assignor.

    How to find out: the members' exact lists (--request-log, --client-log). When it rejoins, a
    member that runs COOPERATIVE sends the partitions it owns, an EAGER one sends none.

    How to fix it: do the second bounce: restart each of them with the cooperative assignor alone.

    Cannot tell: the client is only inferred to be Java. The rule ignores lists with an assignor of
    the application's own, which may be COOPERATIVE, whatever its name.

    It does not fire while an eager assignor is elected, because the group is then visibly EAGER.
    """
    if cooperative(context.elected or "") is not Tri.YES:
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
        guess = "" if proven else ", if the client is Java (inferred, not proven)"
        yield found(
            f"{context.named(named)} still {'runs' if one else 'run'} EAGER and "
            f"{'stops' if one else 'stop'} all {'its' if one else 'their'} partitions at each "
            f"rebalance: {context.elected} is elected, but {'its list has' if one else 'their '}"
            f"{'' if one else 'lists have'} an eager assignor too{guess}.",
            result=result,
            members=named,
            fix=restart_fix(context, named, (context.target,)),
        )


def _runs_eager(context: Context, facts: Facts) -> bool:
    """Return whether one of Kafka's eager assignors in its list leaves this Java member EAGER."""
    return not facts.member.kept_partitions and any(
        cooperative(name) is Tri.NO and not context.own_class(facts, name)
        for name in facts.member.assignors.list
    )
