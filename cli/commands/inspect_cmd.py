"""`rebal inspect`: what groups really run, live or from a saved snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rebal.cli import output, params
from rebal.cli.errors import FAILED, UsageError, refuse

if TYPE_CHECKING:
    from rebal.cli.report import Report
    from rebal.groups.model import GroupSnapshot
    from rebal.inspectors.kafka.listing import GroupFailure
    from rebal.planner.commands import Given

_MANY: Final = 50


def command(
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", help="The groups to read.")
    ] = None,
    *,
    connection: params.Connection,
    match: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="All groups whose whole name matches."),
    ] = None,
    all_groups: Annotated[bool, typer.Option("--all", help="All groups of the cluster.")] = False,
    evidence: params.EvidenceOptions,
    snapshot: params.Snapshot = None,
    save: Annotated[
        bool, typer.Option("--save", help="Save each group here as <group>.rebal.yaml.")
    ] = False,
    save_to: Annotated[
        Path | None,
        typer.Option("--save-to", metavar="PATH", help="Save to this file, or into this folder."),
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Save pseudonyms for client ids, hosts, instance ids.")
    ] = False,
    form: Annotated[
        output.FindingsFormat, typer.Option("--output", "-o", help="How to print the answer.")
    ] = "text",
    wide: params.Wide = False,
    fail_on: params.Severity = "block",
    exit_zero: params.ExitZero = False,
) -> int:
    """Show what groups really run: state, rebalance protocol, members, assignor lists, findings.

    Nothing is changed: members do not notice the request of --probe. Exits with 0 when every group
    was read, 3 when a finding blocks the group as it runs now or a client is rejected, 4 when a
    group is Dead or a rejection may be over, 1 when a group could not be read or a broker did not
    list its groups (the others are shown).
    """
    named = groups or match or all_groups
    refuse(
        {
            "--redact changes only what is saved: add --save or --save-to FILE.": (
                redact and not (save or save_to)
            ),
            "give groups to read live or --snapshot FILE, not both.": snapshot and named,
            "no group is named: give GROUP, --all, --match REGEX or --snapshot FILE.": (
                not (snapshot or named)
            ),
        }
    )
    from rebal.cli import sources

    source = sources.GroupSource(None, snapshot, connection, evidence)
    seen, failures = sources.read_several(
        source,
        groups or (),
        match=match,
        all_groups=all_groups,
        meanwhile=_load_screen,
    )
    if save or save_to:
        _save(seen, save_to, redact)
    from rebal.cli.report import make_report
    from rebal.groups.model import GroupState
    from rebal.planner.verdict import judged, worst_code

    given = connection.given(evidence=evidence.option_words, snapshot=snapshot)
    reports = [make_report(one, given) for one in seen]
    codes = [
        judged(report.exit_code, report.findings, fail_on, exit_zero)
        for report in reports
        # A scan keeps deleted groups: they count where they are named, as in `fleet report`.
        if not source.scanned or groups or report.snapshot.group.state is not GroupState.DEAD
    ]
    code = worst_code([*codes, *(FAILED for _ in failures)])
    if form == "text":
        now = None if snapshot is None and evidence.lake is None else datetime.now(UTC)
        _print(reports, given, probed=evidence.probe or snapshot is not None, now=now, wide=wide)
    else:
        _show(reports, failures, code, form, snapshot)
    output.say_all(failure.message for failure in failures)
    return code


def _load_screen() -> None:
    for module in ("rebal.cli.report", "rebal.cli.render.inspection.screen"):
        import_module(module)
    from rebal.planner.rules.registry import rules

    rules()


def _save(seen: Sequence[GroupSnapshot], save_to: Path | None, redact: bool) -> None:
    from rebal.cli.files import save_snapshot
    from rebal.groups.snapshot.redact import redact as redacted

    if save_to is not None and len(seen) > 1 and not save_to.is_dir():
        raise UsageError(f"--save-to {save_to}: several groups need a folder that exists.")
    for one in seen:
        kept = redacted(one) if redact else one
        output.say(f"saved {save_snapshot(kept, save_to or Path.cwd())}")


def _show(
    reports: Sequence[Report],
    failures: Sequence[GroupFailure],
    code: int,
    form: output.FindingsFormat,
    file: Path | None,
) -> None:
    if form in ("sarif", "github"):
        from rebal.cli.render.findings import exported

        output.write(
            exported(
                form,
                *reports,
                failures={failure.name: failure.message for failure in failures},
                file=file,
            )
        )
        return
    from rebal.cli.render.inspection.document import inspect_document

    output.write(output.envelope("inspect", inspect_document(reports, failures), code, form))


def _print(
    reports: Sequence[Report], given: Given, *, probed: bool, now: datetime | None, wide: bool
) -> None:
    # Loaded while the brokers were asked.
    from rebal.cli.forked import mapped
    from rebal.cli.render.inspection.screen import inspect_view, probe_helps

    def screen(report: Report) -> str:
        group = report.snapshot.group.group_id
        probing = not probed and probe_helps(report)
        again = given.inspect(group, "--probe") if probing else given.plan_upgrade(group)
        return "".join(
            output.paged(inspect_view(output.shown(report), again, now=now, wide=wide), wide=wide)
        )

    # Each screen takes milliseconds of one processor.
    for n, text in enumerate(mapped(screen, reports, worth_it=len(reports) > _MANY)):
        output.stream(["\n" if n else "", text])
    output.say(given.note)
