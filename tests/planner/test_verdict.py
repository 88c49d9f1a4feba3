"""Exit codes: which of several counts, and what --fail-on and --exit-zero make of one."""

from __future__ import annotations

from typing import Any

import pytest

from rebal.groups.model import GroupState, Tri
from rebal.planner.plan import Finding, Severity
from rebal.planner.verdict import code_as_it_runs, judged


def finding(severity: Severity, **more: Any) -> Finding:
    return Finding(rule="RB106", severity=severity, message="m", **more)


def test_fail_on_warning_counts_warnings_and_exit_zero_counts_no_finding() -> None:
    warns = [finding(Severity.WARN)]
    perhaps = [finding(Severity.WARN, result=Tri.CANNOT_TELL)]
    ignored = [finding(Severity.WARN, ignored="known")]
    assert judged(0, warns, "block", False) == 0
    assert judged(0, warns, "warning", False) == 3
    assert judged(4, warns, "warning", False) == 3
    assert judged(0, perhaps, "warning", False) == 0
    assert judged(0, ignored, "warning", False) == 0
    assert judged(3, warns, "warning", True) == 0
    assert judged(1, warns, "warning", True) == 1


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (finding(Severity.BLOCK), 3),
        (finding(Severity.BLOCK, result=Tri.CANNOT_TELL), 0),
        (finding(Severity.BLOCK, before_step=1), 0),
        (finding(Severity.BLOCK, ignored="known"), 0),
        (finding(Severity.WARN), 0),
    ],
)
def test_only_a_proven_block_before_any_step_blocks_the_group_as_it_runs(
    found: Finding, code: int
) -> None:
    assert code_as_it_runs([found], GroupState.STABLE) == code


def test_a_dead_group_is_unproven_unless_a_finding_blocks_it() -> None:
    assert code_as_it_runs([], GroupState.DEAD) == 4
    assert code_as_it_runs([finding(Severity.BLOCK)], GroupState.DEAD) == 3
