"""RB206: Java leaders whose assignment never settles."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import rule
from rebal.planner.versions import client_faults, cooperates


@rule(
    "RB206",
    Severity.WARN,
    "This Java version can ask for one rebalance after another",
    reference="KAFKA-15106 (3.5.2, 3.6.0); apache/kafka#13920, #13965",
)
def repeated_rebalances(context: Context) -> Iterator[Finding]:
    """The sticky assignors of this release can find their own result out of balance.

    Why it matters: where members do not all subscribe to the same topics, the assignor moves
    partitions in each round and never arrives; hundreds of rebalances in minutes were seen.

    How to find out: the client's version stands in the broker's request log and in its own
    log at start (--request-log, --client-log).

    How to fix it: upgrade the client library in the first bounce. rebal simulate shows whether
    the assignment of this group arrives.

    It speaks in plans that lead to COOPERATIVE and have something left to do, and only of members
    whose version is exactly known; of all others the plan says that it was not checked.
    """
    if cooperates(context):
        yield from client_faults(context, "RB206")
