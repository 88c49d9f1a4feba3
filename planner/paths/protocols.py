"""Paths to another group protocol and back: KIP-848 (consumers) and KIP-1071 (Kafka Streams); and
the rollback of a group without members.

To KIP-848 (group.protocol=consumer) online: the coordinator converts the group when the first
member joins with the new protocol, and classic members stay in it until they are restarted, unless
the migration policy becomes disabled: some brokers then reject classic members that rejoin. The
coordinator does not convert a group if its migration policy forbids it, if an assignment carries
user data, or if the group is full. An Empty group is replaced, whatever it was; only the limit of
members counts (planner/kip848.py).

Back online: restarted members join as classic members; when the last member with
group.protocol=consumer has left, the coordinator converts the group back if its migration policy
allows it (else it stays a KIP-848 group of classic members, which some brokers do not even admit
while the policy is disabled). An Empty group is replaced by a classic one, whatever the policy.

A Streams program stops every instance to change to the streams protocol or back: no instance of one
protocol joins a group that has members of the other. An Empty group is replaced, and its committed
offsets stay; internal topics are plain topics.

A group without members starts again with what its members ran before: an Empty group admits any
assignor list and any protocol, so nothing has to be proven of the coordinator's memory. The first
member that joins decides which lists are admitted after it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rebal.groups.clients import family
from rebal.groups.commands import option
from rebal.groups.model import GroupState, GroupType, Tri
from rebal.planner.advice.wording import BACK_ONE_BY_ONE
from rebal.planner.clients import cooperative, is_mixed, speak_kip848
from rebal.planner.commands import NamedCommand
from rebal.planner.context import (
    CLASSIC,
    CONSUMER,
    COOPERATIVE,
    EAGER,
    STREAMS,
    Context,
    Facts,
    below_cooperative,
    ids,
)
from rebal.planner.facts import figure, listed, owned
from rebal.planner.kip848 import (
    Answer,
    allows,
    closed_online,
    conditions,
    crosses,
    needed,
    needed_version,
    of_brokers,
    of_clients,
    too_old,
    user_data,
)
from rebal.planner.paths.parts import (
    PlannedPath,
    again,
    everyone,
    gate_of,
    list_settings,
    of_workloads,
    order_of,
    over_a_stop,
    priced,
    stop_cost,
)
from rebal.planner.plan import Aim, Cost, Gate, PathKind, Risk, Setting, Step, StepKind
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import empty_after, move_online
from rebal.planner.rehearsal.scene import default_server_side
from rebal.planner.settings import (
    classic_protocol_for,
    consumer_protocol_for,
    noted,
    program_settings,
)
from rebal.planner.timeouts import waits
from rebal.planner.verdict import exit_code, reasons

# To each protocol: its path, its aim, what an instance does that starts first with the other, and
# why the step has its form.
_WAYS: Final = {
    STREAMS: (
        PathKind.KIP1071,
        Aim.STREAMS_PROTOCOL,
        "makes the group classic again",
        (
            "there is no online path: while one classic member is in the group, an instance with "
            "group.protocol=streams is rejected",
            "an Empty classic group is replaced by a streams group: committed offsets stay, and so "
            "do the internal topics",
            "change neither the topology nor the version of the program in this step: a streams "
            "group keeps the topology of its first member",
            "the streams protocol has no topics by regular expression, no warm-up replicas and no "
            "task assignor of your own (RB510)",
        ),
    ),
    CLASSIC: (
        PathKind.KIP1071_BACK,
        Aim.STREAMS_CLASSIC,
        "makes it a streams group again",
        (
            "there is no online path: a classic member is rejected while the streams group has "
            "members",
            "an Empty streams group is replaced by a classic one: committed offsets stay, and so "
            "do the internal topics",
            "classic Streams of 4.0 and later is COOPERATIVE and has no EAGER",
        ),
    ),
}
_NO_USER_DATA: Final = (
    "members no longer receive the user data of the assignor: check that the application works "
    "without it",
)
_SETTINGS_FIRST: Final = (
    "first give the group the settings that the program loses: --details has commands"
)


def over_kip848(context: Context, back: bool) -> PlannedPath:
    """Return the one-step path to KIP-848 or, with `back`, to the classic protocol.

    Members move one by one; if a condition rules that out, all members stop first.
    """
    everybody = len(context.members)
    kind = CLASSIC if back else CONSUMER
    there = sum(facts.member.protocol_type == kind for facts in context.members)
    if not back and everybody and there == everybody:
        return PlannedPath(name=PathKind.FINISHED)
    common, own = conditions(context, up=not back)
    closed = closed_online(context, up=not back)
    answers = (*own, *common) if back else (*common, *own)
    if closed or not everybody:
        name = PathKind.KIP848_BACK_OFFLINE if back else PathKind.KIP848_OFFLINE
        answers, step = common, (_back_over_stop if back else _over_stop)(context, common, closed)
    elif back:
        name, step = PathKind.KIP848_BACK, _back_online(context, answers)
    else:
        name, step = PathKind.KIP848_ONLINE, _to_online(context, answers)
    begun = f"{there} of {everybody} done" if there else "not begun"
    return PlannedPath(
        name=name,
        progress=begun if everybody else "the group has no members",
        steps=(step,),
        next_step=1,
        reasons=tuple(
            answer.why
            for refusal in (Tri.NO, Tri.CANNOT_TELL)
            for answer in answers
            if answer.allows is refusal
        ),
    )


def _to_online(context: Context, answers: tuple[Answer, ...]) -> Step:
    """Return the step that moves the members to KIP-848 one by one under these conditions."""
    done = [facts for facts in context.members if facts.member.protocol_type == "consumer"]
    rest = [facts for facts in context.members if facts not in done]
    answer = allows(answers)
    return Step(
        id=1,
        title="Every member moves to group.protocol=consumer",
        kind=StepKind.ROLLING,
        precondition=needed(answers),
        precondition_holds=answer,
        config=_consumer_settings(context, rest or context.members),
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
                eager=ids(facts for facts in rest if facts in context.ahead),
                speed=context.speed,
                pricing=context.pricing,
            )
        ),
        exit_code=exit_code(answer),
    )


def _over_stop(context: Context, common: Sequence[Answer], closed: Sequence[Answer]) -> Step:
    """Return the step to KIP-848 with a stop of all members; `common` are its conditions.

    `closed` are the conditions that rule out the online path; empty in a group without members.
    """
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
        config=_consumer_settings(context, context.members),
        why=(
            "an empty classic group is replaced by a KIP-848 group, whatever the migration policy "
            "says; it has no assignments, and committed offsets stay",
            *(_NO_USER_DATA if user_data(context).allows is Tri.NO else ()),
            *_why(context),
        ),
        risk=Risk.STOP_FOR_PROTOCOL,
        answers=common,
        closed=closed,
        first="a member that joins first with its old configuration makes the group classic again",
        cost=stop_cost(context, _server_side(context)),
        exit_code=exit_code(allows(common)),
    )


def _why(context: Context) -> tuple[str, ...]:
    ranged = (
        "partition.assignment.strategy no longer applies, and the broker's default is uniform; "
        "range is set here (group.remote.assignor), because joins may rely on co-partitioning: "
        "remove it and ignore RB408 if none does"
    )
    static = "with two processes of one instance id, the second is now rejected (RB407)"
    return reasons(
        (context.elected == "range", ranged),
        (any(facts.static for facts in context.members), static),
    )


def _server_side(context: Context) -> str:
    """Return the assignor by which the brokers assign after the move to KIP-848.

    It is range if the members elected range, because the plan then sets group.remote.assignor to
    it. Otherwise a group that uses KIP-848 already keeps its assignor, and any other group gets the
    brokers' default.
    """
    if context.elected == "range":
        return "range"
    if context.group.type is GroupType.CONSUMER and context.group.assignor:
        return context.group.assignor
    return default_server_side(context.snapshot)


def _consumer_settings(context: Context, members: Sequence[Facts]) -> tuple[Setting, ...]:
    made: list[Setting] = []
    for key in sorted({facts.family for facts in members if facts.family} or speak_kip848()):
        mine = [facts for facts in members if facts.family == key]
        known = family(key)
        old = [facts for facts in mine if too_old(facts) is Tri.YES]
        title = "kafka-clients" if key == "java" else known.title
        more = f": upgrade first ({context.named(old)})" if old else ""
        able = all(too_old(facts) is Tri.NO for facts in mine)
        notes = [] if able else [f"needs {title} {known.kip848_since} or later{more}"]
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


def _back_online(context: Context, answers: tuple[Answer, ...]) -> Step:
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
        config=_classic_settings(context),
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
        gate=_classic_gate(context, Tri.NO if rest else Tri.CANNOT_TELL),
        rollback=BACK_ONE_BY_ONE,
        commands=(
            *(context.given.request_log(context.group.coordinator_id) if rest else ()),
            *of_workloads(rest),
        ),
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


def _back_over_stop(
    context: Context, common: tuple[Answer, ...], closed: tuple[Answer, ...]
) -> Step:
    return over_a_stop(
        context,
        how=f"with group.protocol=classic and {context.target}",
        gate=_classic_gate(context, Tri.NO),
        back="group.protocol=consumer",
        config=_classic_settings(context),
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


def _classic_settings(context: Context) -> tuple[Setting, ...]:
    return tuple(
        setting
        for key in sorted({f.family for f in context.members if f.family} or speak_kip848())
        for setting in classic_protocol_for(key, [context.target], context.group.group_id)
    )


def _classic_gate(context: Context, holds: Tri) -> Gate:
    return gate_of(
        context,
        shows=f"type classic, {everyone(context)} present, {context.target} elected",
        holds=holds,
        aim=Aim.CLASSIC,
    )


def over_kip1071(context: Context) -> PlannedPath:
    """Return the one-step path to the streams protocol (KIP-1071) or back, with a stop of all.

    The path is finished if the group already has the goal's protocol.
    """
    if crosses(context):
        return PlannedPath(
            name=_WAYS[context.goal][0],
            progress="not begun" if context.members else "the group has no members",
            steps=(_streams_step(context),),
            next_step=1,
        )
    if context.members and context.group.type == context.goal:
        return PlannedPath(name=PathKind.FINISHED)
    return PlannedPath(
        name=PathKind.NONE,
        reasons=(
            "--to streams needs a Kafka Streams program, and --to classic a group of the streams "
            "protocol; a KIP-848 group of consumers goes back with --to cooperative-sticky or "
            "--to range",
        ),
    )


def _streams_step(context: Context) -> Step:
    """Return the step that stops all instances and starts them with the goal's protocol.

    In a group without members there is nothing to stop and nothing to agree on.
    """
    goal, up = context.goal, context.goal == STREAMS
    back = CLASSIC if up else STREAMS
    _, aim, again, why = _WAYS[goal]
    needs = f"; needs Kafka Streams {needed_version(context)} or later" if up else ""
    members = priced(context).members
    held = empty_after(members)
    return over_a_stop(
        context,
        whom="instance",
        how=f"with group.protocol={goal}",
        gate=gate_of(
            context,
            shows=f"type {goal}, {everyone(context)} present",
            holds=Tri.NO,
            aim=aim,
        ),
        back=f"group.protocol={back}",
        config=program_settings(
            "streams", {"group.protocol": goal}, f"group {context.group.group_id}{needs}"
        ),
        why=why,
        risk=Risk.STOP_FOR_PROTOCOL,
        answers=(*of_brokers(context), *of_clients(context)),
        prepare=(_SETTINGS_FIRST,) if up else (),
        first=f"an instance that starts first with group.protocol={back} {again}",
        commands=_group_settings(context) if up else (),
        # As far as it is known: the streams protocol is not rehearsed.
        cost=Cost(
            rebalances=1,
            partitions_stopped=sum(map(owned, members)),
            partitions_moved=0,
            text=f"nothing is consumed for {figure(held)} s and the start at least"
            if held
            else "nothing is consumed until the first members have joined",
        ),
    )


def _group_settings(context: Context) -> Iterator[NamedCommand]:
    """Yield commands that give the group the settings that its instances' own files gave before.

    With the streams protocol (KIP-1071) num.standby.replicas, session.timeout.ms and
    heartbeat.interval.ms are settings of the group, and an instance's own are ignored.
    """
    # The brokers allow sessions of 45 to 60 s by default.
    session = min(60.0, max([45.0, *(waits(m).session for m in context.snapshot.members)]))
    of_group = ("--entity-type", "groups", *option("--entity-name", context.group.group_id))
    for setting, value in (
        ("num.standby.replicas", "1"),
        ("session.timeout.ms", f"{session * 1000:.0f}"),
        ("heartbeat.interval.ms", "5000"),
    ):
        words = ("--alter", *of_group, "--add-config", f"streams.{setting}={value}")
        yield NamedCommand(
            f"before the start, if the program sets {setting}, with its value",
            context.given.kafka("kafka-configs.sh", *words),
        )


def start_again(context: Context, before: Context) -> PlannedPath | None:
    """Return the one-step path of an Empty group: members start with what they ran in `before`.

    Return None if `before` shows no members, if the group is not Empty or is known not to be
    classic, or if the goal is neither cooperative nor eager.
    """
    if (
        not before.members
        or context.members
        or context.group.state is not GroupState.EMPTY
        or context.group.type not in (GroupType.CLASSIC, GroupType.UNKNOWN)
        or context.goal not in (COOPERATIVE, EAGER)
    ):
        return None
    group, elected, old = before.group.group_id, before.group.assignor, before.common_list
    assignors: tuple[str, ...] = ()
    up, name = context.goal == COOPERATIVE, PathKind.STREAMS_START
    aim = Aim.STREAMS_COOPERATIVE if up else Aim.STREAMS_EAGER
    if before.group.protocol_type == "connect":
        aim = Aim.CONNECT_INCREMENTAL if up else Aim.CONNECT_EAGER
        # The value of connect.protocol that elects what the workers ran.
        protocol = "eager" if elected in (None, "default") else elected
        what, name = f"connect.protocol={protocol}", PathKind.CONNECT_START
        config = program_settings(
            "connect", {"connect.protocol": protocol}, f"worker configuration, group {group}"
        )
    elif before.streams:
        if all(below_cooperative(before, facts) is Tri.YES for facts in before.members):
            aim = Aim.STREAMS_OLD
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
