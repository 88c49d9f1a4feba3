"""RB302: librdkafka callbacks that assign the full set."""

from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import ahead, classic, no_downgrade, planning


@rule(
    "RB302",
    Severity.ASK,
    "Does a librdkafka rebalance callback call assign()?",
    reference="librdkafka: INTRODUCTION.md; dotnetcore/CAP#1655; confluent-kafka-python#1040",
    applies=(planning, classic, no_downgrade),
    traits=(Trait.REVIEW,),
)
def incremental_assign(context: Context) -> Findings:
    """A binding's own rebalance callback must use the incremental calls under COOPERATIVE.

    Why it matters: with a callback that calls assign() and unassign(), a member joins but owns and
    consumes nothing, and only one log line shows it. It is the most common fault after such a
    change.

    How to find out: search for rebalance_cb, on_assign, on_revoke, SetPartitionsAssignedHandler and
    for assign( in them. The log line is: "Changes to the current assignment must be made using
    incremental_assign() or incremental_unassign() when rebalance protocol type is COOPERATIVE".

    How to answer it: use incremental_assign() and incremental_unassign() when the consumer's
    rebalance protocol is COOPERATIVE, or have no callback.
    """
    for proven, result in ((True, Tri.YES), (False, Tri.CANNOT_TELL)):
        named = [
            facts
            for facts in ahead(context)
            if facts.family == "librdkafka" and facts.family_proven is proven
        ]
        if named:
            yield found(
                f"does a rebalance callback in {context.named(named)} call assign()? After the "
                "change the member would consume nothing: the callback must call "
                "incremental_assign().",
                result=result,
                members=named,
            )
