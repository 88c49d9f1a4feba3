"""RB105: a client without any cooperative assignor."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.clients import UNKNOWN, family
from rebal.groups.model import Tri
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

    Why it matters: kafkajs, aiokafka and segmentio/kafka-go are eager only, and sarama was until
    September 2026. One such member keeps the whole group on an eager assignor; drop that, and
    either this member or the others are refused.

    How to find out: the client software in the broker's request log, or the dependency itself.
    kafkajs shows as unknown software with the assignor name RoundRobinAssigner.

    How to fix it: move that service to a client that can (or to a group of its own), or stay
    eager. KIP-848 is no way out for them either: it needs a client that speaks it.
    """
    if not context.planning or not context.classic or context.goal != "cooperative":
        return
    ahead = [facts for facts in context.members if facts not in context.settled]
    without = [facts for facts in ahead if _can(facts) is Tri.NO]
    unknown = [facts for facts in ahead if _can(facts) is Tri.CANNOT_TELL]
    fix = "Move these members to a client (or a version of it) that has a cooperative assignor, or"
    fix += " to a group of their own."
    if without:
        yield found(
            f"{context.named(without)}: {_clients(without)} has no cooperative assignor, so this "
            "group cannot leave EAGER.",
            members=without,
            fix=fix,
        )
    if unknown:
        yield found(
            f"{context.named(unknown)}: which release of {_clients(unknown)} has a cooperative "
            "assignor is not known here.",
            result=Tri.CANNOT_TELL,
            members=unknown,
            fix=fix,
        )


def _can(facts: Facts) -> Tri:
    """Java is left out: an old version of it is upgraded in the first bounce (RB102)."""
    known = family(facts.family)
    if known is None or known.key == "java":
        return Tri.YES
    able = known.cooperative(facts.version)
    decided_by_version = able is Tri.CANNOT_TELL and known.cooperative_since != UNKNOWN
    return Tri.YES if decided_by_version else able


def _clients(members: list[Facts]) -> str:
    return ", ".join(
        sorted({" ".join(filter(None, [facts.family, facts.version])) for facts in members})
    )
