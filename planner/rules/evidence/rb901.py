"""RB901: a member's list is not known."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Knowledge, Tri
from rebal.planner.context import CONSUMER, Context, Facts
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import Risk, Trait, found, rule


@rule(
    "RB901",
    Severity.BLOCK,
    "A member's assignor list is not known",
    reference="Kafka protocol, DescribeGroups; KIP-412 (dynamic broker log levels)",
    traits={Trait.PENDING, Trait.ADMISSION},
    accepts=Risk.UNKNOWN_LISTS,
)
def unknown_list(context: Context) -> Iterator[Finding]:
    """The evidence does not say which assignors a member supports.

    Why it matters: describing a group never shows the members' lists; the coordinator keeps them
    to itself. A list that is not known is never taken for safe: one forgotten member is enough to
    have others refused (RB102). The first bounce needs no list, because it keeps the elected
    assignor, which every member supports by definition; the second bounce needs all of them.

    How to find out, any of:
    - the broker's request log, switched on across the next restart of any dynamic member: then
      every member joins again and shows its list. On the group's coordinator:
      kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type broker-loggers
        --entity-name BROKER_ID --add-config kafka.request.logger=DEBUG
      and afterwards the same with --delete-config kafka.request.logger. Then --request-log FILE.
      (A static member that restarts shows only itself. A quiet group shows nothing.)
    - the members' own logs from their start: Java prints its ConsumerConfig and, later, its
      member id. Then --client-log FILE.
    - --probe: says whether ALL members support an assignor; enough to begin the second bounce,
      not to call it finished.

    How to fix it: add that evidence and make the plan again; or say what you know of the member
    with --assume 'client-id=NAME:range,cooperative-sticky', or accept the risk by name with
    --ignore RB901 --reason "…": the plan records either.

    It does not fire where bounds decide: a librdkafka member cannot hold both kinds, and a Java
    member that kept its partitions when it rejoined has no eager assignor. A configuration file
    does not count: it says what the next start will use.
    """
    if not context.classic or not context.members or not context.stable or context.goal == CONSUMER:
        return
    for before, asks in (
        (context.narrow_step, lambda facts: context.supports(facts, context.target)),
        (context.narrow_step + 1, context.holds_old),
    ):
        unknown = [
            facts
            for facts in context.members
            if facts.member.assignors.knowledge is not Knowledge.EXACT
            and asks(facts) is Tri.CANNOT_TELL
        ]
        if unknown:
            yield _finding(context, unknown, before)
            return


def _finding(context: Context, unknown: list[Facts], before: int) -> Finding:
    bounds = sorted({name for facts in unknown for name in facts.member.assignors.at_least})
    least = f" (at least {', '.join(bounds)})" if bounds else ""
    one = len(unknown) == 1
    finished = (
        ""
        if before == context.narrow_step
        else f" Whether {'it still holds' if one else 'they still hold'} an assignor of the old "
        "kind cannot be told, so it cannot be called finished."
    )
    return found(
        f"{context.named(unknown)}: {'its list is' if one else 'their lists are'} not known{least}"
        f"; describing a group never shows them.{finished}",
        result=Tri.CANNOT_TELL,
        members=unknown,
        fix="The next restart of a dynamic member shows every list in the broker's request log "
        "(then --request-log FILE); the members' own start-up logs show theirs (--client-log FILE)."
        " How to switch the request log on and off: rebal explain RB901.",
        before_step=before,
    )
