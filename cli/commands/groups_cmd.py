"""`rebal groups`: the groups of a cluster, one line each, what needs attention first."""

from typing import Annotated

import typer

from rebal.cli import output, params
from rebal.cli.errors import refuse

_EVERY = 5.0


def command(
    *,
    match: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only groups whose whole name matches."),
    ] = None,
    to: Annotated[
        str,
        typer.Option(metavar="GOAL", help="The goal of the verdicts, as for plan-upgrade --to."),
    ] = "cooperative",
    connection: params.Connection,
    evidence: params.LakeText = None,
    lake_option: params.LakeOption = None,
    watch: Annotated[
        str | None,
        typer.Option(metavar="[SECONDS]", help="Look again every so many seconds (default: 5)."),
    ] = None,
    for_: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long to watch: 90s, 30m, 2h.")
    ] = "30m",
    form: params.Output = "text",
    wide: params.Wide = False,
    fail_on: params.Severity = "block",
    exit_zero: params.ExitZero = False,
) -> int:
    """List the groups of a cluster: state, protocol, assignor, members, lag, verdict.

    The verdict is that of `plan-upgrade`: blocked, unproven (cannot tell yet), ready, or done. The
    list begins with what needs attention. Exits with the worst code of the lines: 1 a group could
    not be read, 3 one is blocked, 4 one cannot be proven safe yet, 0 all are ready or done.
    Nothing is changed.
    """
    seconds = params.duration(for_)
    every = _EVERY if not watch else params.duration(watch, "--watch")
    if watch is not None:
        refuse(
            {
                f"--watch prints text: leave out -o {form}, or run it without --watch.": (
                    form != "text"
                ),
                f"--watch {watch}: give at least 1 second.": every < 1,
                "--watch reads live groups: leave --evidence out.": evidence,
            }
        )
    read = params.EvidenceOptions(evidence=evidence, lake_option=lake_option)
    # The planner is loaded when the words of the command are in order.
    from rebal.cli import overview, planning, sources
    from rebal.cli.render.documents import failures_of
    from rebal.cli.render.overview import overview_shower, overview_view

    goal = planning.goal_named(to, None)
    source = sources.GroupSource(None, None, connection, read)

    def look() -> overview.Overview:
        groups, failures, notes = sources.survey_of(source, match)
        return overview.overview_of(
            groups,
            failures_of(failures),
            notes,
            to=goal,
            fail_on=fail_on,
            exit_zero=exit_zero,
        )

    given = connection.given(evidence=read.option_words)
    if watch is not None:
        with overview_shower(seconds, given, to=to, wide=wide) as show:
            last = sources.watch(
                look, lambda one: one, overview.blinded, show, seconds=seconds, every=every
            )
        return last.exit_code
    found = look()
    if form == "text":
        output.page(overview_view(found, given, to=to, wide=wide), wide=wide)
        output.say_all((*found.notes, given.note))
    else:
        output.write(output.envelope("groups", found, found.exit_code, form))
        output.say_all(failure.message for failure in found.failures)
    return found.exit_code
