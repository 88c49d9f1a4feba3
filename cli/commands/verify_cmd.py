"""`rebal verify`: where a roll-out stands on the live group, and whether its step's gate holds."""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rebal.cli import means, output, params
from rebal.cli.errors import DONE, UsageError, refuse

if TYPE_CHECKING:
    from rebal.groups.model import GroupSnapshot
    from rebal.planner.plan import Plan

VerifyFormat = Literal["text", "json", "yaml", "jsonl"]
"""Values of `-o`; jsonl is one line for each change of a --watch."""


def command(
    context: typer.Context,
    plan: means.KeptPlan,
    *,
    snapshot: params.Snapshot = None,
    bootstrap: params.Bootstrap = None,
    command_config: params.CommandConfig = None,
    overrides: params.Overrides = None,
    profile: params.Profile = None,
    timeout: params.Timeout = params.TIMEOUT,
    probe: params.Probe = False,
    assignors: params.Assignors = None,
    request_log: params.RequestLog = None,
    client_log: params.ClientLog = None,
    broker_log: params.BrokerLog = None,
    log_timezone: params.LogTimezone = None,
    inventory: params.Inventory = None,
    evidence: params.Evidence = None,
    lake_option: params.LakeOption = None,
    step: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Check the gate of this step instead of the current one."
        ),
    ] = None,
    expect_members: params.ExpectMembers = None,
    departed: params.Departed = None,
    assume: params.Assume = None,
    assume_family: params.AssumeFamily = None,
    ignore: params.Ignore = None,
    confirm: Annotated[
        int | None,
        typer.Option(
            metavar="STEP",
            min=1,
            help="Confirm what no evidence shows in this step: you have checked it.",
        ),
    ] = None,
    member: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MEMBER", help="With --confirm: a member that runs --list; repeat for more."
        ),
    ] = None,
    listed: Annotated[
        str,
        typer.Option(
            "--list", metavar="LIST", help="With --confirm: the assignor list these members run."
        ),
    ] = "",
    reason: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="Why a rule is ignored, or what you checked for --confirm."
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="The record of earlier looks (default: PLAN.journal.jsonl; none with --snapshot).",
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look until the gate holds or a danger shows.")
    ] = False,
    until: Annotated[
        Literal["gate", "done"] | None,
        typer.Option(
            help="Wait for the gate of this step, or for the end of the plan; one line a change."
        ),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="TIME", help="How long to watch: 90s, 30m, 2h (default: 30m)."
        ),
    ] = None,
    every: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.2,
            max=86_400,
            callback=params.finite,
            help="How often to look with --watch or --until.",
        ),
    ] = 5,
    abort: Annotated[
        bool,
        typer.Option(
            "--abort", help="Plan the way back to what the group ran before, from this moment."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="With --abort: write that plan here too."),
    ] = None,
    form: Annotated[
        VerifyFormat, typer.Option("--output", "-o", help="How to print the answer.")
    ] = "text",
    details: params.Details = False,
    wide: params.Wide = False,
    fail_on: params.Severity = "block",
    exit_zero: Annotated[
        bool,
        typer.Option(
            "--exit-zero", help="Exit with 0 whatever the gate shows; -o json still has the code."
        ),
    ] = False,
) -> int:
    """Check a plan's current step on the live group: which members are done, and the gate.

    Exits with 0 when the gate holds, 4 when it does not hold yet or cannot be proven, 3 when a
    danger shows (a rejected member, a rebalance storm, a member that owns nothing or commits
    nothing, or a blocking finding; with --fail-on warning a new warning too), 1 when the first look
    fails. A --watch that cannot read the group reports since when, and continues; --until waits
    without redrawing the screen, for scripts, and exits with 4 when the time is over. With --abort
    it prints a plan, and exits with that plan's code. Nothing is changed. Each look, and each
    option by which you accept or confirm something, is recorded in the plan's journal for later
    looks. The connection, the probe and the evidence are those that the plan was made with; an
    option that is given again takes their place.
    """
    lake = params.lake_of(evidence, lake_option)
    looking = watch or until is not None
    seconds = params.duration(for_ or params.WATCH)
    read = (*(request_log or ()), *(client_log or ()), *(broker_log or ()), inventory)
    option_name = "--watch" if watch else "--until"
    refuse(
        {
            "--assignor names an assignor to probe for: add --probe.": assignors and not probe,
            f"{option_name} reads the live group: leave --snapshot out.": (
                looking and snapshot and means.is_typed(context, "snapshot")
            ),
            f"{option_name} prints text or JSON lines: use -o jsonl instead of -o {form}.": (
                looking and form in ("json", "yaml")
            ),
            f"{option_name} looks again and again, and standard input can be read only once: let "
            "the pipe write to a file, and give the file's name instead of -.": (
                looking and Path("-") in read
            ),
            "--out writes the plan of --abort: add --abort.": out and not abort,
            "--abort plans the way back: leave out --watch, --until, --confirm, --step.": (
                abort and (looking or confirm or step)
            ),
            "--out names the plan that --abort leaves: give it another name.": (
                out is not None and os.path.realpath(out) == os.path.realpath(plan)
            ),
            "--abort prints a plan: use -o text, json or yaml.": abort and form == "jsonl",
            "--confirm cannot be combined with --watch, --until, --ignore or --step.": (
                confirm and (looking or ignore or step)
            ),
            '--confirm STEP needs one --reason "…" that says what you checked.': (
                confirm and (len(reason or ()) != 1 or not "".join(reason or ()).strip())
            ),
            "--member and --list belong to --confirm STEP.": (
                confirm is None and (member or listed)
            ),
        }
    )
    params.check_ending(out)
    word = None if confirm is None else (confirm, "".join(reason or ()).strip())
    ignoring = params.ignored(ignore or (), () if word else reason or ())
    families = params.families_of(assume_family or ())
    # The planner is loaded when the words of the command are in order.
    from rebal.cli import planning, sources
    from rebal.cli.journal import Journal, journal_path
    from rebal.cli.render.timeline import timeline_view
    from rebal.cli.render.verification import shower
    from rebal.cli.verifying import (
        Verifying,
        check_same,
        print_standing,
        reached,
    )
    from rebal.cli.watching import watch as watch_group
    from rebal.groups.evidence.merge import merge
    from rebal.planner.plan import Accepted
    from rebal.planner.verdict import UNPROVEN
    from rebal.planner.verification.timeline import timeline_of

    made: Plan = context.obj
    connection = means.reaching(
        context, params.Connection(bootstrap, command_config, overrides, profile, timeout)
    )
    snapshot, probe = means.source_of(context, connection, live=looking)
    for name, number in (("--step", step), ("--confirm", confirm)):
        if number is not None and number not in {each.id for each in made.steps}:
            raise UsageError(f"{name} {number}: the last step of the plan is {len(made.steps)}.")
    if word and snapshot is not None and journal is None:
        raise UsageError(
            "--confirm is recorded in a journal, and a saved group has none: add --journal PATH, "
            "or name a broker (-b) in place of --snapshot."
        )
    # A saved group is looked at as often as one likes: it is no event of the roll-out.
    default = None if snapshot is not None else journal_path(plan)
    book = Journal(journal or default, made)
    output.say_all(book.notes)
    files = sources.EvidenceFiles(request_log, client_log, inventory, log_timezone, broker_log)
    probed = tuple(map(params.assignor_name, assignors or ()))
    scan = sources.scan_observations(lake, [made.group_id])
    accepted = [name for name in means.ACCEPTED if name != "reason" or ignore]
    given = connection.given(
        evidence=files.words(probe=probe, assignors=assignors, scan=lake),
        wishes=means.typed(context, *accepted),
        looks=means.typed(
            context,
            *means.MEANS,
            *accepted,
            "expect_members",
            "journal",
            *(() if connection.names_broker() else ("snapshot",)),
        ),
        snapshot=snapshot,
        plan=out if abort else plan,
        left=plan if abort else None,
    )

    def look() -> GroupSnapshot:
        group = made.group_id if snapshot is None else None
        seen = sources.snapshot_for(group, snapshot, connection, probe=probe, assignors=probed)
        check_same(made, seen, file=snapshot)
        merged = merge(seen, (*files.observations(), *scan))
        files.tell_coverage([merged])
        return merged

    if abort:
        planning.check_free(out, given.verify(), new_attempt=False)
        wishes = planning.Wishes(
            expect_members=expect_members,
            families=families,
            ignore=ignoring,
            departed=tuple(departed or ()),
            given=given,
        )
        back = planning.way_back(made, book.entries, look(), wishes, assume or ())
        return _print_back(back, made, out, form, details=details, wide=wide) * (not exit_zero)
    verifying = Verifying(
        made,
        book,
        step=step,
        expected=expect_members,
        accepted=Accepted(families=families, ignore=ignoring, departed=tuple(departed or ())),
        lists=assume or (),
        watching=looking,
        fail_on=fail_on,
        given=given,
    )
    if not looking:
        standing = (
            verifying.confirm(look(), *word, member or (), listed)
            if word
            else verifying.judge(look())
        )
        print_standing(standing, form, wide=wide)
        output.say(given.note)
        return DONE if exit_zero else standing.exit_code
    # What readers say of their files would be said at each look, and through the live view.
    with (
        shower(seconds, jsonl=form == "jsonl", plain=wide or not watch) as show,
        redirect_stderr(io.StringIO()) as talk,
    ):
        standing = watch_group(
            look,
            verifying.judge,
            verifying.blind,
            show,
            seconds=seconds,
            every=every,
            decided=lambda one: reached(one, until or "gate") != UNPROVEN,
        )
    for line in dict.fromkeys(talk.getvalue().splitlines()):
        print(line, file=sys.stderr)
    if watch and form == "text" and standing.finished:
        output.page(["", *timeline_view(timeline_of(made, book.entries))], wide=wide)
    return DONE if exit_zero else reached(standing, until or "gate")


def _print_back(
    back: Plan, made: Plan, out: Path | None, form: VerifyFormat, *, details: bool, wide: bool
) -> int:
    """Print the way back from `made`, and write it to `out`."""
    from rebal.cli import planning

    output.say(f"the way back from {made.to} to {back.to}, as the group stands now:")
    if out is not None:
        planning.keep(back, out)
    assert form != "jsonl"
    planning.print_plan(back, form, None, now=None, details=details, wide=wide)
    return back.exit_code
