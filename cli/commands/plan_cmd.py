"""`rebal plan-upgrade`: the steps of a group to another rebalance protocol, each with its gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec.structs import replace

from rebal.cli import output, params, sources
from rebal.cli.errors import FAILED, UsageError
from rebal.cli.files import write_text
from rebal.cli.output import PlanFormat
from rebal.cli.render.documents import Document, document_of, failures_of
from rebal.cli.render.findings import exported
from rebal.cli.render.plans.markdown import plan_markdown
from rebal.cli.render.plans.screen import plan_list_view, plan_view
from rebal.groups.errors import AssumptionError
from rebal.groups.evidence.assume import apply_assumptions
from rebal.groups.evidence.merge import merge
from rebal.groups.model import GroupSnapshot, RebalanceProtocol
from rebal.planner.paths import NotPlannedError, make_plan
from rebal.planner.plan import Plan, Verdict, dump_plan
from rebal.planner.rehearsal.costs.cost import Speed
from rebal.planner.verdict import judged, worst_code

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


def command(
    group: Annotated[
        str | None, typer.Argument(metavar="GROUP", help="The group to plan for, read live.")
    ] = None,
    *,
    to: Annotated[
        str,
        typer.Option(metavar="GOAL", help="cooperative, eager, consumer, or an assignor's name."),
    ] = "cooperative",
    all_groups: Annotated[
        bool, typer.Option("--all", help="All groups of the cluster, a line each.")
    ] = False,
    match: Annotated[
        str | None,
        typer.Option(metavar="RE", help="All groups whose whole name matches, a line each."),
    ] = None,
    snapshot: params.Snapshot = None,
    bootstrap: params.Bootstrap = None,
    command_config: params.CommandConfig = None,
    overrides: params.Overrides = None,
    profile: params.Profile = None,
    timeout: params.Timeout = 10,
    probe: params.Probe = False,
    assignors: params.Assignors = None,
    request_log: params.RequestLog = None,
    client_log: params.ClientLog = None,
    log_timezone: params.LogTimezone = None,
    inventory: params.Inventory = None,
    evidence: params.Evidence = None,
    expect_members: params.ExpectMembers = None,
    assume: params.Assume = None,
    assume_family: params.AssumeFamily = None,
    ignore: params.Ignore = None,
    reason: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Why a rule is ignored: one for each --ignore, or one."),
    ] = None,
    restart_seconds: Annotated[
        float,
        typer.Option(metavar="S", min=0, help="How long one member's restart takes, for costs."),
    ] = 30,
    batch: Annotated[
        str,
        typer.Option(metavar="N|all", help="How many members restart at a time, for the costs."),
    ] = "1",
    form: Annotated[
        PlanFormat, typer.Option("--output", "-o", help="How to print the plan.")
    ] = "text",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the plan here too (.yaml or .json)."),
    ] = None,
    wide: params.Wide = False,
    fail_on: params.Severity = "block",
    exit_zero: params.ExitZero = False,
) -> int:
    """Plan the path to another rebalance protocol, step by step, each with its gate and rollback.

    The exit code is that of the NEXT step: 0 it can start, or nothing is left to do; 3 a finding
    blocks it; 4 it cannot be proven safe yet. Nothing is changed: the operator carries the plan
    out. With --all or --match: one line a group, the worst first, and the worst exit code.
    """
    if assignors and not probe:
        raise UsageError("--assignor says what to probe for: add --probe.")
    ending = _ending(out)
    connection = params.Connection(bootstrap, command_config, overrides, profile, timeout)
    wishes = Wishes(
        to=to,
        expect_members=expect_members,
        families=params.families_of(assume_family or ()),
        ignore=params.ignored(ignore or (), reason or ()),
        restart_seconds=restart_seconds,
        batch=_batch(batch),
        options=tuple(connection.typed()),
    )
    files = sources.EvidenceFiles(request_log, client_log, inventory, log_timezone)
    if all_groups or match is not None:
        _check_many(group, snapshot, out, assume, form)
        if evidence is not None and sources.takes_scan(connection, probe=probe):
            raise UsageError(
                "--all and --match ask brokers: name one with -b; all groups as the scan saw them: "
                f"rebal fleet report {evidence}."
            )
        observations = files.observations()
        found, failures = sources.read_live(
            connection.config(),
            (),
            match=match,
            all_groups=match is None,
            probe=probe,
            assignors=assignors or (),
        )
        names = [one.group.group_id for one in found]
        observations += sources.scan_observations(evidence, names)
        plans = [plan_of(merge(one, observations), wishes) for one in found]
        codes = [judged(plan.exit_code, plan.findings, fail_on, exit_zero) for plan in plans]
        code = worst_code([*codes, *(FAILED for _ in failures)])
        _print_many(plans, failures, wishes, code, form, wide=wide)
        return code
    if group is None and snapshot is None:
        snapshot = sources.default_snapshot()
    seen = sources.snapshot_for(
        group,
        snapshot,
        connection,
        probe=probe,
        assignors=assignors or (),
        files=files,
        scan=evidence,
    )
    plan = plan_of(seen, wishes, assume or (), out)
    code = judged(plan.exit_code, plan.findings, fail_on, exit_zero)
    plan = replace(plan, exit_code=code)
    if out is not None and ending is not None:
        write_text(out, dump_plan(plan, "json" if ending == "json" else "yaml"))
        output.say(f"wrote {out}")
    old = group is None or evidence is not None
    _print(plan, form, snapshot, now=datetime.now(UTC) if old else None, wide=wide)
    return code


def plan_of(
    seen: GroupSnapshot, wishes: Wishes, assume: Sequence[str] = (), out: Path | None = None
) -> Plan:
    """Return the plan that `wishes` ask for; `assume` are texts of `--assume`, `out` is its file.

    Raises:
        UsageError: no such goal, or an assumption that does not fit the group.
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


def _print(
    plan: Plan, form: PlanFormat, file: Path | None, *, now: datetime | None, wide: bool
) -> None:
    if form == "text":
        output.page(plan_view(plan, now=now, wide=wide), wide=wide)
    elif form == "markdown":
        output.write(plan_markdown(plan))
    elif form in ("sarif", "github"):
        output.write(exported(form, plan, file=file))
    else:
        output.write(dump_plan(plan, "json" if form == "json" else "yaml"))


def _check_many(
    group: str | None,
    snapshot: Path | None,
    out: Path | None,
    assume: Sequence[str] | None,
    form: PlanFormat,
) -> None:
    """Reject options that apply to one group only."""
    for given, name in (
        (group, "GROUP"),
        (snapshot, "--snapshot"),
        (out, "--out"),
        (assume, "--assume"),
    ):
        if given:
            raise UsageError(f"{name} is for one group: leave out --all and --match.")
    if form == "markdown":
        raise UsageError("-o markdown is for one group: leave out --all and --match.")


def _batch(text: str) -> int:
    if text == "all":
        return 0
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"--batch {text}: say how many members restart at a time, or all.")
    return int(text)


def _ending(out: Path | None) -> str | None:
    if out is None:
        return None
    ending = out.suffix.lower().lstrip(".")
    if ending not in ("yaml", "yml", "json"):
        raise UsageError(f"--out {out}: the ending says the format: use .yaml, .yml or .json.")
    return ending


def _print_many(
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
        body = {
            "plans": [
                document_of(PlanLine, plan, members=len(plan.baseline.members)) for plan in plans
            ],
            "failures": failures_of(failures),
        }
        output.write(output.envelope("plans", body, code, form))
    for failure in failures:
        output.say(failure.message)
