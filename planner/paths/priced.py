"""The group as its costs see it."""

from __future__ import annotations

from rebal.groups.model import GroupSnapshot
from rebal.planner.context import Context
from rebal.planner.rehearsal.costs.timeouts import of_families


def priced(context: Context) -> GroupSnapshot:
    """The snapshot with the client families that the user assumed: unset timeouts are theirs."""
    return of_families(
        context.snapshot, {facts.member.member_id: facts.family for facts in context.members}
    )
