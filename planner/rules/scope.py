"""Conditions that rules share: when they apply, and which members a plan still changes."""

from collections.abc import Iterable, Iterator

from rebal.groups.model import GroupType, Tri
from rebal.planner.clients import cooperative
from rebal.planner.commands import NamedCommand
from rebal.planner.context import CONSUMER, COOPERATIVE, EAGER, Context, Facts
from rebal.planner.kip848 import Answer
from rebal.planner.plan import Finding
from rebal.planner.rules.registry import found


def planning(context: Context) -> bool:
    """Return whether a plan is being made."""
    return context.planning


def classic(context: Context) -> bool:
    """Return whether this is a classic group of consumers with assignor lists of their own."""
    return context.classic


def with_lists(context: Context) -> bool:
    """Return whether members that start with assignor lists may belong to this group's service."""
    return context.classic or to_consumer(context)


def by_lists(context: Context) -> bool:
    """Return whether the members of a classic group stay on assignor lists."""
    return context.classic and context.goal in (COOPERATIVE, EAGER)


def stable(context: Context) -> bool:
    """Return whether the group is Stable with members."""
    return context.stable


def upgrade(context: Context) -> bool:
    """Return whether the goal is COOPERATIVE."""
    return context.goal == COOPERATIVE


def downgrade(context: Context) -> bool:
    """Return whether the goal is EAGER."""
    return context.goal == EAGER


def no_downgrade(context: Context) -> bool:
    """Return whether the goal is COOPERATIVE or KIP-848."""
    return context.goal != EAGER


def unfinished(context: Context) -> bool:
    """Return whether the plan's steps still change a member."""
    return bool(ahead(context))


def streams_program(context: Context) -> bool:
    """Return whether this is a Kafka Streams program."""
    return context.streams


def connect_workers(context: Context) -> bool:
    """Return whether this is a group of Connect workers."""
    return context.group.protocol_type == "connect"


def to_cooperative(context: Context) -> bool:
    """Return whether a plan to COOPERATIVE is being made that has steps left.

    Without such a plan no client version is reported: the group already runs.
    """
    return upgrade(context) and _has_steps(context)


def to_or_from_cooperative(context: Context) -> bool:
    """Return whether a plan to or from a COOPERATIVE assignor is being made that has steps left."""
    leaves = context.goal == EAGER and cooperative(context.elected or "") is Tri.YES
    return (upgrade(context) or leaves) and _has_steps(context)


def _has_steps(context: Context) -> bool:
    planned = context.planning and context.classic
    return planned and len(context.settled) < len(context.members)


def to_consumer(context: Context) -> bool:
    """Return whether a plan is being made to move consumers to KIP-848 (not Streams or Connect)."""
    return (
        context.planning
        and context.goal == CONSUMER
        and context.group.type in (GroupType.CLASSIC, GroupType.UNKNOWN, GroupType.CONSUMER)
        and context.group.protocol_type in ("consumer", None)
        and not context.streams
    )


def from_consumer(context: Context) -> bool:
    """Return whether a plan is being made to move a KIP-848 group back to a classic assignor.

    The goal `cooperative` alone is no such move: a KIP-848 group already stops only what moves.
    """
    back = context.goal == EAGER or (context.only_target and context.goal != CONSUMER)
    return context.planning and context.group.type is GroupType.CONSUMER and back


def to_or_from_consumer(context: Context) -> bool:
    """Return whether a plan is being made that crosses between classic and KIP-848."""
    return to_consumer(context) or from_consumer(context)


def still_classic(context: Context) -> tuple[Facts, ...]:
    """Return the members that use the classic protocol; in a KIP-848 group, only those known to."""
    if context.group.type is not GroupType.CONSUMER:
        return context.members
    return tuple(f for f in context.members if f.member.protocol_type == "classic")


def ahead(context: Context) -> tuple[Facts, ...]:
    """Return the members that the plan's steps still change."""
    return still_classic(context) if context.goal == CONSUMER else context.ahead


def narrowing_step(context: Context) -> int | None:
    """Return the number of the step that drops the old assignor; None if no step drops one."""
    return None if context.goal == CONSUMER else context.narrow_step


def unless_allowed(
    answer: Answer, fix: str, commands: Iterable[NamedCommand] = ()
) -> Iterator[Finding]:
    """Yield a finding if the condition `answer` does not allow the path."""
    if answer.allows is not Tri.YES:
        result = Tri.YES if answer.allows is Tri.NO else Tri.CANNOT_TELL
        yield found(
            f"{answer.why}.", result=result, members=answer.members, fix=fix, commands=commands
        )


def probing(context: Context) -> NamedCommand:
    """Return the command that probes the live group."""
    return NamedCommand("probe", context.given.inspect(context.group.group_id, "--probe"))


def switching_on(context: Context, feature: str) -> Iterator[NamedCommand]:
    """Yield the commands that show the finalised features and upgrade one to 1."""
    tool = "kafka-features.sh"
    yield NamedCommand("show the features", context.given.kafka(tool, "describe"))
    upgrade = context.given.kafka(tool, "upgrade", "--feature", f"{feature}=1")
    yield NamedCommand("upgrade the feature", upgrade)


def read_brokers(context: Context) -> str:
    """Return the fix for facts that only the brokers report: how to read them."""
    if context.asked:
        return "Allow DESCRIBE_CONFIGS on the cluster and take the snapshot again."
    return "Name a broker with -b HOST:PORT. Reading its settings needs DESCRIBE_CONFIGS."
