"""Rules on clients without cooperative assignors or mixed lists, or that misread each other."""

from collections.abc import Sequence
from typing import Final

from rebal.groups.model import GroupType, Knowledge
from rebal.groups.wire.consumer_protocol import NO_GENERATION, decode_sticky
from rebal.planner.advice.steps import cut_over_fix, restart_fix
from rebal.planner.clients import (
    cooperative,
    custom,
    exact_version,
    is_mixed,
    refuses_mixed,
    speak_kip848,
    stays_eager,
)
from rebal.planner.commands import AGREED, NamedCommand
from rebal.planner.context import COOPERATIVE, EAGER
from rebal.planner.facts import topics_left
from rebal.planner.rules.assignors import will_not_start
from rebal.planner.rules.registry import (
    Context,
    Facts,
    Finding,
    Findings,
    PathKind,
    Risk,
    Severity,
    Trait,
    Tri,
    classic,
    family_commands,
    found,
    goal_is_not_eager,
    goal_needs_lists,
    planning,
    rule,
    stable,
    to_cooperative,
    upgrade,
    what_decides,
)
from rebal.planner.verdict import opposite


@rule(
    "RB104",
    Severity.BLOCK,
    "This client does not accept a list of eager and cooperative assignors",
    reference="librdkafka: src/rdkafka_assignor.c; confluentinc/librdkafka#3589, #4368",
    traits={Trait.NEXT_START, Trait.OTHER_PATH, Trait.REVIEW},
    applies=(classic,),
    accepts=Risk.STOP,
    answered_by={PathKind.MIXED_FAMILIES},
    handled_by={PathKind.CUT_OVER},
    stays=lambda context, found: bool(found.before_step) or will_not_start(context, found),
)
def no_mixed_list(context: Context) -> Findings:
    """librdkafka, its bindings and kafka-python accept no mixed assignor list: no bounces are
    possible.

    Why it matters: between the two bounces every member needs [cooperative-sticky, range].
    librdkafka (confluent-kafka for Python, Go and .NET, node-rdkafka) and kafka-python cannot be
    built with it ("All partition.assignment.strategy … assignors must have the same protocol
    type"), so a service that is configured as the Java documentation says crashes in a loop. The
    broker rejects [cooperative-sticky] alone while one member is on [range].

    How to find out: the client software in the broker's request log, or the dependency itself.

    How to fix it: a full cut-over: stop every member of the group, check that the group is Empty,
    start all with [cooperative-sticky]. Nothing is consumed in between. Upgrade a version without
    such an assignor (kafka-python before 3.0, librdkafka before 1.6) during that stop. Or, with
    brokers from 4.0 and librdkafka from 2.12, move online to KIP-848 (group.protocol=consumer),
    which needs no assignor list. Do not use a runbook with two bounces. (Where another member's
    client can never be COOPERATIVE, RB105 fires instead.)

    Beside members that accept a mixed list, only these clients stop, and the plan has a step for
    it. The rule then fires if no member that stays subscribes to a topic of those that stop,
    because nobody consumes that topic meanwhile: agree on the interruption first.

    Cannot tell: the client is only inferred (from its bytes or its client id). rebal does not
    advise to stop a group for that: --assume-family or the request log settles it. The finding
    leaves out a member with an inferred client whose list already holds the target: if the
    inference is right, that member is done. Or a subscription is not known that decides whether a
    topic stops.
    """
    yield from _next_starts(context)
    # A group that is not Stable has no path yet, and may get one that stops these clients alone.
    if (
        not context.planning
        or not (context.goal in (COOPERATIVE, EAGER) and context.mixes_protocols)
        or not context.stable
        or context.unable
        or (context.goal == COOPERATIVE and any(stays_eager(f.family) for f in context.ahead))
    ):
        return
    named, undecided = context.unmixable, context.undecided
    if undecided:
        yield _question(context, named, undecided)
    elif named:
        online = (
            " Or move online to KIP-848 (group.protocol=consumer, librdkafka 2.12 or later, "
            "brokers 4.0 or later)."
        )
        speak = {facts.family for facts in context.members} <= speak_kip848()
        yield found(
            f"the two bounces are not possible in this group: {context.named(named)} "
            f"({_families(named)}) {'does' if len(named) == 1 else 'do'} not accept eager and "
            "cooperative assignors together.",
            members=named,
            fix=cut_over_fix(context, context.members, (context.target,))
            + (online if speak else ""),
        )
        yield from _unread(context, named)


