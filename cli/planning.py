"""Plans as the options of `rebal plan-upgrade` ask for them, and their output."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from rebal.cli import output
from rebal.cli.errors import UsageError, as_usage, check_family, did_you_mean
from rebal.cli.files import move, next_name, read_text, write_text
from rebal.cli.journal import Journal, journal_path
from rebal.cli.params import assignor_name, goals
from rebal.cli.render.findings import exported
from rebal.cli.render.plans.markdown import plan_markdown
from rebal.cli.render.plans.screen import plan_view
from rebal.cli.render.text import count, duration
from rebal.cli.verifying import read_plan
from rebal.groups.clients import consumer_libraries
from rebal.groups.commands import Command
from rebal.groups.errors import AssumptionError, RebalError
from rebal.groups.evidence.bounds import apply_assumptions
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import format_of
from rebal.planner.clients import assume_family_value
from rebal.planner.commands import ANSWER, JOURNAL, Given
from rebal.planner.context import COOPERATIVE
from rebal.planner.facts import stated_in
from rebal.planner.goals import goal_back
from rebal.planner.paths import NotPlannedError, make_plan
from rebal.planner.plan import Accepted, Cost, Plan, Verdict, dump_plan
from rebal.planner.rehearsal.costs.start import Pricing
from rebal.planner.rules import rules
from rebal.planner.timeouts import Speed
from rebal.planner.verdict import BLOCKED, UNPROVEN, worst_code
from rebal.planner.verification.journal import JournalEntry, departed_since, here_again, remembered

# Factor on a longest stop that is about right: another restart may stop a partition for longer.
_MARGIN: Final = 1.5
ORDER: Final = (Verdict.BLOCKED, Verdict.UNPROVEN, Verdict.READY, Verdict.DONE)
"""Verdicts, the most urgent first."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The options that shape a plan: its goal `to`, what the user states, and the pace of restarts.

    `lists` are the texts of --assume. `batch` is the number of members that restart at a time (0:
    all).
    """

    to: str = COOPERATIVE
    expect_members: int | None = None
    accepted: Accepted = field(default_factory=Accepted)
    lists: tuple[str, ...] = ()
    restart_seconds: float = Speed().restart
    batch: int = Speed().batch
    given: Given = field(default_factory=Given)


def goal_named(to: str, client: str | None) -> str:
    """Return the goal that --to names, or the client library that --to-client names.

    Raises:
        UsageError: --to names a client library, or --to-client names none.
    """
    if client is None and to not in consumer_libraries():
        return assignor_name(to)
    if client is None:
        raise UsageError(
            f"--to {to}: that is a client library, a goal of plan-upgrade alone: --to-client {to}."
        )
    check_family(
        client,
        consumer_libraries(),
        f"--to-client {client[:60]}: expected one of {', '.join(consumer_libraries())}.",
    )
    return client


def planned(seen: GroupSnapshot, to: str, pricing: Pricing | None) -> Plan:
    """Return the plan of the group `seen` to the goal `to`, with all other options at default.

    `pricing` states how much is rehearsed to predict the costs (None: the plan has no costs).

    Raises:
        UsageError: there is no such goal.
    """
    try:
        return make_plan(seen, to, pricing=pricing)
    except NotPlannedError as error:
        raise UsageError(f"{error}{did_you_mean(to, goals())}") from None


def plan_of(
    seen: GroupSnapshot,
    wishes: Wishes,
    before: GroupSnapshot | None = None,
) -> Plan:
    """Return the plan for the group `seen` that `wishes` ask for.

    `before` is needed only for a plan that goes back to an earlier state: it is the group as it was
    when the abandoned plan was made.

    Raises:
        UsageError: there is no such goal, or an assumption or a departed client does not fit the
            group.
    """
    again = here_again(wishes.accepted.departed, seen)
    if again:
        raise UsageError(
            f"--departed {again[0]}: {again[0]} is a member of the group: leave it out."
        )
    with as_usage(AssumptionError):
        seen, assumed = apply_assumptions(seen, wishes.lists)
    try:
        return make_plan(
            seen,
            wishes.to,
            expect_members=wishes.expect_members,
            families=wishes.accepted.families,
            ignore=wishes.accepted.ignore,
            speed=Speed(restart=wishes.restart_seconds, batch=wishes.batch),
            given=wishes.given,
            assumed=assumed,
            before=before,
            departed=wishes.accepted.departed,
        )
    except NotPlannedError as error:
        raise UsageError(f"{error}{did_you_mean(wishes.to, goals())}") from None


def too_long(plan: Plan, limit: float | None, batch: int, code: int) -> tuple[int, list[str]]:
    """Return the exit code under `--max-downtime`, and a sentence for each step that fails it.

    Each remaining step counts by the longest time that one partition is predicted not to be
    consumed, multiplied by 1.5 if only some of its restarts were rehearsed. A step above the limit
    makes the code 3. A step without a prediction, or with a kind of restart that was not rehearsed
    at all, makes it 4.

    Args:
        plan: The plan.
        limit: Seconds; None for no limit.
        batch: Members that restart at a time; 0 for all.
        code: The exit code without a limit.
    """
    if limit is None or plan.next_step is None:
        return code, []
    said: list[tuple[int, str]] = []
    for step in plan.steps:
        if step.id < plan.next_step or step.cost is None:
            continue
        longest, about, unseen = _longest(step.cost, batch)
        if longest is None:
            said.append((UNPROVEN, f"the downtime of step {step.id} is not predicted"))
        elif longest * (_MARGIN if about else 1) > limit:
            margin = " (half as much again counts: restarts were left out)" if about else ""
            stops = f"step {step.id} stops a partition for about {duration(longest)}{margin}"
            said.append((BLOCKED, stops))
        elif unseen:
            kinds = f"{count(unseen, 'kind')} of restart of step {step.id} were not rehearsed"
            said.append((UNPROVEN, kinds))
    return (
        worst_code([code, *(passed for passed, _ in said)]),
        [f"--max-downtime {duration(limit)}: {why}" for _, why in said],
    )


def _longest(cost: Cost, batch: int) -> tuple[float | None, bool, int]:
    """Return (longest, rough, kinds) of a step's predicted `cost`.

    `longest` is the longest time in seconds that one partition is not consumed if `batch` members
    restart at a time (None: not predicted, 0: nothing restarts). `rough` is True if only some of
    the restarts were rehearsed. `kinds` is the number of kinds of restart that were not rehearsed.
    """
    if not cost.paces:
        return (None if cost.rebalances or cost.seconds else 0.0), False, 0
    asked = (pace for pace in cost.paces if pace.batch == batch)
    pace = cost if batch == 1 else next(asked, cost.paces[-1])
    return pace.longest_seconds, pace.about, max(pace.kinds_left_out for pace in cost.paces)


def plan_rollback(
    plan: Plan,
    entries: Sequence[JournalEntry],
    seen: GroupSnapshot,
    wishes: Wishes,
) -> Plan:
    """Return the plan from `seen` back to what the group ran when `plan` was made.

    What the journal has proven of members that are still in the group counts as evidence. Rules
    that the plan ignores stay ignored, except those that accept a risk: a risk that was accepted
    for the plan's own restarts is not accepted for these.

    Raises:
        UsageError: no plan back to that state can be made.
    """
    stated = wishes.accepted
    departed = {**departed_since(plan, entries), **dict.fromkeys(stated.departed)}
    again = here_again(departed, seen)
    kept = _still_stated(plan, seen)
    families = {**kept, **stated.families}
    # The commands of the new plan repeat what only the old one was told.
    told = [
        word
        for client, key in kept.items()
        if client not in stated.families
        for word in (ANSWER, assume_family_value("" if client == "*" else client, key))
    ]
    known = rules()
    lasting = {
        rule: why
        for rule, why in plan.accepted.ignore.items()
        if rule in known and known[rule].accepts is None
    }
    wishes = replace(
        wishes,
        given=msgspec.structs.replace(wishes.given, wishes=(*wishes.given.wishes, *told)),
        to=goal_back(plan, seen, families),
        expect_members=wishes.expect_members or plan.expected_members or len(plan.baseline.members),
        accepted=Accepted(
            families=families,
            ignore={**lasting, **stated.ignore},
            departed=tuple(name for name in departed if name not in again),
        ),
    )
    try:
        return plan_of(remembered(plan, entries, seen), wishes, plan.baseline)
    except UsageError as error:
        raise UsageError(f"no way back to {wishes.to} can be planned: {error}") from None


def _still_stated(plan: Plan, seen: GroupSnapshot) -> dict[str, str]:
    """Return client id → client family: the families stated for `plan` that are still valid.

    If the plan replaces the client library, clients that were restarted since it was made are left
    out.
    """
    stated = plan.accepted.families
    if plan.to not in consumer_libraries() or not seen.members:
        return dict(stated)
    old = {member.member_id for member in plan.baseline.members}
    new = {member.client_id for member in seen.members if member.member_id not in old}
    found = {m.client_id: stated_in(stated, m) for m in seen.members if m.client_id not in new}
    return {client: family for client, family in found.items() if family}


def check_free(out: Path | None, going_on: Command, *, new_attempt: bool) -> None:
    """Check that a new plan in the file `out` does not replace the plan of a roll-out.

    With `new_attempt` it may, because `keep` sets the old plan aside. `going_on` is the command
    that continues that roll-out; the error shows it.

    Raises:
        UsageError: the plan in `out` has a journal; the message names the step and the last look.
    """
    if out is None or new_attempt or not (journal := journal_path(out)).exists():
        return
    if not out.exists():
        raise UsageError(
            f"{journal} is the journal of a roll-out whose plan {out} is gone: put the plan back, "
            "or add --new-attempt, which keeps the journal under another name."
        )
    try:
        entries = Journal(journal, read_plan(out)).entries
        last = f", last look {entries[-1].at:%Y-%m-%d %H:%M}Z, step {entries[-1].step}"
    except (RebalError, IndexError):
        last = ""
    raise UsageError(
        f"{out} is the plan of a roll-out ({journal}{last}). Go on with it as below, or add "
        f"--new-attempt: it keeps both, the plan as {_history(out)}.",
        going_on,
    )


def keep(plan: Plan, out: Path) -> None:
    """Write the plan to `out`; keep an earlier plan and its journal under new names beside it.

    The earlier plan is kept only if it has a journal. The journal is renamed last: until then
    `rebal verify` reports that the journal belongs to another plan.
    """
    journal, history = journal_path(out), _history(out)
    attempt = journal.exists()
    if attempt and out.exists():
        write_text(history, read_text(out))
        output.say(f"kept the earlier plan as {history}")
    write_text(out, dump_plan(plan, format_of(str(out))))
    output.say(f"wrote {out}")
    if attempt:
        move(journal, journal_path(history))
        output.say(f"kept the earlier journal as {journal_path(history)}")


def _history(out: Path) -> Path:
    """Return the free name under which the earlier plan in `out` is kept, as `a.plan.1.yaml`."""
    return next_name(Path(os.path.realpath(out)) if out.is_symlink() else out, JOURNAL)


def print_plan(
    plan: Plan,
    form: output.PlanFormat,
    file: Path | None,
    *,
    now: datetime | None,
    details: bool = False,
    wide: bool = False,
    kept: bool = False,
) -> None:
    """Print a plan in the format `form` of -o.

    `file` is the snapshot file from which the group was read (None: from none), `kept` is True for
    a plan read from its file. Ages are relative to `now` (None: the time the plan was made).
    """
    if form == "text":
        output.page(plan_view(plan, now=now, details=details, wide=wide, kept=kept), wide=wide)
    elif form == "markdown":
        output.print_text(plan_markdown(plan))
    elif form in ("sarif", "github"):
        output.write(exported(form, plan, file=file))
    else:
        output.write(dump_plan(plan, "json" if form == "json" else "yaml"))
