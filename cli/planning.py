"""Plans as the options of `rebal plan-upgrade` ask for them, and their output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rebal.cli import output
from rebal.cli.errors import UsageError
from rebal.cli.output import PlanFormat
from rebal.cli.render.documents import Document, FailureDocument, document_of, failures_of
from rebal.cli.render.findings import exported
from rebal.cli.render.plans.markdown import plan_markdown
from rebal.cli.render.plans.screen import plan_list_view, plan_view
from rebal.groups.errors import AssumptionError
from rebal.groups.evidence.assume import apply_assumptions
from rebal.groups.model import GroupSnapshot, RebalanceProtocol
from rebal.planner.paths import NotPlannedError, make_plan
from rebal.planner.plan import Plan, Verdict, dump_plan
from rebal.planner.rehearsal.costs.cost import Speed

if TYPE_CHECKING:
    from rebal.inspectors.kafka.read import GroupFailure

_ORDER: Final = ("blocked", "unproven", "ready", "done")


class PlanLine(Document, frozen=True, kw_only=True, rename={"runs": "from"}):
    """One group of `rebal.plans/1`; its whole plan is the document of `plan-upgrade GROUP`."""

    group_id: str
    runs: RebalanceProtocol
    to: str
    target: str
    path: str
    verdict: Verdict
    next_step: int | None
    summary: str
    members: int
    exit_code: int


class PlansDocument(Document, frozen=True, kw_only=True):
    """The body of `rebal.plans/1`."""

    plans: list[PlanLine]
    failures: list[FailureDocument]


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The plan that the options ask for; `batch` 0 is all at once, `options` name the cluster."""

    to: str
    expect_members: int | None
    families: Mapping[str, str]
    ignore: Mapping[str, str]
    restart_seconds: float
    batch: int
    options: tuple[str, ...]


def plan_of(
    seen: GroupSnapshot, wishes: Wishes, assume: Sequence[str] = (), out: Path | None = None
) -> Plan:
    """Return the plan that `wishes` ask for; `assume` are texts of `--assume`, `out` is its file.

    Raises:
        UsageError: there is no such goal, or an assumption does not fit the group.
    """
    try:
        seen, assumed = apply_assumptions(seen, assume)
        return make_plan(
            seen,
            wishes.to,
            expect_members=wishes.expect_members,
            families=wishes.families,
            ignore=wishes.ignore,
            speed=Speed(restart=wishes.restart_seconds, batch=wishes.batch),
            options=wishes.options,
            assumed=assumed,
            plan_file=None if out is None else str(out),
        )
    except (NotPlannedError, AssumptionError) as error:
        raise UsageError(str(error)) from None


def print_plan(
    plan: Plan, form: PlanFormat, file: Path | None, *, now: datetime | None, wide: bool
) -> None:
    """Print one plan; `file` is the snapshot that was read, ages are relative to `now`."""
    if form == "text":
        output.page(plan_view(plan, now=now, wide=wide), wide=wide)
    elif form == "markdown":
        output.write(plan_markdown(plan))
    elif form in ("sarif", "github"):
        output.write(exported(form, plan, file=file))
    else:
        output.write(dump_plan(plan, "json" if form == "json" else "yaml"))


def print_plans(
    plans: list[Plan],
    failures: Sequence[GroupFailure],
    wishes: Wishes,
    code: int,
    form: PlanFormat,
    *,
    wide: bool,
) -> None:
    """Print one line a group, the worst first."""
    plans.sort(key=lambda plan: (_ORDER.index(plan.verdict), plan.group_id))
    if form == "text":
        words = ["--to", wishes.to] if wishes.to != "cooperative" else []
        view = plan_list_view(plans, (*words, *wishes.options))
        output.page(view, wide=wide)
    elif form in ("sarif", "github"):
        unread = {failure.name: failure.message for failure in failures}
        output.write(exported(form, *plans, failures=unread))
    else:
        body = PlansDocument(
            plans=[
                document_of(PlanLine, plan, members=len(plan.baseline.members)) for plan in plans
            ],
            failures=failures_of(failures),
        )
        output.write(output.envelope("plans", body, code, form))
    for failure in failures:
        output.say(failure.message)
