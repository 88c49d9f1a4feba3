"""RB116: a roll-out that starts new members before the old ones have left."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import CONSUMER, Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import Trait, found, rule


@rule(
    "RB116",
    Severity.WARN,
    "The deployment starts new members before the old ones have left",
    reference="Kafka: session.timeout.ms; Kubernetes: Deployment, maxSurge",
    traits={Trait.PASSING},
)
def surge(context: Context) -> Iterator[Finding]:
    """While old and new are both in the group, the old one's list counts.

    Why it matters: a member that is there, or was killed and has not timed out, counts with its
    old list. A new one that has nothing in common with it is refused, although the old one was
    going to leave. And each such restart is two rebalances more.

    How to find out: maxSurge of the deployment (a Deployment that does not say has 25 %), which an
    --inventory of its manifests shows; how many restart at once.

    How to fix it: maxSurge 0 and one at a time for the time of the roll-out; close consumers
    properly; after a kill wait for session.timeout.ms before the next restart.

    It speaks of dynamic members; for static ones see RB604. Without manifests it is silent, and
    the plan says that the deployment was not looked at.
    """
    if not context.planning or not context.classic or context.goal == CONSUMER:
        return
    named = [
        facts
        for facts in context.members
        if facts not in context.settled
        and facts.member.instance_id is None
        and facts.member.declared is not None
        and facts.member.declared.max_surge not in (None, "0", "0%")
    ]
    if named:
        said = sorted({str(f.member.declared.max_surge) for f in named if f.member.declared})
        yield found(
            f"{context.named(named)}: the deployment surges (maxSurge {', '.join(said)}): the new "
            "process joins while the old one's list still counts.",
            members=named,
            evidence=(f.member.declared.evidence for f in named if f.member.declared),
            fix="Set maxSurge to 0 for the time of the roll-out.",
            before_step=context.narrow_step,
        )
