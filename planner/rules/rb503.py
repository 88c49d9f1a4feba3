"""RB503: Kafka Streams releases that loop in rebalances."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import rule
from rebal.planner.versions import client_faults


@rule(
    "RB503",
    Severity.WARN,
    "This Kafka Streams version can ask for one rebalance after another",
    reference="KAFKA-14382 (3.3.2)",
)
def streams_loop(context: Context) -> Iterator[Finding]:
    """Streams instances of this release can keep a group rebalancing.

    Why it matters: each restart of a roll-out starts rebalances; here one can set off the next
    without end, and tasks never get back to work.

    How to find out: the client's version stands in the broker's request log and in the program's
    own log at start (--request-log, --client-log). A version that is not known gives no warning.

    How to fix it: upgrade to 3.3.2 or later, with the bounces that the Streams upgrade guide asks
    for.
    """
    if context.streams:
        yield from client_faults(context, "RB503", family="streams")
