"""RB305: a custom assignor that also assigns other resources."""

from rebal.planner.clients import cooperative
from rebal.planner.rules.registry import Context, Findings, Severity, Tri, found, rule
from rebal.planner.rules.scope import planning, unfinished, upgrade


@rule(
    "RB305",
    Severity.ASK,
    "Does the custom assignor place more than partitions?",
    reference="KIP-429 (ConsumerPartitionAssignor: cooperative assignors of one's own)",
    applies=(planning, upgrade, unfinished),
)
def other_resources(context: Context) -> Findings:
    """A custom assignor may assign standbys, locks or shards beside the partitions.

    Why it matters: the consumer revokes partitions before another member gets them, but it knows
    nothing of other resources. A cooperative assignor must apply the same rule to them itself:
    first take them from the old owner, then give them to the new one in the next rebalance.

    How to find out: read the assignor's code and what its user data carries. User data in an
    assignment is a sign of it.

    How to answer it: let the assignor give such a resource away only after its owner has reported
    that it is free, or leave the resource where it is.
    """
    name = context.elected
    if name is None or cooperative(name) is not Tri.CANNOT_TELL:
        return
    yield found(
        f"does {name} assign anything beside partitions (standbys, locks, shards)? Two members "
        "may then own it at once, unless the new assignor takes it from the old owner first.",
        members=[facts for facts in context.members if facts.member.assignment_user_data],
    )