def _unread(context: Context, stopped: Sequence[Facts]) -> Findings:
    """Yield the finding on topics that nobody consumes while `stopped`, and no other, are down."""
    read, why = topics_left(stopped, [facts for facts in context.members if facts not in stopped])
    if context.split and read is not Tri.YES:
        yield found(
            f"{context.named(stopped)} stop together in step {context.leaving_step}: {why}.",
            result=opposite(read),
            members=stopped,
            fix="Agree on the interruption with those who need these topics."
            if read is Tri.NO
            else "Read the group again while it is Stable, which shows each subscription, or agree "
            "on the interruption.",
            commands=[context.accepting(Risk.STOP, AGREED)],
            before_step=context.leaving_step,
        )


def _next_starts(context: Context) -> Findings:
    """Yield findings on members configured with a mixed list that their client rejects."""
    declared = [
        facts
        for facts in context.members
        if refuses_mixed(facts.family)
        and facts.member.declared is not None
        and is_mixed(facts.member.declared.list)
    ]
    proven = [facts for facts in declared if facts.family_proven]
    if proven:
        yield found(
            f"{context.named(proven)} will not start again: the configured list has eager and "
            f"cooperative assignors, which {_families(proven)} does not accept together.",
            members=proven,
            fix="Configure either eager or cooperative assignors, whichever the group runs now.",
        )
    guessed = [facts for facts in declared if not facts.family_proven]
    if guessed:
        yield found(
            f"{context.named(guessed)} may not start again: the configured list has eager and "
            f"cooperative assignors, which {_families(guessed)} does not accept together. The "
            "client is inferred, not proven.",
            result=Tri.CANNOT_TELL,
            members=guessed,
            fix=what_decides(context, guessed),
            commands=family_commands(context, guessed),
        )


def _question(context: Context, named: Sequence[Facts], undecided: Sequence[Facts]) -> Finding:
    """Return the finding that asks which clients the `undecided` members run.

    Their clients decide which members must stop. `named` are the members proven to reject mixed
    lists.
    """
    if named:
        what = (
            f"{context.named(named)} ({_families(named)}) {'does' if len(named) == 1 else 'do'} "
            "not accept eager and cooperative assignors together. Whether the others can be "
            "restarted one by one "
            f"depends on the client of {context.named(undecided)}, which is not proven."
        )
    else:
        what = (
            f"two bounces may not be possible: {context.named(undecided)} "
            f"{'seems' if len(undecided) == 1 else 'seem'} to run {_families(undecided)} "
            "(inferred, not proven), which does not accept eager and cooperative assignors "
            "together."
        )
    return found(
        what,
        result=Tri.CANNOT_TELL,
        members=[*named, *undecided],
        fix="Stop and restart nothing before the client is known. "
        f"{what_decides(context, undecided)}",
        commands=family_commands(context, undecided),
    )


def _families(members: Sequence[Facts]) -> str:
    return ", ".join(sorted({facts.family or "its client" for facts in members}))


_MOVE: Final = (
    "Move these members to a client with a cooperative assignor (--to-client plans it) or to a "
    "group of their own, and plan again; or stay EAGER."
)


@rule(
    "RB105",
    Severity.BLOCK,
    "This client has no cooperative assignor",
    reference="tulios/kafkajs#1156; aio-libs/aiokafka#1126; segmentio/kafka-go#985; "
    "IBM/sarama#3696",
    applies=(planning, classic, upgrade),
)
def eager_only_client(context: Context) -> Findings:
    """A member's client library cannot run COOPERATIVE, so the group cannot complete the change.

    Why it matters: kafkajs, aiokafka and segmentio/kafka-go are eager only, and so was sarama
    before 1.61. One such member keeps the whole group on an eager assignor. If that assignor is
    dropped, either this member or the others are rejected.

    How to find out: look at the dependency itself; kafkajs, aiokafka and kafka-go do not send their
    name to the broker. kafkajs can be recognised by the assignor name RoundRobinAssigner,
    segmentio/kafka-go by the bytes it sends, aiokafka only by its default client id.

    How to fix it: move that service to a client with a cooperative assignor or to a group of its
    own, or stay EAGER. KIP-848 does not help these clients: it needs a client that supports it.

    Cannot tell: the client is only inferred (from its bytes, its client id or the elected
    assignor's name).
    """
    eager = [facts for facts in context.ahead if stays_eager(facts.family)]
    without = [facts for facts in eager if facts.family_proven]
    if without:
        yield found(
            f"the group cannot leave EAGER while {context.named(without)} "
            f"{'is' if len(without) == 1 else 'are'} in it: no cooperative assignor "
            f"in {_clients(without)}.",
            members=without,
            fix=_MOVE,
        )
    maybe = [facts for facts in eager if not facts.family_proven]
    maybe += [f for f in context.ahead if f.candidates and all(map(stays_eager, f.candidates))]
    if maybe:
        yield found(
            f"the group may not be able to leave EAGER: {context.named(maybe)} "
            f"{'seems' if len(maybe) == 1 else 'seem'} to run {_clients(maybe)} (inferred, not "
            "proven), which has no cooperative assignor.",
            result=Tri.CANNOT_TELL,
            members=maybe,
            fix=f"Restart nothing before the client is known. {what_decides(context, maybe)} "
            f"If it is right: {_MOVE[0].lower()}{_MOVE[1:]}",
            commands=family_commands(context, maybe),
        )


