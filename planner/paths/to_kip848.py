"""The path to KIP-848 (group.protocol=consumer), online or over an empty group.

Online: the coordinator converts the group when the first member joins with the new protocol, and
classic members stay in it until they are restarted, if the migration policy does not become
disabled: some brokers then reject them when they join again. The coordinator does not convert a
group if its migration policy forbids it, if an assignment carries user data, or if the group is
full. An Empty group is replaced, whatever it was; only the limit of members counts
(planner/kip848.py).
"""

from collections.abc import Iterator, Sequence

from rebal.groups.clients import family as known_family
from rebal.groups.model import GroupType, Tri
from rebal.planner.clients import speak_kip848
from rebal.planner.context import Context, Facts, ids
from rebal.planner.kip848 import Answer, allows, needed, too_old, user_data
from rebal.planner.paths.parts import again, everyone, gate_of, priced, stop_cost
from rebal.planner.paths.restarts import of_workloads, order_of
from rebal.planner.paths.stops import over_a_stop
from rebal.planner.plan import Aim, Setting, Step, StepKind
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import move_online
from rebal.planner.rehearsal.scene import default_server_side
from rebal.planner.risks import Risk
from rebal.planner.settings import consumer_protocol_for, noted
from rebal.planner.verdict import exit_code


def to_online(context: Context, answers: tuple[Answer, ...]) -> Step:
    """Return the step that moves the members one by one; `answers` are all conditions of it."""
    done = [facts for facts in context.members if facts.member.protocol_type == "consumer"]
    rest = [facts for facts in context.members if facts not in done]
    answer = allows(answers)
    return Step(
        id=1,
        title="Every member moves to group.protocol=consumer",
        kind=StepKind.ROLLING,
        precondition=needed(answers),
        precondition_holds=answer,
        config=_settings(context, rest or context.members),
        why=(
            "when the first member joins with group.protocol=consumer, the coordinator converts "
            "the group; classic members stay in it until they are restarted",
            "the migration policy must stay as it is until the last member has moved: while it is "
            "disabled, some brokers end the classic members at the next rebalance (RB401)",
            *_why(context),
        ),
        order=tuple(order_of(context, rest, by_lists=False)),
        to_do=ids(rest),
        done=ids(done),
        gate=gate_of(
            context,
            shows=f"the group's type is consumer, and {everyone(context)} uses consumer",
            holds=Tri.NO if rest or context.missing else Tri.YES,
            aim=Aim.CONSUMER,
        ),
        rollback="the old configuration, one by one, if the migration policy allows",
        commands=(*of_workloads(rest), again(context)),
        cost=move_online(
            Roll(
                snapshot=priced(context),
                order=ids(rest),
                protocol="consumer",
                server_side=_server_side(context),
                eager=ids(facts for facts in rest if facts not in context.settled),
                speed=context.speed,
                pricing=context.pricing,
            )
        ),
        exit_code=exit_code(answer),
    )


def over_stop(context: Context, common: Sequence[Answer], closed: Sequence[Answer]) -> Step:
    """Return the step over a stop; `closed` is empty in a group without members."""
    return over_a_stop(
        context,
        how="with group.protocol=consumer",
        gate=gate_of(
            context,
            shows=f"{everyone(context)} uses group.protocol=consumer",
            holds=Tri.NO,
            aim=Aim.CONSUMER,
        ),
        back="the old configuration",
        config=_settings(context, context.members),
        why=(
            "an empty classic group is replaced by a KIP-848 group, whatever the migration policy "
            "says; it has no assignments, and committed offsets stay",
            *_without_data(context),
            *_why(context),
        ),
        risk=Risk.STOP_FOR_PROTOCOL,
        answers=common,
        closed=closed,
        first="a member that joins first with its old configuration makes the group classic again",
        cost=stop_cost(context, _server_side(context)),
        exit_code=exit_code(allows(common)),
    )


def _without_data(context: Context) -> Iterator[str]:
    if user_data(context).allows is Tri.NO:
        yield (
            "members no longer receive the user data of the assignor: check that the application "
            "works without it"
        )


def _why(context: Context) -> Iterator[str]:
    if context.elected == "range":
        yield (
            "partition.assignment.strategy no longer applies, and the broker's default is uniform; "
            "range is set here (group.remote.assignor), because joins may rely on co-partitioning: "
            "remove it and ignore RB408 if none does"
        )
    static = [facts for facts in context.members if facts.static]
    if static:
        yield "with two processes of one instance id, the second is now rejected (RB407)"


def _server_side(context: Context) -> str:
    """Return the coordinator's assignor: range where the plan sets it, else the group's or the
    default.
    """
    if context.elected == "range":
        return "range"
    kip848 = context.group.type is GroupType.CONSUMER
    default = default_server_side(context.snapshot)
    return (context.group.assignor or default) if kip848 else default


def _settings(context: Context, members: Sequence[Facts]) -> tuple[Setting, ...]:
    made: list[Setting] = []
    for key in sorted({facts.family for facts in members if facts.family} or speak_kip848()):
        mine = [facts for facts in members if facts.family == key]
        known = known_family(key)
        old = [facts for facts in mine if too_old(facts) is Tri.YES]
        unsure = any(too_old(facts) is Tri.CANNOT_TELL for facts in mine)
        notes = []
        if known is not None and (old or unsure):
            title = "kafka-clients" if key == "java" else known.title
            more = f": upgrade first ({context.named(old)})" if old else ""
            notes.append(f"needs {title} {known.kip848_since} or later{more}")
        made += (
            noted(setting, notes)
            for setting in consumer_protocol_for(
                key,
                context.group.group_id,
                () if len(mine) == len(context.members) else [facts.name for facts in mine],
                remote_assignor="range" if context.elected == "range" else None,
                connector=context.sink is not None,
            )
        )
    return tuple(made)
