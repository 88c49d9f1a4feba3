"""The path from KIP-848 back to the classic protocol, online or over an empty group.

Online: restarted members join as classic members; when the last member with group.protocol=consumer
has left, the coordinator converts the group back if its migration policy allows it (else it stays a
KIP-848 group of classic members, which some brokers do not even admit while the policy is
disabled). An Empty group is replaced by a classic one, whatever the policy.
"""

from rebal.groups.model import Tri
from rebal.planner.advice.wording import BACK_ONE_BY_ONE
from rebal.planner.clients import cooperative, speak_kip848
from rebal.planner.context import Context, ids
from rebal.planner.kip848 import Answer, allows, needed
from rebal.planner.paths.parts import everyone, gate_of, priced, stop_cost
from rebal.planner.paths.restarts import of_workloads, order_of, request_log
from rebal.planner.paths.stops import over_a_stop
from rebal.planner.plan import Aim, Gate, Setting, Step, StepKind
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import move_online
from rebal.planner.rehearsal.scene import default_server_side
from rebal.planner.risks import Risk
from rebal.planner.settings import classic_protocol_for
from rebal.planner.verdict import exit_code


def back_online(context: Context, answers: tuple[Answer, ...]) -> Step:
    """Return the step that moves the members one by one; `answers` are all conditions of it."""
    done = [facts for facts in context.members if facts.member.protocol_type == "classic"]
    rest = [facts for facts in context.members if facts not in done]
    answer = allows(answers)
    eager = cooperative(context.target) is not Tri.YES
    return Step(
        id=1,
        title=f"Every member moves back to group.protocol=classic with {context.target}",
        kind=StepKind.ROLLING,
        precondition=needed(answers),
        precondition_holds=answer,
        config=_settings(context),
        target_list=(context.target,),
        why=(
            "restarted members join as classic members, all with the same list, so they share an "
            "assignor; the coordinator converts the group back when the last member with "
            "group.protocol=consumer has left",
            "brokers before 4.0.2 have a fault on this path (KAFKA-19546), and another one for "
            "static members (KAFKA-20434): RB410",
            "each restart depends on the lists of the members restarted before it: the "
            "coordinator's request log shows them, if it is on until the last restart",
        ),
        order=tuple(order_of(context, rest, by_lists=False)),
        to_do=ids(rest),
        done=ids(done),
        gate=_gate(context, Tri.NO if rest else Tri.CANNOT_TELL),
        rollback=BACK_ONE_BY_ONE,
        commands=(*(request_log(context) if rest else ()), *of_workloads(rest)),
        cost=move_online(
            Roll(
                snapshot=priced(context),
                order=ids(rest),
                protocol="classic",
                server_side=context.group.assignor or default_server_side(context.snapshot),
                target=(context.target,),
                eager=ids(done) if eager else (),
                eager_after=eager,
                speed=context.speed,
                pricing=context.pricing,
            )
        ),
        exit_code=exit_code(answer),
    )


def back_over_stop(
    context: Context, common: tuple[Answer, ...], closed: tuple[Answer, ...]
) -> Step:
    """Return the step over a stop; `closed` is empty in a group without members."""
    return over_a_stop(
        context,
        how=f"with group.protocol=classic and {context.target}",
        gate=_gate(context, Tri.NO),
        back="group.protocol=consumer",
        config=_settings(context),
        target_list=(context.target,),
        why=(
            "an empty KIP-848 group is replaced by a classic one, whatever the migration policy "
            "says; committed offsets stay",
        ),
        risk=Risk.STOP_FOR_PROTOCOL,
        answers=common,
        closed=closed,
        first="a member that joins first with group.protocol=consumer makes it a KIP-848 group "
        "again",
        cost=stop_cost(context),
        exit_code=exit_code(allows(common)),
    )


def _settings(context: Context) -> tuple[Setting, ...]:
    known = {facts.family for facts in context.members if facts.family}
    return tuple(
        setting
        for key in sorted(known or speak_kip848())
        for setting in classic_protocol_for(key, [context.target], context.group.group_id)
    )


def _gate(context: Context, holds: Tri) -> Gate:
    return gate_of(
        context,
        shows=f"type classic, {everyone(context)} present, {context.target} elected",
        holds=holds,
        aim=Aim.CLASSIC,
    )
