"""The text of `rebal plan-upgrade` and `rebal show`: short, the answer first, the command last.

A step takes six lines: title, members, configuration, cost, gate, rollback. Restart instructions
that most steps share stand once above the steps. What the next step needs stands below them.
`--details` shows what the short screen leaves out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from rich.text import Text

from rebal.cli.output import View, escape
from rebal.cli.render.plans.parts import (
    DETAILS,
    NOT_YET,
    STATE_STYLES,
    advice_rows,
    config_view,
    cost_forms,
    cost_text,
    heading,
    is_over,
    kept_rows,
    label_of,
    must_show,
    pace_table,
    short_state,
    shown_plan,
    state,
)
from rebal.cli.render.text import (
    GAP,
    Forms,
    Labelled,
    Rows,
    asks_of_a_fact,
    count,
    evidence_text,
    facts,
    hanging,
    labelled,
    listing,
    severity_style,
    to_run,
)
from rebal.groups.commands import Command
from rebal.groups.model import Tri
from rebal.groups.streams import process_names
from rebal.planner.commands import ACCEPT, READ_MORE, show
from rebal.planner.context import names
from rebal.planner.plan import Finding, Plan, Setting, Severity, Step, Verdict
from rebal.planner.rules import rules

_LABEL: Final = 8
_INDENT: Final = 3
_ADVICE: Final = 5
# Findings about the same thing that are shown in full, and names of members in a line.
_BLOCKING: Final = 3
_NAMED: Final = 6
_CODE: Final = frozenset({"Python", "JS"})


def plan_view(
    plan: Plan,
    *,
    now: datetime | None = None,
    details: bool = False,
    wide: bool = False,
    kept: bool = False,
) -> View:
    """Return the plan as text: short, or with all `details`.

    `wide` names every member and shows each configuration format. Ages are relative to `now`
    (default: the time at which the plan was made). A plan that was `kept` in a file has no advice,
    because the group may have changed since.
    """
    plan, now = shown_plan(plan), now or plan.made_at
    if details:
        return _whole(plan, now, wide=wide, kept=kept)
    how = _how(plan)
    view = heading(plan, now)
    view += [facts(labelled("how", how), label=len(plan.verdict.value))] if how else []
    if plan.instead:
        other = [("or", f"move to KIP-848 in one online roll-out: --to {plan.instead}")]
        view += [facts(other, label=len(plan.verdict.value))]
    asked = list(_question(plan))
    view += [Text(""), facts(asked, label=_LABEL)] if asked else []
    for step in plan.steps:
        view += [Text(""), _title(plan, step)]
        if not is_over(plan, step):
            view += _step(plan, step, how, wide=wide)
    now_open = [one for one in _open(plan, Severity.BLOCK) if not plan.holds_later(one)]
    blocks, others = [*_needs(plan), *_blocking(plan, now_open)], list(_warnings(plan))
    for found in (blocks, others):
        view += [Text(""), facts(found, label=_LABEL)] if found else []
    view += [
        *([] if others else [Text("")]),
        *_left_out_line(plan),
        facts(kept_rows(plan, now) if kept else advice_rows(plan), label=_ADVICE),
    ]
    return view


def _title(plan: Plan, step: Step) -> Labelled:
    if step.id == plan.next_step or is_over(plan, step):
        said = short_state(plan, step)
    else:
        said = f"after gate {step.id - 1}"
    style = STATE_STYLES[step.exit_code] if step.id == plan.next_step else "dim"
    title = Text.assemble((step.title, "bold"), "   ", (said, style))
    return hanging(Text(str(step.id), style="bold"), title, 2)


def _step(plan: Plan, step: Step, how: Sequence[str], *, wide: bool) -> View:
    """Return the lines of one step.

    Its restart instructions are left out if they equal `how`, which stand above all steps.
    """
    later = [one for one in _open(plan, Severity.BLOCK) if one.before_step == step.id]
    later = [one for one in later if plan.holds_later(one)]
    return [
        facts(_members(plan, step, wide=wide), label=_LABEL, indent=_INDENT),
        *(config_view(step.config, wide=True) if wide else _settings(step.config)),
        facts(
            [*_rest(plan, step, how), *_blocking(plan, later, NOT_YET)],
            label=_LABEL,
            indent=_INDENT,
        ),
    ]


def _how(plan: Plan) -> tuple[str, ...]:
    """Return the restart instructions that most remaining steps share; in a tie the last step's."""
    found = Counter(step.order for step in reversed(plan.steps) if not is_over(plan, step))
    return found.most_common(1)[0][0] if found else ()


