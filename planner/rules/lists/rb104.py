"""RB104: a client that refuses a list of both kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rebal.groups.model import Tri
from rebal.planner.admission.advice import cut_over_fix
from rebal.planner.clients import cooperative, refuses_mixed, speak_kip848, stays_eager
from rebal.planner.context import CONSUMER, COOPERATIVE, Context, Facts
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.next_start import will_not_start
from rebal.planner.rules.registry import Risk, Trait, found, rule


@rule(
    "RB104",
    Severity.BLOCK,
    "This client refuses a list of eager and cooperative assignors",
    reference="librdkafka: src/rdkafka_assignor.c; confluentinc/librdkafka#3589, #4368",
    traits={Trait.NEXT_START, Trait.OTHER_PATH},
    accepts=Risk.STOP,
    answered_by={"mixed_families"},
    handled_by={"cut_over"},
    stays=will_not_start,
)
def no_mixed_list(context: Context) -> Iterator[Finding]:
    """librdkafka and its bindings, and kafka-python, take no mixed list: no rolling way exists.

    Why it matters: the two bounces need [cooperative-sticky, range] in between. librdkafka
    (confluent-kafka for Python, Go and .NET, node-rdkafka) and kafka-python refuse to be built
    with it ("All partition.assignment.strategy … assignors must have the same protocol type"),
    so a service that is configured as the Java documentation says crashes in a loop. And
    [cooperative-sticky] alone is refused by the broker while one member is on [range].

    How to find out: the client software in the broker's request log, or the dependency itself.

    How to fix it: a full cut-over: stop every member of the group, make sure that the group is
    empty, start all with [cooperative-sticky]. Nothing is consumed in between. A version that has
    no such assignor (kafka-python before 3.0, librdkafka before 1.6) is upgraded in that stop. Or,
    with brokers from 4.0 and librdkafka from 2.12, the online way to KIP-848
    (group.protocol=consumer), which needs no assignor list at all. Do not paste a two-bounce
    runbook. (Where another member's client can never be COOPERATIVE, RB105 speaks instead.)

    Cannot tell: the client is known by circumstances only (its bytes, its client id). Nobody is
    told to stop a group for that: --assume-family or the request log decides it. A member that is
    taken for such a client and whose list holds the target already is not named: if the guess is
    right, it is done.
    """
    if not context.classic or not context.members:
        return
    yield from _next_starts(context)
    if not context.planning or context.goal == CONSUMER or not context.both_kinds:
        return
    if context.goal == COOPERATIVE and any(stays_eager(facts.family) for facts in context.ahead):
        return
    named, undecided = context.unmixable, context.undecided
    if undecided:
        yield _question(context, named, undecided)
    elif named:
        yield found(
            f"{context.named(named)}: {_families(named)} refuses a list of both kinds, so the two "
            "bounces do not exist for this group.",
            members=named,
            fix=f"{cut_over_fix(context, context.members, (context.target,))}{_online(context)}",
        )


def _next_starts(context: Context) -> Iterator[Finding]:
    """Yield a finding on members whose configuration holds a list that their client refuses."""
    declared = [f for f in context.members if refuses_mixed(f.family) and _declares_mixed(f)]
    proven = [facts for facts in declared if facts.family_proven]
    if proven:
        yield found(
            f"the next start of {context.named(proven)} has a list of eager and cooperative "
            "assignors, which this client refuses: it will not start.",
            members=proven,
            fix="Give it one kind only: the one that the group runs.",
        )
    guessed = [facts for facts in declared if not facts.family_proven]
    if guessed:
        yield found(
            f"the next start of {context.named(guessed)} has a list of eager and cooperative "
            f"assignors: {_families(guessed)} refuses it and does not start. Only circumstances "
            "point to that client.",
            result=Tri.CANNOT_TELL,
            members=guessed,
            fix=_settle(context, guessed),
        )


def _question(context: Context, named: Sequence[Facts], undecided: Sequence[Facts]) -> Finding:
    """Return the finding that asks for the clients which decide what must be stopped."""
    if named:
        what = (
            f"{context.named(named)}: {_families(named)} refuses a list of both kinds. Whether the "
            f"others can be restarted one by one depends on the client of "
            f"{context.named(undecided)}, which is not proven."
        )
    else:
        what = (
            f"{context.named(undecided)}: taken for {_families(undecided)} by circumstance only. "
            "That client refuses a list of both kinds: if it is another one, two bounces may do."
        )
    return found(
        what,
        result=Tri.CANNOT_TELL,
        members=[*named, *undecided],
        fix=f"Stop and restart nothing before that is known. {_settle(context, undecided)}",
    )


def _settle(context: Context, guessed: Sequence[Facts]) -> str:
    """Return what proves the clients of these members."""
    return (
        "The broker's request log names the client at its next join (--request-log FILE); or say "
        f"which client it is, with the right family: {context.assume(guessed)}."
    )


def _families(members: Sequence[Facts]) -> str:
    return ", ".join(sorted({facts.family or "its client" for facts in members}))


def _online(context: Context) -> str:
    if not {facts.family for facts in context.members} <= speak_kip848():
        return ""
    return (
        " Or go online to KIP-848 (group.protocol=consumer, librdkafka 2.12 or later, brokers 4.0 "
        "or later)."
    )


def _declares_mixed(facts: Facts) -> bool:
    declared = facts.member.declared
    return declared is not None and {Tri.YES, Tri.NO} <= set(map(cooperative, declared.list))
