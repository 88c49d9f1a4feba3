"""Members that would be rejected if they restarted now with their configured list."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from rebal.groups.model import Record, Tri
from rebal.planner.clients import cooperative, custom
from rebal.planner.context import Context, Facts
from rebal.planner.plan import Finding


class Mistake(StrEnum):
    """The mistake in a list that is rejected."""

    DROPPED_DEFAULT = "dropped default"
    STRAIGHT_BACK = "straight back"
    NOTHING_COMMON = "nothing common"


class NextStart(Record, frozen=True, kw_only=True):
    """A member whose next start is rejected (yes), or may be (cannot tell)."""

    facts: Facts
    list: tuple[str, ...]
    rejected: Tri
    mistake: Mistake


def next_starts(context: Context, mistake: Mistake) -> Iterator[NextStart]:
    """Yield the members whose configured list has this mistake and would, or might, be rejected
    today.
    """
    if not context.classic or not context.stable:
        return
    for facts in context.members:
        declared = facts.member.declared
        if declared is None or not declared.list or declared.group_protocol == "consumer":
            continue
        rejected = _rejected(context, facts, declared.list)
        if rejected is not Tri.NO and _mistake(context, facts, declared.list) is mistake:
            yield NextStart(facts=facts, list=declared.list, rejected=rejected, mistake=mistake)


def unnamed(context: Context, declared: str) -> bool:
    """Return whether `name` may be a custom class whose assignor name is unknown."""
    met = {name for facts in context.members for name in facts.member.assignors.list}
    return custom(declared) and declared != context.elected and declared not in met


def will_not_start(context: Context, finding: Finding) -> bool:
    """Return whether all members of a finding are configured with a mixed list that their clients
    reject.

    Such members do not start, whatever the path is.
    """
    declared = {
        member.member_id: set(map(cooperative, member.declared.list))
        for member in context.snapshot.members
        if member.declared is not None
    }
    return all({Tri.YES, Tri.NO} <= declared.get(id_, set()) for id_ in finding.members)


def _rejected(context: Context, facts: Facts, names: tuple[str, ...]) -> Tri:
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
