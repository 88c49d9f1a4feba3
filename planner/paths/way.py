"""What every route returns: its steps, which is next, and how the plan speaks of it."""

from __future__ import annotations

from rebal.groups.model import Record
from rebal.planner.plan import Step


class Way(Record, frozen=True, kw_only=True):
    """One way to the goal.

    `path` names it in documents, `title` in sentences; `progress` says how far it has come.
    `reads_lists`: its narrowing step needs every member's list. `reasons` say why the next step
    cannot start, where no rule says it.
    """

    path: str
    title: str = ""
    progress: str = ""
    steps: tuple[Step, ...] = ()
    next_step: int | None = None
    reads_lists: bool = False
    reasons: tuple[str, ...] = ()
