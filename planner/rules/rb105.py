"""RB105: a client without any cooperative assignor."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.context import Context
from rebal.planner.families import able
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule


@rule(
    "RB105",
    Severity.BLOCK,
    "This client has no cooperative assignor",
    reference="tulios/kafkajs#1156; aio-libs/aiokafka#1126; segmentio/kafka-go#985; "
    "IBM/sarama#3696",
)
def eager_only_client(context: Context) -> Iterator[Finding]:
    """A member's client library cannot follow COOPERATIVE: the group cannot finish the move.

    Why it matters: kafkajs, aiokafka and segmentio/kafka-go are eager only, and sarama was until
    September 2026. One such member keeps the whole group on an eager assignor; drop that, and
    either this member or the others are refused.

    How to find out: the client software in the broker's request log, or the dependency itself.
    kafkajs shows as unknown software with the assignor name RoundRobinAssigner.

    How to fix it: move that service to a client that can (or to a group of its own), or stay
    eager. KIP-848 is no way out for them either: it needs a client that speaks it.
    """
    if not context.planning or not context.classic or context.goal != "cooperative":
        return
    for answer, result in ((Tri.NO, Tri.YES), (Tri.CANNOT_TELL, Tri.CANNOT_TELL)):
        named = [
            facts
            for facts in context.members
            if facts.family not in (None, "java")
            and able(str(facts.family), facts.version).cooperative is answer
            and facts not in context.settled
        ]
        if named:
            families = ", ".join(sorted({str(facts.family) for facts in named}))
            what = (
                "has no cooperative assignor, so this group cannot leave EAGER"
                if answer is Tri.NO
                else "may have no cooperative assignor; which release has one is not known here"
            )
            yield found(
                f"{context.named(named)}: {families} {what}.",
                result=result,
                members=named,
                fix="Move these members to a client that has a cooperative assignor, or to a "
                "group of their own.",
            )
