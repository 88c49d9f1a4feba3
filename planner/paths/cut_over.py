"""A full cut-over: stop every member, start all with the new list.

It is for clients that reject a list of eager and cooperative assignors (librdkafka and its
bindings, kafka-python). Nothing is consumed during the stop, so the plan is never ready: the
operator decides on the interruption.
"""

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.clients import speak_kip848, stays_eager
from rebal.planner.commands import NamedCommand
from rebal.planner.context import CONSUMER, Context
from rebal.planner.paths.parts import everyone, gate_of, list_settings, stop_cost
from rebal.planner.paths.stops import over_a_stop
from rebal.planner.plan import Aim, Step


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
    step = over_a_stop(
        context,
        how=f"on {context.target}",
        gate=gate_of(
            context,
            shows=f"{everyone(context)} uses {context.target} alone",
            holds=Tri.NO,
            aim=Aim.NARROW,
        ),
        back="the old list",
        config=list_settings(context, (context.target,), context.members),
        target_list=(context.target,),
        why=("an Empty group admits any list that all its members share",),
        done=context.settled,
        commands=_without_a_stop(context),
        cost=stop_cost(context),
    )
    return (step,)


def _without_a_stop(context: Context) -> Iterator[NamedCommand]:
    """Yield the command that plans the online path, where some version of every member's client
    speaks KIP-848.
    """
    if {facts.family for facts in context.members} <= speak_kip848():
        yield NamedCommand(
            "or, without an interruption, on brokers 4.0 or later: plan the move to KIP-848",
            context.replan(to=CONSUMER),
        )
