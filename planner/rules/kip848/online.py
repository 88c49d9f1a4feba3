"""What the rules about KIP-848 share: when they speak, and who is still to move."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import GroupType, Tri
from rebal.planner.context import CONSUMER, EAGER, Context, Facts
from rebal.planner.kip848 import Answer
from rebal.planner.plan import Finding
from rebal.planner.rules.registry import found


def moving_up(context: Context) -> bool:
    """Is a plan being made to move consumers (not Streams, not Connect) to KIP-848?"""
    return (
        context.planning
        and context.goal == CONSUMER
        and context.group.type in (GroupType.CLASSIC, GroupType.UNKNOWN, GroupType.CONSUMER)
        and context.group.protocol_type in ("consumer", None)
        and not context.streams
    )


def moving_down(context: Context) -> bool:
    """Is a plan being made to bring a KIP-848 group back to an assignor of the classic protocol?

    The goal `cooperative` alone is none: such a group moves single partitions as it is.
    """
    back = context.goal == EAGER or (context.only_target and context.goal != CONSUMER)
    return context.planning and context.group.type is GroupType.CONSUMER and back


def speaks(answer: Answer, fix: str) -> Iterator[Finding]:
    """The finding of an answer that does not allow the way; none where it does."""
    if answer.allows is Tri.YES:
        return
    result = Tri.YES if answer.allows is Tri.NO else Tri.CANNOT_TELL
    yield found(f"{answer.why}.", result=result, members=answer.members, fix=fix)


def unread(context: Context) -> str:
    """How to come by what only the brokers tell of themselves."""
    if context.asked:
        return "Allow DESCRIBE_CONFIGS on the cluster and take the snapshot again."
    return (
        "No broker was asked: name one with -b HOST:PORT; its settings need DESCRIBE_CONFIGS on "
        "the cluster."
    )


def still_classic(context: Context) -> tuple[Facts, ...]:
    """The members that speak the classic protocol; in a KIP-848 group those that say so."""
    if context.group.type is not GroupType.CONSUMER:
        return context.members
    return tuple(f for f in context.members if f.member.protocol_type == "classic")
