"""RB607: more members than expected."""

from rebal.planner.rules.registry import Context, Findings, Severity, Trait, found, rule


@rule(
    "RB607",
    Severity.WARN,
    "More members are in the group than are expected",
    reference="PostHog/posthog#60560 (one group shared by two services)",
    traits={Trait.EVERY_LOOK},
)
def members_too_many(context: Context) -> Findings:
    """The group has more members than the service should have.

    Why it matters: a second service on the same group id, an autoscaler at work, or a surge of new
    processes beside old ones all look like this. A service that is not in the plan is a member that
    the first bounce leaves out (RB102).

    How to find out: group the members by client id and host, and ask who runs those hosts.

    How to fix it: give each service its own group, pause the autoscaler during the roll-out, or
    raise --expect-members.
    """
    extra = len(context.members) - (context.expected or len(context.members))
    if extra > 0:
        yield found(
            f"the plan may leave out another service: the group has {len(context.members)} "
            f"members, {extra} more than expected.",
            members=context.members,
            fix="Find out who runs these members before any restart.",
        )
