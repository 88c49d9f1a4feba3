"""RB119: a subscription that a leader of another client cannot read."""

from typing import Final

from rebal.planner.rules.registry import Context, Facts, Findings, Severity, Tri, found, rule
from rebal.planner.rules.scope import by_lists
from rebal.planner.verdict import opposite

# The first version that reads a v1 subscription's owned partitions; of librdkafka the oldest one
# that was tried.
_STRICT: Final = {"java": "2.4", "librdkafka": "2.16", "kafka-python": "3.0"}


@rule(
    "RB119",
    Severity.BLOCK,
    "A leader of another client cannot read a member's subscription",
    reference="ConsumerProtocolSubscription.json (v1 needs owned partitions); segmentio/kafka-go "
    "0.4.51 with Java 2.8.2 to 4.1.1, librdkafka 2.16.0 and kafka-python 3.0.12 on a 4.1.1 broker",
    applies=(by_lists,),
)
def unreadable_bytes(context: Context) -> Findings:
    """A member marks its subscription as version 1 and sends version 0.

    Why it matters: segmentio/kafka-go (and sarama-cluster) do so. The leader reads every member's
    subscription, and a leader of Java from 2.4, librdkafka or kafka-python 3 finds the bytes too
    short: Java stops for good ("SchemaException: Buffer underflow while parsing consumer protocol's
    subscription"), the others assign nothing. kafka-go as a leader cannot read their subscriptions
    either ("unable to read metadata for member"). Such a group works only while a third client
    leads. Each restart may change the leader, so no order of restarts is safe.

    How to find out: it is in the members' own bytes, which describing the group shows.

    How to fix it: give these members a group of their own first, or another client.

    Cannot tell: another member's client or its version is unknown or only inferred.
    """
    short = [facts for facts in context.members if _mislabelled(facts)]
    answers = {f.name: _strict(f) for f in context.members if f not in short} if short else {}
    for result in (Tri.YES, Tri.CANNOT_TELL):
        others = [facts for facts in context.members if answers.get(facts.name) is result]
        if others:
            cannot = "cannot read" if result is Tri.YES else "may be unable to read"
            stops = "stops or assigns" if result is Tri.YES else "may stop or assign"
            yield found(
                f"when {context.named(others)} leads the group, it {stops} nothing, because it "
                f"{cannot} the subscription of {context.named(short)}. Each restart may change the "
                "leader.",
                result=result,
                members=[*short, *others],
                fix=f"Before any restart, give {context.named(short)} another group or another "
                "client.",
            )
            return


def _mislabelled(facts: Facts) -> bool:
    sent = facts.member.subscription
    return sent is not None and sent.version == 1 and sent.owned_partitions is None


def _strict(facts: Facts) -> Tri:
    """Return whether this member's client, as leader, needs what a v1 subscription must have."""
    if facts.family is None:
        return Tri.CANNOT_TELL if set(facts.candidates) & set(_STRICT) else Tri.NO
    first = _STRICT.get(facts.family)
    if first is None:
        return Tri.NO if facts.family_proven else Tri.CANNOT_TELL
    older = facts.older_than(first)
    if older is Tri.YES and facts.family == "librdkafka":
        return Tri.CANNOT_TELL
    if not facts.family_proven:
        return Tri.CANNOT_TELL
    return opposite(older)
