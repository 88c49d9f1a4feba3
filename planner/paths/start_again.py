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
from rebal.planner.plan import Aim
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
    group, elected, old = before.group.group_id, before.group.assignor, before.common_list
    connect = before.group.protocol_type == "connect"
    assignors: tuple[str, ...] = ()
    aim, name = _aim(context, before), PathKind.STREAMS_START
    if connect:
        # The value of connect.protocol that elects what the workers ran.
        protocol = "eager" if elected in (None, "default") else elected
        what, name = f"connect.protocol={protocol}", PathKind.CONNECT_START
        wanted = {"connect.protocol": protocol}
        config = program_settings("connect", wanted, f"worker configuration, group {group}")
    elif before.streams:
        what = "the old version and its configuration"
        config = program_settings("streams", {}, f"group {group}: {what}")
    else:
        # The list that every member ran, where evidence shows it. A list of eager and cooperative
        # assignors was a step of the roll-out, and is not gone back to.
        whole = context.target in old and not is_mixed(old)
        assignors = old if whole else (context.target,)
        what, aim, name = f"[{', '.join(assignors)}]", Aim.NARROW, PathKind.START
        config = list_settings(before, assignors, before.members)
    step = over_a_stop(
        context,
        how=f"with {what}",
        gate=gate_of(
            context,
            shows=f"{everyone(context)} runs {what}",
            holds=Tri.NO,
            aim=aim,
            by_hand="" if assignors else f"check in the log of each member's start: {what}",
        ),
        back="the new configuration",
        config=config,
        target_list=assignors,
        why=(
            "an Empty group has no list to fit, so nothing is rejected; committed offsets stay",
            f"the members were {listed([facts.name for facts in before.members], 20)}",
        ),
        first="a member that joins first with the new configuration decides what is admitted after "
        "it",
    )
    return PlannedPath(name=name, progress="the group has no members", steps=(step,), next_step=1)


def _aim(context: Context, before: Context) -> Aim:
    up = context.goal == COOPERATIVE
    if not before.streams:
        return Aim.CONNECT_INCREMENTAL if up else Aim.CONNECT_EAGER
    if all(below_cooperative(before, facts) is Tri.YES for facts in before.members):
        return Aim.STREAMS_OLD
    return Aim.STREAMS_COOPERATIVE if up else Aim.STREAMS_EAGER
