"""The path from KIP-848 back to the classic protocol, online or over an empty group.

Online: restarted members join as classic members; when the last member with group.protocol=consumer
has left, the coordinator converts the group back if its migration policy allows it (else it stays a
KIP-848 group of classic members, which some brokers do not even admit while the policy is
disabled). An Empty group is replaced by a classic one, whatever the policy.
"""

from __future__ import annotations

from collections.abc import Sequence

from rebal.groups.model import Tri
from rebal.planner.advice.wording import (
    ALL_AT_ONCE,
    BACK_ONE_BY_ONE,
    BACK_OVER_STOP,
    STOP_ALL,
    STOP_THEN_START,
    start_all,
)
from rebal.planner.clients import cooperative, speak_kip848
from rebal.planner.commands import commands, sentences
from rebal.planner.context import Context, ids
from rebal.planner.kinds import PathKind
from rebal.planner.kip848 import Answer, allows, closed_online, conditions, open_points
from rebal.planner.paths.parts import (
    agreed,
    everyone,
    expected_line,
    gate_of,
    priced,
    stop_cost,
    stopping,
)
from rebal.planner.paths.restarts import how_of, one_by_one, request_log_hint
from rebal.planner.plan import Aim, Brief, Cost, Gate, Setting, Step, StepKind
from rebal.planner.rehearsal.costs.online import Move, move_online
from rebal.planner.rehearsal.costs.stop import see_it_empty
from rebal.planner.rehearsal.scene import default_server_side
from rebal.planner.risks import Risk
from rebal.planner.settings import classic_protocol_for
from rebal.planner.timeouts import with_brokers_sessions
from rebal.planner.verdict import exit_code


def from_consumer(context: Context) -> tuple[PathKind, tuple[Step, ...], tuple[Answer, ...]]:
    """Return the path (online or offline), its one step, and the conditions that decided between
    them.
    """
    common, online = conditions(context, up=False)
    if not context.members:
        return PathKind.KIP848_BACK_OFFLINE, (_start(context, common),), common
    closed = closed_online(context, up=False)
    if closed:
        return PathKind.KIP848_BACK_OFFLINE, (_offline(context, common, closed),), common
    answers = (*online, *common)
    return PathKind.KIP848_BACK, (_online(context, answers),), answers


def _online(context: Context, answers: tuple[Answer, ...]) -> Step:
    done = [facts for facts in context.members if facts.member.protocol_type == "classic"]
    rest = [facts for facts in context.members if facts not in done]
    answer = allows(answers)
    eager = cooperative(context.target) is not Tri.YES
    order = (
        # The next restart depends on the lists of the members that were restarted.
        *(request_log_hint(context, to_the_end=True) if rest else ()),
        *one_by_one(context, rest),
    )
    return Step(
        id=1,
        title=f"Every member moves back to group.protocol=classic with {context.target}",
        kind=StepKind.ROLLING,
        precondition="; ".join(answer.why for answer in answers),
        precondition_holds=answer,
        config=_settings(context),
        target_list=(context.target,),
        why=(
            "restarted members join as classic members, all with the same list, so they share an "
            "assignor; the coordinator converts the group back when the last member with "
            "group.protocol=consumer has left",
            "brokers before 4.0.2 have a fault on this path (KAFKA-19546), and another one for "
            "static members (KAFKA-20434): RB410",
        ),
        order=sentences(order),
        to_do=ids(rest),
        done=ids(done),
        gate=_gate(context, Tri.NO if rest else Tri.CANNOT_TELL),
        rollback=BACK_ONE_BY_ONE,
        brief=Brief(
            needs=open_points(answers),
            how=tuple(how_of(context, rest, by_lists=False)),
            gate=_state(context),
        ),
        commands=commands(order),
        cost=move_online(
            Move(
                snapshot=priced(context),
                order=ids(rest),
                up=False,
                server_side=context.group.assignor or default_server_side(context.snapshot),
                classic=context.target,
                eager=ids(done) if eager else (),
                eager_after=eager,
                speed=context.speed,
                pricing=context.pricing,
            )
        ),
        exit_code=exit_code(answer),
    )


def _offline(context: Context, common: tuple[Answer, ...], closed: tuple[Answer, ...]) -> Step:
    members = with_brokers_sessions(context.snapshot)
    against = [answer.why for answer in closed]
    return Step(
        id=1,
        title=STOP_THEN_START.format(
            whom="member", how=f"with group.protocol=classic and {context.target}"
        ),
        kind=StepKind.CUT_OVER,
        precondition="; ".join([agreed(Risk.STOP_FOR_KIP848), *(answer.why for answer in common)]),
        precondition_holds=Tri.NO,
        config=_settings(context),
        target_list=(context.target,),
        why=(
            f"the online path is closed: {'; '.join(against)}",
            "an empty KIP-848 group is replaced by a classic one, whatever the migration policy "
            "says; committed offsets stay",
        ),
        order=(
            STOP_ALL,
            see_it_empty(members),
            _START,
        ),
        to_do=ids(context.members),
        gate=_gate(context, Tri.NO),
        rollback=BACK_OVER_STOP.format(change="group.protocol=consumer"),
        brief=_brief(context, ALL_AT_ONCE, agreed(Risk.STOP_FOR_KIP848), common),
        commands=stopping(context, Risk.STOP_FOR_KIP848),
        cost=stop_cost(context),
        exit_code=exit_code(allows(common)),
    )


def _start(context: Context, common: tuple[Answer, ...]) -> Step:
    """Return the step for a group without members: there is nothing to interrupt or reject."""
    answer = allows(common)
    return Step(
        id=1,
        title="The group has no members: "
        + start_all(f"group.protocol=classic and {context.target}"),
        kind=StepKind.CUT_OVER,
        precondition="; ".join(["the group is Empty", *(answer.why for answer in common)]),
        precondition_holds=answer,
        config=_settings(context),
        target_list=(context.target,),
        why=("an empty KIP-848 group is replaced by a classic one; committed offsets stay",),
        order=(_START,),
        gate=_gate(context, Tri.NO),
        rollback=BACK_OVER_STOP.format(change="group.protocol=consumer"),
        brief=_brief(context, _START, "", common),
        cost=Cost(
            rebalances=1,
            partitions_stopped=0,
            partitions_moved=0,
            text="nothing is consumed until the first members have joined",
        ),
        exit_code=exit_code(answer),
    )


_START = start_all(
    "group.protocol=classic",
    "a member that joins first with group.protocol=consumer makes it a KIP-848 group again",
)


def _settings(context: Context) -> tuple[Setting, ...]:
    known = {facts.family for facts in context.members if facts.family}
    return tuple(
        setting
        for key in sorted(known or speak_kip848())
        for setting in classic_protocol_for(key, [context.target], context.group.group_id)
    )


def _brief(context: Context, how: str, needs: str, answers: Sequence[Answer]) -> Brief:
    return Brief(
        needs=open_points(answers, needs),
        how=(how,),
        gate=_state(context),
    )


def _state(context: Context) -> str:
    return f"type classic, {everyone(context)} present, {context.target} elected"


def _gate(context: Context, holds: Tri) -> Gate:
    return gate_of(
        context,
        shows=f"exit code 0, the group's type is classic and {context.target} is elected",
        needs=expected_line(context),
        holds=holds,
        aim=Aim.CLASSIC,
    )
