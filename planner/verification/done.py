"""A plan that had nothing left to do: is that still so?"""

from __future__ import annotations

from rebal.groups.model import GroupSnapshot, Tri
from rebal.planner.context import CONSUMER, COOPERATIVE, EAGER
from rebal.planner.paths import make_plan
from rebal.planner.plan import Accepted, Plan, Verdict
from rebal.planner.verification.steps import StepStanding


def still_done(
    plan: Plan, snapshot: GroupSnapshot, expected: int, accepted: Accepted
) -> StepStanding | None:
    """The goal as a step of its own (0), judged by a new plan; None where this one has steps."""
    if plan.steps or plan.verdict is not Verdict.DONE:
        return None
    fresh = make_plan(
        snapshot,
        _goal(plan),
        expect_members=expected,
        families=accepted.families,
        ignore=accepted.ignore,
    )
    done = fresh.verdict is Verdict.DONE
    return StepStanding(
        id=0,
        title="nothing was left to do",
        gate=Tri.YES if done else Tri.CANNOT_TELL,
        why=() if done else (f"a new plan says: {fresh.summary}",),
    )


def _goal(plan: Plan) -> str:
    if plan.to == "KIP-848":
        return CONSUMER
    if plan.to == "COOPERATIVE":
        return COOPERATIVE
    return plan.target if plan.target in ("range", "roundrobin", "sticky") else EAGER
