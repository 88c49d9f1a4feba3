"""`rebal show`: a kept plan, one step of it, or the configuration text of a step alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rebal.cli import output, params
from rebal.cli.errors import DONE, UsageError, check_known, refuse
from rebal.planner.commands import show
from rebal.planner.plan import Action
from rebal.planner.verdict import UNPROVEN

if TYPE_CHECKING:
    from rebal.planner.plan import Plan, Setting, Step
    from rebal.planner.verification.journal import JournalEntry

ShowFormat = Literal["text", "json", "yaml", "markdown", "sarif", "github", "html"]
"""Values of `-o`; html is for --timeline."""


def command(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="The plan, as plan-upgrade --out wrote it.")
    ],
    *,
    step: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Show this step alone.")
    ] = None,
    config: Annotated[
        bool,
        typer.Option("--set", help="Print a step's configuration alone, to pipe it into a file."),
    ] = False,
    family: Annotated[
        str | None, typer.Option(metavar="FAMILY", help="With --set: the client family.")
    ] = None,
    as_: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="FORMAT", help="With --set: such as spring-yaml or java-code."
        ),
    ] = None,
    timeline: Annotated[
        bool,
        typer.Option("--timeline", help="Show the roll-out so far, from the plan's journal."),
    ] = False,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="With --timeline: the journal (default: PLAN.journal.jsonl)."
        ),
    ] = None,
    form: Annotated[
        ShowFormat, typer.Option("--output", "-o", help="How to print it; html for --timeline.")
    ] = "text",
    details: params.Details = False,
    wide: params.Wide = False,
) -> int:
    """Show a kept plan as it was made; nothing is read from a cluster.

    With --set it prints the configuration of the next step (or of --step) and nothing else; it
    exits with 4, and says so, while the gate before that step has not been seen to hold. With
    --timeline it prints who restarted when, what each step took, and the dangers, as the looks of
    `rebal verify` saw it. The plan says what was true when it was made: `rebal verify PLAN` says
    what is true now.
    """
    part = config or step is not None
    refuse(
        {
            "--family and --as choose among configurations: add --set.": (
                (family is not None or as_ is not None) and not config
            ),
            "--journal is what a timeline is read from: add --timeline.": journal and not timeline,
            "--timeline shows all steps: leave out --step and --set.": timeline and part,
            f"--timeline has no -o {form}: use text, json, yaml or html.": (
                timeline and form in ("markdown", "sarif", "github")
            ),
            "-o html prints a timeline: add --timeline.": form == "html" and not timeline,
            f"-o {form} prints the whole plan: leave out --step and --set.": (
                form != "text" and part
            ),
        }
    )
    from rebal.cli.journal import Journal, journal_path
    from rebal.cli.planning import print_plan
    from rebal.cli.render.plans.screen import step_view
    from rebal.cli.verifying import read_plan

    kept = read_plan(plan).kept_as(str(plan))
    if timeline or form == "html":
        _print_timeline(kept, journal or journal_path(plan), form, wide=wide)
    elif config:
        chosen = _step(kept, step, plan)
        entries = Journal(journal_path(plan), kept).entries
        family = family or _family(kept, chosen, entries)
        output.write(f"{_setting(chosen, family, as_, plan).text}\n")
        if waits := _waits_for(kept, chosen, entries):
            output.say(f"do not deploy it yet: {waits}. Check with:", kept.given.verify())
            return UNPROVEN
    elif step is not None:
        output.page(
            step_view(kept, _step(kept, step, plan).id, datetime.now(UTC), wide=wide), wide=wide
        )
    else:
        print_plan(kept, form, None, now=datetime.now(UTC), details=details, wide=wide, kept=True)
    return DONE


def _waits_for(plan: Plan, step: Step, entries: Sequence[JournalEntry]) -> str:
    """Return the reason why a step must wait, by the plan and its journal; empty if it need not."""
    held = {entry.step for entry in entries if entry.gate == "yes"}
    # A step before the next one was over already.
    first = plan.next_step or len(plan.steps) + 1
    before = next((n for n in range(first, step.id) if n not in held), None)
    if before is not None:
        return f"step {step.id} waits for the gate of step {before}, which no look has seen to hold"
    advised = {entry.advised.action for entry in entries if entry.advised and entry.step == step.id}
    if (
        step.id == plan.next_step
        and step.exit_code
        and advised.isdisjoint({Action.RESTART, Action.CUT_OVER})
    ):
        return f"step {step.id} could not start when the plan was made, nor since"
    return ""


def _print_timeline(plan: Plan, path: Path, form: ShowFormat, *, wide: bool) -> None:
    from rebal.cli.journal import Journal
    from rebal.cli.render.timeline import timeline_html, timeline_view
    from rebal.planner.verification.timeline import timeline_of

    book = Journal(path, plan)
    output.say_all(book.notes)
    made = timeline_of(plan, book.entries)
    if form == "text":
        output.page(timeline_view(made), wide=wide)
    elif form == "html":
        output.write(timeline_html(made))
    else:
        output.write(output.envelope("timeline", made, DONE, form))


def _step(plan: Plan, number: int | None, file: Path) -> Step:
    found = plan.step(plan.next_step if number is None else number)
    if found is not None:
        return found
    if number is None:
        raise UsageError(f"{file}: no step is left, so there is nothing to configure.")
    there = f"its last step is {len(plan.steps)}" if plan.steps else "it has no steps"
    raise UsageError(f"{file}: there is no step {number}; {there}.")


def _family(plan: Plan, step: Step, entries: Sequence[JournalEntry]) -> str | None:
    """Return the client family that every member at the last reading is proven to run.

    None if they run several, if one is not proven, or if the step has no configuration for the
    family.
    """
    from rebal.groups.clients import proven_family
    from rebal.planner.verification.journal import known_before, looks_of

    looks = [entry for entry in entries if entry.blind is None]
    _, clients = known_before(looks_of(plan, looks))
    found = {proven_family(clients.get(each)) for each in (looks[-1].ids if looks else ())}
    family = found.pop() if len(found) == 1 else None
    return family if any(setting.family == family for setting in step.config) else None


def _setting(step: Step, family: str | None, form: str | None, file: Path) -> Setting:
    """Return the configuration of `step` for a client family and a format.

    Without a format it is the family's first configuration, which is the usual one.

    Raises:
        UsageError: there is no such configuration, or --family is needed to choose one.
    """
    families = list(dict.fromkeys(setting.family for setting in step.config))
    if not families:
        raise UsageError(
            f"{file}: step {step.id} has no configuration text; read the step itself:",
            show(str(file), "--step", str(step.id)),
        )
    if family is None and len(families) > 1:
        raise UsageError(
            f"step {step.id} configures several client families: add --family {'|'.join(families)}."
        )
    family = family or families[0]
    there = f"step {step.id} has no configuration for {family}: there is {', '.join(families)}."
    check_known(family, families, there)
    chosen = [setting for setting in step.config if setting.family == family]
    named = {setting.format.lower().replace(" ", "-"): setting for setting in chosen}
    if form is None:
        return chosen[0]
    check_known(form.lower(), named, f"--as {form[:100]}: there is {', '.join(named)}.")
    return named[form.lower()]