def _clients(members: list[Facts]) -> str:
    return ", ".join(
        sorted(
            {
                " ".join(
                    filter(None, [facts.family or " or ".join(facts.candidates), facts.version])
                )
                for facts in members
            }
        )
    )


@rule(
    "RB106",
    Severity.WARN,
    "A Java member with a mixed assignor list stays EAGER, whatever is elected",
    reference="Kafka: ConsumerCoordinator (the highest protocol common to its own list); KIP-429",
    applies=(goal_needs_lists, goal_is_not_eager),
    traits={Trait.PASSING},
)
def still_eager(context: Context) -> Findings:
    """The group elected a cooperative assignor, but members with mixed lists still run EAGER.

    Why it matters: a Java consumer chooses its rebalance protocol once, when it is built: the
    highest one that ALL assignors of its own list support. With [cooperative-sticky, range] that is
    EAGER for as long as the consumer lives, and it stops all its partitions at each rebalance.
    Tools that print the elected assignor make such a group look finished. franz-go differs: it
    follows the elected assignor.

    How to find out: the members' exact lists (--request-log, --client-log). When it rejoins, a
    member that runs COOPERATIVE sends the partitions it owns, an EAGER one sends none.

    How to fix it: do the second bounce: restart each of them with the cooperative assignor alone.

    Cannot tell: the client is only inferred to be Java. The rule ignores lists with an assignor of
    the application's own, which may be COOPERATIVE, whatever its name.

    It does not fire while an eager assignor is elected, because the group is then visibly EAGER.
    """
    if cooperative(context.elected or "") is not Tri.YES:
        return
    for proven, result in ((True, Tri.YES), (False, Tri.CANNOT_TELL)):
        named = [
            facts
            for facts in context.members
            if facts.family == "java"
            and facts.family_proven is proven
            and facts.member.assignors.knowledge is Knowledge.EXACT
            and context.holds_old(facts) is Tri.YES
            and not facts.member.kept_partitions
            # One of Kafka's eager assignors in its list leaves it EAGER.
            and any(
                cooperative(name) is Tri.NO and not context.own_class(facts, name)
                for name in facts.member.assignors.list
            )
        ]
        if not named:
            continue
        one = len(named) == 1
        guess = "" if proven else ", if the client is Java (inferred, not proven)"
        yield found(
            f"{context.named(named)} still {'runs' if one else 'run'} EAGER and "
            f"{'stops' if one else 'stop'} all {'its' if one else 'their'} partitions at each "
            f"rebalance: {context.elected} is elected, but {'its list has' if one else 'their '}"
            f"{'' if one else 'lists have'} an eager assignor too{guess}.",
            result=result,
            members=named,
            fix=restart_fix(context, named, (context.target,)),
        )


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
    java = [
        facts
        for facts in context.members
        if facts.family == "java" and (2, 8, 2) <= (exact_version(facts.version) or ()) <= (3, 3, 2)
    ]
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


