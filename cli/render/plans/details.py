"""The whole plan as text, for `--details`: each step with its reasons, and what is open."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from rebal.cli.output import View, shown
from rebal.cli.render.plans.costs import cost_text, pace_table
from rebal.cli.render.plans.parts import (
    LABEL,
    STATE_STYLES,
    advice_rows,
    config_view,
    heading,
    is_over,
    kept_rows,
    label_of,
    must_show,
    state,
)
from rebal.cli.render.text import (
    Labelled,
    Rows,
    evidence_text,
    facts,
    hanging,
    labelled,
    listing,
    severity_style,
    to_run,
)
from rebal.groups.commands import Command
from rebal.groups.processes import process_names
from rebal.planner.context import names
from rebal.planner.plan import Plan, Setting, Severity, Step


def details_view(
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
    view = heading(plan, now)
    for step in plan.steps:
        view += [Text(""), _title(plan, step)]
        if not is_over(plan, step):
            view += _body(plan, step, texts[step.id], now, wide=wide)
    found = list(_findings(plan, labels, wide))
    if found:
        view += [Text(""), facts(found, label=LABEL)]
    marked = (hanging("·", line, 1) for line in plan.not_checked)
    unchecked = labelled(Text("not checked", style="dim"), marked)
    view += [
        Text(""),
        facts([*_marked("assumed", plan.assumptions), *unchecked], label=LABEL),
        facts(kept_rows(plan, now) if kept else advice_rows(plan), label=LABEL),
    ]
    return view


def step_view(plan: Plan, number: int, now: datetime, *, wide: bool = False) -> View:
    """Return one step as text, whether it is over or not; ages are relative to `now`."""
    config = plan.steps[number - 1].config
    plan = shown(plan)
    step = plan.steps[number - 1]
    return [_title(plan, step), *_body(plan, step, config, now, wide=wide)]


def _body(plan: Plan, step: Step, config: Sequence[Setting], now: datetime, *, wide: bool) -> View:
    labels = names(plan.baseline.members) | process_names(plan.baseline)
    before = facts(_before(plan, step, labels, wide, now), label=LABEL, indent=3)
    after = facts(_after(plan, step), label=LABEL, indent=3)
    return [before, *config_view(config, wide=wide), after]


def _title(plan: Plan, step: Step) -> Labelled:
    kind = {"rolling": "rolling, one member at a time", "cut-over": "all at once, with a stop"}
    style = STATE_STYLES[step.exit_code] if step.id == plan.next_step else "dim"
    title = Text.assemble(
        (step.title, "bold"), f"   {kind[step.kind.value]}   ", (state(plan, step), style)
    )
    return hanging(Text(str(step.id), style="bold"), title)


def _before(plan: Plan, step: Step, labels: dict[str, str], wide: bool, now: datetime) -> Rows:
    most = len(labels) if wide else 6
    evidence = {m.member_id: m.assignors.evidence for m in plan.baseline.members}
    for name, ids in (("done", step.done), ("to do", step.to_do), ("unknown", step.unknown)):
        if ids:
            sources = evidence_text([item for key in ids for item in evidence.get(key, ())], now)
            named = listing(list(dict.fromkeys(labels.get(key, key) for key in ids)), most)
            yield name, f"{named}{f'   ({sources})' if sources else ''}"
    yield "needs", step.precondition
    yield from _marked("why", step.why)


def _after(plan: Plan, step: Step) -> Rows:
    yield from _marked("how", step.order)
    if step.cost is not None:
        yield "cost", cost_text(step, plan.baseline)
        if step.cost.seconds:
            yield "", step.cost.text
        if len(step.cost.paces) > 1:
            yield "", pace_table(step.cost)
    yield "gate", Command.read(step.gate.command)
    yield "", f"must show: {must_show(plan, step)}"
    yield from (("", hanging("·", need, 1)) for need in step.gate.needs)
    yield "rollback", step.rollback
    yield from labelled("commands", (text for _, text in to_run(step.commands)))


def _marked(label: str, lines: Sequence[str]) -> Rows:
    """Return the lines with the label on the first; several lines get a mark each."""
    if len(lines) == 1:
        return labelled(label, lines)
    return labelled(label, [hanging("·", line, 1) for line in lines])


def _findings(plan: Plan, labels: dict[str, str], wide: bool) -> Rows:
    for finding in plan.findings:
        style = "dim" if finding.ignored else severity_style(finding.severity)
        reason = f"   (ignored: {finding.ignored})" if finding.ignored else ""
        yield (
            Text(label_of(finding, plan), style=style),
            f"{finding.rule} {finding.message}{reason}",
        )
        if finding.fix and not finding.ignored and finding.severity is not Severity.ASK:
            yield "", hanging(Text("→", style="dim"), Text(finding.fix, style="dim"), 1)
            yield from to_run(finding.commands)
        if wide and finding.members:
            yield "", Text(listing([labels.get(m, m) for m in finding.members], 1000), style="dim")
