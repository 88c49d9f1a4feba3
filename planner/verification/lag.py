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
whose log end does not move, is no fault: of a transactional topic the last offset is a marker.

Delays: a member commits at each `auto.commit.interval.ms` (5 s by default; Streams: 30 s), but only
when it polls, and `max.poll.interval.ms` (5 min by default) is how long it may take for that. So
the end of a plan waits for an owner that has committed nothing for `FRESH`, and it is a danger from
`STILL` on, or from twice the member's own poll interval. A group that was seen to commit more
rarely gets twice the longest time that it took. Nothing waits longer than `LONGEST`.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from rebal.groups.assignors.server import SERVER_NAMES
from rebal.groups.clients import assignors
from rebal.groups.compact import Lag, Lags
from rebal.groups.model import GroupSnapshot, GroupState, GroupType, Member, Tri
from rebal.planner.advice.actions import rebalance_of, wait, worded
from rebal.planner.context import Context, Facts
from rebal.planner.facts import listed, natural
from rebal.planner.plan import Advice, Plan
from rebal.planner.verification.dangers import Danger, DangerKind
from rebal.planner.verification.journal import JournalEntry, same_since

FRESH: Final = timedelta(minutes=1)
STILL: Final = timedelta(minutes=10)
LONGEST: Final = timedelta(hours=1)
# The journal has the offsets twice a minute.
_KEPT: Final = timedelta(seconds=30)
Place = tuple[str, int]
"""A topic and the number of a partition of it."""


class _Behind(NamedTuple):
    """A partition that is behind: its owner, its lag in records, the group's `usual` time without a
    commit, the first look that shows its committed offset as it is now, whether records have come
    since, and the newest look that shows another one (None: no look does).
    """

    owner: Facts
    records: int
    usual: timedelta
    since: datetime
    arrived: bool = True
    moved: datetime | None = None

    @property
    def patience(self) -> timedelta:
        """Return how long its owner may commit nothing before it is a danger."""
        timeouts = self.owner.member.timeouts
        poll = timedelta(milliseconds=(timeouts and timeouts.rebalance_ms) or 0)
        return min(LONGEST, max(STILL, 2 * poll, 2 * self.usual))


def behind_of(snapshot: GroupSnapshot, entries: Sequence[JournalEntry]) -> Lags | None:
    """Return the offsets of the owned partitions that have lag, for the journal.

    None where the last of `entries` with offsets is too young, and where no offsets were read.
    """
    last = next((entry.at for entry in reversed(entries) if entry.behind is not None), None)
    if not snapshot.lag or (last and timedelta() <= snapshot.captured_at - last < _KEPT):
        return None
    owned = {place for member in snapshot.members for place in _places(member)}
    return Lags(one for one in snapshot.lag if one.records and _place(one) in owned)


def lag_of(snapshot: GroupSnapshot) -> int | None:
    """Return the total lag in records of the partitions with known offsets; None without any."""
    known = [one.records for one in snapshot.lag if one.records is not None]
    return sum(known) if known else None


def lag_dangers(seen: Sequence[JournalEntry], context: Context) -> Iterator[Danger]:
    """Yield the danger of owners that commit nothing while records arrive.

    `seen` are the earlier looks that succeeded, oldest first.
    """
    now, found = context.snapshot.captured_at, _behind(seen, context)
    late = {
        place: one
        for place, one in found.items()
        if one.arrived and now - one.since >= one.patience
    }
    if late:
        since = min(one.since for one in late.values())
        yield Danger(
            kind=DangerKind.LAG,
            message=f"{_committed(late, 'nothing on ')} since {since:%H:%M:%SZ}, while "
            f"records arrive (lag {sum(one.records for one in late.values()):,}).",
            fix="Check that its process runs and that its log shows records. A crashed static "
            "member keeps its partitions until its session ends; one that runs may hang, wait for "
            "an open transaction (read_committed), or take a cooperative assignment for the whole "
            "one (RB301).",
            members=tuple(dict.fromkeys(one.owner.member.member_id for one in late.values())),
            since=since,
        )


