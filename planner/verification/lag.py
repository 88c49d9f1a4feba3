"""Partitions that nobody reads: those without an owner (`without_owner`, `owner_for`), and those
whose owner commits nothing (`lag_dangers`; `unread`, which the end of a plan waits for).

In a classic group a COOPERATIVE rebalance takes two rounds. A static member that restarts between
them joins without a rebalance and owns nothing, so nobody revokes what the first round took from it
and begins the second one (KIP-429, KIP-345; ConsumerCoordinator.onJoinComplete). The coordinator
rebalances once the rebalance timeout, max.poll.interval.ms, is over, as the old process has not
synced (seen on 4.1.1). A KIP-848 group that was converted after its topic had grown has the
partitions of before until its next epoch, and a static member that restarts brings none (seen on
4.1.1).

A static member that crashed keeps its partitions until its session ends, and a listener that takes
a cooperative assignment for the whole one (RB301) leaves partitions unread. Both show in one thing:
a partition's committed offset does not move while its log end moves. A partition without lag, or
whose log end stands still, is no fault: of a transactional topic the last offset is a marker.

Delays: a member commits at each `auto.commit.interval.ms` (5 s by default; Streams: 30 s), but only
when it polls, and `max.poll.interval.ms` (5 min by default) is how long it may take for that. So
the end of a plan waits for an owner that has committed nothing for `FRESH`, and it is a danger from
`STILL` on, or from twice the member's own poll interval. A group that was seen to commit more
rarely gets twice the longest time that it took. Nothing waits longer than `LONGEST`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, NamedTuple

from msgspec.structs import replace

from rebal.groups.assignors.server import SERVER_NAMES
from rebal.groups.clients import assignors
from rebal.groups.compact import Lag, Lags
from rebal.groups.model import GroupSnapshot, GroupState, GroupType, Member, Tri
from rebal.planner.advice.actions import rebalance_of, wait, worded
from rebal.planner.context import Context
from rebal.planner.facts import listed, natural
from rebal.planner.plan import Advice, Plan
from rebal.planner.verification.dangers import WINDOW, Danger, DangerKind
from rebal.planner.verification.journal import JournalEntry, same_since

FRESH: Final = timedelta(minutes=1)
STILL: Final = timedelta(minutes=10)
LONGEST: Final = timedelta(hours=1)
# A static member that restarts keeps its partitions unread until it is up again.
_GROWS: Final = timedelta(minutes=5)
_LEAST_LAG: Final = 1000
# The journal has the offsets of so many partitions twice a minute, of more every two minutes.
_KEPT: Final = timedelta(seconds=30)
_FEW: Final = 1000
_FIX: Final = (
    "Check that its process runs and that its log shows records. A crashed static member keeps its "
    "partitions until its session ends; one that runs may hang, wait for an open transaction "
    "(read_committed), or take a cooperative assignment for the whole one (RB301)."
)
Place = tuple[str, int]
"""A topic and the number of a partition of it."""


class _Run(NamedTuple):
    """An unmoved committed offset: its first look, and whether records have come since."""

    since: datetime
    arrived: bool


def behind_of(snapshot: GroupSnapshot, entries: Sequence[JournalEntry]) -> Lags | None:
    """Return the offsets of the owned partitions that have lag, for the journal.

    None where the last of `entries` with offsets is too young, and where no offsets were read.
    """
    apart = _KEPT if len(snapshot.lag) <= _FEW else 4 * _KEPT
    last = next((entry.at for entry in reversed(entries) if entry.behind is not None), None)
    if not snapshot.lag or (last and timedelta() <= snapshot.captured_at - last < apart):
        return None
    owned = {place for member in snapshot.members for place in _places(member)}
    return Lags(one for one in snapshot.lag if one.records and _place(one) in owned)


def lag_of(snapshot: GroupSnapshot) -> tuple[int | None, int | None]:
    """Return the total lag in records and the sum of the committed offsets.

    Only partitions with a known committed and end offset count; None where there is none.
    """
    known = [one for one in snapshot.lag if one.records is not None]
    if not known:
        return None, None
    return sum(one.records or 0 for one in known), sum(one.committed or 0 for one in known)


def lag_dangers(seen: Sequence[JournalEntry], context: Context) -> Iterator[Danger]:
    """Yield the danger of owners that commit nothing while records arrive, and of growing lag.

    `seen` are the earlier looks that succeeded, oldest first.
    """
    owners = _Owners(seen, context)
    late = {
        place: run.since
        for place, run in owners.runs.items()
        if run.arrived and owners.now - run.since >= owners.patience(place)
    }
    if late:
        since = min(late.values())
        yield Danger(
            kind=DangerKind.LAG,
            message=f"{owners.committed(late, 'nothing on ')} since {since:%H:%M:%SZ}, while "
            f"records arrive (lag {sum(owners.behind[place].records or 0 for place in late):,}).",
            fix=_FIX,
            members=tuple(dict.fromkeys(owners.of[each].member.member_id for each in late)),
            since=since,
        )
    else:
        yield from _growth(seen, context.snapshot, owners)


def unread(plan: Plan, seen: Sequence[JournalEntry], context: Context) -> str | None:
    """Return the reason why the end of the plan waits for commits; None if it does not.

    Since the last gate holds, each owner must be seen to commit each of its partitions that is
    behind. `seen` are the earlier looks that succeeded, oldest first.
    """
    last = plan.steps[-1].id
    owners = _Owners(seen, context)
    held = same_since(seen, owners.now, lambda entry: entry.gate is Tri.YES and entry.step == last)
    moved = {place for place, at in owners.moved.items() if at >= held}
    waiting: dict[Place, datetime] = {}
    for place in owners.behind:
        run = owners.runs.get(place, _Run(owners.now, arrived=True))
        lasts = owners.now - run.since
        # An owner that was seen to commit need not have committed at this very look.
        fresh = min(LONGEST, max(FRESH, 2 * owners.usual))
        fits = lasts < fresh if place in moved else not run.arrived and lasts >= FRESH
        if not (fits or (place in moved and not run.arrived)):
            waiting[place] = run.since + owners.patience(place)
    if not waiting:
        return None
    return f"until {owners.committed(waiting)}, {max(waiting.values()):%H:%M:%SZ} at the latest"


def not_judged(snapshot: GroupSnapshot) -> str | None:
    """Return the sentence that names the lag that is not judged; None if all of it is."""
    known = {_place(one) for one in snapshot.lag if one.records is not None}
    owned = [place for member in snapshot.members for place in _places(member)]
    unknown = sum(place not in known for place in owned)
    if not unknown:
        return None
    return (
        f"lag is not judged of {unknown} partitions: nothing is committed there, or their offsets "
        "were not read (READ on the group, DESCRIBE on its topics)"
    )


class _Owners:
    """The partitions that are behind now (`behind`), their owners (`of`), and what the earlier
    looks show of them: `runs` of those whose committed offset did not move since the look before,
    `moved` the newest look at which it was another one.

    A look counts for a partition only if its present owner was in the group: another process's
    commits prove nothing of it.
    """

    def __init__(self, seen: Sequence[JournalEntry], context: Context) -> None:
        self.now = context.snapshot.captured_at
        self.of = {place: facts for facts in context.members for place in _places(facts.member)}
        self.behind = {
            _place(one): one
            for one in context.snapshot.lag
            if one.records and _place(one) in self.of
        }
        self.runs: dict[Place, _Run] = {}
        self.moved: dict[Place, datetime] = {}
        self._seen = [entry for entry in seen if entry.behind is not None]
        self._look_back()

    def _look_back(self) -> None:
        left, still = list(self.behind), set(self.behind)
        for look in reversed(self._seen):
            ids, was = look.ids, {_place(one): one for one in look.behind or ()}
            left = [place for place in left if self.of[place].member.member_id in ids]
            shown = [place for place in left if place in was]
            moved = {p for p in shown if was[p].committed != self.behind[p].committed}
            still &= {*shown} - moved
            self.moved |= dict.fromkeys(moved, look.at)
            self.runs |= {
                place: _Run(look.at, arrived=_end(self.behind[place]) > _end(was[place]))
                for place in shown
                if place in still
            }
            left = [place for place in left if place not in moved]
            if not left:
                return

    def patience(self, place: Place) -> timedelta:
        """Return how long its owner may commit nothing before it is a danger."""
        timeouts = self.of[place].member.timeouts
        poll = timedelta(milliseconds=(timeouts and timeouts.rebalance_ms) or 0)
        return min(LONGEST, max(STILL, 2 * poll, 2 * self.usual))

    def committed(self, places: Iterable[Place], what: str = "") -> str:
        """Return `app-1 has committed orders-0, orders-1`; `what` stands before the partitions."""
        found = sorted(places)
        names = sorted({self.of[place].name for place in found}, key=natural)
        labels = [f"{topic}-{number}" for topic, number in found]
        return f"{listed(names)} {'has' if len(names) == 1 else 'have'} committed {what}" + listed(
            labels
        )

    @cached_property
    def usual(self) -> timedelta:
        """Return the longest time in which records came and an owner was seen to commit none,
        before it committed again.
        """
        longest = timedelta()
        open_ = {(place, one.committed) for place, one in self.behind.items()}
        begun: dict[tuple[Place, int | None], tuple[datetime, int]] = {}
        lately = (entry for entry in self._seen if self.now - entry.at <= LONGEST)
        for at, one in ((entry.at, one) for entry in lately for one in entry.behind or ()):
            run = _place(one), one.committed
            since, end = begun.setdefault(run, (at, _end(one)))
            if run not in open_ and _end(one) > end:
                longest = max(longest, at - since)
        return longest


def _growth(
    seen: Sequence[JournalEntry], snapshot: GroupSnapshot, owners: _Owners
) -> Iterator[Danger]:
    """Yield the danger of lag that grew at every look for five minutes, although members commit."""
    (lag, committed), now = lag_of(snapshot), snapshot.captured_at
    if lag is None:
        return
    since, last, began = now, lag, committed
    for entry in reversed(seen):
        if entry.lag is None or entry.lag >= last:
            break
        since, last, began = entry.at, entry.lag, entry.committed
        if now - since >= WINDOW:
            break
    long = now - since >= _GROWS and began != committed
    if long and lag >= max(2 * last, last + _LEAST_LAG):
        still = [place for place, run in owners.runs.items() if run.arrived and run.since <= since]
        who = owners.committed(still, "nothing on ") if still else "members do not keep up"
        yield Danger(
            kind=DangerKind.LAG,
            message=f"lag grows at every look since {since:%H:%M:%SZ}, from {last:,} to {lag:,} "
            f"records: {who}.",
            fix=_FIX
            if still
            else "Check in the members' logs that they process records; if not, go back one step.",
            members=tuple(dict.fromkeys(owners.of[each].member.member_id for each in still)),
            since=since,
        )


def _places(member: Member) -> Iterator[Place]:
    for topic, numbers in member.assignment.items():
        for number in numbers:
            yield topic, number


def _place(lag: Lag) -> Place:
    return lag.topic, lag.partition


def _end(lag: Lag) -> int:
    return lag.end or 0


# By then a second round has begun: members poll, and their heartbeats are 3 s apart.
_SECOND_ROUND: Final = timedelta(seconds=10)


def without_owner(context: Context) -> tuple[str, ...]:
    """Return the partitions of subscribed topics that no member owns; Kafka's assignors leave none.

    Empty where the members' assignments are not known, or where an assignor that is not Kafka's is
    elected.
    """
    snapshot, group = context.snapshot, context.group
    online = group.type is GroupType.CONSUMER
    known = SERVER_NAMES if online else assignors().keys() - context.borrowed
    shown = all(member.subscription is not None for member in snapshot.members)
    classic = group.type is GroupType.CLASSIC and group.protocol_type == "consumer" and shown
    at_rest = group.state is GroupState.STABLE and (classic or online)
    if group.assignor not in known or not at_rest:
        return ()
    asked = {topic for member in snapshot.members for topic in member.subscribed_topics}
    owned = {place for member in snapshot.members for place in _places(member)}
    return tuple(
        f"{topic.name}-{number}"
        for topic in snapshot.topics
        if topic.name in asked
        for number in range(topic.partitions)
        if (topic.name, number) not in owned
    )


def owner_for(context: Context, entries: Sequence[JournalEntry]) -> Advice | None:
    """Return the advice that has a rebalance assign the partitions without an owner, if there are
    any.

    The second round of a rebalance may still come, until the members were the same for 10 s.
    """
    unowned = without_owner(context)
    if not unowned:
        return None
    why = f"{listed(unowned)} {'has' if len(unowned) == 1 else 'have'} no owner"
    same = [entry.at for entry in entries if entry.ids == context.by_id.keys()]
    if not same or context.snapshot.captured_at - same[0] < _SECOND_ROUND:
        return wait(f"{why} yet")
    made = rebalance_of(context, [facts for facts in context.members if not facts.static])
    return worded(replace(made, also=(why,)))
