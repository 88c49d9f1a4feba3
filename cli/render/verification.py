"""The text of `rebal verify`: the answer, the members, the gate's obstacles, the next action."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from rebal.cli import output
from rebal.cli.render.plans.parts import beside
from rebal.cli.render.text import (
    Column,
    FittingTable,
    Labelled,
    Rows,
    count,
    evidence_text,
    facts,
    labelled,
    to_run,
    urgent_view,
)
from rebal.groups.commands import Command
from rebal.groups.model import Tri
from rebal.planner.advice.wording import proven_and_confirmed
from rebal.planner.facts import natural
from rebal.planner.plan import Action, Finding
from rebal.planner.verdict import BLOCKED, SAFE, UNPROVEN
from rebal.planner.verification.dangers import DangerKind, decides
from rebal.planner.verification.members import MemberStanding
from rebal.planner.verification.outsiders import Doubt
from rebal.planner.verification.verify import Standing

_WORDS: Final = {Tri.YES: "done", Tri.NO: "not done", Tri.CANNOT_TELL: "not known"}
_STYLES: Final = {Tri.YES: "green", Tri.NO: "yellow", Tri.CANNOT_TELL: "magenta"}
_WEIGHTS: Final = {"DANGER": "bold red", "ignored": "dim"}
_VERDICTS: Final = {SAFE: "gate holds", BLOCKED: "DANGER", UNPROVEN: "not yet"}
_ROWS: Final = 20
_LINES: Final = 8


def verify_view(standing: Standing, *, wide: bool = False, rows: int = _ROWS) -> output.View:
    """Return the screen of `rebal verify` with at most `rows` members, those not done first.

    `wide` shows all members.
    """
    standing = output.shown(standing)
    kept_out = (one for one in standing.dangers if one.kind is DangerKind.REJECTED)
    view: output.View = [
        *urgent_view(standing.findings, ((one.message, one.fix) for one in kept_out)),
        Text.assemble((standing.group_id, "bold"), f": {_where(standing)}"),
        facts([_verdict(standing)]),
        Text(""),
    ]
    members = sorted(standing.members, key=_open_first)
    listed = members if wide else members[:rows]
    if listed:
        view.append(_table(standing, listed))
        if len(members) > len(listed):
            rest = members[len(listed) :]
            done = sum(member.done is Tri.YES for member in rest)
            view.append(Text(f"and {len(rest)} more, {done} of them done (--wide)", style="dim"))
        view.append(Text(""))
    view.append(facts(_rows(standing)))
    return view


def verdict(standing: Standing) -> str:
    """Return the answer: `gate holds`, `not yet`, `DANGER`, `blind` or `done`.

    It is `blind` while the group cannot be read, `done` when the whole roll-out is finished.
    """
    if standing.blind_since is not None:
        return "blind"
    if standing.finished and standing.exit_code == SAFE:
        return "done"
    return _VERDICTS[standing.exit_code]


def changes(before: Standing | None, after: Standing) -> list[str]:
    """Return the changes from one reading of the group to the next, a line each.

    If `before` is None, return a summary of `after`, its dangers and its findings.
    """
    after = output.shown(after)
    if before is None:
        return [
            f"{_where(after)}: {verdict(after)}, {_progress(after)}",
            *_finding_lines(after).values(),
        ]
    before = output.shown(before)
    return list(_changes(before, after))


def _changes(before: Standing, after: Standing) -> Iterator[str]:
    if after.blind_since is not None:
        if before.blind_since is None:
            yield f"blind since {after.blind_since:%H:%M:%SZ}: {after.blind_why}"
        return
    if before.blind_since is not None:
        yield f"sees again, after having been blind since {before.blind_since:%H:%M:%SZ}"
    was = {member.member_id: member for member in before.members}
    now = {member.member_id: member for member in after.members}
    came = {member.name for key, member in now.items() if key not in was}
    left = {member.name for key, member in was.items() if key not in now}
    yield from (f"{name} has left" for name in sorted(left - came))
    for key, member in now.items():
        said = f"{_WORDS[member.done]} ({member.why})"
        if key not in was:
            here = "is back with a new member id" if member.name in left else "is here"
            yield f"{member.name} {here}: {said}"
        elif was[key].done is not member.done and before.step == after.step:
            yield f"{member.name}: {said}"
    if before.state != after.state:
        yield f"the group is {after.state}"
    if before.assignor != after.assignor and after.assignor:
        yield f"elected: {after.assignor}"
    missing = _missing(after)
    if missing and missing != _missing(before):
        yield f"missing: {missing}"
    known = _finding_lines(before)
    yield from (line for key, line in _finding_lines(after).items() if key not in known)
    if before.step != after.step or verdict(before) != verdict(after):
        yield f"{_number(after)}: {verdict(after)}, {_progress(after)}"


def _finding_lines(standing: Standing) -> dict[str, str]:
    return {danger.kind: f"DANGER {danger.message}" for danger in standing.dangers} | {
        f.rule: f"{_weight(f)} {_said(f, more)}" for f, more in _spoken(standing)
    }


def _said(finding: Finding, more: int) -> str:
    others = f" (and {more} more of this rule)" if more else ""
    return f"{finding.rule} {finding.message}{others}"


def _spoken(standing: Standing) -> list[tuple[Finding, int]]:
    """Return the first finding of each rule, with the number of further findings of that rule."""
    found: dict[str, list[Finding]] = {}
    for finding in standing.findings:
        found.setdefault(finding.rule, []).append(finding)
    return [(same[0], len(same) - 1) for same in found.values()]


def _weight(finding: Finding) -> str:
    if finding.ignored:
        return "ignored"
    if decides(finding, Tri.YES):
        return "DANGER"
    return "cannot tell" if finding.result is not Tri.YES else str(finding.severity)


def _open_first(member: MemberStanding) -> tuple[bool, bool, list[tuple[int, str]]]:
    return member.done is Tri.YES, not member.concerned, natural(member.name)


def _where(standing: Standing) -> str:
    return ", ".join(
        [_number(standing), *(step.title for step in standing.steps if step.id == standing.step)]
    )


def _number(standing: Standing) -> str:
    if not standing.steps:
        return "a plan with no step"
    return f"step {standing.step} of {standing.steps[-1].id}"


def _progress(standing: Standing) -> str:
    if not standing.steps:
        return f"{standing.present} of {standing.expected} here"
    part = [member for member in standing.members if member.concerned]
    done = sum(member.done is Tri.YES for member in part)
    aside = len(standing.members) - len(part)
    more = f", {aside} not in this step" if aside else ""
    open_ = sum(member.restarted and member.done is Tri.CANNOT_TELL for member in part)
    more = f", {open_} restarted and not proven{more}" if open_ else more
    return f"{done} of {max(standing.expected - aside, len(part))} done{more}"


def _verdict(standing: Standing) -> tuple[Text, str]:
    said = verdict(standing)
    style = {"DANGER": "bold red", "not yet": "bold yellow", "blind": "bold magenta"}
    lag = "" if standing.lag is None else f" · lag {standing.lag:,}"
    if standing.blind_since is not None:
        return Text(said, style=style[said]), (
            f"since {standing.blind_since:%H:%M:%SZ}: {standing.blind_why} "
            "The lines below show the group at that time."
        )
    return Text(said, style=style.get(said, "bold green")), (
        f"{_progress(standing)} · {standing.state} · {standing.assignor or 'no assignor'} · "
        f"{standing.present} of {count(standing.expected, 'member')}{lag}"
    )


def _table(standing: Standing, members: Sequence[MemberStanding]) -> FittingTable:
    return FittingTable(
        (
            Column("MEMBER"),
            Column("HOST", rank=2, under="MEMBER"),
            Column(f"STEP {standing.step}"),
            Column("WHY", rank=0),
            Column("EVIDENCE", rank=3, under="WHY"),
            Column("PARTS", right=True, rank=1),
        ),
        (
            (
                member.name,
                member.host,
                _made(member),
                member.why,
                evidence_text(member.evidence, standing.at),
                str(member.partitions),
            )
            for member in members
        ),
    )


def _made(member: MemberStanding) -> Text:
    if not member.concerned and member.done is not Tri.YES:
        return Text("left out", style="dim")
    if member.vouched:
        return Text("confirmed", style="magenta")
    if member.restarted and member.done is Tri.CANNOT_TELL:
        return Text("restarted", style=_STYLES[member.done])
    return Text(_WORDS[member.done], style=_STYLES[member.done])


def _rows(standing: Standing) -> Rows:
    if missing := _missing(standing):
        yield Text("missing", style="yellow"), f"{missing} (RB606)"
    for danger in standing.dangers:
        if danger.kind is DangerKind.REJECTED:
            continue
        yield Text("DANGER", style="bold red"), danger.message
        yield "", Text(f"→ {danger.fix}", style="dim")
    for finding, more in _spoken(standing):
        if finding.urgent and not finding.ignored:
            continue
        weight = _weight(finding)
        yield Text(weight, style=_WEIGHTS.get(weight, "yellow")), _said(finding, more)
        aside = (
            f"ignored: {finding.ignored}" if finding.ignored else finding.fix and f"→ {finding.fix}"
        )
        if aside:
            yield "", Text(aside, style="dim")
        yield from to_run(() if finding.ignored else finding.commands)
    stops = standing.dangers or any(decides(finding, Tri.YES) for finding in standing.findings)
    if standing.advice.action is Action.STOP and not stops:
        yield Text("needed", style="bold red"), f"→ {standing.advice.reason}"
    yield from labelled("gate", standing.why)
    if not standing.why:
        what = f"holds for step {standing.step}" if standing.steps else "nothing is left to do"
        yield "gate", Text(what, style="green")
    yield from ((Text("changed", style="yellow"), change.text) for change in standing.drift)
    yield from ((Text("your word", style="magenta"), word) for word in standing.accepted)
    if standing.unverified:
        done = sum(member.done is Tri.YES for member in standing.members)
        yield Text("your word", style="magenta"), proven_and_confirmed(done, standing.unverified)
    yield from ((Text("note", style="dim"), Text(note, style="dim")) for note in standing.notes)
    yield Text("next:", style="bold"), standing.next
    yield from (("", Text(line, style="dim")) for line in beside(standing.advice))
    yield from to_run(standing.advice.commands)


def next_command(standing: Standing) -> Labelled:
    """Return the command to run after the advised action; it is printed last, to be copied."""
    advice = output.shown(standing).advice
    rows: list[tuple[str, str]] = []
    if advice.command:
        then = "when that is dealt with:" if advice.action is Action.STOP else "then:"
        rows = [("", then), ("", Command.read(advice.command))]
    return facts(rows)


def _missing(standing: Standing) -> str:
    """Return the names of up to ten former members that are missing from the group.

    `(1 of these)` follows if only one is missing, but it is not known which. The text is empty if
    the group has as many members as expected, or if no missing member can be named.
    """
    short = standing.expected - standing.present
    known = (Doubt.NONE, Doubt.NAME) if short > 0 else ()
    found = [one for one in standing.outsiders if one.was_member and one.doubt in known]
    unsure = any(one.doubt is not Doubt.NONE for one in found)
    named = ", ".join(one.label for one in found[:10])
    return f"{named} ({short} of these)" if unsure else named


class Watched(Standing, frozen=True, kw_only=True):
    """The body of `rebal.verify/1` in a watch: `changes` are those since the previous reading.

    Each change is one line of text.
    """

    changes: list[str] | UnsetType = UNSET


def verify_line(standing: Standing, changes: Sequence[str] | None = None) -> str:
    """Return the document `rebal.verify/1` as one line of JSON, with `changes` if not None."""
    body = standing if changes is None else Watched(**asdict(standing), changes=list(changes))
    text = output.envelope("verify", body, standing.exit_code, "json")
    return json.dumps(json.loads(text), separators=(",", ":")) + "\n"


@contextmanager
def shower(seconds: float, *, jsonl: bool, plain: bool) -> Iterator[Callable[[Standing], None]]:
    """Yield a function that shows each new `Standing` of a watch of `seconds`.

    On a terminal it redraws the screen. Elsewhere, or if `plain`, it prints a line for each change.
    With `jsonl` it prints the document on one line whenever something has changed.
    """
    before: Standing | None = None

    def news(standing: Standing) -> list[str]:
        nonlocal before
        found = changes(before, standing)
        # Nothing is elected while a rebalance runs: that is no news, and neither is the same after.
        if standing.assignor is None and before is not None:
            standing = replace(standing, assignor=before.assignor)
        before = standing
        return found

    def show(standing: Standing) -> None:
        found = news(standing)
        if jsonl and found:
            output.write(verify_line(standing, found))
        elif found:
            output.print_text(
                "".join(f"{standing.at:%H:%M:%SZ} {output.escape(line)}\n" for line in found)
            )

    if output.is_screen() and not (jsonl or plain):
        yield from _live(news, datetime.now(UTC) + timedelta(seconds=seconds))
    else:
        yield show
        if not jsonl and before is not None and before.exit_code == BLOCKED:
            output.say(f"next: {before.next}")


def _live(
    news: Callable[[Standing], list[str]], until: datetime
) -> Iterator[Callable[[Standing], None]]:
    console = Console(markup=False, emoji=False, highlight=False)
    history: list[str] = []

    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def show(standing: Standing) -> None:
            history.extend(
                f"{standing.at:%H:%M:%SZ} {output.escape(line)}" for line in news(standing)
            )
            # What must be seen stands first; of the history as much as there is room for.
            text = output.render(
                verify_view(standing, rows=max(3, console.height - _LINES - 14)),
                width=console.width,
                colour=console.color_system is not None and not console.no_color,
                plain=output.is_ascii_only(sys.stdout),
            )
            looked = "looked" if standing.blind_since is None else "tried to look"
            shown = Text.from_ansi(text.rstrip("\n"))
            room = console.height - len(shown.wrap(console, console.width)) - 3
            below = [
                Text(line, style="dim", no_wrap=True, overflow="ellipsis")
                for line in (
                    *history[-min(_LINES, max(1, room)) :],
                    f"{looked} at {standing.at:%H:%M:%SZ}, watching until {until:%H:%M:%SZ}; "
                    "Ctrl-C stops it, and a later watch continues its journal",
                )
            ]
            live.update(Group(shown, Text(""), *below), refresh=True)

        yield show
