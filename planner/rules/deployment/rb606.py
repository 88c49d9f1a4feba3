"""RB606: fewer members than expected."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.admission.advice import start_fix
from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import Trait, found, rule
from rebal.planner.rules.scope import narrowing_step


@rule(
    "RB606",
    Severity.BLOCK,
    "Fewer members are in the group than are expected",
    reference="JoinGroup probe and DescribeGroups: both see present members only",
    traits={Trait.PENDING, Trait.EVERY_LOOK, Trait.MISSING_MEMBERS},
)
def members_missing(context: Context) -> Iterator[Finding]:
    """Somebody who belongs to the group is not in it.

    Why it matters: describe and the probe see only who is there. A pod in a crash loop, one that
    is scaled down, or one that was refused is invisible to both, and comes back with whatever list
    it has: after the second bounce an old list is refused. So no gate holds below the expected
    count.

    How to find out: compare with the deployment's replicas; look for refusals (RB904) and for
    restarts of its containers.

    How to fix it: bring the missing members back with the current step's list, or lower
    --expect-members if they are gone for good.
    """
    if context.missing:
        here = len(context.members)
        yield found(
            f"{context.missing} of {context.expected} expected members "
            f"{'is' if context.missing == 1 else 'are'} not in the group ({here} "
            f"{'is' if here == 1 else 'are'}).",
            result=Tri.YES,
            fix=f"{start_fix(context, ['the missing members'])} If they are gone for good: "
            f"--expect-members {here}.",
            before_step=narrowing_step(context) if len(context.settled) < here else None,
        )
