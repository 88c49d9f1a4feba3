"""The text of `rebal plan-upgrade`: the answer first, then each step, then what is open."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from rebal.cli.output import View, escape, shown
from rebal.cli.render.text import (
    GAP,
    Column,
    FittingTable,
    Rows,
    count,
    evidence_text,
    facts,
    labelled,
    listing,
    path_words,
    severity_style,
    to_paste,
    when,
)
from rebal.groups.commands import Command
from rebal.groups.model import Tri
from rebal.planner.commands import explain
from rebal.planner.context import names
from rebal.planner.plan import Advice, Cost, Finding, Plan, Setting, Severity, Step, Verdict
from rebal.planner.verdict import BLOCKED, SAFE, UNPROVEN

if TYPE_CHECKING:
    from rich.console import RenderableType

_LABEL: Final = 11
# Where the second column of a step's lines begins.
_MARGIN: Final = 3 + _LABEL + GAP
VERDICT_STYLES: Final = {
    Verdict.READY: "bold green",
    Verdict.DONE: "bold green",
    Verdict.BLOCKED: "bold red",
    Verdict.UNPROVEN: "bold yellow",
}
_STATES: Final = {SAFE: "can start", BLOCKED: "blocked", UNPROVEN: "cannot be proven yet"}
_STYLES: Final = {SAFE: "green", BLOCKED: "red", UNPROVEN: "yellow"}


def plan_view(
    plan: Plan, *, now: datetime | None = None, wide: bool = False, kept: bool = False
) -> View:
    """Return the plan as text; `wide` names every member and shows each configuration format.

    Ages are relative to `now` (default: the time at which the group was captured). A plan that was
    `kept` has no advice: the group may have changed since.
    """
    now = now or plan.made_at
    # The configuration keeps its line breaks: its hostile parts were escaped when it was made.
    texts = {step.id: step.config for step in plan.steps}
    plan = shown(plan)
    labels = names(plan.baseline.members)
    view: View = [
        Text.assemble((plan.group_id, "bold"), f": {headline(plan)}"),
        _hanging(Text(plan.verdict.value, style=VERDICT_STYLES[plan.verdict]), plan.summary),
    ]
    captured = when(plan.baseline.captured_at, now)
    if captured != "just now":
        view.append(Text(f"based on the snapshot of {captured}", style="dim"))
    for step in plan.steps:
        view += [Text(""), _title(plan, step)]
        if not is_over(plan, step):
            view += _body(plan, step, texts[step.id], now, wide=wide)
    found = list(_findings(plan, labels, wide))
    if found:
        view += [Text(""), facts(found, label=_LABEL)]
    view += [
        Text(""),
        facts(_unproven(plan), label=_LABEL),
        facts(_kept(plan, now) if kept else _advice(plan), label=_LABEL),
    ]
    return view


def step_view(plan: Plan, number: int, now: datetime, *, wide: bool = False) -> View:
    """Return one step as text, whether it is over or not; ages are relative to `now`."""
    config = plan.steps[number - 1].config
    plan = shown(plan)
    step = plan.steps[number - 1]
    return [_title(plan, step), *_body(plan, step, config, now, wide=wide)]


def _body(plan: Plan, step: Step, config: Sequence[Setting], now: datetime, *, wide: bool) -> View:
    labels = names(plan.baseline.members)
    before = facts(_before(plan, step, labels, wide, now), label=_LABEL, indent=3)
    after = facts(_after(step), label=_LABEL, indent=3)
    return [before, *config_view(config, wide=wide), after]


def headline(plan: Plan) -> str:
    """`EAGER (range) → COOPERATIVE (cooperative-sticky)`."""
    now = f"{plan.runs.value}{f' ({plan.assignor})' if plan.assignor else ''}"
    then = plan.to if plan.target == "consumer" else f"{plan.to} ({plan.target})"
    return f"{now} → {then}"


def is_over(plan: Plan, step: Step) -> bool:
    """Return whether the step lies before the next one."""
    return plan.next_step is not None and step.id < plan.next_step


def state(plan: Plan, step: Step) -> str:
    """Return the state of a step in a few words."""
    if is_over(plan, step):
        if step.gate.holds is Tri.YES:
            return f"done ({count(len(step.done), 'member')})"
        return f"not proven ({len(step.done)} of {len(plan.baseline.members)} done)"
    if step.id == plan.next_step:
        return f"{_STATES[step.exit_code]}: exit {step.exit_code}"
    return f"not before the gate of step {step.id - 1} holds"


def label_of(finding: Finding) -> str:
    """Return the label of a finding."""
    if finding.ignored:
        return "ignored"
    if finding.severity is Severity.BLOCK:
        says = "cannot tell" if finding.result is Tri.CANNOT_TELL else "blocks"
        return says if finding.before_step is None else f"step {finding.before_step}: {says}"
    return "warning" if finding.severity is Severity.WARN else "ask"


def _title(plan: Plan, step: Step) -> Table:
    kind = {"rolling": "rolling, one member at a time", "cut-over": "all at once, with a stop"}
    return _hanging(
        Text(str(step.id), style="bold"),
        Text.assemble(
            (step.title, "bold"),
            f"   {kind[step.kind.value]}   ",
            (state(plan, step), _STYLES[step.exit_code] if step.id == plan.next_step else "dim"),
        ),
    )


def _hanging(mark: str | Text, text: RenderableType, gap: int = GAP) -> Table:
    """`text` after its mark, going on under itself."""
    made = Table.grid(padding=(0, gap, 0, 0), pad_edge=False)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    made.add_row(mark, text)
    return made


def _before(plan: Plan, step: Step, labels: dict[str, str], wide: bool, now: datetime) -> Rows:
    most = len(labels) if wide else 6
    evidence = {m.member_id: m.assignors.evidence for m in plan.baseline.members}
    for name, ids in (("done", step.done), ("to do", step.to_do), ("unknown", step.unknown)):
        if ids:
            sources = evidence_text([item for key in ids for item in evidence.get(key, ())], now)
            named = listing([labels.get(key, key) for key in ids], most)
            yield name, f"{named}{f'   ({sources})' if sources else ''}"
    yield "needs", step.precondition
    yield from _marked("why", step.why)


def _after(step: Step) -> Rows:
    yield from _marked("order", step.order)
    if step.cost is not None:
        yield "costs", step.cost.text
        if len(step.cost.paces) > 1:
            yield "", _paces(step.cost)
    yield "gate", Command.read(step.gate.command)
    yield "", f"must show: {step.gate.shows}"
    yield from (("", _hanging("·", need, 1)) for need in step.gate.needs)
    yield "back", step.rollback


def beside(advice: Advice) -> tuple[str, ...]:
    """Return the lines on what to watch while the advice is carried out, and on its risks."""
    return (*advice.after, *advice.risks)


def _paces(cost: Cost) -> Table:
    """Return the cost of each pace, side by side; narrow enough for 80 columns."""
    made = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
    head = ("pace", "takes", f"{cost.unit}-s", "rebalances", "at worst")
    made.add_row(*(Text(word, style="dim") for word in head))
    for pace in cost.paces:
        made.add_row(
            pace.name,
            duration(pace.seconds),
            f"{pace.partition_seconds:,.0f}",
            str(pace.rebalances),
            "" if pace.worst_seconds is None else duration(pace.worst_seconds),
        )
    return made


def duration(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `1 h 5 min`, `4 d 17 h`: two units at most."""
    left, words = round(seconds), []
    for name, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            words.append(f"{count} {name}")
        if words and (len(words) == 2 or not count):
            break
    return " ".join(words) or "0 s"


