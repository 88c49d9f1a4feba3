"""Client libraries that misread each other's bytes, or cannot run side by side."""

from typing import Final

from rebal.groups.wire.user_data import NO_GENERATION, decode_sticky
from rebal.planner.rules.registry import (
    Context,
    Facts,
    Findings,
    PathKind,
    Risk,
    Severity,
    Trait,
    Tri,
    found,
    rule,
)
from rebal.planner.rules.scope import by_lists, planning, stable, to_cooperative
from rebal.planner.verdict import opposite
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
    untried = older is Tri.YES and facts.family == "librdkafka"
    return Tri.CANNOT_TELL if untried or not facts.family_proven else opposite(older)


def _replaced(context: Context) -> bool:
    return context.client is not None


@rule(
    "RB123",
    Severity.BLOCK,
    "The new client library cannot run beside the members' own",
    reference="Kafka: ClassicGroup.supportsProtocols; confluentinc/confluent-kafka-javascript#208; "
    "RB104, RB119",
    applies=(planning, stable, _replaced),
    traits={Trait.OTHER_PATH},
    accepts=Risk.STOP_FOR_CLIENT,
    handled_by={PathKind.LIBRARY_STOP},
)
def no_bridge(context: Context) -> Findings:
    """Old and new members share no assignor that both libraries understand: the group stops once.

    Why it matters: the coordinator admits a member only if one assignor, by name, is in every list,
    and the leader's library assigns for all members. Only range and roundrobin need no user data,
    so these two can bridge two libraries. librdkafka and kafka-python cannot put one of them beside
    cooperative-sticky, and segmentio/kafka-go sends a subscription that most others cannot read.

    How to find out: the members' lists and clients (rebal inspect).

    How to fix it: agree on an interruption and record it: --ignore RB123 --reason "who agreed, and
    for when". All members stop, the group is seen Empty, all start with the new library; committed
    offsets stay. Or give the new library a group id of its own, with the offsets copied before it
    starts: nothing stops, and what both groups read meanwhile is processed twice. The plan has the
    commands.

    Cannot tell: the client of a member is not known, and decides it.
    """
    bridge = context.bridge
    if bridge.verdict is not Tri.YES:
        yield found(
            f"{context.client} cannot run beside the members' own library: {bridge.why}."
            if bridge.verdict is Tri.NO
            else f"{context.client} may be unable to run beside the members' own: {bridge.why}.",
            result=Tri.YES if bridge.verdict is Tri.NO else Tri.CANNOT_TELL,
            members=bridge.members,
            fix="Agree on the interruption and record it, or take a new group id with the offsets "
            "copied, as the plan's step says."
            if bridge.verdict is Tri.NO
            else f"Restart nothing before the client is known. {context.settle(bridge.members)}",
            commands=() if bridge.verdict is Tri.NO else context.stating(bridge.members),
        )
