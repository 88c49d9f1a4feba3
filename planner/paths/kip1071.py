"""The path of a Kafka Streams program to the streams protocol (KIP-1071), and the path back.

Both stop every instance: no instance of one protocol joins a group that has members of the other.
An Empty group is replaced, and its committed offsets stay; internal topics are plain topics.
"""

from collections.abc import Iterator
from typing import Final

from rebal.groups.commands import option
from rebal.groups.model import Tri
from rebal.planner.commands import NamedCommand
from rebal.planner.context import CLASSIC, STREAMS, Context
from rebal.planner.facts import figure, owned
from rebal.planner.kinds import PathKind
from rebal.planner.kip848 import crosses, needed_version, of_brokers, of_clients
from rebal.planner.paths.parts import PlannedPath, everyone, gate_of, priced
from rebal.planner.paths.stops import over_a_stop
from rebal.planner.plan import Aim, Cost, Step
from rebal.planner.rehearsal.costs.steps import empty_after
from rebal.planner.risks import Risk
from rebal.planner.settings import program_settings
from rebal.planner.timeouts import waits

_WHY: Final = {
    STREAMS: (
        "there is no online path: while one classic member is in the group, an instance with "
        "group.protocol=streams is rejected",
        "an Empty classic group is replaced by a streams group: committed offsets stay, and so do "
        "the internal topics",
        "change neither the topology nor the version of the program in this step: a streams group "
        "keeps the topology of its first member",
        "the streams protocol has no topics by regular expression, no warm-up replicas and no task "
        "assignor of your own (RB510)",
    ),
    CLASSIC: (
        "there is no online path: a classic member is rejected while the streams group has members",
        "an Empty streams group is replaced by a classic one: committed offsets stay, and so do "
        "the internal topics",
        "classic Streams of 4.0 and later is COOPERATIVE and has no EAGER",
    ),
}
# To each protocol: its path, its aim, and what an instance does that starts first with the other.
_WAYS: Final = {
    STREAMS: (PathKind.KIP1071, Aim.STREAMS_PROTOCOL, "makes the group classic again"),
    CLASSIC: (PathKind.KIP1071_BACK, Aim.STREAMS_CLASSIC, "makes it a streams group again"),
}
_SETTINGS_FIRST: Final = (
    "first give the group the settings that the program loses: --details has commands"
)
_NO_PROGRAM: Final = (
    "--to streams needs a Kafka Streams program, and --to classic a group of the streams protocol; "
    "a KIP-848 group of consumers goes back with --to cooperative-sticky or --to range"
)


def over_kip1071(context: Context) -> PlannedPath:
    """Return the path of one step over a stop; done where the group has the goal's protocol."""
    if crosses(context):
        return PlannedPath(
            name=_WAYS[context.goal][0],
            progress="not begun" if context.members else "the group has no members",
            steps=(_step(context),),
            next_step=1,
        )
    if context.members and context.group.type == context.goal:
        return PlannedPath(name=PathKind.FINISHED)
    return PlannedPath(name=PathKind.NONE, reasons=(_NO_PROGRAM,))


def _step(context: Context) -> Step:
    """Return the step; in a group without members there is nothing to stop and to agree on."""
    goal, up = context.goal, context.goal == STREAMS
    back = CLASSIC if up else STREAMS
    _, aim, again = _WAYS[goal]
    needs = f"; needs Kafka Streams {needed_version(context)} or later" if up else ""
    head = f"group {context.group.group_id}{needs}"
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
        config=program_settings("streams", {"group.protocol": goal}, head),
        why=_WHY[goal],
        risk=Risk.STOP_FOR_PROTOCOL,
        answers=(*of_brokers(context), *of_clients(context)),
        prepare=(_SETTINGS_FIRST,) if up else (),
        first=f"an instance that starts first with group.protocol={back} {again}",
        commands=_group_settings(context) if up else (),
        cost=_cost(context),
    )


def _group_settings(context: Context) -> Iterator[NamedCommand]:
    """Yield the commands that give the group what its instances set before."""
    # The brokers allow sessions of 45 to 60 s by default.
    session = min(60.0, max([45.0, *(waits(m).session for m in context.snapshot.members)]))
    of_group = ("--entity-type", "groups", *option("--entity-name", context.group.group_id))
    for setting, value in (
        ("num.standby.replicas", "1"),
        ("session.timeout.ms", f"{session * 1000:.0f}"),
        ("heartbeat.interval.ms", "5000"),
    ):
        added = ("--alter", *of_group, "--add-config", f"streams.{setting}={value}")
        yield NamedCommand(
            f"before the start, if the program sets {setting}, with its value",
            context.given.kafka("kafka-configs.sh", *added),
        )


def _cost(context: Context) -> Cost:
    """Return the cost as far as it is known; the streams protocol is not rehearsed."""
    members = priced(context).members
    held = empty_after(members)
    return Cost(
        rebalances=1,
        partitions_stopped=sum(map(owned, members)),
        partitions_moved=0,
        text=f"nothing is consumed for {figure(held)} s and the start at least"
        if held
        else "nothing is consumed until the first members have joined",
    )
