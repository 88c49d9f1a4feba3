"""What the rules about KIP-848 share: when they speak, and who is still to move."""

from __future__ import annotations

from rebal.groups.model import GroupType
from rebal.planner.context import CONSUMER, EAGER, Context, Facts


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


def still_classic(context: Context) -> tuple[Facts, ...]:
    """The members that speak the classic protocol; in a KIP-848 group those that say so."""
    if context.group.type is not GroupType.CONSUMER:
        return context.members
    return tuple(f for f in context.members if f.member.protocol_type == "classic")
