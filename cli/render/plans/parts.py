"""Parts that a plan's short screen, details and Markdown runbook share, such as a step's cost."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from math import ceil
from typing import Final

from msgspec.structs import replace
from rich.text import Text

from rebal.cli.output import View, escape, shown
from rebal.cli.render.text import (
    GAP,
    Column,
    FittingTable,
    Rows,
    count,
    duration,
    hanging,
    urgent_view,
    when,
)
from rebal.groups.clients import eager_only
from rebal.groups.commands import Command
from rebal.groups.model import GroupSnapshot, Tri
from rebal.groups.protocol import KIPS
from rebal.planner.commands import READ_MORE, explain
from rebal.planner.facts import all_partitions, owned
from rebal.planner.plan import (
    Action,
    Advice,
    Cost,
    Finding,
    Pace,
    Plan,
    Setting,
    Severity,
    Step,
    StepKind,
    Verdict,
)
from rebal.planner.rehearsal.costs.steps import work_of_all
from rebal.planner.verdict import BLOCKED, SAFE, UNPROVEN

NOT_YET: Final = "not yet"
"""Label of a condition that holds back a step after the next one."""
DETAILS: Final = 11
"""Width of the label column in the details, in cells."""
VERDICT_STYLES: Final = {
    Verdict.READY: "bold green",
    Verdict.DONE: "bold green",
    Verdict.BLOCKED: "bold red",
    Verdict.UNPROVEN: "bold yellow",
}
STATE_STYLES: Final = {SAFE: "green", BLOCKED: "red", UNPROVEN: "yellow"}
_STATES: Final = {SAFE: "can start", BLOCKED: "blocked", UNPROVEN: "not proven yet"}
_INDENT: Final = 3


def shown_plan(plan: Plan) -> Plan:
    """Return the plan with its texts escaped by `shown`, except the configuration texts.

    These need their line breaks; text from the cluster was escaped when they were made.
    """
    made = shown(plan)
    return replace(
        made,
        steps=tuple(
            replace(one, config=raw.config) for one, raw in zip(made.steps, plan.steps, strict=True)
        ),
    )


def heading(plan: Plan, now: datetime) -> View:
    """Return a plan's first lines: rejected clients, the planned change, and the verdict.

    If the snapshot was not captured just now, its time follows.
    """
    view: View = [
        *urgent_view(plan.findings),
        Text.assemble((plan.group_id, "bold"), f": {headline(plan)}"),
        hanging(Text(plan.verdict.value, style=VERDICT_STYLES[plan.verdict]), plan.summary),
    ]
    captured = when(plan.baseline.captured_at, now)
    if captured != "just now":
        view.append(Text(f"based on the snapshot of {captured}", style="dim"))
    return view


def headline(plan: Plan) -> str:
    """Return the planned change: `EAGER (range) → COOPERATIVE (cooperative-sticky)`."""
    runs = KIPS.get(plan.baseline.group.type, plan.runs.value)
    now = f"{runs}{f' ({plan.assignor})' if plan.assignor else ''}"
    then = plan.to if plan.target == "consumer" else f"{plan.to} ({plan.target})"
    # What protocol a custom assignor supports is not known because --to names it.
    if plan.only_target and eager_only(plan.target) is Tri.CANNOT_TELL:
        then = plan.target
    return f"{now} → {then}"


def is_over(plan: Plan, step: Step) -> bool:
    """Return whether the step comes before the plan's next step; False if the plan has none."""
    return plan.next_step is not None and step.id < plan.next_step


def state(plan: Plan, step: Step) -> str:
    """Return the state of a step in a few words; for the next step with its exit code."""
    return short_state(plan, step) + (
        f": exit {step.exit_code}" if step.id == plan.next_step else ""
    )


def short_state(plan: Plan, step: Step) -> str:
    """Return the state of a step in a few words: `can start`, `done (4 members)`."""
    if is_over(plan, step):
        if step.gate.holds is Tri.YES:
            return f"done ({count(len(step.done), 'member')})"
        return f"not proven ({len(step.done)} of {len(plan.baseline.members)} done)"
    if step.id == plan.next_step:
        return _STATES[step.exit_code]
    return f"not before the gate of step {step.id - 1} holds"


