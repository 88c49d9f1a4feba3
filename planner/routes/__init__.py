"""The ways to a goal, one module a way; `make_plan` finds the one that a group can take."""

from rebal.planner.routes.choice import make_plan
from rebal.planner.routes.goals import NotPlannedError

__all__ = ["NotPlannedError", "make_plan"]
