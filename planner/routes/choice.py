"""Which way a group can take, and the plan of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import Final

import msgspec

from rebal.groups.clients import assignors
from rebal.groups.errors import RebalError
from rebal.groups.model import (
    GroupSnapshot,
    GroupType,
    Knowledge,
    Tri,
)
from rebal.groups.protocol import group_protocol
from rebal.planner.context import (
    CONSUMER,
    COOPERATIVE,
    COOPERATIVE_STICKY,
    EAGER,
    Context,
)
from rebal.planner.cost import CostModel, by_arithmetic
from rebal.planner.families import cooperative
from rebal.planner.plan import Finding, Plan, Severity, Step, Verdict
from rebal.planner.routes.cut_over import cut_over, needs_cut_over
from rebal.planner.routes.one_bounce import one_bounce
from rebal.planner.routes.two_bounces import two_bounces
from rebal.planner.routes.wording import not_checked, summary
from rebal.planner.rules import evaluate

# The exit codes of design.md, by what the next step's precondition answers.
_CODES: Final = {Tri.YES: 0, Tri.NO: 3, Tri.CANNOT_TELL: 4}
_VERDICTS: Final = {0: Verdict.READY, 3: Verdict.BLOCKED, 4: Verdict.UNPROVEN}
_TO: Final = {COOPERATIVE: "COOPERATIVE", EAGER: "EAGER", CONSUMER: "KIP-848"}
# The rules that speak for what a step reads of the members' lists: ignoring one accepts that.
_SPEAKS: Final = {Tri.NO: "RB102", Tri.CANNOT_TELL: "RB901"}


class NotPlannedError(RebalError):
    """A goal that this version plans no way to; says what it does plan."""


def make_plan(
    snapshot: GroupSnapshot,
    target: str = COOPERATIVE,
    *,
    expect_members: int | None = None,
    families: Mapping[str, str] | None = None,
    ignore: Mapping[str, str] | None = None,
    made_at: datetime | None = None,
    cost: CostModel = by_arithmetic,
    options: Sequence[str] = (),
) -> Plan:
    """The plan of this group to `target`: `cooperative`, `eager`, `consumer` or an assignor's name.

    `expect_members` is how many members the service has when all are there. `families` is client
    id (or `*`) → client family, as assumed by the user where no evidence proves one. `ignore` is
    rule id → reason. `made_at` is the snapshot's own time if not given: equal input, equal plan.
    `options` are the words that reach the cluster, repeated in every gate's command.

    Raises:
        NotPlannedError: no way to this target is planned by this version.
    """
    goal, name = _goal(snapshot, target)
    context = Context(
        snapshot,
        goal=goal,
        target=name,
        planning=True,
        expect_members=expect_members,
        families=families,
        options=options,
    )
    findings = evaluate(context, ignore=ignore)
    if goal == CONSUMER and not any(finding.rule == "RB404" for finding in findings):
        raise NotPlannedError(
            "--to consumer (KIP-848) is not planned by this version of rebal; it plans "
            "--to cooperative and --to eager."
        )
    path, steps, number = _way(context, cost)
    steps = tuple(_judged(context, step, findings, ignore or {}) for step in steps)
    code = _code(context, path, findings, steps, number)
    return Plan(
        group_id=snapshot.group.group_id,
        runs=group_protocol(snapshot).value,
        assignor=snapshot.group.assignor,
        to=_TO[goal],
        target=name if goal != CONSUMER else goal,
        path=path,
        verdict=_VERDICTS[code] if number is not None or code else Verdict.DONE,
        summary=summary(context, path, number, code, findings),
        next_step=number,
        steps=steps,
        findings=findings,
        not_checked=not_checked(context),
        assumptions=_assumptions(families or {}, ignore or {}),
        expected_members=context.expected,
        made_at=made_at or snapshot.captured_at,
        baseline=snapshot,
        exit_code=code,
    )


def _goal(snapshot: GroupSnapshot, target: str) -> tuple[str, str]:
    """The goal and the assignor to end on."""
    if target in (COOPERATIVE, COOPERATIVE_STICKY):
        return COOPERATIVE, COOPERATIVE_STICKY
    if target == CONSUMER:
        return CONSUMER, COOPERATIVE_STICKY
    elected = snapshot.group.assignor
    if target == EAGER:
        return EAGER, _old_one(snapshot)
    known = assignors().get(target)
    if known is not None and cooperative(target) is Tri.NO:
        if elected in (None, target) or cooperative(str(elected)) is Tri.YES:
            return EAGER, target
        raise NotPlannedError(
            f"--to {target}: a move from one eager assignor ({elected}) to another is not planned "
            "by this version of rebal."
        )
    raise NotPlannedError(
        f"--to {target}: expected cooperative, eager, consumer, or one of range, roundrobin, "
        "sticky, cooperative-sticky."
    )


def _old_one(snapshot: GroupSnapshot) -> str:
    """The eager assignor to go back to: the elected one, one that the lists name, else range."""
    elected = snapshot.group.assignor
    lists = [m.assignors.list for m in snapshot.members if m.assignors.knowledge is Knowledge.EXACT]
    for name in (elected, *(name for names in lists for name in names)):
        if name and cooperative(name) is Tri.NO:
            return name
    return "range"


def _way(context: Context, cost: CostModel) -> tuple[str, tuple[Step, ...], int | None]:
    """The route's name, its steps, and the number of the next one."""
    if context.group.type in (GroupType.CONSUMER, GroupType.STREAMS):
        return "already_incremental", (), None
    if not context.classic or not context.stable or context.goal == CONSUMER:
        return "none", (), None
    if len(context.settled) == len(context.members):
        return "finished", (), None
    if needs_cut_over(context):
        return "cut_over", cut_over(context), 1
    if context.one_bounce:
        return "one_bounce", one_bounce(context, cost), 1
    begun = not context.lacking and context.holding
    return "two_bounces", two_bounces(context, cost), 2 if begun else 1