def must_show(plan: Plan, step: Step) -> str:
    """Return the result and exit code that the gate's command must show for the gate to hold."""
    again = "" if plan.given.plan is not None else ", and this step is no longer the next one"
    return f"{step.gate.shows} (exit code 0{again})"


def label_of(finding: Finding, plan: Plan) -> str:
    """Return the label of a finding: `blocks`, `step 2: not yet`, `to finish: blocks`, `ask`."""
    if finding.ignored:
        return "ignored"
    if finding.severity is Severity.BLOCK:
        says = "cannot tell" if finding.result is Tri.CANNOT_TELL else "blocks"
        says = NOT_YET if plan.holds_later(finding) else says
        return f"{before_text(finding.before_step, len(plan.steps))}{says}"
    return "warning" if finding.severity is Severity.WARN else "ask"


def before_text(step: int | None, steps: int) -> str:
    """Return `step 2: ` for step 2, or `to finish: ` if `step` is after the last of all `steps`.

    `steps` is their number. The text is empty if `step` is None or `steps` is 0.
    """
    if step is None or not steps:
        return ""
    return f"step {step}: " if step <= steps else "to finish: "


def beside(advice: Advice) -> tuple[str, ...]:
    """Return the lines below the advice: the checks while it is carried out, and its risks.

    For a cut-over the first check is left out, because the advice itself contains it.
    """
    # The sentence of a cut-over says itself what to wait for first.
    return (*advice.after[int(advice.action is Action.CUT_OVER) :], *advice.risks)


def config_view(
    config: Sequence[Setting], *, wide: bool, indent: int = _INDENT, label: int = DETAILS
) -> Iterator[Text]:
    """Yield the configuration text for each client family, never wrapped, so that it can be pasted.

    The text stands to the right of a label column, which is `label` cells wide and indented by
    `indent` cells. Without `wide` each family has only its first format.
    """
    by_family: dict[str, list[Setting]] = defaultdict(list)
    for setting in config:
        by_family[setting.family].append(setting)
    margin = " " * (indent + label + GAP)
    for settings in by_family.values():
        for setting in settings if wide else settings[:1]:
            yield Text(f"{' ' * indent}{'set':{label + GAP}}{setting.format}")
            lines = [margin + escape(line) for line in setting.text.split("\n")]
            yield Text("\n".join(lines), style="cyan", no_wrap=True, overflow="ignore")
        if len(settings) > 1 and not wide:
            yield Text(f"{margin}({len(settings) - 1} more formats: --wide)", style="dim")


def kept_rows(plan: Plan, now: datetime) -> Rows:
    """Yield the last lines of a plan read from a file: its age and the check to run next."""
    made = when(plan.made_at, now)
    yield Text("now:", style="bold"), f"this plan was made {made}: look at the group before you act"
    step = plan.step(plan.next_step)
    if step is not None:
        yield Text("next:", style="bold"), Command.read(step.gate.command)


def advice_rows(plan: Plan) -> Rows:
    """Yield the last lines of a plan that was just made: the advice and the next command."""
    label = Text("next:", style="bold")
    step = plan.step(plan.next_step)
    if plan.verdict is Verdict.READY and step is not None:
        yield Text("now:", style="bold"), plan.advice.text
        yield from (("", Text(line, style="dim")) for line in beside(plan.advice))
        again = "save the group again, " if plan.given.offline else ""
        yield "", f"then {again}check it with the next command, and repeat until the gate holds:"
        yield label, Command.read(step.gate.command)
        return
    if plan.advice.text:
        yield Text("now:", style="bold"), plan.advice.text
    # What a later step asks for comes after what the next one does.
    blocks = sorted(
        (
            one
            for one in plan.findings
            if one.severity is Severity.BLOCK and not one.ignored and not plan.holds_later(one)
        ),
        key=lambda one: one.before_step or 0,
    )
    runs = [one for block in blocks[:1] for one in block.commands if one.use != READ_MORE]
    if any(one.states_client for one in runs):
        yield label, "run the command of the question above that is right"
    elif len(runs) == 1:
        yield label, runs[0].line
    elif blocks:
        yield label, explain(blocks[0].rule)
    elif step is not None:
        yield label, Command.read(step.gate.command)


