"""RB205: Java leaders that revoke too much or move a partition in one round."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import rule
from rebal.planner.versions import client_faults, cooperates


@rule(
    "RB205",
    Severity.WARN,
    "This Java version revokes more than it must, or moves a partition in one round",
    reference="KAFKA-14639 (3.4.1, 3.5.0); KAFKA-14016",
)
def moved_in_one_round(context: Context) -> Iterator[Finding]:
    """The cooperative assignor of this release does not always wait for the old owner.

    Why it matters: a partition that goes to its new owner in the same round in which the old
    one gives it up can have two owners for a moment; and revoking more than needed stops what
    could go on.

    How to find out: the client's version stands in the broker's request log and in its own
    log at start (--request-log, --client-log).

    How to fix it: upgrade the client library in the first bounce. One old member is enough: any
    member can become the leader.

    It speaks in plans that lead to COOPERATIVE and have something left to do, and only of members
    whose version is exactly known; of all others the plan says that it was not checked.
    """
    if cooperates(context):
        yield from client_faults(context, "RB205")
