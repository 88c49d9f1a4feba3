"""Verdicts and exit codes, derived from findings and from answers in three values (`Tri`).

Exit codes: 0 safe or done; 1 failed (network, authentication, bad file); 3 a blocking finding; 4
cannot be proven yet. Where several apply, 1 comes before 3, and 3 before 4.
"""

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final, Literal

from rebal.groups.model import GroupState, Tri
from rebal.planner.plan import Finding, Severity, Verdict

SAFE: Final = 0
FAILED: Final = 1
BLOCKED: Final = 3
UNPROVEN: Final = 4
_WORST_FIRST: Final = (FAILED, BLOCKED, UNPROVEN, SAFE)
_CODES: Final = MappingProxyType({Tri.YES: SAFE, Tri.NO: BLOCKED, Tri.CANNOT_TELL: UNPROVEN})
_VERDICTS: Final = MappingProxyType(
    {SAFE: Verdict.READY, BLOCKED: Verdict.BLOCKED, UNPROVEN: Verdict.UNPROVEN}
)


def worst(answers: Iterable[Tri]) -> Tri:
    """Return the worst answer: no if there is one, else cannot tell if there is one, else yes."""
    found = set(answers)
    return next((answer for answer in (Tri.NO, Tri.CANNOT_TELL) if answer in found), Tri.YES)


def agreed(answers: Iterable[Tri]) -> Tri:
    """Return the answer if all are equal; cannot tell if they differ or if there are none."""
    found = set(answers)
    return found.pop() if len(found) == 1 else Tri.CANNOT_TELL


def first_reason(rows: Iterable[tuple[object, str]]) -> str | None:
    """Return the reason of the first row whose condition holds; None if no condition holds.

    A row is a condition and its reason.
    """
    return next(iter(reasons(*rows)), None)


def reasons(*rows: tuple[object, str]) -> tuple[str, ...]:
    """Return the reasons of all rows whose condition holds; a row is a condition and its reason."""
    return tuple(reason for holds, reason in rows if holds)


def opposite(answer: Tri) -> Tri:
    """Return no for yes, yes for no, and cannot tell for cannot tell."""
    return {Tri.YES: Tri.NO, Tri.NO: Tri.YES}.get(answer, Tri.CANNOT_TELL)


def exit_code(*answers: Tri) -> int:
    """Return the exit code of the worst of these answers: 0 yes, 3 no, 4 cannot tell."""
    return _CODES[worst(answers)]


def worst_code(codes: Iterable[int]) -> int:
    """Return the most urgent of several exit codes: 1, then 3, then 4, then 0 (0 for no codes)."""
    return min(codes, key=_WORST_FIRST.index, default=SAFE)


def code_as_it_runs(findings: Iterable[Finding], state: GroupState) -> int:
    """Return the exit code of a group as it runs, before any step of a plan.

    It is 3 if a proven blocking finding concerns the group as it runs, or is urgent. Otherwise it
    is 4 if an urgent finding is not proven or the group is Dead, else 0.
    """
    blocking = gating(findings)
    urgent = {answer_to_start(finding) for finding in blocking if finding.urgent}
    if Tri.NO in {*urgent, *map(answer_to_start, gating(blocking, step=0))}:
        return BLOCKED
    return UNPROVEN if urgent or state is GroupState.DEAD else SAFE


def judged(
    code: int, findings: Iterable[Finding], fail_on: Literal["block", "warning"], exit_zero: bool
) -> int:
    """Return the exit code `code` changed by --fail-on and --exit-zero.

    With `fail_on` "warning", a proven warning that is not ignored gives 3. With `exit_zero` the
    code is 0. A failure (1) stays 1.
    """
    if code == FAILED:
        return code
    if exit_zero:
        return SAFE
    warned = any(
        finding.severity is Severity.WARN and finding.result is Tri.YES and not finding.ignored
        for finding in findings
    )
    return worst_code((code, BLOCKED)) if warned and fail_on == "warning" else code


def answer_of(code: int) -> Tri:
    """Return the answer of an exit code: 0 is yes, 3 is no, 4 is cannot tell."""
    return next(answer for answer, own in _CODES.items() if own == code)


def verdict_of(code: int, *, done: bool) -> Verdict:
    """Return the verdict of a plan with this exit code; `done` is True if no step is left."""
    return Verdict.DONE if done and code == SAFE else _VERDICTS[code]


def answer_to_start(finding: Finding) -> Tri:
    """Return whether a step may start despite its blocking finding: no, or cannot tell.

    It is no if the finding applies, and cannot tell if that is not known.
    """
    return Tri.NO if finding.result is Tri.YES else Tri.CANNOT_TELL


def gating(
    findings: Iterable[Finding], step: int | None = None, *, ignored: bool = False
) -> list[Finding]:
    """Return the blocking findings that forbid `step` or an earlier step (None: any step).

    Findings that gate no particular step are included. Findings that the user ignores are included
    only with `ignored`.
    """
    return [
        finding
        for finding in findings
        if finding.severity is Severity.BLOCK
        and (ignored or not finding.ignored)
        and (step is None or finding.before_step is None or finding.before_step <= step)
    ]
