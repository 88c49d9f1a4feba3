"""The groups of a cluster, one line each, for `rebal groups`.

The verdict in a line is that of the group's plan (`planned`). The plans' costs are not rehearsed,
because the list does not show them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import field
from msgspec.structs import replace

from rebal.cli.errors import FailOn
from rebal.cli.planning import ORDER, planned
from rebal.cli.render.documents import Document, FailureDocument
from rebal.cli.render.text import count, known_lag
from rebal.groups.model import (
    GroupSnapshot,
    GroupState,
    GroupType,
    Moment,
    RebalanceProtocol,
)
from rebal.groups.protocol import KIPS, classic_members_of_a_consumer_group, group_protocol
from rebal.planner.facts import natural
from rebal.planner.plan import Verdict
from rebal.planner.verdict import FAILED, judged, worst_code

NONE: Final = "none"


class GroupLine(Document, frozen=True, kw_only=True):
    """One group of `rebal.groups/1`: how it runs now, and the verdict of its plan.

    `protocol` is EAGER, COOPERATIVE, mixed, cannot tell, KIP-848, KIP-1071 (streams), KIP-932
    (share), or none if the group has no member. `lag` is null if no offset is known. `summary` is
    the plan's sentence, `exit_code` the exit code of the plan's next step.
    """

    group_id: str
    state: GroupState
    type: GroupType
    protocol_type: str | None
    protocol: str
    assignor: str | None
    members: int
    lag: int | None
    to: str
    verdict: Verdict
    next_step: int | None
    summary: str
    exit_code: int


class Overview(Document, frozen=True, kw_only=True):
    """The body of `rebal.groups/1`: what needs attention comes first, then by name.

    `notes` say what could not be read of all groups, such as the lag.
    """

    at: Moment
    groups: list[GroupLine]
    failures: list[FailureDocument]
    notes: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Verdict → number of groups; verdicts without a group are left out."""
        found = Counter(line.verdict for line in self.groups)
        return {verdict.value: found[verdict] for verdict in ORDER if found[verdict]}

    @property
    def exit_code(self) -> int:
        """The exit code: 1 if a group was not read, else 3 if one is blocked, else 4 if one is not
        proven, else 0.
        """
        return worst_code([one.exit_code for one in self.groups] + [FAILED] * len(self.failures))


def overview_of(
    snapshots: Iterable[GroupSnapshot],
    failures: Sequence[FailureDocument],
    notes: Sequence[str],
    *,
    to: str,
    fail_on: FailOn,
    exit_zero: bool,
) -> Overview:
    """Return the overview, with a line for each group.

    `to` is the goal of the plans that give the verdicts.

    Raises:
        UsageError: there is no such goal.
    """
    lines = [_line(each, to, fail_on, exit_zero) for each in snapshots]
    lines.sort(key=lambda line: (ORDER.index(line.verdict), natural(line.group_id)))
    return Overview(
        at=datetime.now(UTC),
        groups=lines,
        failures=sorted(failures, key=lambda one: natural(one.group_id or "")),
        notes=list(notes),
    )


def _line(snapshot: GroupSnapshot, to: str, fail_on: FailOn, exit_zero: bool) -> GroupLine:
    plan = planned(snapshot, to, None)
    group, lag = snapshot.group, known_lag(snapshot)
    return GroupLine(
        group_id=group.group_id,
        state=group.state,
        type=group.type,
        protocol_type=group.protocol_type or None,
        protocol=_protocol(snapshot),
        assignor=group.assignor,
        members=len(snapshot.members),
        lag=sum(lag.values()) if lag else None,
        to=plan.to,
        verdict=plan.verdict,
        next_step=plan.next_step,
        summary=plan.summary,
        exit_code=judged(plan.exit_code, plan.findings, fail_on, exit_zero),
    )


def _protocol(snapshot: GroupSnapshot) -> str:
    kind, members = snapshot.group.type, snapshot.members
    if kind in KIPS:
        return KIPS[kind]
    if not members:
        return NONE
    classic = len(classic_members_of_a_consumer_group(snapshot))
    runs = group_protocol(snapshot).value
    if kind is GroupType.CONSUMER and classic < len(members):
        return "KIP-848, mixed" if runs is RebalanceProtocol.MIXED else "KIP-848"
    return runs.value


def blinded(overview: Overview, why: str, _: timedelta) -> Overview:
    """Return the last overview, after a failed read; its only note is the failure `why`."""
    return replace(overview, notes=[f"not read since {overview.at:%H:%M:%SZ}: {why}"])


def changes(before: Overview, after: Overview) -> Iterator[str]:
    """Yield a sentence for each group that differs between two overviews, and for each new note.

    A change of lag alone does not count.
    """
    yield from (note for note in after.notes if note not in before.notes)
    unread = {one.message for one in before.failures}
    yield from (f"not read: {f.message}" for f in after.failures if f.message not in unread)
    hidden = {one.group_id for one in (*before.failures, *after.failures)}
    was = {line.group_id: line for line in before.groups}
    now = {line.group_id: line for line in after.groups}
    for name in sorted({*was, *now}, key=natural):
        if name not in now:
            if name not in hidden:
                yield f"{name}: is no longer listed"
        elif name not in was:
            new = now[name]
            said = f"{new.verdict}, {new.state}, {new.protocol}, {count(new.members, 'member')}"
            yield f"{name}: {'is read again' if name in hidden else 'is new'}: {said}"
        elif changed := list(_changed(was[name], now[name])):
            yield f"{name}: {', '.join(changed)}"


def _changed(was: GroupLine, now: GroupLine) -> Iterator[str]:
    pairs = (
        (was.verdict, now.verdict),
        (was.state, now.state),
        (was.protocol, now.protocol),
        (was.assignor or "no assignor", now.assignor or "no assignor"),
    )
    yield from (f"{before} → {after}" for before, after in pairs if before != after)
    if was.members != now.members:
        yield f"{was.members} → {count(now.members, 'member')}"