def _members(plan: Plan, step: Step, *, wide: bool) -> Rows:
    labels = names(plan.baseline.members) | process_names(plan.baseline)
    done = f"done: {len(step.done)} of {len(plan.baseline.members)}" if step.done else ""
    groups = [
        (word, list(dict.fromkeys(labels.get(key, key) for key in ids)))
        for word, ids in (("", step.to_do), ("not verified: ", step.unknown))
        if ids
    ]
    if groups or done:
        most = range(_NAMED, 0, -1) if not wide else [len(labels)]
        yield (
            "to do",
            Forms(
                *(
                    "; ".join(
                        filter(None, [*(word + listing(named, n) for word, named in groups), done])
                    )
                    for n in most
                )
            ),
        )


def _needs(plan: Plan) -> Rows:
    step = plan.step(plan.next_step)
    if step is None or step.precondition_holds is Tri.YES:
        return
    yield Text(f"step {step.id}: needs", style=STATE_STYLES[step.exit_code]), step.precondition
    yield from to_run(one for one in step.commands if one.use.startswith(ACCEPT))


def _settings(config: Sequence[Setting]) -> Iterator[Text]:
    """Yield the first configuration format of each client family, never wrapped, shortened."""
    by_family: dict[str, Setting] = {}
    for setting in config:
        by_family.setdefault(setting.family, setting)
    several = len(by_family) > 1
    width = max(_LABEL, *map(len, by_family)) if several else _LABEL
    for family, setting in by_family.items():
        head = "with"
        for line in _essential(setting):
            label = f"{family if several else head:{width}}"
            yield Text.assemble(
                " " * _INDENT, f"{label}{' ' * GAP}", (escape(line), "cyan"),
                no_wrap=True, overflow="ignore",
            )  # fmt: skip
            head = ""


def _essential(setting: Setting) -> list[str]:
    """Return the setting's lines without comments that only name the group or give a reason.

    Of program code only the remaining comments and the last line are returned.
    """
    texts = setting.text.split("\n")
    heads = ("# group ", "// group ", "# worker configuration, ", "# name ", "// name ")
    kept = [line for line in texts if not line.startswith(heads) or "; " in line]
    if setting.format in _CODE:
        kept = [line for line in kept[:-1] if line.startswith(("#", "//"))] + texts[-1:]
    return kept or texts


def _rest(plan: Plan, step: Step, how: Sequence[str]) -> Rows:
    if step.order != how:
        yield from labelled("how", step.order)
    if step.cost is not None:
        yield "cost", Forms(*cost_forms(step, plan.baseline))
    yield "gate", step.gate.shows
    yield "rollback", step.rollback


def _question(plan: Plan) -> Rows:
    for finding in _asked(plan)[:1]:
        yield Text("question", style="bold magenta"), f"{finding.rule} {finding.message}"
        yield "", hanging("→", finding.fix, 1)
        yield from to_run(finding.commands)


def _asked(plan: Plan) -> list[Finding]:
    """Return the open findings that ask which client a member runs, the blocking ones first."""
    return [
        one
        for severity in (Severity.BLOCK, Severity.WARN)
        for one in _open(plan, severity)
        if any(each.states_client for each in one.commands)
    ]


def _blocking(plan: Plan, found: Sequence[Finding], label: str = "") -> Rows:
    """Yield rows for blocking findings: the `_BLOCKING` most urgent in full, the others by rule.

    Those that ask which client a member runs are left out. A finding that blocks a later step is
    shown without its fix if the next step restarts all its members. `label`, if given, replaces
    the label of each.
    """
    asked = _asked(plan)
    blocks = sorted((one for one in found if one not in asked), key=_urgency)
    for finding in blocks[:_BLOCKING]:
        yield label or _label(finding, plan), f"{finding.rule} {finding.message}"
        if plan.holds_later(finding) and plan.restarts_members_of(finding):
            continue
        if finding.fix:
            yield "", hanging("→", finding.fix, 1)
        runs = [one for one in finding.commands if one.use != READ_MORE]
        yield from to_run(runs if len(runs) == 1 else ())
    rest = blocks[_BLOCKING:]
    if rest:
        rules_ = Counter(finding.rule for finding in rest)
        yield label or _label(rest[0], plan), f"and {len(rest)} more: {listing(list(rules_), 8)}"


