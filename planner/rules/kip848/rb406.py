"""RB406: the broker matches a subscription's regular expression differently."""

from rebal.groups.model import GroupType
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