def _marked(label: str, lines: Sequence[str]) -> Rows:
    """Return the lines with the label on the first; several lines get a mark each."""
    if len(lines) == 1:
        return labelled(label, lines)
    return labelled(label, [_hanging("·", line, 1) for line in lines])


def config_view(config: Sequence[Setting], *, wide: bool) -> Iterator[RenderableType]:
    """Yield each family's text, never folded, so that it can be pasted."""
    by_family: dict[str, list[Setting]] = defaultdict(list)
    for setting in config:
        by_family[setting.family].append(setting)
    margin = " " * _MARGIN
    for settings in by_family.values():
        for setting in settings if wide else settings[:1]:
            yield Text(f"   {'set':{_LABEL}}  {setting.format}")
            lines = [margin + escape(line) for line in setting.text.split("\n")]
            yield Text("\n".join(lines), style="cyan", no_wrap=True, overflow="ignore")
        others = settings[1:]
        if others and not wide:
            yield Text(f"{margin}({len(others)} more formats: --wide)", style="dim")


def _findings(plan: Plan, labels: dict[str, str], wide: bool) -> Rows:
    for finding in plan.findings:
        style = "dim" if finding.ignored else severity_style(finding.severity)
        reason = f"   (ignored: {finding.ignored})" if finding.ignored else ""
        yield Text(label_of(finding), style=style), f"{finding.rule} {finding.message}{reason}"
        if finding.fix and not finding.ignored and finding.severity is not Severity.ASK:
            yield "", _hanging(Text("→", style="dim"), Text(finding.fix, style="dim"), 1)
        if wide and finding.members:
            yield "", Text(listing([labels.get(m, m) for m in finding.members], 1000), style="dim")


