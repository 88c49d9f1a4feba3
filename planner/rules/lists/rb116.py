"""RB116: a roll-out that starts new members before the old ones have left."""

from rebal.planner.rules.registry import Context, Findings, Severity, Trait, found, rule
from rebal.planner.rules.scope import by_lists, planning


@rule(
    "RB116",
    Severity.WARN,
    "The deployment starts new members before the old ones have left",
    reference="Kafka: session.timeout.ms; Kubernetes: Deployment, maxSurge",
    applies=(planning, by_lists),
    traits={Trait.PASSING},
)
def surge(context: Context) -> Findings:
    """While old and new process are both in the group, the old member's list counts.

    Why it matters: a member that is still there, or was killed and has not timed out, counts with
    its old list. A new one with no assignor in common is rejected, although the old one was about
    to leave. And each such restart causes two more rebalances.

    How to find out: maxSurge of the deployment (the default of a Deployment is 25 %), which an
    --inventory of its manifests shows, and how many members restart at once.

    How to fix it: use maxSurge 0 and one member at a time during the roll-out. Close consumers
    properly. After a kill wait for session.timeout.ms before the next restart.

    It covers dynamic members; RB604 covers static ones. Without manifests it does not fire, and the
    plan lists the deployment as not checked.
    """
    named = [
        facts
        for facts in context.members
        if facts not in context.settled and not facts.static and facts.surges
    ]
    if named:
        said = sorted({str(f.member.declared.max_surge) for f in named if f.member.declared})
        yield found(
            f"the new process of {context.named(named)} can be rejected: the deployment starts it "
            f"(maxSurge {', '.join(said)}) while the old one's list still counts.",
            members=named,
            evidence=(f.member.declared.evidence for f in named if f.member.declared),
            fix="Set maxSurge to 0 during the roll-out.",
            before_step=context.narrow_step,
        )
