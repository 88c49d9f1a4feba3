"""RB114: members that are absent now and rejoin with the old list."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import CONSUMER, Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule
from rebal.planner.rules.scope import ahead


@rule(
    "RB114",
    Severity.ASK,
    "Does anything else join this group from time to time?",
    reference="Kafka: group coordinator (only present members count)",
)
def absent_members(context: Context) -> Iterator[Finding]:
    """No source of evidence shows members that are not in the group now; only people know them.

    Why it matters: a deployment scaled to zero, a standby site, a nightly job, a canary, or an old
    image that a rollback starts joins later with the old list. After the second bounce it is
    rejected. If it is the first to join after a full stop, its list decides for the group.

    How to find out: search for the group id in every repository, deployment and scheduler, in the
    other sites too.

    How to answer it: change those configurations with the first bounce, and drop the old assignor
    there with the second one.
    """
    if not context.planning or not context.classic or context.goal == CONSUMER:
        return
    if ahead(context):
        yield found(
            "does anything else use this group id (a deployment scaled to zero, a standby site, a "
            "scheduled job, a canary, an old image)? It would rejoin with the old list and be "
            "rejected.",
            before_step=context.narrow_step,
        )
