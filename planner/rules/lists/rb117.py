"""RB117: leaders that read another language's sticky user data wrongly."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule
from rebal.planner.rules.scope import to_cooperative
from rebal.planner.versions import exact_version


@rule(
    "RB117",
    Severity.WARN,
    "Java and franz-go members may misread each other's sticky data",
    reference="Kafka: CooperativeStickyAssignor (2.8.2 to 3.3.2); franz-go: group_balancer.go; "
    "seen with Java 2.8.2 and franz-go 1.22.2",
)
def mixed_languages(context: Context) -> Iterator[Finding]:
    """The user data of cooperative-sticky has no common form among these clients.

    Why it matters: a Java leader of 2.8.2 to 3.3.2 takes the first four bytes for the generation,
    and franz-go puts the length of an array there. A generation that is wrong makes a member's
    claims look old or new, and partitions move that could have stayed: when a fourth member joined
    three with 12 partitions, 7 moved under a leader of 2.8.2, and 3 under one of 3.9.1. Nothing is
    lost or owned twice by that.

    How to find out: compare who owns what before and after a rebalance without a change.

    How to fix it: upgrade the Java members (3.4 no longer reads it so), or let it be if moved
    partitions do no harm.

    Cannot tell is all that it says: which member leads is the coordinator's choice at each
    generation, and describing a group does not show it.
    """
    if not to_cooperative(context):
        return
    java = [facts for facts in context.members if _reads_four_bytes(facts.family, facts.version)]
    go = [facts for facts in context.members if facts.family == "franz-go"]
    if java and go:
        yield found(
            f"{context.named(java)} (Java 2.8.2 to 3.3.2) and {context.named(go)} (franz-go): if "
            "one of the Java members leads, more partitions may move than must.",
            result=Tri.CANNOT_TELL,
            members=(*java, *go),
            fix="Upgrade the Java members to 3.4 or later.",
        )


def _reads_four_bytes(family: str | None, version: str | None) -> bool:
    known = exact_version(version)
    return family == "java" and known is not None and (2, 8, 2) <= known <= (3, 3, 2)
