"""The ways to a goal, one module a way; `make_plan` finds the one that a group can take."""

from rebal.planner.routes.choice import NotPlannedError, make_plan

__all__ = ["NotPlannedError", "make_plan"]
