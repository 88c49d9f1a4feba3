"""RB104: a client that refuses a list of both kinds."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.context import CONSUMER, COOPERATIVE, Context, Facts
from rebal.planner.families import able, cooperative, speak_kip848, stays_eager
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule


@rule(
    "RB104",
    Severity.BLOCK,
    "This client refuses a list of eager and cooperative assignors",
    reference="librdkafka: src/rdkafka_assignor.c; confluentinc/librdkafka#3589, #4368",
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
    """
    if not context.classic or not context.members:
        return
    refusing = [facts for facts in context.members if _refuses_mixed(facts)]
    declared = [facts for facts in refusing if _declares_mixed(facts)]
    if declared:
        yield found(
            f"the next start of {context.named(declared)} has a list of eager and cooperative "
            "assignors, which this client refuses: it will not start.",
            members=declared,
            fix="Give it one kind only: the one that the group runs.",
        )
    if not context.planning or context.goal == CONSUMER or not context.both_kinds:
        return
    ahead = [facts for facts in context.members if facts not in context.settled]
    if context.goal == COOPERATIVE and any(stays_eager(facts.family) for facts in ahead):
        return
    named = [facts for facts in ahead if facts in refusing]
    if named:
        families = ", ".join(sorted({str(facts.family) for facts in named}))
        guessed = [facts for facts in named if not facts.family_proven]
        sure = (
            f" ({context.named(guessed)}: by circumstance; if that is wrong, say --assume-family)"
            if guessed
            else ""
        )
        yield found(
            f"{context.named(named)}: {families} refuses a list of both kinds{sure}, so the two "
            "bounces do not exist for this group.",
            members=named,
            fix="Stop every member, see the group Empty, start all on "
            f"[{context.target}]{_online(context)}.",
        )


def _refuses_mixed(facts: Facts) -> bool:
    if facts.family is None or stays_eager(facts.family):
        return False
    return able(facts.family, facts.version).mixed is Tri.NO


def _online(context: Context) -> str:
    if not {facts.family for facts in context.members} <= speak_kip848():
        return ""
    return (
        "; or go online to KIP-848 (group.protocol=consumer, librdkafka 2.12 or later, brokers "
        "4.0 or later)"
    )


def _declares_mixed(facts: Facts) -> bool:
    declared = facts.member.declared
    return declared is not None and {Tri.YES, Tri.NO} <= set(map(cooperative, declared.list))
