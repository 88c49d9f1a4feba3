"""RB410: brokers with faults on the way back from KIP-848."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.kip848.online import moving_down, moving_up
from rebal.planner.rules.registry import rule
from rebal.planner.versions import broker_faults


@rule(
    "RB410",
    Severity.WARN,
    "The way back from KIP-848 has known faults in this broker version",
    reference="KAFKA-19546 (4.0.2); KAFKA-20273; KAFKA-21117; KAFKA-20434",
)
def way_back(context: Context) -> Iterator[Finding]:
    """A group that returns to the classic protocol meets faults of the group coordinator.

    Why it matters: the way back is what one takes in trouble. Here it can leave an assignment
    that is behind the subscriptions, or a group that its coordinator cannot load after a
    restart.

    How to find out: the broker's version; faults whose fix is in no known release are named for
    every version.

    How to fix it: upgrade the brokers before the way up, not before the way back. On the way back
    restart one more member after the last one, so that a rebalance completes; or stop all members
    and go back offline.
    """
    if moving_up(context) or moving_down(context):
        yield from broker_faults(context, "RB410")
