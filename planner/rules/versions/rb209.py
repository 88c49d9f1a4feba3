"""RB209: brokers whose coordinator can leave a group stuck."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import rule
from rebal.planner.versions import broker_faults


@rule(
    "RB209",
    Severity.WARN,
    "This broker version can leave a rebalancing group stuck",
    reference="KAFKA-12890 (2.8.1, 3.0.0); KAFKA-9801 (2.5.0)",
)
def stuck_group(context: Context) -> Iterator[Finding]:
    """The group coordinator of this broker release has known faults in rebalances.

    Why it matters: a roll-out is many rebalances in a row. A group that stays in
    CompletingRebalance consumes nothing, and static members can get an answer that is not theirs.

    How to find out: the broker's version; where only its line is known (2.8) and the patch
    release decides, this rule is silent and the plan says so.

    How to fix it: upgrade the brokers first; or watch the state after each restart, and when the
    group hangs, stop all its members until it is empty.
    """
    if context.planning and context.classic:
        yield from broker_faults(context, "RB209")
