"""RB406: the broker reads a subscription's regular expression in its own way."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import GroupType, Tri
from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule
from rebal.planner.rules.scope import still_classic, to_consumer


@rule(
    "RB406",
    Severity.WARN,
    "A regular expression may match other topics under KIP-848",
    reference="KIP-848; librdkafka: INTRODUCTION.md (subscription by regular expression)",
)
def regular_expression(context: Context) -> Iterator[Finding]:
    """KIP-848's broker matches with RE2/J against the whole topic name.

    Why it matters: librdkafka in the classic protocol matched a part of the name, so ^orders
    took orders-eu too; under KIP-848 it takes orders alone, and the rest is silently not
    consumed. RE2/J has no look-around and no back-references.

    How to find out: search the code for subscribe calls with a pattern (in librdkafka: a topic
    that begins with ^). The classic protocol shows only the topics that were found.

    How to fix it: write the expression for the whole name (^orders.*), and compare the subscribed
    topics before and after the first member.

    Cannot tell: for members of librdkafka that still speak the classic protocol. Fires: for a
    member whose expression the broker already has while others are still to come.
    """
    if not to_consumer(context):
        return
    classic = still_classic(context)
    ahead = [facts for facts in context.members if facts.member.subscribed_regex]
    if context.group.type is GroupType.CONSUMER and ahead and classic:
        yield found(
            f"{context.named(ahead)} subscribes by an expression that the broker matches against "
            "whole topic names; members that are still classic may mean more by it.",
            members=ahead,
            fix="Compare the topics of both kinds of members before the next restart.",
        )
        return
    unseen = [facts for facts in classic if facts.family == "librdkafka"]
    if unseen:
        yield found(
            f"{context.named(unseen)}: subscriptions by a regular expression cannot be seen; "
            "under KIP-848 one must match the whole topic name.",
            result=Tri.CANNOT_TELL,
            members=unseen,
            fix="Look for topics that begin with ^ in the code, and end them with .* where a part "
            "was meant.",
        )
