"""A plan's group as a context with the plan's own goal and step numbers, and what was said of it.

The user states the number of members of the service, and who left for good, at any look. The plan
records what was said when it was made, the journal what was said at later looks. A word about a
client counts for what the evidence shows up to that moment: a client that is seen again is asked
about again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import libraries
from rebal.groups.evidence.absent import client_of, without_departed
from rebal.groups.model import Departed, GroupSnapshot, Member, Moment
from rebal.planner.commands import Given
from rebal.planner.context import COOPERATIVE, EAGER, Context
from rebal.planner.facts import stated_in
from rebal.planner.goals import SHOWN
from rebal.planner.plan import Accepted, Plan
from rebal.planner.risks import Risk, own_class_risk, with_default_settings
from rebal.planner.verification.journal import JournalEntry

GOALS: Final = {shown: goal for goal, shown in SHOWN.items()}


class PlanContext(Context):
    """A group and the goal of an existing plan, with the plan's own step numbers.

    `expected`, `accepted` and `given` are the words of the command line, else the plan's.
    """

    anew = ("--new-attempt",)

    def __init__(
        self,
        plan: Plan,
        snapshot: GroupSnapshot,
        expected: int | None = None,
        accepted: Accepted | None = None,
        given: Given | None = None,
    ) -> None:
        accepted = accepted or plan.accepted
        if Risk.UNREAD_SETTINGS.accepted_in(accepted.ignore):
            snapshot = with_default_settings(snapshot)
        client = plan.to if plan.to in libraries() else None
        goal = EAGER if client else GOALS.get(plan.to, COOPERATIVE)
        super().__init__(
            snapshot,
            goal=goal,
            target=plan.target,
            only_target=plan.only_target,
            planning=True,
            expect_members=expected,
            families=accepted.families,
            given=given or plan.given,
            remembers=Risk.FORGOTTEN_LISTS.accepted_in(accepted.ignore),
            own_classes=own_class_risk(goal).accepted_in(accepted.ignore),
            client=client,
        )
        self._plan = plan
        self._said_now = dict(accepted.families.items() - plan.accepted.families.items())
        self._planned = {member.member_id for member in plan.baseline.members}
        self.counted = accepted.members is not None or snapshot.expected_members is not None
        last = len(plan.steps) or 1
        brings = (step.id for step in plan.steps if step.target_list == (plan.target,))
        self.leaving_step = next(brings, last)
        self.narrow_step = next((step.id for step in plan.steps if step.aim.leaves_old), last)

    def stated_family(self, member: Member) -> str | None:
        """Return the family that the user states; where a library is replaced, what the plan
        records is of the members that it saw, and what is said now of all others.
        """
        if self.client is None:
            return super().stated_family(member)
        planned = member.member_id in self._planned
        return stated_in(self._plan.accepted.families if planned else self._said_now, member)

    @cached_property
    def restarted(self) -> frozenset[str]:
        """Return the member ids that are new since the plan, in the plan's leader epoch.

        Where the epoch is not read, a load may have come between.
        """
        baseline = self._plan.baseline
        now_in, made_in = (
            group.coordinator.leader_epoch if group.coordinator is not None else None
            for group in (self.group, baseline.group)
        )
        if baseline.redacted or (now_in is not None and now_in != made_in):
            return frozenset()
        return frozenset(self.by_id) - self._planned


def as_stated(
    plan: Plan,
    entries: Sequence[JournalEntry],
    snapshot: GroupSnapshot,
    given: Accepted | None,
    expect_members: int | None,
) -> tuple[Plan, GroupSnapshot, Accepted, int]:
    """Return the plan and the group without the clients that left for good, all that was said so
    far, and the number of members.

    The group's departed members are those that may still return: of the plan's baseline and of this
    look's logs, but none that the number of members counts. `entries` are the earlier looks, oldest
    first; `given` and `expect_members` are this command line's.
    """
    planned, given = plan.accepted, given or Accepted()
    accepted = Accepted(
        families={**planned.families, **given.families},
        ignore={**planned.ignore, **given.ignore},
        departed=tuple(dict.fromkeys([*planned.departed, *given.departed])),
        members=planned.members,
    )
    now = dict.fromkeys(accepted.departed, snapshot.captured_at)
    since = now | departed_since(plan, entries)
    counted = [entry.expected for entry in entries if entry.expected is not None]
    number = expect_members or next(reversed(counted), accepted.members)
    baseline = without_departed(plan.baseline, since)
    plan = replace(plan, baseline=baseline)
    if plan.accepted.members is None:
        plan = replace(plan, expected_members=PlanContext(plan, baseline).expected)
    seen = without_departed(snapshot, since)
    return (
        plan,
        replace(seen, departed=_may_return(plan, entries, seen)),
        replace(accepted, departed=tuple(since), members=number),
        number or plan.expected_members or len(baseline.members),
    )


def departed_since(plan: Plan, entries: Sequence[JournalEntry]) -> dict[str, Moment]:
    """Return the names of the clients that left for good, each with the time of that word: of the
    plan and its journal.
    """
    since = {name: entry.at for entry in reversed(entries) for name in entry.departed}
    return since | dict.fromkeys(plan.accepted.departed, plan.baseline.captured_at)


def here_again(departed: Iterable[str], snapshot: GroupSnapshot) -> list[str]:
    """Return the names that were said to have left for good and that are members."""
    known = {name for one in snapshot.members for name in (client_of(one), one.member_id)}
    return [name for name in departed if name in known]


def _may_return(
    plan: Plan, entries: Sequence[JournalEntry], snapshot: GroupSnapshot
) -> tuple[Departed, ...]:
    """Return the departed members that the number of members does not count, the oldest first.

    A member that the plan or a look saw in the group is counted. One that had departed before is
    back when the group has more members of its client than the plan saw.
    """
    known = plan.baseline
    here, then = (Counter(map(client_of, each.members)) for each in (snapshot, known))
    before = [one for one in known.departed if here[client_of(one)] <= then[client_of(one)]]
    counted = {member.member_id for member in known.members}.union(*(one.ids for one in entries))
    asked = {client_of(one) for one in known.departed}
    return (
        *before,
        *(
            one
            for one in snapshot.departed
            if one.member_id not in counted and client_of(one) not in asked
        ),
    )
