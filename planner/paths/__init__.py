"""Paths to a goal; `make_plan` chooses the path that a group can take and returns its plan."""

from rebal.planner.goals import NotPlannedError
from rebal.planner.paths.choose import make_plan

__all__ = ["NotPlannedError", "make_plan"]
