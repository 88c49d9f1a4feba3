"""RB114: members that are absent now and rejoin with the old list."""

from rebal.planner.rules.registry import Context, Findings, Severity, found, rule
from rebal.planner.rules.scope import by_lists, planning, unfinished


@rule(
    "RB114",
    Severity.ASK,
    "Does anything else join this group from time to time?",
    reference="Kafka: group coordinator (only present members count)",
    applies=(planning, by_lists, unfinished),
)
def absent_members(context: Context) -> Findings:
    """No source of evidence shows members that are not in the group now; only people know them.

    Why it matters: a deployment scaled to zero, a standby site, a nightly job, a canary, or an old
    image that a rollback starts joins later with the old list. After the second bounce it is
    rejected. If it is the first to join after a full stop, its list decides for the group.

    How to find out: search for the group id in every repository, deployment and scheduler, in the
    other sites too.

    How to answer it: change those configurations with the first bounce, and drop the old assignor
    there with the second one.
    """
    yield found(
        "does anything else use this group id (a deployment scaled to zero, a standby site, a "
        "scheduled job, a canary, an old image)? It would rejoin with the old list and be "
        "rejected.",
        before_step=context.narrow_step,
    )
