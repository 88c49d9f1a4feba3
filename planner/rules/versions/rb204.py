"""RB204: Java clients that hand out records of partitions they are about to give up."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import rule
from rebal.planner.versions import client_faults, cooperates


@rule(
    "RB204",
    Severity.WARN,
    "This Java version hands out records of partitions that it is giving up",
    reference="KAFKA-14196 (3.2.3, 3.3.0)",
)
def fetch_while_revoking(context: Context) -> Iterator[Finding]:
    """Between the commit and the revocation more records reach the application.

    Why it matters: under COOPERATIVE the application goes on polling during a rebalance. What
    it gets in that gap is not in the commit, so the next owner reads it again: records come
    twice.

    How to find out: the client's version stands in the broker's request log and in its own
    log at start (--request-log, --client-log).

    How to fix it: upgrade the client library in the first bounce, or make sure that the
    application can take a record twice.

    It speaks in plans that lead to COOPERATIVE and have something left to do, and only of members
    whose version is exactly known; of all others the plan says that it was not checked.
    """
    if cooperates(context):
        yield from client_faults(context, "RB204")
