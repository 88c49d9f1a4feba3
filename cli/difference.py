"""The comparison of two sides for `rebal diff`, as a text view and as a document.

A side is a plan's baseline, a snapshot file or the live group. The comparison shows the members
that joined, left, restarted or changed, and changes of the group and the cluster.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from rich.text import Text

from rebal.cli.errors import FileError, UsageError
from rebal.cli.files import read_snapshot, read_text
from rebal.cli.output import View, shown
from rebal.cli.params import ENDINGS
from rebal.cli.render.documents import Document
from rebal.cli.render.text import Rows, count, cut, facts, labelled, when
from rebal.cli.sources import GroupSource
from rebal.cli.verifying import check_same, read_plan
from rebal.groups.model import GroupSnapshot, Moment
from rebal.planner.difference import (
    Change,
    Changed,
    Difference,
    MemberChange,
    MemberEvent,
    changes_since,
    difference,
)
from rebal.planner.plan import Plan
from rebal.planner.verification.journal import PlanContext

_PLAN: Final = re.compile(r"rebal\.plan/\d")
_HEAD: Final = 200
_SIGNS: Final = {
    MemberEvent.CAME: Text("+", style="green"),
    MemberEvent.LEFT: Text("-", style="red"),
    MemberEvent.RESTARTED: Text("~", style="yellow"),
    MemberEvent.CHANGED: Text("~", style="yellow"),
}
# Cells of a value beyond which it is cut, except with --wide.
_LONG: Final = 60


class SideDocument(Document, frozen=True, kw_only=True):
    """One side of a comparison: `source` is plan (its baseline), snapshot or live.

    `name` is the file, or the group's name if the side is live.
    """

    source: str
    name: str
    group_id: str
    captured_at: Moment
    members: int


class DiffDocument(Document, frozen=True, kw_only=True):
    """The body of `rebal.diff/1`; `found` is false if nothing differs.

    `unchanged` counts the members that are the same on both sides. `not_compared` counts the
    members on both sides whose assignor list is not known on one of them. `drift` is what has
    changed since a plan was made, as `rebal verify` reports it.
    """

    before: SideDocument
    after: SideDocument
    found: bool
    group: tuple[Changed, ...]
    members: tuple[MemberChange, ...]
    environment: tuple[Changed, ...]
    unchanged: int
    not_compared: int
    drift: tuple[Change, ...]


class Side(NamedTuple):
    """One side of a comparison: the group `seen`, and the plan if `seen` is its baseline."""

    source: str
    name: str
    seen: GroupSnapshot
    plan: Plan | None = None

    @property
    def document(self) -> SideDocument:
        """This side for the document: the members are counted, not listed."""
        return SideDocument(
            source=self.source,
            name=self.name,
            group_id=self.seen.group.group_id,
            captured_at=self.seen.captured_at,
            members=len(self.seen.members),
        )


def is_plan(path: Path) -> bool:
    """Return whether the file holds a plan.

    Raises:
        FileError: the file cannot be read.
    """
    return _PLAN.search(read_text(path)[:_HEAD]) is not None


def side_of(path: Path, plan: Plan | None = None) -> Side:
    """Return the side that a plan file or snapshot file holds.

    `plan` is the file's plan, if it has been read already.

    Raises:
        FileError: the file cannot be read.
        DocumentError: the file is neither; the message names the field and the line.
    """
    if plan is None and is_plan(path):
        plan = read_plan(path)
    if plan is not None:
        return Side("plan", str(path), plan.baseline, plan)
    return Side("snapshot", str(path), read_snapshot(path))


def other_side(first: Side, word: str | None, live: GroupSource) -> Side:
    """Return the side to compare `first` with: the file or live group `word`.

    If `word` is None, it is the live group of `first`.

    Raises:
        UsageError: `word` is the name of a file that does not exist.
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
    """Return the differences of two sides, and the changes since the plan if `first` is a plan."""
    drift: tuple[Change, ...] = ()
    if first.plan is not None:
        drift = changes_since(first.plan, second.seen, PlanContext(first.plan, second.seen).elected)
    return difference(first.seen, second.seen), drift


def diff_view(
    before: SideDocument,
    after: SideDocument,
    found: Difference,
    drift: Sequence[Change],
    *,
    now: datetime,
    wide: bool = False,
) -> View:
    """Return the text view of a comparison; ages are relative to `now`, `wide` cuts no value."""
    before, after, found, drift = shown(before), shown(after), shown(found), shown(list(drift))
    view: View = [
        Text.assemble((before.group_id, "bold"), f": {_side(before, now)} → {_side(after, now)}"),
        Text(_summary(found)),
    ]
    rows = [*_facts("group", found.group, wide), *_facts("cluster", found.environment, wide)]
    view += [Text(""), facts(rows)] if rows else []
    if found.members:
        view.append(Text(""))
        view += [_member(one, wide) for one in found.members]
    outdated = [change.text for change in drift if change.outdates]
    if outdated:
        view += [Text(""), facts([(Text("outdated", style="bold red"), each) for each in outdated])]
    if found.not_compared:
        said = (
            f"the assignor lists of {count(found.not_compared, 'member')}: not known on both sides"
        )
        view += [Text(""), facts([(Text("not compared", style="dim"), Text(said, style="dim"))])]
    return view


def _side(side: SideDocument, now: datetime) -> str:
    return f"{side.source if side.source == 'live' else side.name} ({when(side.captured_at, now)})"


def _summary(found: Difference) -> str:
    events = [one.event for one in found.members]
    said = [f"{events.count(event)} {event}" for event in MemberEvent if event in events]
    same = f"{count(found.unchanged, 'member')} unchanged"
    return ", ".join([*said, same]) if found.found else f"no difference: {same}"


def _facts(label: str, changes: Sequence[Changed], wide: bool) -> Rows:
    named = ((" of ".join(filter(None, (one.what, one.subject))), one) for one in changes)
    return labelled(
        label,
        (Text.assemble((name, "bold"), f"  {_values(one, wide)}") for name, one in named),
    )


def _member(one: MemberChange, wide: bool) -> Text:
    text = Text.assemble(_SIGNS[one.event], " ", (one.name, "bold"), f"  {one.event}")
    if one.was is None or one.now is None:
        known = (f"{each.what} {_short(each.before or each.after, wide)}" for each in one.changes)
        return text.append(f"\n    {', '.join(known)}", style="dim")
    for change in one.changes:
        text.append(f"\n    {change.what}: {_values(change, wide)}")
    return text


def _values(change: Changed, wide: bool) -> str:
    before, after = (_short(value, wide) for value in (change.before, change.after))
    return f"{before} → {after}"


def _short(value: str | None, wide: bool) -> str:
    if not value:
        return "none"
    return value if wide else cut(value, _LONG)