def cost_text(step: Step, baseline: GroupSnapshot) -> str:
    """Return `about 2 min 24 s, 8 rebalances, each stops all 24 partitions; worst case 43 min`.

    If the cost has no duration, return the sentence of the cost; without a cost `not predicted`.
    """
    return cost_forms(step, baseline)[0]


def cost_forms(step: Step, baseline: GroupSnapshot) -> tuple[str, ...]:
    """Return the sentence of `cost_text`, then shorter forms of it for narrow screens.

    In the shorter forms `~` marks an estimate or an average, and the worst case is rounded up.
    """
    cost = step.cost
    if cost is None or not cost.seconds:
        return (cost.text if cost is not None else "not predicted",)
    everything = work_of_all(baseline) if cost.unit == "task" else sum(map(owned, baseline.members))
    worst = f"; worst case {duration(cost.worst_seconds)}" if cost.worst_seconds else ""
    everybody = len(step.to_do) + len(step.unknown) == len(baseline.members)
    if step.kind is StepKind.CUT_OVER and everybody:
        return (f"nothing is consumed for about {duration(cost.seconds)}{worst}",)
    rebalances = count(cost.rebalances, "rebalance") if cost.rebalances else "no rebalance"
    takes = f"about {duration(cost.seconds)}, {rebalances}"
    if not cost.partitions_stopped or not cost.rebalances:
        return (f"{takes}{worst}",)
    several = cost.rebalances > 1
    whole, short = _stopped(cost, everything)
    near = takes.replace("about ", "~", 1)
    rounded = f"; worst {_rounded_up(cost.worst_seconds)}" if cost.worst_seconds else ""
    return (
        f"{takes}, {'each stops' if several else 'which stops'} {whole}{worst}",
        f"{takes}{' each stop' if several else ' stops'} {short}{worst}",
        f"{near}{' each stop' if several else ' stops'} {short}{rounded}",
        f"{near}{' stop' if several else ' stops'} {short}{rounded}",
        f"{near}{' stop' if several else ' stops'} {short.partition(' connectors')[0]}{rounded}",
    )


def _stopped(cost: Cost, everything: int) -> tuple[str, str]:
    each = cost.partitions_stopped / cost.rebalances
    what = "connectors and tasks" if cost.unit == "task" else "partitions"
    if each >= everything:
        whole = f"all {everything:,} {what}" if cost.unit == "task" else all_partitions(everything)
        return whole, whole
    part = f"{max(1, round(each)):,} of {everything:,} {what}"
    return f"{part} on average", f"~{part}"


def _rounded_up(seconds: float) -> str:
    """Return a duration rounded up to the largest unit that fits in twice: `11 min` for 645 s."""
    unit = next((size for size in (86_400, 3600, 60) if seconds >= 2 * size), 1)
    return duration(ceil(seconds / unit) * unit)


def pace_table(cost: Cost) -> FittingTable:
    """Return a table of a step's cost, with a row for each number of members restarted at a time.

    It fits into 80 columns.
    """
    heads = ("pace", "takes", f"{cost.unit}-s", "rebalances", "worst case")
    rows = (
        (
            pace.name,
            duration(pace.seconds),
            partition_seconds_text(pace),
            str(pace.rebalances),
            "" if pace.worst_seconds is None else duration(pace.worst_seconds),
        )
        for pace in cost.paces
    )
    return FittingTable([Column(head) for head in heads], rows)


def partition_seconds_text(pace: Pace) -> str:
    """Return partition-seconds as `17,306`; with `about` unless each restart was rehearsed."""
    return f"{'about ' if pace.about else ''}{pace.partition_seconds:,.0f}"
