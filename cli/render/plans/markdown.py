"""A plan as Markdown: a runbook to paste into a change ticket."""

import re
from collections.abc import Iterable, Iterator

from rebal.cli.output import escape
from rebal.cli.render.plans.parts import (
    cost_text,
    headline,
    is_over,
    label_of,
    must_show,
    partition_seconds_text,
    shown_plan,
    state,
)
from rebal.cli.render.text import count, duration
from rebal.planner.commands import NamedCommand
from rebal.planner.context import names
from rebal.planner.plan import Plan, Step

_LANGUAGES = {
    "Java properties": "properties",
    "librdkafka properties": "properties",
    "Spring YAML": "yaml",
    "Spring environment": "sh",
    "Kubernetes ConfigMap": "yaml",
    "Quarkus properties": "properties",
    "Java code": "java",
    "connector configuration": "properties",
    "franz-go": "go",
    "sarama": "go",
    "segmentio": "go",
    "confluent-kafka-go": "go",
    "JS": "js",
    "Python": "python",
}


def plan_markdown(plan: Plan) -> str:
    """Return the whole plan as Markdown; names from the cluster are never markup."""
    return "\n".join(_lines(shown_plan(plan))) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    yield f"# {plain(plan.group_id)}: {plain(headline(plan))}"
    yield ""
    yield f"**{plan.verdict.value}** (exit code {plan.exit_code}): {plain(plan.summary)}"
    yield ""
    yield (
        f"Based on the snapshot of {plan.made_at:%Y-%m-%d %H:%M:%SZ}: "
        f"{count(len(plan.baseline.members), 'member')}"
        + (f" of {plan.expected_members} expected." if plan.expected_members else ".")
    )
    for step in plan.steps:
        yield from _step(plan, step)
    if plan.findings:
        yield from ("", "## Findings", "")
        for finding in plan.findings:
            fix = f" → {finding.fix}" if finding.fix else ""
            ignored = f" (ignored: {finding.ignored})" if finding.ignored else ""
            said = f"{label_of(finding, plan)}: {finding.message}{ignored}{fix}"
            yield f"- **{finding.rule}** {plain(said)}"
            yield from _to_run(finding.commands)
    if plan.assumptions:
        yield from ("", "## Assumed", "")
        yield from (f"- {plain(line)}" for line in plan.assumptions)
    yield from ("", "## Not checked", "")
    yield from (f"- {plain(line)}" for line in plan.not_checked)


def _step(plan: Plan, step: Step) -> Iterator[str]:
    labels = names(plan.baseline.members)
    yield from ("", f"## Step {step.id}: {plain(step.title)}", "")
    yield f"{step.kind.value} · {plain(state(plan, step))}"
    if is_over(plan, step):
        return
    yield from ("", f"- Needs: {plain(step.precondition)}.")
    yield from (f"- Why: {plain(line)}." for line in step.why)
    for name, ids in (("Done", step.done), ("To do", step.to_do), ("Unknown", step.unknown)):
        if ids:
            yield f"- {name}: {plain(', '.join(labels.get(key, key) for key in ids))}"
    for setting in step.config:
        text = "\n".join(escape(line) for line in setting.text.split("\n"))
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        yield from ("", f"{setting.format}:", "")
        yield from (f"{fence}{_LANGUAGES.get(setting.format, '')}", text, fence)
    if step.order:
        yield ""
        yield from (f"{n}. {plain(line)}" for n, line in enumerate(step.order, 1))
    if step.cost is not None:
        yield from ("", f"- Costs: {plain(cost_text(step, plan.baseline))}.")
        if step.cost.seconds:
            yield f"  - {plain(step.cost.text)}"
        for pace in step.cost.paces if len(step.cost.paces) > 1 else ():
            stopped = partition_seconds_text(pace)
            stopped += f" {step.cost.unit}-seconds stopped"
            rebalances = count(pace.rebalances, "rebalance")
            longest = pace.worst_seconds
            worst = "" if longest is None else f"; worst case {duration(longest)}"
            yield f"  - {pace.name}: {duration(pace.seconds)}, {stopped}, {rebalances}{worst}"
    yield from (
        "",
        f"- [ ] Gate: {_code(step.gate.command)} must show: {plain(must_show(plan, step))}",
    )
    yield from (f"  - {plain(need)}" for need in step.gate.needs)
    yield f"- Rollback: {plain(step.rollback)}"
    if step.commands:
        yield "- Commands:"
    yield from _to_run(step.commands)


def _to_run(found: Iterable[NamedCommand]) -> Iterator[str]:
    yield from (f"  - {one.use}: {_code(one.line)}" for one in found)


def plain(text: str) -> str:
    """Return `text` with the characters escaped that Markdown or HTML would read as markup."""
    text = re.sub(r"([\\`*_{}\[\]<>|~#&])", r"\\\1", text)
    return re.sub(r"(\w)://", r"\1:\\//", text)


def _code(text: str) -> str:
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"
