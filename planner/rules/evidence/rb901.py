"""RB901: a member's list is not known."""

from rebal.groups.model import Knowledge
from rebal.planner.commands import read_more
from rebal.planner.rules.registry import (
    Context,
    Facts,
    Finding,
    Findings,
    Risk,
    Severity,
    Trait,
    Tri,
    found,
    rule,
)
from rebal.planner.rules.scope import by_lists, stable


@rule(
    "RB901",
    Severity.BLOCK,
    "A member's assignor list is not known",
    reference="Kafka protocol, DescribeGroups; KIP-412 (dynamic broker log levels)",
    applies=(by_lists, stable),
    traits={Trait.PENDING, Trait.ADMISSION},
    accepts=Risk.UNKNOWN_LISTS,
)
def unknown_list(context: Context) -> Findings:
    """The evidence does not show which assignors a member supports.

    Why it matters: describing a group never shows the members' assignor lists; only the coordinator
    has them. A list that is not known is never taken for safe: one member without the target is
    enough to have others rejected (RB102). The first bounce needs no lists, because it keeps the
    elected assignor, which every member supports by definition. The second bounce needs all of
    them.

    How to find out, any of:
    - the members' own start-up logs: Java prints its ConsumerConfig and, later, its member id.
      Then --client-log with a file, a folder, or - for kubectl logs. librdkafka prints both with
      debug=conf,cgrp, kafka-python and aiokafka at DEBUG; other clients print no list.
    - --probe: shows whether ALL members support an assignor. That is enough to begin the second
      bounce, not to call it finished.
    - --inventory: the configuration of the next start. Once a member has restarted in the second
      bounce, it counts as declared, and you confirm its list with the command that verify prints
      then (--confirm, --member, --list, --reason). The journal keeps that for this member id; the
      end names what it rests on ("proven: 2, confirmed by you: 1").
    - the broker's request log, switched on across the next restart of any dynamic member: then
      every member rejoins and shows its list. The logger kafka.request.logger of the group's
      coordinator is set to DEBUG with kafka-configs.sh (the finding has the commands), and set back
      afterwards. Then --request-log FILE.
      (A static member that restarts shows only itself. A quiet group shows nothing.)

    How to fix it: add that evidence and make the plan again. Or state what you know of the member
    with --assume 'client-id=NAME:range,cooperative-sticky', or accept the risk by name with
    --ignore RB901 --reason "…": the plan records either.

    It does not fire where bounds decide: a librdkafka member cannot hold eager and cooperative
    assignors together, and a Java member that kept its partitions when it rejoined has no eager
    assignor. A configuration file alone does not count: it shows what the next start will use.
    """
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
        # Another library replaces each member, with whatever its list holds.
        if unknown and (context.client is None or before == context.narrow_step):
            yield _finding(context, unknown, before)
            return


def _finding(context: Context, unknown: list[Facts], before: int) -> Finding:
    bounds = sorted({name for facts in unknown for name in facts.member.assignors.at_least})
    least = f" (known: at least {', '.join(bounds)})" if bounds else ""
    one = len(unknown) == 1
    first = before == context.narrow_step
    coordinator = context.group.coordinator
    risk = f"may lack {context.target}" if first else "may still have the old assignor"
    return found(
        f"{context.named(unknown)} {risk}: the evidence for {'its' if one else 'their'} assignor "
        f"{'list' if one else 'lists'} is missing{least}.",
        result=Tri.CANNOT_TELL,
        members=unknown,
        fix=_fix(context, first=first),
        commands=(
            *context.given.request_log(coordinator.broker_id if coordinator else None),
            read_more("RB901"),
        ),
        before_step=before,
    )


def _fix(context: Context, *, first: bool) -> str:
    """Return the evidence to add, in the order in which most teams can get it."""
    logs = "Add the members' own start-up logs: --client-log PATH."
    if first:
        other = " Or --probe." if context.can_probe else ""
    else:
        other = " Or add their configuration (--inventory PATH), and confirm it after the restart."
    return (
        f"{logs}{other} Or --request-log FILE: the next restart of a dynamic member shows every "
        "list there."
    )
