"""RB105: a client without any cooperative assignor."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.clients import stays_eager
from rebal.planner.context import Context, Facts
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule


@rule(
    "RB105",
    Severity.BLOCK,
    "This client has no cooperative assignor",
    reference="tulios/kafkajs#1156; aio-libs/aiokafka#1126; segmentio/kafka-go#985; "
    "IBM/sarama#3696",
)
def eager_only_client(context: Context) -> Iterator[Finding]:
    """A member's client library cannot follow COOPERATIVE: the group cannot finish the move.

    Why it matters: kafkajs, aiokafka and segmentio/kafka-go are eager only, as sarama was before
    1.61. One such member keeps the whole group on an eager assignor; drop that, and either this
    member or the others are refused.

    How to find out: the dependency itself, for none of the three tells the broker its name.
    kafkajs shows by the assignor name RoundRobinAssigner, segmentio/kafka-go by the bytes it sends,
    aiokafka only by its default client id.

    How to fix it: move that service to a client that can (or to a group of its own), or stay
    eager. KIP-848 is no way out for them either: it needs a client that speaks it.

    Cannot tell: the client is known by circumstances only (its bytes, its client id, the elected
    assignor's name).
    """
    if not context.planning or not context.classic or context.goal != "cooperative":
        return
    fix = "Move these members to a client that has a cooperative assignor, or"
    fix += " to a group of their own, and plan again; or stay EAGER. If they are taken for the"
    fix += " wrong client: --assume-family CLIENT_ID=FAMILY."
    eager = [facts for facts in context.ahead if stays_eager(facts.family)]
    without = [facts for facts in eager if facts.family_proven]
    if without:
        yield found(
            f"{context.named(without)}: {_clients(without)} has no cooperative assignor, so this "
            "group cannot leave EAGER.",
            members=without,
            fix=fix,
        )
    left = [facts for facts in context.ahead if facts.candidates]
    maybe = [facts for facts in eager if not facts.family_proven]
    maybe += [facts for facts in left if all(map(stays_eager, facts.candidates))]
    if maybe:
        yield found(
            f"{context.named(maybe)}: taken for {_clients(maybe)} by circumstance only, which has "
            "no cooperative assignor. If that is right, this group cannot leave EAGER.",
            result=Tri.CANNOT_TELL,
            members=maybe,
            fix="Restart nothing before that is known: ask who builds it, and say which client it "
            f"is, with the right family: {context.assume(maybe)}. If that is right: move these "
            "members to a client that has a cooperative assignor, or to a group of their own, and "
            "plan again; or stay EAGER.",
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