def _warnings(plan: Plan) -> Rows:
    """Yield the questions about observed facts, the rules that warn, and the assumptions.

    A rule that warns has one line, whatever the number of its findings.
    """
    for finding in filter(asks_of_a_fact, plan.findings):
        yield _label(finding, plan), f"{finding.rule} {finding.message}"
        yield "", hanging("→", finding.fix, 1)
    warned: dict[str, list[Finding]] = defaultdict(list)
    asked = _asked(plan)
    for finding in _open(plan, Severity.WARN):
        if finding in asked:
            continue
        warned[finding.rule].append(finding)
    for rule, found in warned.items():
        known = rules().get(rule)
        times = f" ({len(found)})" if len(found) > 1 else ""
        said = f"{rule} {known.title if known else found[0].message}{times}"
        yield _label(found[0], plan), Text(said, no_wrap=True, overflow="ellipsis")
    yield from (("assumed", line) for line in plan.assumptions[:_BLOCKING])
    if len(plan.assumptions) > _BLOCKING:
        yield "", f"and {len(plan.assumptions) - _BLOCKING} more assumptions"


def _open(plan: Plan, severity: Severity) -> list[Finding]:
    return [f for f in plan.findings if f.severity is severity and not (f.ignored or f.urgent)]


def _urgency(finding: Finding) -> tuple[int, bool]:
    return finding.before_step or 0, finding.result is not Tri.YES


def _label(finding: Finding, plan: Plan) -> Text:
    return Text(label_of(finding, plan), style=severity_style(finding.severity))


def _left_out_line(plan: Plan) -> Iterator[Text]:
    """Yield one line with the number of questions and unchecked points that `--details` shows."""
    asks = sum(not asks_of_a_fact(finding) for finding in _open(plan, Severity.ASK))
    unchecked = len(plan.not_checked)
    parts = (
        count(asks, "question") if asks else "",
        f"{count(unchecked, 'point')} not checked" if unchecked else "",
    )
    said = ", ".join(filter(None, parts))
    if not said:
        return
    lead = "After the last step" if plan.verdict is Verdict.DONE else "Check before you start"
    file = plan.given.plan
    where = "--details" if file is None else show(file, "--details")
    line = Text(f"{lead}: {said}: {where}", no_wrap=file is not None)
    line.overflow = "fold" if file is None else "ignore"
    yield line


# The details


def _whole(plan: Plan, now: datetime, *, wide: bool, kept: bool) -> View:
    labels = names(plan.baseline.members)
    view = heading(plan, now)
    for step in plan.steps:
        view += [Text(""), _headed(plan, step)]
        if not is_over(plan, step):
            view += _body(plan, step, now, wide=wide)
    found = list(_findings(plan, labels, wide))
    view += [Text(""), facts(found, label=DETAILS)] if found else []
    unchecked = labelled(
        Text("not checked", style="dim"), (hanging("·", line, 1) for line in plan.not_checked)
    )
    view += [
        Text(""),
        facts([*_marked("assumed", plan.assumptions), *unchecked], label=DETAILS),
        facts(kept_rows(plan, now) if kept else advice_rows(plan), label=DETAILS),
    ]
    return view


def step_view(plan: Plan, number: int, now: datetime, *, wide: bool = False) -> View:
    """Return one step in full, even if it is completed; ages are relative to `now`."""
    plan = shown_plan(plan)
    step = plan.steps[number - 1]
    return [_headed(plan, step), *_body(plan, step, now, wide=wide)]


def _body(plan: Plan, step: Step, now: datetime, *, wide: bool) -> View:
    labels = names(plan.baseline.members) | process_names(plan.baseline)
    before = facts(_before(plan, step, labels, wide, now), label=DETAILS, indent=3)
    after = facts(_after(plan, step), label=DETAILS, indent=3)
    return [before, *config_view(step.config, wide=wide), after]


def _headed(plan: Plan, step: Step) -> Labelled:
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
