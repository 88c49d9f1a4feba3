"""`rebal plan-upgrade`: the steps of a group to another rebalance protocol, each with its gate."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from rebal.cli import means, output, params
from rebal.cli.errors import refuse


def command(
    context: typer.Context,
    group: Annotated[
        str | None, typer.Argument(metavar="GROUP", help="The group to plan for, read live.")
    ] = None,
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="GOAL",
            help="cooperative, eager, consumer, streams, classic, or an assignor's name.",
        ),
    ] = "cooperative",
    to_client: Annotated[
        str | None,
        typer.Option(
            metavar="FAMILY",
            help="The client library to replace the members' own by, one by one.",
        ),
    ] = None,
    snapshot: params.Snapshot = None,
    connection: params.Connection,
    evidence: params.EvidenceOptions,
    assumptions: means.Assumptions,
    reason: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Why a rule is ignored: one for each --ignore, or one."),
    ] = None,
    restart_seconds: Annotated[
        float,
        typer.Option(
            metavar="S",
            min=0,
            max=86_400,
            callback=params.finite,
            help="Duration of one member's restart, for the costs.",
        ),
    ] = 30,
    batch: Annotated[
        str,
        typer.Option(metavar="N|all", help="Members that restart at a time, for the costs."),
    ] = "1",
    max_downtime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Exit 3 if a step is predicted to stop one partition for longer: 90s, 10m.",
        ),
    ] = None,
    form: Annotated[
        output.PlanFormat, typer.Option("--output", "-o", help="How to print the plan.")
    ] = "text",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the plan here too (.yaml or .json)."),
    ] = None,
    new_attempt: Annotated[
        bool,
        typer.Option(
            "--new-attempt", help="Keep --out's plan and journal under new names; start anew."
        ),
    ] = False,
    details: params.Details = False,
    wide: params.Wide = False,
    fail_on: params.Severity = "block",
    exit_zero: params.ExitZero = False,
) -> int:
    """Plan the path to another rebalance protocol, step by step, each with its gate and rollback.

    The exit code is that of the NEXT step: 0 it can start, or nothing is left to do; 3 a finding
    blocks it; 4 it cannot be proven safe yet. Nothing is changed: the operator carries the plan
    out.
    """
    params.check_ending(out)
    refuse(
        {
            "--new-attempt sets the plan of --out aside: add --out FILE.": (
                new_attempt and out is None
            ),
            "--to and --to-client are two plans: replace the library first, and plan --to after "
            "it.": to_client is not None and means.is_typed(context, "to"),
        }
    )
    # The planner is loaded when the words of the command are in order.
    from msgspec.structs import replace

    from rebal.cli import planning, sources
    from rebal.planner.verdict import judged

    source = sources.GroupSource(group, snapshot, connection, evidence).named()
    given = connection.given(
        evidence=evidence.option_words,
        wishes=means.typed(context, *means.ACCEPTED, "restart_seconds", "batch", "max_downtime"),
        looks=means.stdin_options(context) if out else (),
        snapshot=source.snapshot,
        plan=out,
    )
    limit = params.duration(max_downtime, "--max-downtime") if max_downtime else None
    going_on = given.verify(*means.typed(context, *means.ACCEPTED, "expect_members"))
    planning.check_free(out, going_on, new_attempt=new_attempt)
    wishes = planning.Wishes(
        to=planning.goal_named(to, to_client),
        expect_members=assumptions.expect_members,
        accepted=assumptions.accepted(reason),
        lists=tuple(assumptions.assume or ()),
        restart_seconds=restart_seconds,
        batch=params.batch_of(batch),
        given=given,
    )
    plan = planning.plan_of(source.read(), wishes)
    code = judged(plan.exit_code, plan.findings, fail_on, exit_zero)
    longer, passed = planning.too_long(plan, limit, wishes.batch, code)
    code = code if exit_zero else longer
    plan = replace(plan, exit_code=code)
    if out is not None:
        planning.keep(plan, out)
    now = datetime.now(UTC) if group is None or evidence.lake is not None else None
    planning.print_plan(plan, form, source.snapshot, now=now, details=details, wide=wide)
    output.say_all((*passed, given.note))
    return code
