"""Paths to a goal, one module a path; `make_plan` finds the one that a group can take."""

from rebal.planner.goals import NotPlannedError
from rebal.planner.paths.choose import make_plan

__all__ = ["NotPlannedError", "make_plan"]
