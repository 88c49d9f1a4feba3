"""What the list that a configuration declares would do to a member that restarts now."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from rebal.groups.model import Record, Tri
from rebal.planner.clients import cooperative
from rebal.planner.context import Context, Facts
from rebal.planner.kinds import custom
from rebal.planner.plan import Finding


class Mistake(StrEnum):
    """Which mistake a list that is refused would be."""

    DROPPED_DEFAULT = "dropped default"
    STRAIGHT_BACK = "straight back"
    NOTHING_COMMON = "nothing common"


class NextStart(Record, frozen=True, kw_only=True):
    """A member whose next start is refused (yes), or of which that cannot be told."""

    facts: Facts
    list: tuple[str, ...]
    refused: Tri
    mistake: Mistake


def next_starts(context: Context, mistake: Mistake) -> Iterator[NextStart]:
    """The members whose declared list is, or may be, refused today for this mistake."""
    if not context.classic or not context.stable:
        return
    for facts in context.members:
        declared = facts.member.declared
        if declared is None or not declared.list or declared.group_protocol == "consumer":
            continue
        refused = _refused(context, facts, declared.list)
        if refused is not Tri.NO and _mistake(context, facts, declared.list) is mistake:
            yield NextStart(facts=facts, list=declared.list, refused=refused, mistake=mistake)


def unnamed(context: Context, declared: str) -> bool:
    """May this be a class of somebody's own, whose assignor's name nothing shows?"""
    met = {name for facts in context.members for name in facts.member.assignors.list}
    return custom(declared) and declared != context.elected and declared not in met


def will_not_start(context: Context, finding: Finding) -> bool:
    """Is a finding of RB104 about members whose next start has a list that their client refuses?"""
    declared = {
        member.member_id: set(map(cooperative, member.declared.list))
        for member in context.snapshot.members
        if member.declared is not None
    }
    return all({Tri.YES, Tri.NO} <= declared.get(id_, set()) for id_ in finding.members)


def _refused(context: Context, facts: Facts, names: tuple[str, ...]) -> Tri:
    others = [other for other in context.members if other is not facts]
    if context.elected in names:
        return Tri.NO
    answers = [
        {Tri.CANNOT_TELL}
        if unnamed(context, name)
        else {context.supports(other, name) for other in others}
        for name in names
    ]
    if any(answer <= {Tri.YES} for answer in answers):
        return Tri.NO
    return Tri.YES if all(Tri.NO in answer for answer in answers) else Tri.CANNOT_TELL


def _mistake(context: Context, facts: Facts, names: tuple[str, ...]) -> Mistake:
    if context.elected and cooperative(context.elected) is Tri.YES:
        if all(cooperative(name) is Tri.NO for name in names):
            return Mistake.STRAIGHT_BACK
        return Mistake.NOTHING_COMMON
    old_java = facts.family == "java" and facts.older_than("3.0") is not Tri.NO
    if context.elected == "range" and context.target in names and old_java:
        return Mistake.DROPPED_DEFAULT
    return Mistake.NOTHING_COMMON
