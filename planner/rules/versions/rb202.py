"""RB202: Java leaders that refuse their own assignment."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import rule
from rebal.planner.versions import client_faults, cooperates


@rule(
    "RB202",
    Severity.WARN,
    "This Java version can get stuck checking its own assignment",
    reference="KAFKA-13406 (2.8.2, 3.0.1, 3.1.0)",
)
def stuck_validation(context: Context) -> Iterator[Finding]:
    """The leader checks what the cooperative assignor made, and the check can fail for good.

    Why it matters: a check that no partition goes to a new owner before the old one gave it up
    meets stale claims and fails; the leader joins again with the same claims, and the group is
    stuck.

    How to find out: the client's version stands in the broker's request log and in its own
    log at start (--request-log, --client-log).

    How to fix it: upgrade the client library in the first bounce. One old member is enough: any
    member can become the leader.

    It speaks in plans that lead to COOPERATIVE and have something left to do, and only of members
    whose version is exactly known; of all others the plan says that it was not checked.
    """
    if cooperates(context):
        yield from client_faults(context, "RB202")