def _unproven(plan: Plan) -> Rows:
    yield from _marked("assumed", plan.assumptions)
    unchecked = [_hanging("·", line, 1) for line in plan.not_checked]
    yield from labelled(Text("not checked", style="dim"), unchecked)


def _kept(plan: Plan, now: datetime) -> Rows:
    made = when(plan.made_at, now)
    yield Text("now:", style="bold"), f"this plan was made {made}: look at the group before you act"
    step = plan.step(plan.next_step)
    if step is not None:
        yield Text("next:", style="bold"), Command.read(step.gate.command)


def _advice(plan: Plan) -> Rows:
    label = Text("next:", style="bold")
    if plan.verdict is Verdict.READY:
        gate = next(step.gate.command for step in plan.steps if step.id == plan.next_step)
        yield Text("now:", style="bold"), plan.advice.text
        yield from (("", Text(line, style="dim")) for line in beside(plan.advice))
        yield "", "then check it with the next command, and repeat until the gate holds:"
        yield label, Command.read(gate)
        return
    if plan.advice.text:
        yield Text("now:", style="bold"), plan.advice.text
    blocks = [f.rule for f in plan.findings if f.severity is Severity.BLOCK and not f.ignored]
    if blocks:
        yield label, explain(blocks[0])
    elif plan.next_step is not None:
        gate = next(step.gate.command for step in plan.steps if step.id == plan.next_step)
        yield label, Command.read(gate)


def plan_list_view(plans: Sequence[Plan], one: Command) -> View:
    """Return the screen of many plans, one line each, in the order given.

    `one` is the command that shows the first of them.
    """
    if not plans:
        return [Text("no group was found.")]
    counts = Counter(str(plan.verdict) for plan in plans)
    said = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    columns = [Column("VERDICT"), Column("GROUP"), Column("PATH"), Column("", rank=1)]
    rows = [_row(shown(plan)) for plan in plans]
    return [
        Text(f"{count(len(plans), 'group')}: {said}"),
        Text(""),
        FittingTable(columns, rows),
        Text(""),
        Text("next: one of them, whole:", style="bold"),
        to_paste(one),
    ]


def _row(plan: Plan) -> tuple[Text, str, str, str]:
    verdict = Text(str(plan.verdict), style=VERDICT_STYLES[plan.verdict])
    return verdict, plan.group_id, path_words(plan.path), plan.summary
