"""`rebal plan-upgrade`: the steps of a group to another rebalance protocol, each with its gate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from rebal.cli import options, output
from rebal.cli.errors import FailOn, UsageError, judged
from rebal.cli.output import PlanFormat


def command(
    group: Annotated[
        str | None, typer.Argument(metavar="GROUP", help="The group to plan for, read live.")
    ] = None,
    *,
    to: Annotated[
        str,
        typer.Option(metavar="GOAL", help="cooperative, eager, consumer, or an assignor's name."),
    ] = "cooperative",
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
    inventory: options.Inventory = None,
    expect_members: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="How many members the service has in all."),
    ] = None,
    assume_family: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[CLIENT_ID=]FAMILY",
            help="The client library of members that no evidence names; recorded in the plan.",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="Do not count a rule; needs --reason; recorded."),
    ] = None,
    reason: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Why a rule is ignored: one for each --ignore, or one."),
    ] = None,
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
    out.
    """
    ignored = _ignored(ignore or (), reason or ())
    families = _families(assume_family or ())
    ending = _ending(out)
    if assignors and not probe:
        raise UsageError("--assignor says what to probe for: add --probe.")
    seen = options.snapshot_for(
        group,
        snapshot,
        bootstrap=bootstrap,
        command_config=command_config,
        overrides=overrides,
        profile=profile,
        timeout=timeout,
        probe=probe,
        assignors=assignors or (),
        request_log=request_log,
        client_log=client_log,
        inventory=inventory,
    )
    import msgspec

    from rebal.planner.plan import dump_plan
    from rebal.planner.routes import NotPlannedError, make_plan

    try:
        plan = make_plan(
            seen,
            to,
            expect_members=expect_members,
            families=families,
            ignore=ignored,
            options=options.typed(bootstrap, command_config, overrides, profile),
        )
    except NotPlannedError as error:
        raise UsageError(str(error)) from None
    code = judged(plan.exit_code, plan.findings, fail_on, exit_zero)
    plan = msgspec.structs.replace(plan, exit_code=code)
    if out is not None and ending is not None:
        from rebal.cli.files import write_text

        write_text(out, dump_plan(plan, "json" if ending == "json" else "yaml"))
        output.say(f"wrote {out}")
    if form is PlanFormat.TEXT:
        from rebal.cli.views.plan_view import plan_view

        now = datetime.now(UTC) if group is None else None
        output.page(plan_view(plan, now=now, wide=wide), wide=wide)
    elif form is PlanFormat.MARKDOWN:
        from rebal.cli.views.plan_markdown import plan_markdown

        output.write(plan_markdown(plan))
    else:
        output.write(dump_plan(plan, "json" if form is PlanFormat.JSON else "yaml"))
    return code


def _ignored(ids: Sequence[str], reasons: Sequence[str]) -> dict[str, str]:
    if not ids and not reasons:
        return {}
    from rebal.planner.rules import rules

    if not ids or len(reasons) not in (1, len(ids)) or not all(map(str.strip, reasons)):
        raise UsageError('--ignore RULE and --reason "…" go together: a reason for each rule.')
    wanted = [id_.upper() for id_ in ids]
    for id_ in wanted:
        if id_ not in rules():
            raise UsageError(f"--ignore {id_}: there is no such rule; rebal explain lists them.")
    given = [*reasons] * (len(ids) if len(reasons) == 1 else 1)
    return dict(zip(wanted, given, strict=True))


def _families(texts: Sequence[str]) -> dict[str, str]:
    if not texts:
        return {}
    from rebal.groups.clients import families

    made = {}
    for text in texts:
        client_id, _, key = text.rpartition("=")
        if key not in families():
            known = ", ".join(families())
            raise UsageError(f"--assume-family {text}: {key or 'nothing'} is not one of {known}.")
        made[client_id or "*"] = key
    return made


def _ending(out: Path | None) -> str | None:
    if out is None:
        return None
    ending = out.suffix.lower().lstrip(".")
    if ending not in ("yaml", "yml", "json"):
        raise UsageError(f"--out {out}: the ending says the format: use .yaml, .yml or .json.")
    return ending
