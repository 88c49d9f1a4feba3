"""Clients that have no cooperative assignor, take no mixed list, or run EAGER with one."""

from collections.abc import Sequence
from typing import Final

from rebal.groups.model import Knowledge
from rebal.planner.advice.steps import cut_over_fix, restart_fix
from rebal.planner.clients import cooperative, is_mixed, refuses_mixed, speak_kip848, stays_eager
from rebal.planner.context import COOPERATIVE, EAGER
from rebal.planner.rules.lists.next_start import will_not_start
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
    found,
    rule,
)
from rebal.planner.rules.scope import by_lists, classic, no_downgrade, planning, upgrade


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
    stays=will_not_start,
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

    Cannot tell: the client is only inferred (from its bytes or its client id). rebal does not
    advise to stop a group for that: --assume-family or the request log settles it. The finding
    leaves out a member with an inferred client whose list already holds the target: if the
    inference is right, that member is done.
    """
    yield from _next_starts(context)
    bounces = context.goal in (COOPERATIVE, EAGER) and context.both_kinds
    # A group that is not Stable has no path yet, and may get one that stops these clients alone.
    if not context.planning or not bounces or not context.stable:
        return
    if context.goal == COOPERATIVE and any(stays_eager(facts.family) for facts in context.ahead):
        return
    named, undecided = context.unmixable, context.undecided
    if undecided:
        yield _question(context, named, undecided)
    elif named:
        yield found(
            f"the two bounces are not possible in this group: {context.named(named)} "
            f"({_families(named)}) {_does(named)} not accept eager and cooperative assignors "
            "together.",
            members=named,
            fix=f"{cut_over_fix(context, context.members, (context.target,))}{_online(context)}",
        )


def _next_starts(context: Context) -> Findings:
    """Yield a finding on members whose configured list their client does not accept."""
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
            fix=context.settle(guessed),
            commands=context.stating(guessed),
        )


def _question(context: Context, named: Sequence[Facts], undecided: Sequence[Facts]) -> Finding:
    """Return the finding that asks for the clients which decide what must be stopped."""
    if named:
        what = (
            f"{context.named(named)} ({_families(named)}) {_does(named)} not accept eager and "
            "cooperative assignors together. Whether the others can be restarted one by one "
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
        fix=f"Stop and restart nothing before the client is known. {context.settle(undecided)}",
        commands=context.stating(undecided),
    )


def _does(members: Sequence[Facts]) -> str:
    return "does" if len(members) == 1 else "do"


def _families(members: Sequence[Facts]) -> str:
    return ", ".join(sorted({facts.family or "its client" for facts in members}))


def _online(context: Context) -> str:
    if not {facts.family for facts in context.members} <= speak_kip848():
        return ""
    return (
        " Or move online to KIP-848 (group.protocol=consumer, librdkafka 2.12 or later, brokers "
        "4.0 or later)."
    )


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
    left = [facts for facts in context.ahead if facts.candidates]
    maybe = [facts for facts in eager if not facts.family_proven]
    maybe += [facts for facts in left if all(map(stays_eager, facts.candidates))]
    if maybe:
        yield found(
            f"the group may not be able to leave EAGER: {context.named(maybe)} "
            f"{'seems' if len(maybe) == 1 else 'seem'} to run {_clients(maybe)} (inferred, not "
            "proven), which has no cooperative assignor.",
            result=Tri.CANNOT_TELL,
            members=maybe,
            fix=f"Restart nothing before the client is known. {context.settle(maybe)} If it is "
            f"right: {_MOVE[0].lower()}{_MOVE[1:]}",
            commands=context.stating(maybe),
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
    applies=(by_lists, no_downgrade),
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
            and _runs_eager(context, facts)
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


def _runs_eager(context: Context, facts: Facts) -> bool:
    """Return whether one of Kafka's eager assignors in its list leaves this Java member EAGER."""
    return not facts.member.kept_partitions and any(
        cooperative(name) is Tri.NO and not context.own_class(facts, name)
        for name in facts.member.assignors.list
    )
