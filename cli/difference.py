"""The two sides of `rebal diff`: a plan's baseline, a snapshot file, or the live group."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from rebal.cli.errors import FileError, UsageError
from rebal.cli.files import read_snapshot, read_text
from rebal.cli.params import ENDINGS
from rebal.cli.render.difference import SideDocument
from rebal.cli.sources import GroupSource
from rebal.cli.verifying import check_same, read_plan
from rebal.groups.model import GroupSnapshot
from rebal.planner.difference import Change, Difference, changes_since, difference
from rebal.planner.plan import Plan
from rebal.planner.verification.journal import PlanContext

_PLAN: Final = re.compile(r"rebal\.plan/\d")
_HEAD: Final = 200


class Side(NamedTuple):
    """One side: the group as it was, and the plan where this is its baseline."""

    source: str
    name: str
    seen: GroupSnapshot
    plan: Plan | None = None

    @property
    def document(self) -> SideDocument:
        """The side as a document has it, without its members."""
        return SideDocument(
            source=self.source,
            name=self.name,
            group_id=self.seen.group.group_id,
            captured_at=self.seen.captured_at,
            members=len(self.seen.members),
        )


def is_plan(path: Path) -> bool:
    """Return whether the file holds a plan; raise FileError where it cannot be read."""
    return _PLAN.search(read_text(path)[:_HEAD]) is not None


def side_of(path: Path, plan: Plan | None = None) -> Side:
    """Return the plan or the snapshot in a file; `plan` is what was read from it before.

    Raises:
        FileError: the file cannot be read.
        DocumentError: it is neither; names the field and the line.
    """
    if plan is None and is_plan(path):
        plan = read_plan(path)
    if plan is not None:
        return Side("plan", str(path), plan.baseline, plan)
    return Side("snapshot", str(path), read_snapshot(path))


def other_side(first: Side, word: str | None, live: GroupSource) -> Side:
    """Return what `first` is compared with: a file, or a live group (None: that of `first`).

    Raises:
        UsageError: a file that does not exist.
        FileError: the live group is another one, or only one side has pseudonyms.
        RebalError: the group or a file cannot be read.
    """
    file = Path(word) if word is not None else None
    if file is not None and file.is_file():
        made = side_of(file)
    elif file is not None and file.suffix.lower() in ENDINGS:
        raise UsageError(f"there is no file {word}; give a plan, a snapshot, or a group's name.")
    else:
        group = word if word is not None else first.seen.group.group_id
        made = Side("live", group, replace(live, group=group).read())
    if first.plan is not None:
        check_same(first.plan, made.seen)
    if first.seen.redacted != made.seen.redacted:
        redacted = first if first.seen.redacted else made
        raise FileError(
            f"{redacted.name} holds pseudonyms (--redact), which match no real name: compare it "
            "with another redacted snapshot."
        )
    return made


def compare(first: Side, second: Side) -> tuple[Difference, tuple[Change, ...]]:
    """Return what differs, and for a plan what has changed since it was made."""
    drift: tuple[Change, ...] = ()
    if first.plan is not None:
        drift = changes_since(first.plan, second.seen, PlanContext(first.plan, second.seen).elected)
    return difference(first.seen, second.seen), drift
