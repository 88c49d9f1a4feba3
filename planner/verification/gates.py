"""What proves that a member has made a step: one function for each aim of a step.

A step names its aim in `Gate.aim`; where it does not, its list tells. `proof_of` asks the aim's
function in `GATES`, `(Context, Step, Facts) -> Proof`; a further kind of step is a further `Aim`
with its function. Each looks at one member in the evidence of one look; what earlier looks proved
of the same member id is the ledger's (planner/verification/members.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rebal.groups.model import GroupType, Tri
from rebal.planner.aims import Aim, GateCheck, Proof
from rebal.planner.context import Context, Facts
from rebal.planner.plan import Plan, Step
from rebal.planner.verification.programs import PROGRAM_GATES


def aim_of(plan: Plan, step: Step) -> Aim:
    """What `step` changes, as its gate says, else by the way and the list that it brings."""
    if step.gate.aim is not None:
        # What a later version proves in a way of its own, this one leaves to a person.
        return Aim(step.gate.aim) if step.gate.aim in set(Aim) else Aim.BY_HAND
    if plan.to == "KIP-848":
        return Aim.CONSUMER
    if plan.path == "kip848_back":
        return Aim.CLASSIC
    later = any(other.id > step.id and other.target_list == (plan.target,) for other in plan.steps)
    # Where no evidence names the old assignor, the first bounce's list is the target alone too.
    if step.target_list == (plan.target,) and not later:
        return Aim.NARROW
    if plan.target in step.target_list:
        return Aim.WIDEN
    if not step.target_list and later:
        return Aim.REFRESH
    return Aim.BY_HAND


def wide_list(plan: Plan, context: Context) -> tuple[str, ...]:
    """Return the list that brings the target and is admitted today: it holds the elected one."""
    step = next((s for s in plan.steps if aim_of(plan, s) is Aim.WIDEN), None)
    names = step.target_list if step is not None else (context.target,)
    more = [context.elected] if context.elected is not None else []
    return tuple(dict.fromkeys([*names, *more]))


def proof_of(context: Context, aim: Aim, step: Step, facts: Facts) -> Proof:
    """Has this member made `step`, by the evidence in `context` alone?"""
    return GATES[aim](context, step, facts)


def _widen(context: Context, _: Step, facts: Facts) -> Proof:
    target = context.target
    done = context.supports(facts, target)
    says = {Tri.YES: f"holds {target}", Tri.NO: f"its list has no {target}"}
    return Proof(done=done, why=_list(facts) or says.get(done, ""))


def _narrow(context: Context, _: Step, facts: Facts) -> Proof:
    target = context.target
    supports, old = context.supports(facts, target), context.holds_old(facts)
    if supports is Tri.NO:
        return Proof(done=Tri.NO, why=_list(facts) or f"its list has no {target}")
    if old is Tri.YES:
        return Proof(done=Tri.NO, why=_list(facts) or "still holds an assignor that the step drops")
    if supports is Tri.YES and old is Tri.NO:
        return Proof(done=Tri.YES, why=_list(facts) or "keeps its partitions when it rejoins")
    if context.own_class(facts, target):
        said = f"the class behind {target} is not Kafka's own: what it supports is not proven"
        return Proof(done=Tri.CANNOT_TELL, why=said)
    return Proof(done=Tri.CANNOT_TELL)


def _consumer(context: Context, _: Step, facts: Facts) -> Proof:
    if context.group.type is GroupType.CLASSIC:
        return _speaks("classic", done=Tri.NO)
    speaks = facts.member.protocol_type if context.group.type is GroupType.CONSUMER else None
    if speaks not in ("consumer", "classic"):
        return Proof(done=Tri.CANNOT_TELL)
    return _speaks(speaks, done=Tri.YES if speaks == "consumer" else Tri.NO)


def _classic(context: Context, step: Step, facts: Facts) -> Proof:
    """While one member speaks KIP-848 the group does, and classic members show no elected list."""
    if context.group.type is GroupType.CONSUMER and facts.member.protocol_type == "consumer":
        return _speaks("consumer", done=Tri.NO)
    return _narrow(context, step, facts)


def _speaks(protocol: str, *, done: Tri) -> Proof:
    return Proof(done=done, why=f"speaks the {protocol} protocol")


def _refresh(_: Context, __: Step, ___: Facts) -> Proof:
    return Proof(done=Tri.CANNOT_TELL, why="changes nothing in this step")


def _by_hand(_: Context, __: Step, ___: Facts) -> Proof:
    return Proof(
        done=Tri.CANNOT_TELL,
        why="nothing that a broker sees proves this setting: look at the member itself",
        by_hand=True,
    )


def _list(facts: Facts) -> str:
    known = facts.member.assignors.list
    return f"[{', '.join(known)}]" if known else ""


GATES: Final[Mapping[Aim, GateCheck]] = MappingProxyType(
    {
        Aim.WIDEN: _widen,
        Aim.NARROW: _narrow,
        Aim.REFRESH: _refresh,
        Aim.CONSUMER: _consumer,
        Aim.CLASSIC: _classic,
        Aim.BY_HAND: _by_hand,
        **PROGRAM_GATES,
    }
)
