"""RB208: Java 2.4 and 2.5.0 stop or spin during a cooperative rebalance."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import rule
from rebal.planner.versions import client_faults, cooperates


@rule(
    "RB208",
    Severity.WARN,
    "This early cooperative Java version stops or spins during a rebalance",
    reference="KAFKA-8421 (2.5.0); KAFKA-10134 (2.5.1); KAFKA-9987 (2.5.1)",
)
def early_java(context: Context) -> Iterator[Finding]:
    """The first releases with the cooperative assignor do not yet give what it promises.

    Why it matters: in 2.4 poll returns no record during a rebalance, so nothing is gained; both
    spin in a busy loop meanwhile, and large groups wait long for the leader.

    How to find out: the client's version stands in the broker's request log and in its own
    log at start (--request-log, --client-log).

    How to fix it: upgrade to 2.5.1 or later, better to a current release, in the first bounce.

    It speaks in plans that lead to COOPERATIVE and have something left to do, and only of members
    whose version is exactly known; of all others the plan says that it was not checked.
    """
    if cooperates(context):
        yield from client_faults(context, "RB208")
