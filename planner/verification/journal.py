"""What a roll-out's journal holds: one `JournalEntry` for each look at the group.

A fact about a member id stays true for as long as that id is in the group (a client's list is
fixed when its object is built), so what an entry proves of an id still holds at any later look.
"""

from __future__ import annotations

from typing import Final

from rebal.groups.model import AssignorList, Moment, Record, Software, Tri
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
    """What ties a journal to its plan: the group, the way, and when the plan was made."""
    return f"{plan.group_id} {plan.path} {plan.target} {plan.made_at.isoformat()}"
