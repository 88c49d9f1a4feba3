"""RB906: a member's client family is not known."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.context import CONSUMER, Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.ahead import ahead
from rebal.planner.rules.registry import found, rule


@rule(
    "RB906",
    Severity.BLOCK,
    "A member's client library is not known",
    reference="KIP-511 (client name and version); hazards RB104 and RB105",
)
def unknown_family(context: Context) -> Iterator[Finding]:
    """Nothing says which client library a member uses.

    Why it matters: the steps differ by client. A Java consumer takes a mixed list, librdkafka and
    kafka-python refuse to start with one, kafkajs and others have no cooperative assignor. The
    first bounce needs no list, but it does need this.

    How to find out: the broker's request log names the software of each member that joins
    (--request-log); so does a Java member's own log (--client-log). Or ask whoever builds it.

    How to fix it: add that evidence, or say what you know, which the plan records:
    --assume-family java, or for one client id --assume-family CLIENT_ID=java.
    """
    if not context.planning or not context.classic or not context.stable:
        return
    named = [
        facts
        for facts in ahead(context)
        if facts.family is None and (context.goal == CONSUMER or facts.takes_mixed is not Tri.YES)
    ]
    if named:
        one = len(named) == 1
        yield found(
            f"{context.named(named)}: the client library is not known, and what "
            f"{'it takes' if one else 'they take'} as a list depends on it.",
            result=Tri.CANNOT_TELL,
            members=named,
            fix="--request-log across a restart, --client-log, or say it: --assume-family java.",
        )
