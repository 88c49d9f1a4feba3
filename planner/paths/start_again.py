"""The way back of a group that has no members: start them with what they ran before.

An Empty group admits any assignor list and any protocol, so nothing has to be proven of the
coordinator's memory. The first member that joins decides which lists are admitted after it.
"""

from rebal.groups.model import GroupState, GroupType, Tri
from rebal.planner.clients import is_mixed
from rebal.planner.context import COOPERATIVE, EAGER, Context
from rebal.planner.facts import listed
from rebal.planner.kinds import PathKind
from rebal.planner.paths.parts import PlannedPath, everyone, gate_of, list_settings, over_a_stop
from rebal.planner.plan import Aim, Gate, Setting
from rebal.planner.programs import below_cooperative
from rebal.planner.settings import program_settings


def starts_again(context: Context, before: Context) -> bool:
    """Return whether `context` has no members, and `before` shows what they ran."""
    here = context.group
    return (
        bool(before.members)
        and not context.members
        and here.state is GroupState.EMPTY
        and here.type in (GroupType.CLASSIC, GroupType.UNKNOWN)
        and context.goal in (COOPERATIVE, EAGER)
    )


def start_again(context: Context, before: Context) -> PlannedPath:
    """Return the path of one step: the members start with what they ran in `before`."""
    program = "connect" if before.group.protocol_type == "connect" else "streams"
    consumers = not before.streams and program != "connect"
    assignors = _list(context, before) if consumers else ()
    what = f"[{', '.join(assignors)}]" if assignors else _what(before)
    who = listed([facts.name for facts in before.members], 20)
    step = over_a_stop(
        context,
        how=f"with {what}",
        gate=_gate(context, before, what, consumers=consumers),
        back="the new configuration",
        config=list_settings(before, assignors, before.members)
        if consumers
        else _settings(before, program),
        target_list=assignors,
        why=(
            "an Empty group has no list to fit, so nothing is rejected; committed offsets stay",
            f"the members were {who}",
        ),
        first="a member that joins first with the new configuration decides what is admitted after "
        "it",
    )
    return PlannedPath(
        name=PathKind.START if consumers else PathKind(f"{program}_start"),
        progress="the group has no members",
        steps=(step,),
        next_step=1,
    )


def _list(context: Context, before: Context) -> tuple[str, ...]:
    """Return the list that every member ran, where evidence shows it; else the old assignor alone.

    A list of eager and cooperative assignors was a step of the roll-out, and is not gone back to.
    """
    old = before.common_list
    return old if context.target in old and not is_mixed(old) else (context.target,)


def _what(before: Context) -> str:
    if before.group.protocol_type == "connect":
        return f"connect.protocol={_protocol(before)}"
    return "the old version and its configuration"


def _protocol(before: Context) -> str:
    """Return the value of connect.protocol that elects what the workers ran."""
    elected = before.group.assignor
    return "eager" if elected in (None, "default") else elected


def _settings(before: Context, program: str) -> tuple[Setting, ...]:
    group = before.group.group_id
    if program == "connect":
        wanted = {"connect.protocol": _protocol(before)}
        return program_settings(program, wanted, f"worker configuration, group {group}")
    return program_settings(program, {}, f"group {group}: the old version and its configuration")


def _gate(context: Context, before: Context, what: str, *, consumers: bool) -> Gate:
    return gate_of(
        context,
        shows=f"{everyone(context)} runs {what}",
        holds=Tri.NO,
        aim=Aim.NARROW if consumers else _aim(context, before),
        by_hand="" if consumers else f"check in the log of each member's start: {what}",
    )


def _aim(context: Context, before: Context) -> Aim:
    up = context.goal == COOPERATIVE
    if not before.streams:
        return Aim.CONNECT_INCREMENTAL if up else Aim.CONNECT_EAGER
    if all(below_cooperative(before, facts) is Tri.YES for facts in before.members):
        return Aim.STREAMS_OLD
    return Aim.STREAMS_COOPERATIVE if up else Aim.STREAMS_EAGER
