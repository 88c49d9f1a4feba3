"""`rebal plan-upgrade`: the steps of a group to another rebalance protocol, each with its gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebal.cli import acceptance, options, output, scanned
from rebal.cli.errors import FailOn, UsageError, judged
from rebal.cli.output import PlanFormat

if TYPE_CHECKING:
    from rebal.groups.model import GroupSnapshot
    from rebal.planner.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the options ask of a plan; `batch` 0 is all at once, `options` reach the cluster."""

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
    snapshot: options.Snapshot = None,
    bootstrap: options.Bootstrap = None,
    command_config: options.CommandConfig = None,
    overrides: options.Overrides = None,
    profile: options.Profile = None,
    timeout: options.Timeout = 10,
    probe: options.Probe = False,
    assignors: options.Assignors = None,
    request_log: options.RequestLog = None,
    client_log: options.ClientLog = None,
    log_timezone: options.LogTimezone = None,
    inventory: options.Inventory = None,
    evidence: scanned.Evidence = None,
    expect_members: acceptance.ExpectMembers = None,
    assume: acceptance.Assume = None,
    assume_family: acceptance.AssumeFamily = None,
    ignore: acceptance.Ignore = None,
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
    ] = PlanFormat.TEXT,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the plan here too (.yaml or .json)."),
    ] = None,
    wide: options.Wide = False,
    fail_on: options.Severity = FailOn.BLOCK,
    exit_zero: options.ExitZero = False,
) -> int:
    """Plan the way to another rebalance protocol, step by step, each with its gate and roll-back.

    The exit code is that of the NEXT step: 0 it can start, or nothing is left to do; 3 something
    blocks it; 4 it cannot be proven safe yet. Nothing is changed: the plan is for people to carry
    out. With --all or --match: one line a group, the worst first, and the worst exit code.
    """
    if assignors and not probe:
        raise UsageError("--assignor says what to probe for: add --probe.")
    ending = _ending(out)
    connection = options.Connection(bootstrap, command_config, overrides, profile, timeout)
    wishes = Wishes(
        to=to,
        expect_members=expect_members,
        families=acceptance.families_of(assume_family or ()),
        ignore=acceptance.ignored(ignore or (), reason or ()),
        restart_seconds=restart_seconds,
        batch=_batch(batch),
        options=tuple(connection.typed()),
    )
    if all_groups or match is not None:
        from rebal.cli.commands.plan_many import plan_many

        _refuse_with_many(group, snapshot, out, assume, form)
        if evidence is not None and scanned.is_offline(connection, probe=probe):
            raise UsageError(
                "--all and --match ask brokers: name one with -b; all groups as the scan saw them: "
                f"rebal fleet report {evidence}."
            )
        return plan_many(
            connection.config(),
            wishes,
            match=match,
            probe=probe,
            assignors=assignors or (),
            observations=options.evidence_files(request_log, client_log, inventory, log_timezone),
            evidence=evidence,
            form=form,
            wide=wide,
            fail_on=fail_on,
            exit_zero=exit_zero,
        )
    seen = options.snapshot_for(
        group,
        snapshot,
        connection,
        probe=probe,
        assignors=assignors or (),
        request_log=request_log,
        client_log=client_log,
        inventory=inventory,
        log_timezone=log_timezone,
        evidence=evidence,
    )
    import msgspec

    plan = plan_of(seen, wishes, assume or (), out)
    code = judged(plan.exit_code, plan.findings, fail_on, exit_zero)
    plan = msgspec.structs.replace(plan, exit_code=code)
    if out is not None and ending is not None:
        from rebal.cli.files import write_text
        from rebal.planner.plan import dump_plan

        write_text(out, dump_plan(plan, "json" if ending == "json" else "yaml"))
        output.say(f"wrote {out}")
    old = group is None or evidence is not None
    _print(plan, form, now=datetime.now(UTC) if old else None, wide=wide)
    return code


def plan_of(
    seen: GroupSnapshot, wishes: Wishes, assume: Sequence[str] = (), out: Path | None = None
) -> Plan:
    """The plan that `wishes` ask for; `assume` are texts of `--assume`, `out` is its file.

    Raises:
        UsageError: no such goal, or an assumption that does not fit the group.
    """
    from rebal.groups.evidence.assume import AssumptionError, apply_assumptions
    from rebal.planner.paths import NotPlannedError, make_plan
    from rebal.planner.rehearsal.costs.cost import Speed

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


def _print(plan: Plan, form: PlanFormat, *, now: datetime | None, wide: bool) -> None:
    if form is PlanFormat.TEXT:
        from rebal.cli.render.plans.screen import plan_view

        output.page(plan_view(plan, now=now, wide=wide), wide=wide)
    elif form is PlanFormat.MARKDOWN:
        from rebal.cli.render.plans.markdown import plan_markdown

        output.write(plan_markdown(plan))
    elif form in (PlanFormat.SARIF, PlanFormat.GITHUB):
        from rebal.cli.render.findings import exported

        output.write(exported(form, plan))
    else:
        from rebal.planner.plan import dump_plan

        output.write(dump_plan(plan, "json" if form is PlanFormat.JSON else "yaml"))


def _refuse_with_many(
    group: str | None,
    snapshot: Path | None,
    out: Path | None,
    assume: Sequence[str] | None,
    form: PlanFormat,
) -> None:
    """What makes no sense for several groups at once is said, not ignored."""
    for given, name in (
        (group, "GROUP"),
        (snapshot, "--snapshot"),
        (out, "--out"),
        (assume, "--assume"),
    ):
        if given:
            raise UsageError(f"{name} is for one group: leave out --all and --match.")
    if form is PlanFormat.MARKDOWN:
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
