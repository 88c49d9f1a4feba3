"""RB302: librdkafka callbacks that assign the full set."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.context import EAGER, Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule
from rebal.planner.rules.scope import ahead


@rule(
    "RB302",
    Severity.ASK,
    "Does a librdkafka rebalance callback call assign",
    reference="librdkafka: INTRODUCTION.md; dotnetcore/CAP#1655; confluent-kafka-python#1040",
)
def incremental_assign(context: Context) -> Iterator[Finding]:
    """A binding's own rebalance callback must use the incremental calls under COOPERATIVE.

    Why it matters: a callback that calls assign() and unassign() is the most common way to end up
    with a member that joined, owns nothing and consumes nothing, with no error anywhere but one
    log line.

    How to find out: search for rebalance_cb, on_assign, on_revoke, SetPartitionsAssignedHandler
    and for assign( in them. In a log it is: "Changes to the current assignment must be made using
    incremental_assign() or incremental_unassign() when rebalance protocol type is COOPERATIVE".

    How to answer it: use incremental_assign() and incremental_unassign() when the consumer's
    rebalance protocol is COOPERATIVE, or have no callback at all.
    """
    if not context.planning or not context.classic or context.goal == EAGER:
        return
    for proven, result in ((True, Tri.YES), (False, Tri.CANNOT_TELL)):
        named = [
            facts
            for facts in ahead(context)
            if facts.family == "librdkafka" and facts.family_proven is proven
        ]
        if named:
            yield found(
                f"{context.named(named)}: does a rebalance callback call assign()? After "
                "the change it must call incremental_assign().",
                result=result,
                members=named,
            )
