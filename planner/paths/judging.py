"""What a step's precondition answers, and the exit codes that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Final

import msgspec

from rebal.groups.model import Tri
from rebal.planner.context import Context
from rebal.planner.paths.way import Way
from rebal.planner.plan import Finding, Severity, Step
from rebal.planner.rules import Risk

# The exit codes of design.md, by what the next step's precondition answers.
CODES: Final = {Tri.YES: 0, Tri.NO: 3, Tri.CANNOT_TELL: 4}
_ANSWERS: Final = {code: answer for answer, code in CODES.items()}
# What the user may accept of the members' lists that a step reads.
_RISKS: Final = {Tri.NO: Risk.TARGET_MISSING, Tri.CANNOT_TELL: Risk.UNKNOWN_LISTS}


def judged(
    context: Context,
    way: Way,
    step: Step,
    findings: tuple[Finding, ...],
    ignore: Mapping[str, str],
) -> Step:
    """`step` with the answer to its precondition, and the exit code it gives when it is next.

    What the route itself answered stands in `step.exit_code`. What the user chose to ignore stays
    a "no" in the answer and is left out of the code.
    """
    heard = [finding for finding in findings if not finding.ignored]
    narrows = way.reads_lists and step.id == context.narrow_step
    facts = _lists(context, step) if narrows else Tri.YES
    own = _ANSWERS[step.exit_code]
    holds = _worst({*_hindrances(findings, step.id), facts, own, step.precondition_holds})
    heeded = {own, *_hindrances(heard, step.id)}
    if facts in _RISKS and not _RISKS[facts].accepted_in(ignore):
        heeded.add(facts)
    lists_accepted = Risk.UNKNOWN_LISTS.accepted_in(ignore)
    if narrows and step.unknown and not step.to_do and not lists_accepted:
        heeded.add(Tri.CANNOT_TELL)
    return msgspec.structs.replace(step, precondition_holds=holds, exit_code=CODES[_worst(heeded)])


def code_of(
    context: Context, way: Way, findings: tuple[Finding, ...], steps: tuple[Step, ...]
) -> int:
    """The plan's exit code: that of the next step, or of what stands in the way of any."""
    if way.next_step is not None:
        return next(step.exit_code for step in steps if step.id == way.next_step)
    heard = [finding for finding in findings if not finding.ignored]
    says = set(_hindrances(heard, inf))
    # Where no step can be planned nothing is done, whatever the user chose to ignore.
    if way.path == "none":
        says.add(Tri.CANNOT_TELL)
    if way.path == "finished" and not way.reads_lists and context.missing:
        says.add(Tri.NO)
    return CODES[_worst(says)]


def _hindrances(findings: Iterable[Finding], number: float) -> Iterator[Tri]:
    """What blocking findings say to the step `number`: a finding's yes is a no to the step."""
    for finding in findings:
        concerns = finding.before_step is None or finding.before_step <= number
        if finding.severity is Severity.BLOCK and concerns:
            yield Tri.NO if finding.result is Tri.YES else Tri.CANNOT_TELL


def _lists(context: Context, step: Step) -> Tri:
    """What the members' lists say to a step that reads them: do all hold the target?"""
    if step.target_list != (context.target,):
        return Tri.YES
    if context.lacking:
        return Tri.NO
    return Tri.CANNOT_TELL if context.unsure else Tri.YES


def _worst(answers: set[Tri]) -> Tri:
    return next((a for a in (Tri.NO, Tri.CANNOT_TELL) if a in answers), Tri.YES)
