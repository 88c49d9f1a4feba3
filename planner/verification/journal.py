"""The journal of a roll-out: one `JournalEntry` for each look, and the facts that it keeps proven.

A fact about a member id stays true for as long as that id is in the group (a client's list is
fixed when its object is built), so what an entry proves of an id still holds at any later look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import proven_family
from rebal.groups.model import (
    AssignorList,
    GroupSnapshot,
    Knowledge,
    Member,
    Moment,
    Record,
    Software,
    Source,
    Tri,
)
from rebal.planner.plan import Plan

JOURNAL_SCHEMA: Final = "rebal.journal/1"


class SeenMember(Record, frozen=True, kw_only=True):
    """One member at one look; `made` and `lacks` are the steps proven done and proven not done.

    `partitions` is how many it owned. `assignors` and `software` are what was proven of its list
    and its client, by evidence: never what the user said.
    """

    member_id: str
    name: str = ""
    client_id: str = ""
    host: str = ""
    instance_id: str | None = None
    partitions: int = 0
    made: tuple[int, ...] = ()
    lacks: tuple[int, ...] = ()
    assignors: AssignorList | None = None
    software: Software | None = None


class Confirmation(Record, frozen=True, kw_only=True):
    """A person's word that these members (ids) have made `step`, where no evidence shows it."""

    step: int
    reason: str
    members: tuple[str, ...]


class JournalEntry(Record, frozen=True, kw_only=True):
    """One look at the group, or (`blind` is then the reason) one that failed.

    `plan` is `plan_key`; `step` is the step that the group was in and `gate` that step's answer.
    `lag` and `committed` are sums over all partitions whose offsets are known. `refused` are the
    texts of the refusals that stood in the evidence, `dangers` the kinds that showed, `findings`
    the rules that decided. `accepted` is what the user took upon themselves at this look, a
    sentence each, `confirmed` what they looked at by hand, `left_out` the ids that `step` left out.
    """

    at: Moment
    plan: str
    group_id: str
    step: int = 1
    gate: Tri = Tri.CANNOT_TELL
    state: str = ""
    assignor: str | None = None
    generation: int | None = None
    members: tuple[SeenMember, ...] = ()
    lag: int | None = None
    committed: int | None = None
    refused: tuple[str, ...] = ()
    dangers: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    confirmed: Confirmation | None = None
    left_out: frozenset[str] = frozenset()
    blind: str | None = None

    @property
    def ids(self) -> frozenset[str]:
        """The member ids that were in the group."""
        return frozenset(member.member_id for member in self.members)


def plan_key(plan: Plan) -> str:
    """What ties a journal to its plan: the group, the path, and when the plan was made."""
    return f"{plan.group_id} {plan.path} {plan.target} {plan.made_at.isoformat()}"


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
