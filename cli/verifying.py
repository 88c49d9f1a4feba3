"""The verification of a plan against the group, reading by reading: `Verifying`."""

import getpass
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from rebal.cli import output, params
from rebal.cli.errors import FailOn, FileError, as_usage
from rebal.cli.files import read_text
from rebal.cli.journal import Journal
from rebal.cli.render.plans.parts import config_view
from rebal.cli.render.text import FACTS
from rebal.cli.render.verification import next_command, verify_line, verify_view
from rebal.groups.errors import AssumptionError
from rebal.groups.evidence.bounds import apply_assumptions
from rebal.groups.model import AssignorList, GroupSnapshot, Knowledge, Tri
from rebal.groups.snapshot.documents import format_of
from rebal.planner.advice.actions import stop, wait
from rebal.planner.commands import Given
from rebal.planner.plan import Accepted, Plan, load_plan
from rebal.planner.verdict import SAFE, UNPROVEN, judged
from rebal.planner.verification.journal import JournalEntry, plan_key
from rebal.planner.verification.timeline import Timeline, timeline_of
from rebal.planner.verification.verify import (
    AnsweredError,
    NothingToConfirmError,
    Standing,
    confirm,
    entry_of,
    verify,
)

Until: TypeAlias = Literal["gate", "done"]
"""Gate that ends a watch: that of the current step, or that of the last step."""
# An unchanged look goes into the journal this often: it proves that lag and owners stood so.
_KEEP: Final = timedelta(seconds=30)


def read_plan(path: Path) -> Plan:
    """Return the plan in a `.yaml`, `.yml` or `.json` file.

    Raises:
        FileError: the file cannot be read.
        DocumentError: the file is not a plan; the message names the field and the line.
    """
    return load_plan(read_text(path), format_of(str(path)), str(path))


def check_same(plan: Plan, seen: GroupSnapshot, *, file: Path | None = None) -> None:
    """Check that the snapshot is of the plan's group and cluster.

    If the snapshot is from `file`, its time is printed on stderr.

    Raises:
        FileError: the snapshot is of another group or cluster.
    """
    if seen.group.group_id != plan.group_id:
        raise FileError(
            f"the plan is for group {plan.group_id}, but the snapshot is of group "
            f"{seen.group.group_id}: give a snapshot of {plan.group_id}."
        )
    planned, here = plan.baseline.cluster.cluster_id, seen.cluster.cluster_id
    if planned and here and planned != here:
        raise FileError(
            f"the plan was made on cluster {planned}, but this is cluster {here}: check -b or "
            "--command-config."
        )
    if file is not None:
        output.say(f"{file} shows the group as of {seen.captured_at:%Y-%m-%d %H:%MZ}.")


def print_standing(standing: Standing, form: str, *, wide: bool) -> None:
    """Print the state of a roll-out to stdout in the format `form`: text, jsonl, json or yaml.

    With `wide` the text names all members, cuts no value, and shows the settings to change in each
    configuration format (properties, Spring, …).
    """
    if form == "text":
        view = [
            *verify_view(standing, wide=wide),
            *config_view(standing.config, wide=wide, indent=0, label=FACTS),
        ]
        output.page([*view, next_command(standing)], wide=wide)
    elif form == "jsonl":
        output.write(verify_line(standing))
    else:
        output.write(output.envelope("verify", standing, standing.exit_code, form))


