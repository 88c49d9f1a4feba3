"""A plan's group as a context with the plan's own goal and step numbers."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from rebal.groups.model import GroupSnapshot
from rebal.planner.commands import Given
from rebal.planner.context import CONSUMER, COOPERATIVE, EAGER, Context
from rebal.planner.plan import Accepted, Aim, Plan
from rebal.planner.risks import Risk, own_class_risk, with_default_settings

GOALS: Final = {"COOPERATIVE": COOPERATIVE, "EAGER": EAGER, "KIP-848": CONSUMER}


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
        goal = GOALS.get(plan.to, COOPERATIVE)
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
        )
        self._plan = plan
        self._counted = accepted.members is not None or snapshot.expected_members is not None

    @property
    def counted(self) -> bool:
        """Return whether the user gave the number of members, now or before."""
        return self._counted

    @cached_property
    def restarted(self) -> frozenset[str]:
        """Return the member ids that are new since the plan, in the plan's leader epoch.

        Where the epoch is not read, a load may have come between.
        """
        baseline = self._plan.baseline
        here, then = self.group.coordinator, baseline.group.coordinator
        now_in = here.leader_epoch if here is not None else None
        made_in = then.leader_epoch if then is not None else None
        if baseline.redacted or (now_in is not None and now_in != made_in):
            return frozenset()
        before = {member.member_id for member in baseline.members}
        return frozenset(facts.member.member_id for facts in self.members) - before

    @cached_property
    def narrow_step(self) -> int:
        """Return the number of the step that drops the old assignor (else of the last step)."""
        found = (s.id for s in self._plan.steps if s.aim is Aim.NARROW)
        return next(found, len(self._plan.steps) or 1)

    @cached_property
    def leaving_step(self) -> int:
        """Return the number of the first step that brings the target alone (else of the last)."""
        found = (s.id for s in self._plan.steps if s.target_list == (self._plan.target,))
        return next(found, len(self._plan.steps) or 1)
