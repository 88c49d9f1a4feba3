"""The step over a stop of the whole group: every member stops before the first one starts again.

An Empty group is replaced, whatever it was, and admits any assignor list, so nothing is rejected;
committed offsets stay. Nothing is consumed meanwhile, so the operator must agree first. In a group
without members only the start is left, and there is nothing to agree on.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from rebal.groups.model import Member, Tri
from rebal.planner.advice.wording import ALL_AT_ONCE, BACK_OVER_STOP, STOP_THEN_START, start_all
from rebal.planner.commands import AGREED, NamedCommand
from rebal.planner.context import Context, Facts, ids
from rebal.planner.kip848 import Answer, allows, needed
from rebal.planner.plan import Cost, Gate, Setting, Step, StepKind
from rebal.planner.rehearsal.costs.steps import see_it_empty
from rebal.planner.risks import Risk
from rebal.planner.timeouts import with_brokers_sessions

_STARTED: Final = Cost(
    rebalances=1,
    partitions_stopped=0,
    partitions_moved=0,
    text="nothing is consumed until the first members have joined",
)


def over_a_stop(
    context: Context,
    *,
    how: str,
    gate: Gate,
    back: str,
    config: tuple[Setting, ...],
    why: tuple[str, ...],
    risk: Risk = Risk.STOP,
    whom: str = "member",
    target_list: tuple[str, ...] = (),
    answers: Sequence[Answer] = (),
    closed: Sequence[Answer] = (),
    prepare: tuple[str, ...] = (),
    first: str = "",
    done: Sequence[Facts] = (),
    commands: Iterable[NamedCommand] = (),
    cost: Cost | None = None,
    exit_code: int = 0,
) -> Step:
    """Return the step that stops every member and starts all again `how`.

    `back` is what the rollback starts them with, `risk` what the operator accepts, `answers` what
    must hold besides, `closed` what rules the online path out, `prepare` what is done before.
    `first` is what a member does that joins first with the wrong configuration. `whom` is what a
    member is called, `done` are those that need no change.
    """
    members = with_brokers_sessions(context.snapshot)
    online = f"the online path is closed: {'; '.join(each.why for each in closed)}"
    return Step(
        id=1,
        title=STOP_THEN_START.format(whom=whom, how=how)
        if members
        else f"The group has no members: {start_all(how)}",
        kind=StepKind.CUT_OVER,
        precondition=needed(answers, agreed(risk) if members else "the group is Empty"),
        precondition_holds=Tri.NO if members else allows(answers),
        config=config,
        target_list=target_list,
        why=(*((online,) if closed else ()), *why, *((first,) if first and members else ())),
        order=(*prepare, stop_all(members) if members else start_all(how, first)),
        to_do=ids(facts for facts in context.members if facts not in done),
        done=ids(done),
        gate=gate,
        rollback=BACK_OVER_STOP.format(change=back),
        commands=(*(stopping(context, risk) if members else ()), *commands),
        cost=cost if members else _STARTED,
        exit_code=exit_code,
    )


def stop_all(members: Sequence[Member]) -> str:
    """Return the instruction to stop these members, which are all of the group, and start them."""
    return ALL_AT_ONCE.format(empty=see_it_empty(members))


def agreed(risk: Risk) -> str:
    """Return the precondition of a step that stops the whole group."""
    return f"an interruption is agreed (accepting {risk} records by whom)"


def stopping(context: Context, risk: Risk) -> tuple[NamedCommand, ...]:
    """Return the commands of a stop of all members: the one that accepts it as `risk`, and the one
    that shows whether the group is Empty.
    """
    return context.accepting(risk, AGREED), empty_now(context)


def empty_now(context: Context) -> NamedCommand:
    """Return the command that shows whether the group is Empty."""
    return NamedCommand("see the group's state", context.given.look(context.group.group_id))
