"""`rebal verify`: the state of a roll-out on the live group, and the gate of its step."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rebal.cli import means, output, params
from rebal.cli.errors import DONE, refuse

if TYPE_CHECKING:
    from rebal.cli.journal import Journal
    from rebal.cli.planning import Wishes
    from rebal.cli.verifying import Until, Verifying
    from rebal.groups.model import GroupSnapshot
    from rebal.planner.plan import Plan
    from rebal.planner.verification.verify import Standing

VerifyFormat = Literal["text", "json", "yaml", "jsonl"]
"""Values of `-o`; jsonl is one line for each change of a --watch."""


def command(
    context: typer.Context,
    plan: means.KeptPlan,
    *,
    snapshot: params.Snapshot = None,
    connection: params.Connection,
    evidence: params.EvidenceOptions,
    step: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Check the gate of this step instead of the current one."
        ),
    ] = None,
    assumptions: means.Assumptions,
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
    looking = watch or until is not None
    option_name = "--watch" if watch else "--until"
    checked = "".join(reason or ()).strip()
    refuse(
        {
            f"{option_name} reads the live group: leave --snapshot out.": (
                looking and snapshot and means.is_typed(context, "snapshot")
            ),
            f"{option_name} prints text or JSON lines: use -o jsonl instead of -o {form}.": (
                looking and form in ("json", "yaml")
            ),
            f"{option_name} looks again and again, and standard input can be read only once: let "
            "the pipe write to a file, and give the file's name instead of -.": (
                looking and "-" in evidence.option_words
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
                confirm and (looking or assumptions.ignore or step)
            ),
            '--confirm STEP needs one --reason "…" that says what you checked.': (
                confirm and (len(reason or ()) != 1 or not checked)
            ),
            "--member and --list belong to --confirm STEP.": (
                confirm is None and (member or listed)
            ),
        }
    )
    params.check_ending(out)
    seconds = params.duration(for_ or params.WATCH)
    accepted = assumptions.accepted(None if confirm else reason)
    # The planner is loaded when the words of the command are in order.
    from rebal.cli.journal import Journal, journal_path
    from rebal.cli.planning import Wishes
    from rebal.cli.sources import EvidenceFiles, GroupSource, scan_observations
    from rebal.cli.verifying import Verifying, check_same, print_standing, reached

    made: Plan = context.obj
    connection = means.with_missing_variables(context, connection)
    snapshot, probe = means.source_of(context, connection, live=looking)
    evidence = replace(evidence, probe=probe, assignors=evidence.assignors if probe else None)
    refuse(
        {
            f"--step {step}: the last step of the plan is {len(made.steps)}.": (
                step and made.step(step) is None
            ),
            f"--confirm {confirm}: the last step of the plan is {len(made.steps)}.": (
                confirm and made.step(confirm) is None
            ),
            "--confirm is recorded in a journal, and a saved group has none: add --journal PATH, "
            "or name a broker (-b) in place of --snapshot.": confirm and snapshot and not journal,
        }
    )
    # A saved group is looked at as often as one likes: it is no event of the roll-out.
    book = Journal(journal or (None if snapshot else journal_path(plan)), made)
    output.say_all(book.notes)
    scan = scan_observations(evidence.lake, [made.group_id])
    stated = [name for name in means.ACCEPTED if name != "reason" or assumptions.ignore]
    given = connection.given(
        evidence=evidence.option_words,
        wishes=means.typed(context, *stated),
        looks=means.typed(
            context,
            *means.MEANS,
            *stated,
            "expect_members",
            "journal",
            *(() if connection.names_broker() else ("snapshot",)),
        ),
        snapshot=snapshot,
        plan=out if abort else plan,
        left=plan if abort else None,
    )
    # Logs and files are added when the group is known to be the plan's.
    source = GroupSource(
        None if snapshot else made.group_id,
        snapshot,
        connection,
        params.EvidenceOptions(probe=probe, assignors=evidence.assignors),
    )
    files = EvidenceFiles(evidence)

    def look() -> GroupSnapshot:
        seen = source.read()
        check_same(made, seen, file=snapshot)
        return files.added_to([seen], scan)[0]

    if abort:
        wishes = Wishes(
            expect_members=assumptions.expect_members,
            accepted=accepted,
            lists=tuple(assumptions.assume or ()),
            given=given,
        )
        code = _print_back(made, book, look, wishes, form, out=out, details=details, wide=wide)
        return DONE if exit_zero else code
    verifying = Verifying(
        made,
        book,
        step=step,
        expected=assumptions.expect_members,
        accepted=accepted,
        lists=assumptions.assume or (),
        watching=looking,
        fail_on=fail_on,
        given=given,
    )
    if looking:
        standing = _watch(
            look, verifying, until, form, seconds=seconds, every=every, live=watch, wide=wide
        )
        return DONE if exit_zero else reached(standing, until)
    standing = (
        verifying.confirm(look(), confirm, checked, member or (), listed)
        if confirm
        else verifying.judge(look())
    )
    print_standing(standing, form, wide=wide)
    output.say(given.note)
    return DONE if exit_zero else standing.exit_code


def _watch(
    look: Callable[[], GroupSnapshot],
    verifying: Verifying,
    goal: Until | None,
    form: VerifyFormat,
    *,
    seconds: float,
    every: float,
    live: bool,
    wide: bool,
) -> Standing:
    from rebal.cli.render.timeline import timeline_view
    from rebal.cli.render.verification import shower
    from rebal.cli.sources import watch
    from rebal.cli.verifying import reached
    from rebal.planner.verdict import UNPROVEN

    # What readers say of their files would be said at each look, and through the live view.
    with (
        shower(seconds, jsonl=form == "jsonl", plain=wide or not live) as show,
        redirect_stderr(io.StringIO()) as talk,
    ):
        standing = watch(
            look,
            verifying.judge,
            verifying.blind,
            show,
            seconds=seconds,
            every=every,
            decided=lambda one: reached(one, goal) != UNPROVEN,
        )
    for line in dict.fromkeys(talk.getvalue().splitlines()):
        print(line, file=sys.stderr)
    if live and form == "text" and standing.finished:
        output.page(["", *timeline_view(verifying.timeline())], wide=wide)
    return standing


def _print_back(
    made: Plan,
    book: Journal,
    look: Callable[[], GroupSnapshot],
    wishes: Wishes,
    form: VerifyFormat,
    *,
    out: Path | None,
    details: bool,
    wide: bool,
) -> int:
    from rebal.cli import planning

    planning.check_free(out, wishes.given.verify(), new_attempt=False)
    back = planning.plan_rollback(made, book.entries, look(), wishes)
    output.say(f"the way back from {made.to} to {back.to}, as the group stands now:")
    if out is not None:
        planning.keep(back, out)
    assert form != "jsonl"
    planning.print_plan(back, form, None, now=None, details=details, wide=wide)
    return back.exit_code
