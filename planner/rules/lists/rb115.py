"""RB115: the application relies on co-partitioning by range."""

from collections import defaultdict

from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import by_lists, planning, unfinished


@rule(
    "RB115",
    Severity.ASK,
    "Does the application need equal partitions of two topics in one member?",
    reference="Kafka: RangeAssignor (co-partitioning of topics of equal size)",
    applies=(planning, by_lists, unfinished),
    traits=(Trait.REVIEW,),
)
def co_partitioning(context: Context) -> Findings:
    """range assigns equal partition numbers of topics of equal size to the same member.

    Why it matters: joins, caches and local state that expect orders-3 and payments-3 in one process
    work with range, by accident or by design. cooperative-sticky, sticky and roundrobin do not keep
    them together. Such an application gives wrong results silently from the moment the other
    assignor is elected, which is at the end of the first bounce, not of the second.

    How to find out: does a member subscribe to two topics of equal partition count, and does the
    code look up one by the key or partition of the other?

    How to answer it: if it does, stay on range, or change the application first.
    """
    moving = "range" in (context.elected, context.keep) and context.target != "range"
    if not moving:
        return
    counts = {topic.name: topic.partitions for topic in context.snapshot.topics}
    together: set[str] = set()
    unknown: set[str] = set()
    for facts in context.members:
        by_size = defaultdict(set)
        for topic in _topics(context, facts.member.member_id):
            by_size[counts.get(topic)].add(topic)
        several = sum(map(len, by_size.values())) > 1
        unknown |= by_size.pop(None, set()) if several else set()
        for same in by_size.values():
            together |= same if len(same) > 1 else set()
    if together:
        yield found(
            f"equal partitions of {', '.join(sorted(together))} will no longer be in one member: "
            f"range keeps them together, {context.target} does not. Does the application rely on "
            "it?",
        )
    elif unknown:
        yield found(
            "equal partitions of two topics may no longer be in one member: the partition counts "
            f"of {', '.join(sorted(unknown))} are unknown. Does the application rely on range "
            "keeping them together?",
            result=Tri.CANNOT_TELL,
        )
    elif not any(_topics(context, facts.member.member_id) for facts in context.members):
        yield found(
            "equal partitions of two topics may no longer be in one member: no evidence shows the "
            "topics. Does the application rely on range keeping them together?",
            result=Tri.CANNOT_TELL,
        )


def _topics(context: Context, member_id: str) -> set[str]:
    member = next(m for m in context.snapshot.members if m.member_id == member_id)
    listed = member.subscription.topics if member.subscription else member.subscribed_topics
    return set(listed) or set(member.assignment)
