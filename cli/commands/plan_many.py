"""`rebal plan-upgrade --all`: one line a group, the worst first."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rebal.cli import options, output, scanned
from rebal.cli.commands.plan_cmd import Wishes, plan_of
from rebal.cli.errors import FAILED, FailOn, judged, worst
from rebal.cli.output import PlanFormat

if TYPE_CHECKING:
    from rebal.groups.evidence.observations import Observation
    from rebal.inspectors.connection.config import ClusterConfig
    from rebal.inspectors.kafka.read import GroupFailure
    from rebal.planner.plan import Plan

_ORDER: Final = ("blocked", "unproven", "ready", "done")


def plan_many(
    config: ClusterConfig,
    wishes: Wishes,
    *,
    match: str | None,
    probe: bool,
    assignors: Sequence[str],
    observations: Sequence[Observation],
    evidence: Path | None,
    form: PlanFormat,
    wide: bool,
    fail_on: FailOn,
    exit_zero: bool,
) -> int:
    """Plan for each group of the cluster (or those whose whole name matches) and list the plans.

    The exit code is the worst of all: 1 (a group could not be read, or a broker did not list its
    groups) before 3 before 4.
    """
    from rebal.inspectors.kafka.read import GroupFailure, read_groups, select_groups

    selected = select_groups(config, (), match=match, all_groups=match is None)
    chosen = selected.group_ids
    if len(chosen) > 1 and sys.stderr.isatty():
        output.say(f"reading {len(chosen)} groups …")
    plans: list[Plan] = []
    failures: list[GroupFailure] = []
    codes = [FAILED for _ in selected.unlisted]
    observations = (*observations, *scanned.observations(evidence, chosen))
    for answer in read_groups(config, chosen, probe=probe, assignors=tuple(assignors)):
        if isinstance(answer, GroupFailure):
            failures.append(answer)
            codes.append(FAILED)
            continue
        plan = plan_of(options.with_evidence(answer, observations), wishes)
        plans.append(plan)
        codes.append(judged(plan.exit_code, plan.findings, fail_on, exit_zero))
    failures += selected.unlisted
    plans.sort(key=lambda plan: (_ORDER.index(plan.verdict), plan.group_id))
    code = worst(codes)
    if form is PlanFormat.TEXT:
        from rebal.cli.render.plans.listing import plan_list_view

        words = ["--to", wishes.to] if wishes.to != "cooperative" else []
        view = plan_list_view(plans, (*words, *wishes.options))
        output.page(view, wide=wide)
    elif form in (PlanFormat.SARIF, PlanFormat.GITHUB):
        from rebal.cli.render.findings import exported

        unread = {failure.name: failure.message for failure in failures}
        output.write(exported(form, *plans, failures=unread))
    else:
        body = {
            "plans": [_line(plan) for plan in plans],
            "failures": output.failures_body(failures),
        }
        output.write(output.envelope("plans", body, code, form))
    for failure in failures:
        output.say(failure.message)
    return code


def _line(plan: Plan) -> dict[str, object]:
    """What the list says of one group; the whole plan is what `plan-upgrade GROUP` gives."""
    return {
        "group_id": plan.group_id,
        "from": plan.runs,
        "to": plan.to,
        "target": plan.target,
        "path": plan.path,
        "verdict": plan.verdict,
        "next_step": plan.next_step,
        "summary": plan.summary,
        "members": len(plan.baseline.members),
        "exit_code": plan.exit_code,
    }