def unread(plan: Plan, seen: Sequence[JournalEntry], context: Context) -> str | None:
    """Return the reason why the end of the plan waits for commits; None if it does not.

    Since the last gate holds, each owner must be seen to commit each of its partitions that is
    behind. `seen` are the earlier looks that succeeded, oldest first.
    """
    now, last = context.snapshot.captured_at, plan.steps[-1].id
    held = same_since(seen, now, lambda entry: entry.gate is Tri.YES and entry.step == last)
    waiting = {}
    for place, one in _behind(seen, context).items():
        commits = one.moved is not None and one.moved >= held
        # An owner that was seen to commit need not have committed at this very look.
        fresh = commits and now - one.since < min(LONGEST, max(FRESH, 2 * one.usual))
        if not fresh and (one.arrived or now - one.since < FRESH):
            waiting[place] = one
    if not waiting:
        return None
    until = max(one.since + one.patience for one in waiting.values())
    return f"until {_committed(waiting)}, {until:%H:%M:%SZ} at the latest"


def not_judged(snapshot: GroupSnapshot) -> str | None:
    """Return the sentence that names the lag that is not judged; None if all of it is."""
    known = {_place(one) for one in snapshot.lag if one.records is not None}
    unknown = sum(place not in known for member in snapshot.members for place in _places(member))
    said = (
        f"lag is not judged of {unknown} partitions: nothing is committed there, or their offsets "
        "were not read (READ on the group, DESCRIBE on its topics)"
    )
    return said if unknown else None


def _behind(seen: Sequence[JournalEntry], context: Context) -> dict[Place, _Behind]:
    """Return the owned partitions that are behind now, with what the earlier looks show of them.

    A look counts for a partition only if its present owner was in the group: another process's
    commits prove nothing of it.
    """
    now = context.snapshot.captured_at
    of = {place: facts for facts in context.members for place in _places(facts.member)}
    lags = {_place(one): one for one in context.snapshot.lag if one.records and _place(one) in of}
    usual = _usual(seen, context)
    found = {place: _Behind(of[place], one.records or 0, usual, now) for place, one in lags.items()}
    left = still = set(found)
    for look in reversed(seen):
        if not left or look.behind is None:
            continue
        ids, was = look.ids, {_place(one): one for one in look.behind}
        left = {place for place in left if of[place].member.member_id in ids}
        shown = left & was.keys()
        moved = {place for place in shown if was[place].committed != lags[place].committed}
        still = (still & shown) - moved
        for place in still:
            arrived = (lags[place].end or 0) > (was[place].end or 0)
            found[place] = found[place]._replace(since=look.at, arrived=arrived)
        for place in moved:
            found[place] = found[place]._replace(moved=look.at)
        left -= moved
    return found


def _usual(seen: Sequence[JournalEntry], context: Context) -> timedelta:
    """Return the longest time in which records came and an owner was seen to commit none, before it
    committed again.
    """
    longest, now = timedelta(), context.snapshot.captured_at
    open_ = {(_place(one), one.committed) for one in context.snapshot.lag}
    begun: dict[tuple[Place, int | None], tuple[datetime, int]] = {}
    lately = (entry for entry in seen if now - entry.at <= LONGEST)
    for at, one in ((entry.at, one) for entry in lately for one in entry.behind or ()):
        run, end = (_place(one), one.committed), one.end or 0
        since, then = begun.setdefault(run, (at, end))
        if run not in open_ and end > then:
            longest = max(longest, at - since)
    return longest


def _committed(found: Mapping[Place, _Behind], what: str = "") -> str:
    """Return `app-1 has committed orders-0, orders-1`; `what` stands before the partitions."""
    names = sorted({one.owner.name for one in found.values()}, key=natural)
    labels = listed([f"{topic}-{number}" for topic, number in sorted(found)])
    return f"{listed(names)} {'has' if len(names) == 1 else 'have'} committed {what}{labels}"


def _places(member: Member) -> Iterator[Place]:
    for topic, numbers in member.assignment.items():
        for number in numbers:
            yield topic, number


def _place(lag: Lag) -> Place:
    return lag.topic, lag.partition


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
    made = rebalance_of(context, [facts for facts in context.members if not facts.static])
    if not same or context.snapshot.captured_at - same[0] < _SECOND_ROUND:
        return replace(wait(f"{why} yet"), instead_of=made.action)
    return worded(replace(made, also=(why,)))
