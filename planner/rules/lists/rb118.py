"""RB118: sticky members that send no generation, with differing subscriptions."""

from rebal.groups.wire.user_data import NO_GENERATION, decode_sticky
from rebal.planner.rules.registry import Context, Facts, Findings, Severity, found, rule
from rebal.planner.rules.scope import by_lists


@rule(
    "RB118",
    Severity.WARN,
    "A sticky member sends its previous assignment without a generation",
    reference="KIP-341; aio-libs/aiokafka#1176",
    applies=(by_lists,),
)
def no_generation(context: Context) -> Findings:
    """Members on `sticky` send their previous partitions without a generation, and subscribe
    differently.

    Why it matters: the generation shows a leader which of two members that claim a partition is
    right (KIP-341). A client that always sends -1 (aiokafka) leaves that open. Where members
    subscribe to different topics, the assignment can then move back and forth or take very long: a
    group of 84 such members consumed nothing for 45 minutes while every process looked alive. Each
    restart of a roll-out can cause that again.

    How to find out: it is in the members' own bytes, which describing the group shows.

    How to fix it: move the members to range or roundrobin first (--to range), give each
    subscription a group of its own, or upgrade to a version of the client that sends the
    generation.

    It does not fire while all members subscribe to the same topics, where such claims do not last.
    A member without previous partitions is new and proves nothing.
    """
    if context.elected != "sticky":
        return
    topics = {
        frozenset(facts.member.subscription.topics)
        for facts in context.members
        if facts.member.subscription is not None
    }
    forgetful = [facts for facts in context.members if _forgets(facts)]
    if len(topics) > 1 and forgetful:
        yield found(
            f"a rebalance on sticky may never end: {context.named(forgetful)} "
            f"{'sends' if len(forgetful) == 1 else 'send'} previous partitions with no generation "
            "(-1), and the members subscribe to different topics.",
            members=forgetful,
            fix="Move the group off sticky first (--to range), or give each subscription its own "
            "group.",
        )


def _forgets(facts: Facts) -> bool:
    subscription = facts.member.subscription
    memory = decode_sticky(subscription.user_data if subscription is not None else None)
    return memory.readable and bool(memory.previous) and memory.generation == NO_GENERATION
