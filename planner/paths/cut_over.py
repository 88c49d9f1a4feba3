"""A full cut-over: stop every member, start all with the new list.

It is for clients that reject a list of eager and cooperative assignors (librdkafka and its
bindings, kafka-python). Nothing is consumed during the stop, so the plan is never ready: the
operator decides on the interruption.
"""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.advice.wording import (
    BACK_OVER_STOP,
    STOP_THEN_START,
)
from rebal.planner.clients import speak_kip848, stays_eager
from rebal.planner.commands import NamedCommand
from rebal.planner.context import CONSUMER, Context, ids
from rebal.planner.paths.parts import (
    agreed,
    everyone,
    gate_of,
    list_settings,
    stop_all,
    stop_cost,
    stopping,
)
from rebal.planner.plan import Aim, Step, StepKind
from rebal.planner.risks import Risk


def needs_cut_over(context: Context) -> bool:
    """Return whether a member that is not done rejects mixed lists, and all could run the target.

    Only proven clients count: no group is stopped for a guess.
    """
    return (
        context.both_kinds
        and bool(context.unmixable)
        and not context.undecided
        and not any(stays_eager(facts.family) for facts in context.ahead)
    )


def cut_over(context: Context) -> tuple[Step, ...]:
    """Return the one step of the cut-over; its precondition is an agreed interruption."""
    names = (context.target,)
    return (
        Step(
            id=1,
            title=STOP_THEN_START.format(whom="member", how=f"on {context.target}"),
            kind=StepKind.CUT_OVER,
            precondition=agreed(Risk.STOP),
            precondition_holds=Tri.NO,
            config=list_settings(context, names, context.members),
            target_list=names,
            why=("an Empty group admits any list that all its members share",),
            order=(stop_all(context.snapshot.members),),
            to_do=ids(facts for facts in context.members if facts not in context.settled),
            done=ids(context.settled),
            gate=gate_of(
                context,
                shows=f"{everyone(context)} uses {context.target} alone",
                holds=Tri.NO,
                aim=Aim.NARROW,
            ),
            rollback=BACK_OVER_STOP.format(change="the old list"),
            commands=(*stopping(context, Risk.STOP), *_without_a_stop(context)),
            cost=stop_cost(context),
        ),
    )


def _without_a_stop(context: Context) -> Iterator[NamedCommand]:
    """Yield the command that plans the online path, where some version of every member's client
    speaks KIP-848.
    """
    if {facts.family for facts in context.members} <= speak_kip848():
        yield NamedCommand(
            "or, without an interruption, on brokers 4.0 or later: plan the move to KIP-848",
            context.replan(to=CONSUMER),
        )