class Verifying:
    """The verification of one plan, which journals each reading of the group and each confirmation.

    `step` is the step whose gate is checked (None: the current one), `expected` the number of
    members that the group must have (None: as the plan says). `accepted` and `lists` (texts of
    --assume) are added to what the plan has of them. With `watching`, a reading that changes
    nothing is journaled only if the last entry is 30 seconds old, and without `step` the gates that
    held before the watch are skipped. With `fail_on` `warning`, a warning counts as a danger.
    """

    def __init__(
        self,
        plan: Plan,
        book: Journal,
        *,
        step: int | None,
        expected: int | None,
        accepted: Accepted,
        lists: Sequence[str],
        watching: bool,
        fail_on: FailOn,
        given: Given | None = None,
    ) -> None:
        self._plan = plan
        self._book = book
        self._step = step
        self._expected = expected
        self._accepted = accepted
        self._lists = tuple(lists)
        self._watching = watching
        self._fail_on = fail_on
        self._words = given
        self._given = (
            *(f"client id {key} is {family}" for key, family in accepted.families.items()),
            *(f"{rule} is ignored: {reason}" for rule, reason in accepted.ignore.items()),
            *([] if expected is None else [f"{expected} members are expected"]),
        )
        self._assumed: dict[str, AssignorList] | None = None
        # A gate that held before this watch began is not what it waits for.
        over = {entry.step for entry in book.entries if entry.gate == "yes"} if watching else set()
        self._first = next((each.id for each in plan.steps if each.id not in over), None)

    def judge(self, seen: GroupSnapshot) -> Standing:
        """Return the state of the roll-out that the snapshot `seen` shows, and journal it."""
        self._book.refresh()
        seen = self._with_lists(seen)
        standing = self._verify(seen, self._step)
        # Asking for another step's gate does not move the group into that step.
        begun = standing if self._step is None else self._verify(seen, None)
        if self._step is None and self._first is not None and (standing.step or 0) < self._first:
            standing = self._verify(seen, self._first)
        entry = self._entry(begun, seen)
        last = self._book.entries[-1] if self._book.entries else None
        if (
            not self._watching
            or last is None
            or entry.at - last.at >= _KEEP
            or _plain(last, entry) != _plain(entry, entry)
        ):
            self._book.append(entry)
        return self._strict(standing)

    def confirm(
        self, seen: GroupSnapshot, step: int, reason: str, members: Sequence[str], listed: str
    ) -> Standing:
        """Return the state of the roll-out after the operator confirmed `step`, and journal it.

        `members` and `listed` are the texts of --member and --list.

        Raises:
            UsageError: the step or a member needs no confirmation.
        """
        seen = self._with_lists(seen)
        now, asked = self._verify(seen, None), self._verify(seen, step)
        names = tuple(params.assignor_name(name.strip()) for name in listed.split(",") if name)
        try:
            with as_usage(NothingToConfirmError):
                word = confirm(now, asked, step, reason, members=members, names=names)
        except AnsweredError as error:
            output.say(str(error))
            self._book.append(self._entry(now, seen))
            return self._strict(asked)
        word = replace(word, by=_user())
        earlier = now.step is not None and step < now.step
        worded = replace(self._entry(now if earlier else asked, seen), confirmed=word)
        standing = verify(
            self._plan,
            [*self._book.entries, worded],
            seen,
            step=step,
            expect_members=self._expected,
            accepted=self._accepted,
            given=self._words,
        )
        self._book.append(
            worded if earlier else replace(self._entry(standing, seen), confirmed=word)
        )
        return self._strict(standing)

    def blind(self, standing: Standing, why: str, since: timedelta) -> Standing:
        """Return the state of the roll-out after a failed reading of the group.

        `standing` is the state before, `why` the error, and `since` the time since the last attempt
        to read. Of several failures in a row, only the first is journaled.
        """
        made = blinded(standing, why, since)
        if standing.blind_since is None:
            self._book.append(
                JournalEntry(
                    at=made.at,
                    plan=plan_key(self._plan),
                    group_id=made.group_id,
                    step=made.step or 1,
                    blind=why,
                )
            )
        return made

    def timeline(self) -> Timeline:
        """Return the timeline of the roll-out, from the plan and its journal."""
        return timeline_of(self._plan, self._book.entries)

    def _strict(self, standing: Standing) -> Standing:
        """Return `standing`, as a danger (exit code 3) if --fail-on counts one of its warnings."""
        code = judged(standing.exit_code, standing.findings, self._fail_on, exit_zero=False)
        if code == standing.exit_code:
            return standing
        advice = stop("a warning stands, and --fail-on counts it")
        return replace(
            standing,
            exit_code=code,
            advice=advice,
            next=advice.text,
            config=(),
            finished=False,
        )

    def _entry(self, standing: Standing, seen: GroupSnapshot) -> JournalEntry:
        return entry_of(
            self._plan, standing, seen, entries=self._book.entries, accepted=self._given
        )

    def _verify(self, seen: GroupSnapshot, step: int | None) -> Standing:
        return verify(
            self._plan,
            self._book.entries,
            seen,
            step=step,
            expect_members=self._expected,
            accepted=self._accepted,
            given=self._words,
        )

    def _with_lists(self, seen: GroupSnapshot) -> GroupSnapshot:
        """Return the snapshot with the assignor lists that --assume states.

        The first call binds the lists to the member ids in its snapshot; later calls use them for
        these ids only. They do not replace a list that evidence shows exactly.
        """
        if self._assumed is None:
            with as_usage(AssumptionError):
                made, said = apply_assumptions(seen, self._lists)
            before = {member.member_id: member.assignors for member in seen.members}
            self._assumed = {
                member.member_id: member.assignors
                for member in made.members
                if member.assignors != before[member.member_id]
            }
            self._given = (*self._given, *said)
            return made
        members = tuple(
            replace(member, assignors=self._assumed[member.member_id])
            if member.member_id in self._assumed
            and member.assignors.knowledge is not Knowledge.EXACT
            else member
            for member in seen.members
        )
        return replace(seen, members=members)


def _user() -> str:
    """Return the operator's user name; empty if the system has none for the user id."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _plain(entry: JournalEntry, other: JournalEntry) -> JournalEntry:
    """Return `entry` without what differs between readings even if the group has not changed.

    So an entry can be compared with `other`: its time and its offsets (`behind`) are replaced by
    those of `other`, and the members' assignor lists and software, which are journaled
    only once, are removed.
    """
    return replace(
        entry,
        at=other.at,
        behind=other.behind,
        members=tuple(replace(member, assignors=None, software=None) for member in entry.members),
    )


def reached(standing: Standing, until: Until | None) -> int:
    """Return the exit code of `standing`; for `--until done`, 4 instead of 0 if steps are left."""
    under_way = until == "done" and standing.exit_code == SAFE and not standing.finished
    return UNPROVEN if under_way else standing.exit_code


def blinded(standing: Standing, why: str, since: timedelta) -> Standing:
    """Return the last state `standing` of a roll-out, changed for a failed reading of the group.

    The gate is not verified, dangers and findings are removed, the advice is to restart nothing,
    and the exit code is 4. Its time is that of `standing` plus `since`, the time since the last
    attempt to read.
    """
    advice = wait("the group cannot be read; restart nothing until a look succeeds")
    return replace(
        standing,
        at=standing.at + since,
        gate=Tri.CANNOT_TELL,
        why=("the group cannot be read now",),
        next=advice.text,
        advice=advice,
        withheld=(),
        config=(),
        finished=False,
        dangers=(),
        findings=(),
        blind_since=standing.blind_since or standing.at,
        blind_why=why,
        exit_code=UNPROVEN,
    )
