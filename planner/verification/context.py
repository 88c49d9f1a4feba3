"""The live group as its plan asks of it: `context_of`, with what is known of ids still there.

What was once proven of a member id (its list, its client) stays true while that id is in the
group: `remembered` brings it from the plan's baseline and from the journal into a later look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import proven_family
from rebal.groups.model import (
    AssignorList,
    GroupSnapshot,
    Knowledge,
    Member,
    Software,
    Source,
)
from rebal.planner.aims import Aim
from rebal.planner.context import CONSUMER, COOPERATIVE, EAGER, Context
from rebal.planner.plan import Accepted, Plan
from rebal.planner.rules import Risk, own_class_risk
from rebal.planner.verification.gates import aim_of
from rebal.planner.verification.journal import JournalEntry

_GOALS: Final = {"COOPERATIVE": COOPERATIVE, "EAGER": EAGER, "KIP-848": CONSUMER}


class PlanContext(Context):
    """A group towards the goal of a plan that exists: its steps have the plan's own numbers."""

    def __init__(
        self,
        plan: Plan,
        snapshot: GroupSnapshot,
        expected: int | None,
        accepted: Accepted,
    ) -> None:
        goal = _GOALS.get(plan.to, COOPERATIVE)
        super().__init__(
            snapshot,
            goal=goal,
            target=plan.target,
            only_target=plan.only_target,
            planning=True,
            expect_members=expected,
            families=accepted.families,
            remembers=Risk.FORGOTTEN_LISTS.accepted_in(accepted.ignore),
            own_classes=own_class_risk(goal).accepted_in(accepted.ignore),
        )
        self._plan = plan

    @cached_property
    def narrow_step(self) -> int:
        """The plan's number of the step that drops the old assignor (its last, if none does)."""
        found = (s.id for s in self._plan.steps if aim_of(self._plan, s) is Aim.NARROW)
        return next(found, len(self._plan.steps) or 1)


def context_of(
    plan: Plan,
    snapshot: GroupSnapshot,
    expected: int | None = None,
    accepted: Accepted | None = None,
) -> PlanContext:
    """`snapshot` as the plan's goal asks of it."""
    return PlanContext(plan, snapshot, expected, accepted or plan.accepted)


def remembered(
    plan: Plan, entries: Sequence[JournalEntry], snapshot: GroupSnapshot
) -> GroupSnapshot:
    """`snapshot` with the lists and clients that were proven of its ids before, where it has none.

    What the user assumed when the plan was made comes too, marked as that. Evidence of now that
    speaks against an older list keeps it out.
    """
    known = known_before(plan, entries)
    members = tuple(
        _with(member, *known[member.member_id]) if member.member_id in known else member
        for member in snapshot.members
    )
    return replace(snapshot, members=members)


def known_before(
    plan: Plan, entries: Sequence[JournalEntry]
) -> dict[str, tuple[AssignorList | None, Software | None]]:
    """Member id → its exact list and its client, as the baseline and the journal have them."""
    known: dict[str, tuple[AssignorList | None, Software | None]] = {}
    for member_id, assignors, software in _facts(plan, entries):
        before = known.get(member_id, (None, None))
        known[member_id] = (assignors or before[0], software or before[1])
    return known


def assumed(member: Member) -> bool:
    """Does its list rest on the user's word?"""
    return any(item.source is Source.ASSUMED for item in member.assignors.evidence)


def proven_list(member: Member) -> AssignorList | None:
    """Its exact list, if evidence and not the user says so."""
    exact = member.assignors.knowledge is Knowledge.EXACT
    return member.assignors if exact and not assumed(member) else None


def proven_software(member: Member) -> Software | None:
    """Its client, if it said so itself."""
    return member.software if proven_family(member.software) is not None else None


def _facts(
    plan: Plan, entries: Sequence[JournalEntry]
) -> Iterator[tuple[str, AssignorList | None, Software | None]]:
    """Of every id, oldest first."""
    for member in () if plan.baseline.redacted else plan.baseline.members:
        exact = member.assignors.knowledge is Knowledge.EXACT
        yield member.member_id, member.assignors if exact else None, proven_software(member)
    for entry in entries:
        for seen in entry.members:
            yield seen.member_id, seen.assignors, seen.software


def _with(member: Member, assignors: AssignorList | None, software: Software | None) -> Member:
    now = member.assignors
    if assignors is not None and now.knowledge is not Knowledge.EXACT:
        names = set(assignors.list)
        fits = set(now.at_least) <= names and not set(now.lacks) & names
        if fits and member.protocol_type != "consumer":
            member = replace(member, assignors=assignors)
    if software is not None and proven_software(member) is None:
        member = replace(member, software=software)
    return member
