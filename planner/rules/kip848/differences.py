"""What a KIP-848 group does otherwise: regular expressions, assignors, racks."""

from rebal.groups.model import GroupType, Member
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import still_classic, to_consumer


@rule(
    "RB406",
    Severity.WARN,
    "A regular expression may match other topics under KIP-848",
    reference="KIP-848; librdkafka: INTRODUCTION.md (subscription by regular expression)",
    applies=(to_consumer,),
    traits=(Trait.REVIEW,),
)
def regular_expression(context: Context) -> Findings:
    """KIP-848 brokers match regular expressions with RE2/J against the whole topic name.

    Why it matters: librdkafka in the classic protocol matched a part of the name, so ^orders
    matched orders-eu too. Under KIP-848 it matches orders alone, and the other topics are silently
    not consumed. RE2/J has no look-around and no back-references.

    How to find out: search the code for subscribe calls with a pattern (in librdkafka: a topic that
    begins with ^). The classic protocol shows only the topics that were found.

    How to fix it: write the expression for the whole name (^orders.*), and compare the subscribed
    topics before and after the first member.

    Cannot tell: for librdkafka members that still use the classic protocol. Fires: for a member
    whose expression the broker already has, while other members are still classic.
    """
    classic = still_classic(context)
    ahead = [facts for facts in context.members if facts.member.subscribed_regex]
    if context.group.type is GroupType.CONSUMER and ahead and classic:
        yield found(
            f"{context.named(ahead)} may consume fewer topics than the members that are still "
            "classic: the broker matches its regular expression against whole topic names.",
            members=ahead,
            fix="Compare the topics of converted and classic members before the next restart.",
        )
        return
    unseen = [facts for facts in classic if facts.family == "librdkafka"]
    if unseen:
        yield found(
            f"{context.named(unseen)} may consume fewer topics after the change: a regular "
            "expression must then match the whole topic name, and no evidence shows whether the "
            "subscription has one.",
            result=Tri.CANNOT_TELL,
            members=unseen,
            fix="Search the code for topics that begin with ^, and append .* where a part of the "
            "name was meant.",
        )


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


@rule(
    "RB409",
    Severity.WARN,
    "Under KIP-848 the assignment does not follow racks as before",
    reference="KAFKA-19387; Kafka: docs/operations/consumer-rebalance-protocol",
    applies=(to_consumer,),
)
def racks(context: Context) -> Findings:
    """The broker's assignors do not yet handle client.rack as the clients' assignors do.

    Why it matters: members that read from a replica in their own rack may get partitions that have
    none there. That means more traffic between racks and more cost, and nothing fails.

    How to find out: members that send a rack (their subscription, or client.rack).

    How to fix it: measure the traffic with the first members; stay on the classic protocol where
    racks matter.
    """
    named = [
        facts
        for facts in context.members
        if facts.member.rack or (facts.member.subscription and facts.member.subscription.rack_id)
    ]
    if named:
        yield found(
            f"{context.named(named)} may read from replicas in other racks: the broker's assignors "
            "do not fully follow client.rack.",
            members=named,
            fix="Measure the traffic between racks after the first members.",
        )