def _judged(
    context: Context, step: Step, findings: tuple[Finding, ...], ignore: Mapping[str, str]
) -> Step:
    """`step` with the answer to its precondition, and the exit code it gives when it is next.

    What the user chose to ignore stays a "no" in the answer and is left out of the code.
    """
    heard = [finding for finding in findings if not finding.ignored]
    facts = _lists(context, step)
    holds = _worst({*_hindrances(findings, step.id), facts, step.precondition_holds})
    heeded = set(_hindrances(heard, step.id))
    if _SPEAKS.get(facts) not in ignore:
        heeded.add(facts)
    if step.unknown and not step.to_do and step.id == context.narrow_step:
        heeded |= {Tri.CANNOT_TELL} - ({Tri.CANNOT_TELL} if "RB901" in ignore else set())
    return msgspec.structs.replace(step, precondition_holds=holds, exit_code=_CODES[_worst(heeded)])


def _hindrances(findings: Iterable[Finding], number: float) -> Iterator[Tri]:
    """What blocking findings say to the step `number`: a finding's yes is a no to the step."""
    for finding in findings:
        concerns = finding.before_step is None or finding.before_step <= number
        if finding.severity is Severity.BLOCK and concerns:
            yield Tri.NO if finding.result is Tri.YES else Tri.CANNOT_TELL


def _lists(context: Context, step: Step) -> Tri:
    """What the members' lists say to a step that reads them: do all hold the target?"""
    if step.id != context.narrow_step or step.target_list != (context.target,):
        return Tri.YES
    if context.lacking:
        return Tri.NO
    return Tri.CANNOT_TELL if context.unsure else Tri.YES


def _code(
    context: Context,
    path: str,
    findings: tuple[Finding, ...],
    steps: tuple[Step, ...],
    number: int | None,
) -> int:
    if number is not None:
        return next(step.exit_code for step in steps if step.id == number)
    heard = [finding for finding in findings if not finding.ignored]
    says = set(_hindrances(heard, inf))
    if path == "already_incremental" and any(
        facts.member.protocol_type == "classic" for facts in context.members
    ):
        says.add(Tri.CANNOT_TELL)
    if path == "none" and not findings:
        says.add(Tri.CANNOT_TELL)
    return _CODES[_worst(says)]


def _worst(answers: set[Tri]) -> Tri:
    return next((a for a in (Tri.NO, Tri.CANNOT_TELL) if a in answers), Tri.YES)


def _assumptions(families: Mapping[str, str], ignore: Mapping[str, str]) -> tuple[str, ...]:
    everybody = "every member of no proven client"
    return (
        *(
            f"{everybody if key == '*' else f'client id {key}'} is {family}"
            for key, family in families.items()
        ),
        *(f"{rule} is ignored: {reason}" for rule, reason in ignore.items()),
    )
