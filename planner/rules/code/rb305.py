"""RB305: a custom assignor that also places other things."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.clients import cooperative
from rebal.planner.context import COOPERATIVE, Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule


@rule(
    "RB305",
    Severity.ASK,
    "Does the custom assignor place more than partitions",
    reference="KIP-429 (ConsumerPartitionAssignor: cooperative assignors of one's own)",
)
def other_resources(context: Context) -> Iterator[Finding]:
    """A custom assignor may hand out standbys, locks or shards beside the partitions.

    Why it matters: the consumer revokes partitions before another member gets them; of anything
    else the assignor gives away it knows nothing. A cooperative assignor must make those resources
    follow the same rule itself: first taken from the old owner, given to the new one in the next
    round.

    How to find out: read the assignor's code and what its user data carries. User data in an
    assignment is a sign of it.

    How to answer it: let it give such a resource away only after its owner has reported that it is
    free; or leave it where it is.
    """
    name = context.elected
    if not context.planning or name is None or context.goal != COOPERATIVE:
        return
    if cooperative(name) is not Tri.CANNOT_TELL or len(context.settled) == len(context.members):
        return
    yield found(
        f"does {name} hand out anything beside partitions (standbys, locks, shards)? Its "
        "successor must take that from the old owner before it gives it to the new one.",
        members=[facts for facts in context.members if facts.member.assignment_user_data],
    )
