"""RB201: Java clients that claim partitions they lost."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import rule
from rebal.planner.versions import client_faults, cooperates


@rule(
    "RB201",
    Severity.WARN,
    "This Java version claims partitions that it no longer owns",
    reference="KAFKA-12983 (2.7.2, 2.8.1, 3.0.0); KAFKA-12984 (2.8.1, 3.0.0)",
)
def stale_owned(context: Context) -> Iterator[Finding]:
    """A member that fell out of the group still names its old partitions when it joins again.

    Why it matters: the leader takes what members say they own for true. With a stale claim two
    members can own one partition, or one that nobody owns is not given out, until the next
    rebalance.

    How to find out: the client's version stands in the broker's request log and in its own
    log at start (--request-log, --client-log).

    How to fix it: upgrade the client library in the first bounce; every member is restarted
    anyway.

    It speaks in plans that lead to COOPERATIVE and have something left to do, and only of members
    whose version is exactly known; of all others the plan says that it was not checked.
    """
    if cooperates(context):
        yield from client_faults(context, "RB201")
