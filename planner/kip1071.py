"""Conditions of the move of a Kafka Streams program to the streams protocol (KIP-1071) and back.

Each answer is yes (the condition allows the move), no, or cannot tell, as in planner/kip848.py.
There is no online path: an Empty group is replaced, whatever it was (seen on 4.3.1 and 4.4.0).
"""

from collections.abc import Iterator
from typing import Final

from rebal.groups.model import GroupState, GroupType, Tri
from rebal.planner.context import CLASSIC, STREAMS, Context
from rebal.planner.kip848 import Answer, brokers, fits
from rebal.planner.verdict import opposite, worst
from rebal.planner.versions import fault

# A program, or a consumer: an Empty group does not show which one used it last.
_PROGRAM_TYPES: Final = (None, "", "consumer", "streams")


def crosses(context: Context) -> bool:
    """Return whether the goal changes the protocol of this Kafka Streams program.

    A group without members counts as such a program: the goal says so.
    """
    group = context.group
    ran_other = {STREAMS: context.streams, CLASSIC: group.type is GroupType.STREAMS}
    if not context.members:
        empty = group.state is GroupState.EMPTY and group.protocol_type in _PROGRAM_TYPES
        return empty and context.goal in ran_other
    return ran_other.get(context.goal, False)


def needed_version(context: Context) -> str:
    """Return the first version of Kafka Streams that can do the move of these members."""
    return "4.4" if any(facts.static for facts in context.members) else "4.2"


def of_brokers(context: Context) -> tuple[Answer, ...]:
    """Return the conditions of the move that the brokers decide."""
    if context.goal == CLASSIC:
        return (fits(context, GroupType.CLASSIC),)
    return (
        brokers(context, GroupType.STREAMS),
        *_without_faults(context),
        fits(context, GroupType.STREAMS),
    )


def _without_faults(context: Context) -> Iterator[Answer]:
    """Yield an answer for each fault of the streams protocol that the brokers have, or may have."""
    version = context.snapshot.cluster.version
    static = any(facts.static for facts in context.members)
    issues = ["KAFKA-20254", *(["KIP-1071"] if static else [])]
    for one in map(fault, issues if version else ()):
        there = one.in_broker(version)
        if there is not Tri.NO:
            yield Answer(
                allows=opposite(there),
                why=f"the brokers are {version}: {one.effect} ({one.issue})",
            )


def of_clients(context: Context) -> tuple[Answer, ...]:
    """Return whether every instance runs a version with the streams protocol; nothing on the way
    back, which needs no version, and of a group without members, whose instances are not known.
    """
    if context.goal != STREAMS or not context.members:
        return ()
    since = needed_version(context)
    has = [(facts, opposite(facts.older_than(since))) for facts in context.members]
    allowed = worst(answer for _, answer in has)
    named = [facts for facts, answer in has if answer is allowed is not Tri.YES]
    runs = f"Kafka Streams {since} or later"
    why = {
        Tri.YES: f"every instance runs {runs}",
        Tri.NO: f"{context.named(named)}: the version is below {since}",
        Tri.CANNOT_TELL: f"{context.named(named)}: it is not verified that {runs} runs there",
    }
    return (Answer(allows=allowed, why=why[allowed], members=tuple(named)),)
