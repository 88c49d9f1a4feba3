"""RB408: a converted group gets the broker's assignor, not the one it had."""

from rebal.groups.model import Member
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import to_consumer


@rule(
    "RB408",
    Severity.WARN,
    "Under KIP-848 range is not kept: the broker's default assignor applies",
    reference="KIP-848; Kafka: docs/operations/consumer-rebalance-protocol; group.remote.assignor",
    applies=(to_consumer,),
    traits=(Trait.REVIEW,),
)
def assignor_not_kept(context: Context) -> Findings:
    """A KIP-848 group takes over nothing from partition.assignment.strategy.

    Why it matters: the group gets the first of the broker's group.consumer.assignors, by default
    `uniform`. Joins and caches that rely on range to keep equal partition numbers of two topics
    together give wrong results silently (RB115).

    How to find out: the elected assignor, the topics of each member, and what the code looks up.

    How to fix it: set group.remote.assignor=range on every member in the same change that sets
    group.protocol=consumer.

    Cannot tell: the topics of a member are not known. It does not fire where the group is not on
    range, where each member has one topic only, or where the broker's default is range.
    """
    if context.elected != "range":
        return
    default = context.snapshot.cluster.settings.get("group.consumer.assignors", "uniform")
    first = default.split(",")[0].strip()
    if first == "range":
        return
    several = [facts for facts in context.members if len(_topics(facts.member)) > 1]
    unknown = [facts for facts in context.members if not _topics(facts.member)]
    for named, result in ((several, Tri.YES), (unknown, Tri.CANNOT_TELL)):
        if named:
            yield found(
                f"equal partitions of two topics {'will' if result is Tri.YES else 'may'} no "
                f"longer be together in {context.named(named)}: the group runs range now and "
                f"{first} after the change"
                + ("." if result is Tri.YES else ", and the topics of these members are unknown."),
                result=result,
                members=named,
                fix="Set group.remote.assignor=range on every member.",
            )


def _topics(member: Member) -> set[str]:
    sent = member.subscription.topics if member.subscription else ()
    return {*member.assignment, *member.subscribed_topics, *sent}
