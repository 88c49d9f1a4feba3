"""Another client library under the same group id: one by one over a common assignor, or a stop.

Members of two libraries run together by range or roundrobin (planner/facts.py). Where the members
lack that assignor, they get it first, as in the first of two bounces; then the new library replaces
them one by one with that assignor alone. Where nothing bridges the two, all members stop once, or
the new library takes a group id of its own, to which the offsets are copied.
"""

from collections.abc import Iterator, Sequence

from rebal.groups.clients import WITHOUT_STATIC, families
from rebal.groups.model import Tri
from rebal.planner.advice.wording import IN_ITS_OWN_GROUP
from rebal.planner.clients import cooperative
from rebal.planner.commands import NamedCommand
from rebal.planner.context import COOPERATIVE, Context, Facts, ids
from rebal.planner.facts import all_partitions, owned
from rebal.planner.kinds import PathKind
from rebal.planner.paths.by_lists import add_both, refresh
from rebal.planner.paths.parts import (
    PlannedPath,
    commands_of,
    cost_of,
    everyone,
    gate_answer,
    gate_of,
    order_of,
    over_a_stop,
    stop_cost,
)
from rebal.planner.plan import Aim, Cost, Gate, Step, StepKind
from rebal.planner.risks import Risk
from rebal.planner.settings import settings_for

_OFFSETS = "offsets.csv"


def library(context: Context, before: Context | None = None) -> PlannedPath:
    """Return the path of a Stable classic group on which another library replaces its members', on
    the way back the one that they ran `before`.
    """
    everybody, settled = len(context.members), len(context.settled)
    if settled == everybody:
        return PlannedPath(name=PathKind.FINISHED)
    bridge = context.bridge
    if bridge.verdict is Tri.CANNOT_TELL:
        return PlannedPath(name=PathKind.NONE, reasons=(bridge.why,))
    usual = _usual(context, before)
    if bridge.verdict is Tri.NO:
        name, steps = PathKind.LIBRARY_STOP, [_over_a_stop(context, usual)]
    else:
        name, steps = PathKind.LIBRARY, [_replace(context, context.narrow_step, usual)]
        if len(context.holding) < everybody:
            steps.insert(0, add_both(context, 1))
        elif context.refresh:
            steps.insert(0, refresh(context, 1))
    return PlannedPath(
        name=name,
        progress=f"{settled} of {everybody} replaced" if settled else "not begun",
        steps=tuple(steps),
        next_step=1,
    )


def _usual(context: Context, before: Context | None) -> tuple[str, ...]:
    """Return the list that the library ran `before`, else the one that it has by default."""
    if before is None or not before.elected:
        return families()[context.client or ""].newest_list
    return before.common_list or (before.elected,)


def _gate(context: Context) -> Gate:
    return gate_of(
        context,
        shows=f"{everyone(context)} runs {context.client}",
        needs=("each member's handshake (--request-log), its log or its bytes show its library",),
        holds=gate_answer(context, context.ahead, context.ahead),
        aim=Aim.CLIENT,
        by_hand=f"check that each restarted process runs {context.client}",
    )


def _replace(context: Context, number: int, usual: Sequence[str]) -> Step:
    """Return the step that replaces the members one by one, with the common assignor alone."""
    names, rest = (context.target,), context.ahead
    loses_ids = _loses_ids(context, rest)
    # The common assignor may not be in the list that the library has by default, or ran before.
    later = NamedCommand(
        f"afterwards, plan {context.client}'s usual [{', '.join(usual)}]",
        context.replan(to=COOPERATIVE if cooperative(usual[0]) is Tri.YES else usual[0]),
    )
    return Step(
        id=number,
        title=f"{context.client} replaces every member, on {context.target}",
        kind=StepKind.ROLLING,
        precondition=f"every list holds {context.target}, and the coordinator remembers it",
        precondition_holds=Tri.YES,
        config=settings_for(context.client or "", names, context.group.group_id),
        target_list=names,
        why=(
            f"the coordinator compares names: {context.target} is in both libraries' lists, so "
            "old and new members share the group; while one list lacks it, a new member is "
            "rejected",
            "while both run, the leader's library assigns for all: the member that joined first "
            f"leads, and when it leaves another one does. {context.target} needs no user data, so "
            "each reads what the other assigns; sticky assignors' user data differ by library",
            "two libraries may order members differently: when the leader changes, partitions may "
            "move",
            "a static member keeps its id only if the new library has static membership (KIP-345)",
        ),
        order=tuple(order_of(context, rest, by_lists=not loses_ids)),
        to_do=ids(rest),
        done=ids(context.settled),
        gate=_gate(context),
        rollback=f"the old library with [{context.target}], one by one",
        commands=(
            *commands_of(context, rest),
            *((later,) if context.target not in usual else ()),
        ),
        cost=loses_ids or cost_of(context, rest, names),
    )


def _loses_ids(context: Context, rest: Sequence[Facts]) -> Cost | None:
    """Return what it costs that the new library has no static members; None where none is lost."""
    static = [facts for facts in rest if facts.static]
    if not static or context.client not in WITHOUT_STATIC:
        return None
    everything = sum(owned(facts.member) for facts in context.members)
    return Cost(
        rebalances=len(rest),
        partitions_stopped=len(rest) * everything,
        partitions_moved=0,
        text=f"{context.client} has no static members: each restart rebalances, and stops "
        f"{all_partitions(everything)} until the old entry's session ends "
        f"({context.named(static, 3)})",
    )


def _over_a_stop(context: Context, usual: tuple[str, ...]) -> Step:
    """Return the step on which all members stop before the new library starts."""
    apart = f"{context.group.group_id}-{context.client}"
    return over_a_stop(
        context,
        how=f"as {context.client} on {context.target}",
        gate=_gate(context),
        back="the old library",
        config=settings_for(context.client or "", usual, context.group.group_id),
        target_list=usual,
        why=(
            f"nothing bridges the two libraries: {context.bridge.why}",
            "an Empty group admits any assignor list, and its committed offsets stay",
            IN_ITS_OWN_GROUP.format(group=apart, file=_OFFSETS),
        ),
        risk=Risk.STOP_FOR_CLIENT,
        done=context.settled,
        commands=_in_a_group_of_its_own(context, apart),
        cost=stop_cost(context),
    )


def _in_a_group_of_its_own(context: Context, new: str) -> Iterator[NamedCommand]:
    """Yield the commands of Kafka's own tool with which the new library consumes in the group
    `new`, from copied offsets and without a stop.
    """
    old, copies = context.group.group_id, ("--reset-offsets", "--from-file", _OFFSETS)
    for use, words in (
        ("see the offsets to copy", ("--describe", "--offsets", "--group", old)),
        ("try the copy", ("--group", new, *copies, "--dry-run")),
        ("copy them", ("--group", new, *copies, "--execute")),
        ("watch both lags", ("--describe", "--group", old, "--group", new)),
    ):
        line = context.given.kafka("kafka-consumer-groups.sh", *words)
        yield NamedCommand(f"without a stop: {use}", line)
