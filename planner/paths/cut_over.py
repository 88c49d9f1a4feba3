"""A full cut-over: stop every member, start all with the new list.

It is for clients that reject a list of eager and cooperative assignors (librdkafka and its
bindings, kafka-python). Nothing is consumed during the stop, so the plan is never ready: the
operator decides on the interruption.
"""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.advice.wording import (
    ALL_AT_ONCE,
    BACK_OVER_STOP,
    START_ALL,
    STOP_ALL,
    STOP_THEN_START,
)
from rebal.planner.clients import speak_kip848, stays_eager
from rebal.planner.commands import NamedCommand, commands, sentences
from rebal.planner.context import CONSUMER, Context, ids
from rebal.planner.paths.parts import (
    agreed,
    everyone,
    gate_of,
    list_settings,
    stop_cost,
    stopping,
)
from rebal.planner.plan import Aim, Brief, Step, StepKind
from rebal.planner.rehearsal.costs.stop import see_it_empty
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
    members = context.snapshot.members
    names = (context.target,)
    online = tuple(_without_a_stop(context))
    return (
        Step(
            id=1,
            title=STOP_THEN_START.format(whom="member", how=f"on {context.target}"),
            kind=StepKind.CUT_OVER,
            precondition="an interruption is agreed: nothing of this group is consumed from the "
            "last stop until the first rebalance of the new members has completed "
            f"(accepting {Risk.STOP.rule} records who agreed, and opens this step)",
            precondition_holds=Tri.NO,
            config=list_settings(context, names, context.members),
            target_list=names,
            order=(STOP_ALL, see_it_empty(members), START_ALL, *sentences(online)),
            to_do=ids(facts for facts in context.members if facts not in context.settled),
            done=ids(context.settled),
            gate=gate_of(
                context,
                shows="exit code 0, and nothing left to do",
                needs=(f"every member on {context.target} alone",),
                holds=Tri.NO,
                aim=Aim.NARROW,
            ),
            rollback=BACK_OVER_STOP.format(change="the old list"),
            brief=Brief(
                needs=agreed(Risk.STOP),
                how=(ALL_AT_ONCE,),
                gate=f"{everyone(context)} uses {context.target} alone",
            ),
            commands=(
                *stopping(context, Risk.STOP),
                *commands(online),
            ),
            cost=stop_cost(context),
        ),
    )


def _without_a_stop(context: Context) -> Iterator[str | NamedCommand]:
    """Yield the online path and the command that plans it, where some version of every member's
    client speaks KIP-848.
    """
    if {facts.family for facts in context.members} <= speak_kip848():
        yield (
            "or, without an interruption, move to KIP-848 (group.protocol=consumer), which needs "
            "brokers 4.0 or later and a client that supports it"
        )
        yield NamedCommand("plan the move to KIP-848", context.replan(to=CONSUMER))
