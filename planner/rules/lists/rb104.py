"""RB104: a client that does not accept eager and cooperative assignors in one list."""

from collections.abc import Sequence

from rebal.planner.advice.steps import cut_over_fix
from rebal.planner.clients import is_mixed, refuses_mixed, speak_kip848, stays_eager
from rebal.planner.context import COOPERATIVE, EAGER
from rebal.planner.rules.next_start import will_not_start
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
from rebal.planner.rules.scope import classic


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
