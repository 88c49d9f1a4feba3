"""A plan checked against the live group, look by look: `Verifying` and `watch_gate`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rebal.cli import output, params
from rebal.cli.errors import UsageError
from rebal.groups.errors import AssumptionError, RebalError
from rebal.groups.evidence.assume import apply_assumptions
from rebal.groups.model import AssignorList, GroupSnapshot, Knowledge, Tri
from rebal.planner.admission.advice import wait
from rebal.planner.verdict import UNPROVEN
from rebal.planner.verification.journal import JournalEntry, plan_key
from rebal.planner.verification.verify import (
    ContradictedError,
    NothingToConfirmError,
    Standing,
    confirm,
    entry_of,
    verify,
)

if TYPE_CHECKING:
    from rebal.cli.journal import Journal
    from rebal.groups.model import GroupSnapshot
    from rebal.planner.plan import Accepted, Plan

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)\Z")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600}
_KEEP: Final = timedelta(seconds=30)
"""An unchanged look goes into the journal this often: it proves that lag and owners stood so."""


class Verifying:
    """`judge` holds a look against the plan and adds it to the journal; `confirm` a word too.

    `step` and `expected` replace the plan's, `accepted` and `lists` (texts of --assume) are added
    to what it records. `watching`: only what is new goes into the journal, and gates that held
    before are not waited for.
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
    ) -> None:
        self._plan = plan
        self._book = book
        self._step = step
        self._expected = expected
        self._accepted = accepted
        self._lists = tuple(lists)
        self._watching = watching
        self._given = params.sentences(accepted.families, accepted.ignore, expected)
        self._assumed: dict[str, AssignorList] | None = None
        # A gate that held before this watch began is not what it waits for.
        over = {entry.step for entry in book.entries if entry.gate == "yes"} if watching else set()
        self._first = next((each.id for each in plan.steps if each.id not in over), None)

    def judge(self, seen: GroupSnapshot) -> Standing:
        """Return the standing of this look against the plan, and journal it."""
        self._book.refresh()
        seen = self._with_lists(seen)
        standing = self._verify(seen, self._step)
        begun = standing
        if self._step is None and self._first is not None and (standing.step or 0) < self._first:
            standing = self._verify(seen, self._first)
        entry = self._entry(begun, seen)
        last = self._book.entries[-1] if self._book.entries else None
        if not self._watching or last is None or _news(last, entry):
            self._book.append(entry)
        return standing

    def confirm(self, seen: GroupSnapshot, step: int, reason: str) -> Standing:
        """Return the standing after the operator confirmed `step`.

        Raises:
            UsageError: nothing of this step is left to the operator.
        """
        seen = self._with_lists(seen)
        now, asked = self._verify(seen, None), self._verify(seen, step)
        try:
            word = confirm(now, asked, step, reason)
        except NothingToConfirmError as error:
            raise UsageError(str(error)) from None
        except ContradictedError as error:
            output.say(str(error))
            self._book.append(self._entry(now, seen))
            return asked
        worded = replace(self._entry(asked, seen), confirmed=word)
        standing = verify(
            self._plan,
            [*self._book.entries, worded],
            seen,
            step=step,
            expect_members=self._expected,
            accepted=self._accepted,
        )
        self._book.append(replace(self._entry(standing, seen), confirmed=word))
        return standing

    def lost(self, standing: Standing) -> None:
        """Journal the look that failed; `standing` is blind."""
        self._book.append(
            JournalEntry(
                at=standing.at,
                plan=plan_key(self._plan),
                group_id=standing.group_id,
                step=standing.step or 1,
                blind=standing.blind_why,
            )
        )

    def _entry(self, standing: Standing, seen: GroupSnapshot) -> JournalEntry:
        before = self._book.entries
        return entry_of(self._plan, standing, seen, entries=before, accepted=self._given)

    def _verify(self, seen: GroupSnapshot, step: int | None) -> Standing:
        return verify(
            self._plan,
            self._book.entries,
            seen,
            step=step,
            expect_members=self._expected,
            accepted=self._accepted,
        )

    def _with_lists(self, seen: GroupSnapshot) -> GroupSnapshot:
        """Return the snapshot with the lists that were assumed for members of the first look."""
        if self._assumed is None:
            try:
                made, said = apply_assumptions(seen, self._lists)
            except AssumptionError as error:
                raise UsageError(str(error)) from None
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


def _news(last: JournalEntry, entry: JournalEntry) -> bool:
    unchanged = _plain(last, entry) == _plain(entry, entry)
    return not unchanged or entry.at - last.at >= _KEEP


def _plain(entry: JournalEntry, other: JournalEntry) -> JournalEntry:
    """Return the entry without fields that differ at each look or are written once."""
    members = tuple(replace(member, assignors=None, software=None) for member in entry.members)
    return replace(entry, at=other.at, lag=other.lag, committed=other.committed, members=members)


def watch_gate(
    look: Callable[[], GroupSnapshot],
    judge: Callable[[GroupSnapshot], Standing],
    show: Callable[[Standing], None],
    *,
    seconds: float,
    every: float,
    lost: Callable[[Standing], None] = lambda _: None,
    watched: Callable[[], bool] = output.has_reader,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Standing:
    """Return the last standing: of the look that decided, or of the last one within `seconds`.

    The first look must succeed: a wrong address is said at once. After it, a look that fails makes
    the watch blind, from the last look that saw something on, which is shown and is never taken for
    an answer; each look connects anew, so brokers may restart and tokens be replaced. `lost` is
    called once each time the watch becomes blind. When `watched` says that nobody reads any longer
    what `show` prints, the watch ends.

    Raises:
        RebalError: the first look failed.
    """
    end = clock() + seconds
    standing: Standing | None = None
    while True:
        try:
            standing = judge(look())
        except RebalError as error:
            if standing is None:
                raise
            sighted = standing.blind_since is None
            standing = _blind(standing, str(error), now())
            if sighted:
                lost(standing)
        show(standing)
        decided = standing.blind_since is None and standing.exit_code != UNPROVEN
        left = end - clock()
        if decided or left <= 0 or not watched():
            return standing
        sleep(min(every, left))


def _blind(standing: Standing, why: str, at: datetime) -> Standing:
    """Return the last known standing without its verdict and its advice."""
    advice = wait("the group cannot be read; restart nothing until a look succeeds")
    return replace(
        standing,
        at=at,
        gate=Tri.CANNOT_TELL,
        why=("the group cannot be read now",),
        next=advice.text,
        advice=advice,
        withheld=(),
        finished=False,
        dangers=(),
        findings=(),
        blind_since=standing.blind_since or standing.at,
        blind_why=why,
        exit_code=UNPROVEN,
    )


def duration(text: str) -> float:
    """Return `30m`, `90s`, `1h` or a plain number in seconds.

    Raises:
        UsageError: anything else.
    """
    match = _DURATION.match(text.strip().lower())
    if match is None:
        raise UsageError(f"--for {text}: expected a duration such as 90s, 30m or 2h.")
    return float(match[1]) * _UNITS[match[2]]
