"""`rebal diff` as text and as a document: what came, left, restarted and changed."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rich.text import Text

from rebal.cli.output import View, shown
from rebal.cli.render.documents import Document
from rebal.cli.render.text import Rows, count, cut, facts, labelled, when
from rebal.groups.model import Moment
from rebal.planner.difference import Change, Changed, Difference, MemberChange, MemberEvent

_SIGNS: Final = {
    MemberEvent.CAME: Text("+", style="green"),
    MemberEvent.LEFT: Text("-", style="red"),
    MemberEvent.RESTARTED: Text("~", style="yellow"),
    MemberEvent.CHANGED: Text("~", style="yellow"),
}
_LONG: Final = 60
"""Cells of a value beyond which it is cut, except with --wide."""


class SideDocument(Document, frozen=True, kw_only=True):
    """One of the two sides: `source` is plan (its baseline), snapshot or live; `name` the file."""

    source: str
    name: str
    group_id: str
    captured_at: Moment
    members: int


class DiffDocument(Document, frozen=True, kw_only=True):
    """The body of `rebal.diff/1`; `found` is false where nothing differs.

    `unchanged` counts the members that are the same on both sides, `not_compared` those in both
    whose assignor list one side does not know. `drift` is what has changed since a plan was made,
    as `rebal verify` reports it.
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


def diff_view(
    before: SideDocument,
    after: SideDocument,
    found: Difference,
    drift: Sequence[Change],
    *,
    now: datetime,
    wide: bool = False,
) -> View:
    """Return the screen of one difference; ages are relative to `now`."""
    before, after, found, drift = shown(before), shown(after), shown(found), shown(list(drift))
    view: View = [
        Text.assemble((before.group_id, "bold"), f": {_side(before, now)} → {_side(after, now)}"),
        Text(_summary(found)),
    ]
    rows = [*_facts("group", found.group, wide), *_facts("cluster", found.environment, wide)]
    if rows:
        view += [Text(""), facts(rows)]
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
    if not found.found:
        return f"no difference: {same}"
    return ", ".join([*said, same])


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
