"""RB118: sticky members whose memory has no generation, with differing subscriptions."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.wire.user_data import NO_GENERATION, decode_sticky
from rebal.planner.context import CONSUMER, Context, Facts
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule


@rule(
    "RB118",
    Severity.WARN,
    "A sticky member never says of which generation its memory is",
    reference="KIP-341; aio-libs/aiokafka#1176",
)
def no_generation(context: Context) -> Iterator[Finding]:
    """Members on `sticky` remember their partitions without a generation, and subscribe unlike.

    Why it matters: the generation tells a leader which of two members that claim a partition is
    right (KIP-341). A client that always sends -1 (aiokafka) leaves that open, and where members
    subscribe to different topics the assignment can move back and forth or take very long: a group
    of 84 such members was seen to consume nothing for 45 minutes while every process looked alive.
    Each restart of a roll-out starts that again.

    How to find out: it is in the members' own bytes, which describing the group shows.

    How to fix it: take the members to range or roundrobin first (--to range), or give each
    subscription a group of its own; or upgrade to a version of the client that sends it.

    It does not fire while all members subscribe to the same topics: nothing is claimed twice for
    long then. A member that remembers nothing is new and proves nothing.
    """
    if not context.classic or context.elected != "sticky" or context.goal == CONSUMER:
        return
    topics = {
        frozenset(facts.member.subscription.topics)
        for facts in context.members
        if facts.member.subscription is not None
    }
    forgetful = [facts for facts in context.members if _forgets(facts)]
    if len(topics) > 1 and forgetful:
        yield found(
            f"{context.named(forgetful)}: what they remember has no generation (-1), and the "
            "members subscribe to different topics: a rebalance on sticky may not come to an end.",
            members=forgetful,
            fix="Take them off sticky first (--to range), or give each subscription its own group.",
        )


def _forgets(facts: Facts) -> bool:
    subscription = facts.member.subscription
    memory = decode_sticky(subscription.user_data if subscription is not None else None)
    return memory.readable and bool(memory.previous) and memory.generation == NO_GENERATION
