"""Two bounces in a group with some clients that reject mixed lists: only these clients are stopped.

librdkafka and kafka-python members cannot list both assignors. Once every other member lists both,
they are stopped together, the others take over their partitions, and they start again with the
target alone, which every list then holds.
"""

from rebal.groups.clients import family
from rebal.groups.model import Tri
from rebal.planner.advice.wording import (
    BACK_FROM_STOP,
    STOP_SOME,
    STOP_THEN_START,
)
from rebal.planner.clients import cooperative
from rebal.planner.commands import NamedCommand
from rebal.planner.context import Context, Facts, ids
from rebal.planner.facts import all_partitions, owned
from rebal.planner.paths.one_bounce import drop_old
from rebal.planner.paths.parts import (
    again,
    back_goal,
    everyone,
    gate_of,
    list_settings,
    priced,
)
from rebal.planner.paths.two_bounces import add_both
from rebal.planner.plan import Aim, Step, StepKind
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import stop_some
from rebal.planner.verdict import exit_code


def mixed_families(context: Context) -> tuple[Step, ...]:
    """Return the three steps: the other members list both assignors; the clients that reject mixed
    lists stop and start with the target; the others drop the old assignor.
    """
    return (
        add_both(context, 1, left_out=context.unmixable),
        _stop_and_start(context, 2),
        drop_old(context, 3),
    )


def next_step(context: Context) -> int:
    """Return the next step: 1 while a member that accepts mixed lists may lack the target,
    else 2.
    """
    others = {facts.member.member_id for facts in context.members} - set(ids(context.unmixable))
    return 1 if others & {*ids(context.lacking), *ids(context.unsure)} else 2


def _stop_and_start(context: Context, number: int) -> Step:
    group = context.group.group_id
    stopped = context.unmixable
    clients = " and ".join(sorted({str(facts.family) for facts in stopped}))
    left = len(context.members) - len(stopped)
    total = sum(map(owned, context.snapshot.members))
    others = {facts.member.member_id for facts in context.members} - set(ids(stopped))
    lacking = others & set(ids(context.lacking))
    unsure = others & set(ids(context.unsure))
    carried = f", and the {left} that stay can carry {all_partitions(total)} for a while"
    if not total:
        carried = ""
    holds = Tri.NO if lacking else Tri.CANNOT_TELL if unsure else Tri.YES
    return Step(
        id=number,
        title=STOP_THEN_START.format(whom=f"{clients} member", how=f"on {context.target}"),
        kind=StepKind.CUT_OVER,
        precondition=f"every other member's list holds {context.target}" + carried,
        precondition_holds=holds,
        config=list_settings(context, (context.target,), stopped),
        target_list=(context.target,),
        why=(
            f"{clients} rejects a list of eager and cooperative assignors, and the coordinator "
            f"rejects [{context.target}] while one member lacks it (RB104): "
            f"so all of them stop before one starts with [{context.target}]",
            "the others keep running: only the partitions that move to them and back stop",
        ),
        order=(STOP_SOME.format(left=left, target=context.target),),
        to_do=ids(stopped),
        gate=gate_of(
            context,
            shows=f"{everyone(context)} supports {context.target}",
            holds=Tri.NO,
            # The target in their list proves this step; the last step narrows.
            aim=Aim.WIDEN,
        ),
        rollback=BACK_FROM_STOP.format(keep=context.keep, goal=back_goal(context)),
        commands=(
            NamedCommand("see that it is Stable", context.given.inspect(group, "--probe")),
            again(context),
        ),
        cost=stop_some(
            Roll(
                snapshot=priced(context),
                order=ids(stopped),
                eager=ids(facts for facts in context.members if _runs_eager(context, facts)),
                target=(context.target,),
                speed=context.speed,
                pricing=context.pricing,
            )
        ),
        exit_code=exit_code(holds),
    )


def _runs_eager(context: Context, facts: Facts) -> bool:
    """Return whether this member, which keeps running, is EAGER while the target is elected."""
    turned = family(facts.family).follows_vote and cooperative(context.target) is Tri.YES
    return not turned and facts not in (*context.unmixable, *context.settled)
