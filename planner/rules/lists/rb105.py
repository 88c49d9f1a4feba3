"""RB105: a client without any cooperative assignor."""

from typing import Final

from rebal.planner.clients import stays_eager
from rebal.planner.rules.registry import Context, Facts, Findings, Severity, Tri, found, rule
from rebal.planner.rules.scope import classic, planning, upgrade

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