@rule(
    "RB118",
    Severity.WARN,
    "A sticky member sends its previous assignment without a generation",
    reference="KIP-341; aio-libs/aiokafka#1176",
    applies=(goal_needs_lists,),
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


def _to_named(context: Context) -> bool:
    """Return whether a plan is made that ends on another assignor than cooperative-sticky.

    RB105 covers cooperative-sticky. False for a change of the client library.
    """
    return (
        context.planning
        and context.client is None
        and (context.classic or context.group.type is GroupType.CONSUMER)
        and (context.goal == EAGER or (upgrade(context) and custom(context.target)))
    )


@rule(
    "RB124",
    Severity.BLOCK,
    "This client does not have the target assignor",
    reference="librdkafka: CONFIGURATION.md, partition.assignment.strategy; seen with "
    "confluent-kafka 2.16.1",
    applies=(_to_named,),
    traits={Trait.OTHER_PATH},
)
def no_such_assignor(context: Context) -> Findings:
    """A member's client library does not bring the assignor that the plan ends on.

    Why it matters: librdkafka has range, roundrobin and cooperative-sticky, and takes no other. A
    process that is restarted with another one ends at once ("Unsupported
    partition.assignment.strategy: sticky"), and so does every restart of it. segmentio/kafka-go has
    range and roundrobin; RoundRobinAssigner is kafkajs's own.

    How to find out: the client software in the broker's request log, or the dependency itself.

    How to fix it: plan an assignor that every client has: range or roundrobin. If the application
    brings an assignor of this name itself (not possible with librdkafka), show one member that
    lists it (--request-log, --client-log).

    Cannot tell: the client is unknown or only inferred, and some client that it may be lacks the
    assignor; or only other clients are seen with this assignor of the application.
    """
    for answer, proven in ((Tri.NO, True), (Tri.CANNOT_TELL, True), (Tri.CANNOT_TELL, False)):
        named = [
            facts
            for facts in context.ahead
            if facts.family_proven is proven and context.can_list(facts, context.target) is answer
        ]
        if not named:
            continue
        holders = [f for f in context.members if context.target in context.names_held(f.member)]
        unknown = [f for f in holders if not f.family_proven] if proven else named
        other = next(name for name in ("range", "roundrobin") if name != context.elected)
        fix = f"Show one member that lists {context.target} (--client-log), or accept this."
        commands: tuple[NamedCommand, ...] = (
            context.accepting("RB124", "the application brings the assignor"),
        )
        if answer is Tri.NO:
            fix = f"Plan {other} instead."
            commands = (NamedCommand(f"plan {other}", context.replan(to=other)),)
        elif unknown:
            fix = f"Restart nothing before the client is known. {what_decides(context, unknown)}"
            commands = family_commands(context, unknown)
        yield found(
            f"{context.named(named)} {'cannot' if answer is Tri.NO else 'may not'} start with "
            f"[{context.target}]: {_clients(named) or 'the client'} "
            f"{'has' if answer is Tri.NO else 'may have'} no such assignor.",
            result=opposite(answer),
            members=named,
            fix=fix,
            commands=commands,
        )


# The first version that reads a v1 subscription's owned partitions; of librdkafka the oldest one
# that was tried.
_STRICT: Final = {"java": "2.4", "librdkafka": "2.16", "kafka-python": "3.0"}


@rule(
    "RB119",
    Severity.BLOCK,
    "A leader of another client cannot read a member's subscription",
    reference="ConsumerProtocolSubscription.json (v1 needs owned partitions); segmentio/kafka-go "
    "0.4.51 with Java 2.8.2 to 4.1.1, librdkafka 2.16.0 and kafka-python 3.0.12 on a 4.1.1 broker",
    applies=(goal_needs_lists,),
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
    short = [
        facts
        for facts in context.members
        if (sent := facts.member.subscription) is not None
        and sent.version == 1
        and sent.owned_partitions is None
    ]
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


def _strict(facts: Facts) -> Tri:
    """Return whether the client, as leader, fails on a v1 subscription without owned partitions."""
    if facts.family is None:
        return Tri.CANNOT_TELL if set(facts.candidates) & set(_STRICT) else Tri.NO
    first = _STRICT.get(facts.family)
    if first is None:
        return Tri.NO if facts.family_proven else Tri.CANNOT_TELL
    older = facts.older_than(first)
    untried = older is Tri.YES and facts.family == "librdkafka"
    return Tri.CANNOT_TELL if untried or not facts.family_proven else opposite(older)


@rule(
    "RB123",
    Severity.BLOCK,
    "The new client library cannot run beside the members' own",
    reference="Kafka: ClassicGroup.supportsProtocols; confluentinc/confluent-kafka-javascript#208; "
    "RB104, RB119",
    applies=(planning, stable, lambda context: context.client is not None),
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
            else "Restart nothing before the client is known. "
            f"{what_decides(context, bridge.members)}",
            commands=() if bridge.verdict is Tri.NO else family_commands(context, bridge.members),
        )
