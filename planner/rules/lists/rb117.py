"""RB117: leaders that misread the sticky user data of another client."""

from rebal.planner.rules.registry import Context, Findings, Severity, Tri, found, rule
from rebal.planner.rules.scope import to_cooperative
from rebal.planner.versions import exact_version


@rule(
    "RB117",
    Severity.WARN,
    "Java and franz-go members may misread each other's sticky data",
    reference="Kafka: CooperativeStickyAssignor (2.8.2 to 3.3.2); franz-go: group_balancer.go; "
    "seen with Java 2.8.2 and franz-go 1.22.2",
    applies=(to_cooperative,),
)
def mixed_languages(context: Context) -> Findings:
    """These clients do not share one format for the user data of cooperative-sticky.

    Why it matters: a Java leader of 2.8.2 to 3.3.2 reads the first four bytes as the generation,
    where franz-go puts the length of an array. A wrong generation makes a member's claims look old
    or new, and partitions move that could have stayed: when a fourth member joined three with 12
    partitions, 7 moved under a leader of 2.8.2, and 3 under one of 3.9.1. No partition is lost or
    owned twice.

    How to find out: compare the owners before and after a rebalance without a change.

    How to fix it: upgrade the Java members to 3.4 or later, which read the data correctly, or
    ignore the finding if moved partitions do no harm.

    It always answers cannot tell: the coordinator chooses the leader at each generation, and
    describing a group does not show it.
    """
    java = [facts for facts in context.members if _reads_four_bytes(facts.family, facts.version)]
    go = [facts for facts in context.members if facts.family == "franz-go"]
    if java and go:
        yield found(
            f"more partitions may move than necessary when {context.named(java)} (Java 2.8.2 to "
            f"3.3.2) leads: this version misreads the sticky data of {context.named(go)} "
            "(franz-go).",
            result=Tri.CANNOT_TELL,
            members=(*java, *go),
            fix="Upgrade the Java members to 3.4 or later.",
        )


def _reads_four_bytes(family: str | None, version: str | None) -> bool:
    known = exact_version(version)
    return family == "java" and known is not None and (2, 8, 2) <= known <= (3, 3, 2)
