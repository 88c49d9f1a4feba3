"""RB606: fewer members than expected."""

from rebal.groups.model import GroupType
from rebal.planner.advice.steps import start_fix
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import narrowing_step


@rule(
    "RB606",
    Severity.BLOCK,
    "Fewer members are in the group than are expected",
    reference="JoinGroup probe and DescribeGroups: both see present members only",
    traits={Trait.HISTORY, Trait.MISSING_MEMBERS},
)
def members_missing(context: Context) -> Findings:
    """A member that belongs to the group is not in it.

    Why it matters: describe and the probe show only present members. A pod in a crash loop, one
    that is scaled down, and one that was rejected are invisible to both, and rejoin with whatever
    list they have: after the second bounce an old list is rejected. So no gate holds below the
    expected count.

    How to find out: compare with the deployment's replicas; look for rejected joins (RB904) and for
    restarts of its containers.

    How to fix it: start the missing members with the list of the current step, or lower
    --expect-members if they are no longer part of the service.
    """
    if context.missing:
        here = len(context.members)
        fix = "Find out why they are missing: they join with the protocol that the group has."
        if context.group.type not in (GroupType.CONSUMER, GroupType.STREAMS):
            fix = start_fix(context, ["the missing members"])
        yield found(
            f"{context.missing} of {context.expected} expected members "
            f"{'is' if context.missing == 1 else 'are'} not in the group ({here} "
            f"{'is' if here == 1 else 'are'}) and may join with an old assignor list.",
            result=Tri.YES,
            fix=f"{fix} If they no longer belong to the service: --expect-members {here}.",
            before_step=narrowing_step(context) if len(context.settled) < here else None,
        )
