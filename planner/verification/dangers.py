"""Dangers that must stop a roll-out: a rejected member, a rebalance storm, an idle member, lag.

The module also finds partitions that nobody reads: those without an owner (`without_owner`,
`owner_for`), and those whose owner commits nothing (`commit_wait`, for the end of a plan).

Each danger is reported only after its own delay, because a normal restart looks similar at first: a
member owns nothing in its first seconds, and each restart costs some rebalances.

The rules that made the plan are also evaluated on the live group (`live_findings`), to find dangers
that arose after the plan was made. Findings that the plan's own path deals with are left out. A
question that a gate decides from several looks is never reported as a danger after one look.

In a classic group, a COOPERATIVE rebalance takes two rounds. A static member that restarts between
them joins without a rebalance and owns nothing. So nobody revokes the partitions that the first
round took from it, and nobody begins the second round (KIP-429, KIP-345;
ConsumerCoordinator.onJoinComplete). The coordinator rebalances only after the rebalance timeout,
max.poll.interval.ms, because the old process has not synced (seen on 4.1.1). A KIP-848 group whose
topic grew before its conversion assigns only the old partitions until its next epoch, and the
restart of a static member does not bring a new epoch (seen on 4.1.1).

A static member that crashed keeps its partitions until its session ends. A listener that treats a
cooperative assignment as the whole one (RB301) leaves partitions unread. Both look the same: a
partition's committed offset does not move while its log end moves. A partition without lag, or
whose log end does not move, is not a danger: in a transactional topic the last offset is a marker.

Delays: a member commits every `auto.commit.interval.ms` (5 s by default; Streams: 30 s), but only
when it polls, and it may take `max.poll.interval.ms` (5 min by default) between polls. So the end
of a plan waits for an owner that has committed nothing for `FRESH`. The owner is a danger after the
longest of `STILL`, twice its own poll interval, and twice the longest time that the group was seen
to go without a commit. No delay is longer than `LONGEST`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec.structs import replace

from rebal.groups.assignors.server import SERVER_NAMES
from rebal.groups.clients import assignors
from rebal.groups.compact import Lag, Lags
from rebal.groups.model import GroupSnapshot, GroupState, GroupType, Member, Moment, Record, Tri
from rebal.planner.admission.check import departed_hint
from rebal.planner.advice.actions import rebalance_of, wait, worded
from rebal.planner.context import Context, Facts
from rebal.planner.facts import listed, natural, owned
from rebal.planner.plan import Advice, Finding, PathKind, Plan, Severity, Step
from rebal.planner.rules import Trait, evaluate, has, rules
from rebal.planner.verification.journal import (
    JournalEntry,
    SeenMember,
    look_of,
    same_since,
)
from rebal.planner.verification.outsiders import Outsider

# A cooperative member gets its partitions in a second rebalance, once another has revoked them.
IDLE: Final = timedelta(seconds=30)
# Streams moves a task with state when its copy has caught up, which it looks at every ten minutes
# (probing.rebalance.interval.ms, KIP-441): an instance without local state waits for that.
WARM: Final = timedelta(minutes=15)
WINDOW: Final = timedelta(minutes=10)
# A member that crashes at once is not taken for a cured one.
CALM: Final = timedelta(minutes=1)
_QUIET: Final = (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)
# The default of max.poll.interval.ms, which is as long as a rebalance may wait for a member.
STUCK: Final = timedelta(minutes=5)
# KIP-429: one rebalance for a leave, two for a cooperative join; some more for the unforeseen.
_FOR_EACH: Final = 3
_SPARE: Final = 4
# Both bounces, and once more for each.
_COMES_BACK: Final = 4
FRESH: Final = timedelta(minutes=1)
STILL: Final = timedelta(minutes=10)
LONGEST: Final = timedelta(hours=1)
# The journal has the offsets twice a minute.
_KEPT: Final = timedelta(seconds=30)
Place = tuple[str, int]
"""A partition as (topic, number)."""


class DangerKind(StrEnum):
    """The kind of a danger.

    rejected: clients were rejected and have not rejoined; storm: more rebalances or rejoins than
    the restarts explain; stuck: the group is not Stable for too long; idle: a member owns nothing
    while others own several partitions; lag: an owner commits nothing while records arrive. A start
    that the coordinator admits ends the danger of a rejected client. During any other danger
    nothing may be restarted.
    """

    REJECTED = "rejected"
    STORM = "storm"
    STUCK = "stuck"
    IDLE = "idle"
    LAG = "lag"


class Danger(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One danger that must stop the roll-out, with the members concerned and the fix."""

    kind: DangerKind
    message: str
    fix: str
    members: tuple[str, ...] = ()
    since: Moment | None = None


def dangers(
    plan: Plan,
    seen: Sequence[JournalEntry],
    context: Context,
    rejected: Sequence[Outsider],
) -> tuple[Danger, ...]:
    """Return the dangers that the group is in now.

    `seen` are the earlier looks that succeeded, oldest first. `rejected` are the clients that were
    rejected and have not rejoined.
    """
    return (
        *([_rejected(rejected, context)] if rejected else []),
        *_storm(plan, seen, context),
        *_idle(plan, seen, context),
        *_lag(seen, context),
    )


def _rejected(out: Sequence[Outsider], context: Context) -> Danger:
    whom = ", ".join(
        dict.fromkeys(
            f"{one.label} "
            + (f"[{', '.join(one.list)}]" if one.list else "(its list is not known)")
            for one in out
        )
    )
    causes = [
        facts
        for facts in context.members
        if any(
            one.list and all(context.supports(facts, name) is Tri.NO for name in one.list)
            for one in out
        )
    ]
    because = f" for sharing no assignor with {context.named(causes)}," if causes else ""
    errors = sorted({one.error for one in out if one.error})
    return Danger(
        kind=DangerKind.REJECTED,
        message=f"{whom}: rejected ({', '.join(errors)}){because} and not known to be back. A Java "
        "or kafka-python client stops after one rejection; librdkafka and franz-go retry and look "
        "alive.",
        fix="Follow `next`: it names the list that is admitted, or what must come first."
        + "".join(dict.fromkeys(departed_hint(one.instance_id) for one in out)),
        members=tuple(facts.member.member_id for facts in causes),
        since=out[0].since,
    )


def _storm(plan: Plan, seen: Sequence[JournalEntry], context: Context) -> Iterator[Danger]:
    now = context.snapshot.captured_at
    window = [entry for entry in seen if now - entry.at <= WINDOW]
    if not window:
        return
    unstable = same_since(seen, now, lambda entry: entry.state not in _QUIET)
    if context.group.state not in _QUIET and now - unstable >= STUCK:
        yield Danger(
            kind=DangerKind.STUCK,
            message=f"the group has not been Stable since {unstable:%H:%M:%SZ}: a member does not "
            "call poll(), or members join and leave.",
            fix="Look for a member that is busy or hangs in its listener (max.poll.interval.ms).",
            since=unstable,
        )
    looks = [*window, replace(look_of(plan, context.snapshot), generation=context.generation)]
    said, restless = _unrest(looks, context.expected or len(context.members))
    # It will have been quiet for longer than ever between these rejoins.
    calm = max(
        (times[-1] + max([CALM, *(b - a for a, b in pairwise(times))]) for times in restless),
        default=now,
    )
    if now < calm:
        yield Danger(
            kind=DangerKind.STORM,
            message=f"{said} since {window[0].at:%H:%M:%SZ}: more than the restarts explain. This "
            f"danger ends at {calm:%H:%M:%SZ} at the latest, if no member rejoins until then.",
            fix="Stop restarting. Look for members that leave and rejoin (crash loop, liveness "
            "probe, rejection, max.poll.interval.ms, session timeouts, an autoscaler).",
            since=window[0].at,
        )


def _client(member: SeenMember) -> str:
    return member.instance_id or member.client_id


def _unrest(looks: Sequence[JournalEntry], expected: int) -> tuple[str, list[list[datetime]]]:
    """Return a clause on the rebalances and rejoins that restarts do not explain, and their times.

    `looks` are the looks to judge, oldest first, the present one last; `expected` is the number of
    members. The times are one list for the whole group, or one list for each client that keeps
    rejoining. If restarts explain all, there are no times.
    """
    pairs = list(pairwise(looks))
    changes = sum(len(a.ids ^ b.ids) for a, b in pairs)
    came = sum(len(b.ids - a.ids) for a, b in pairs)
    known = [look.generation for look in looks if look.generation is not None]
    rebalances = max(
        known[-1] - known[0] if known else 0,
        sum(a.state == "Stable" and b.state != "Stable" for a, b in pairs),
    )
    if rebalances > _FOR_EACH * changes + _SPARE or came > _FOR_EACH * expected + _SPARE:
        stirs = [
            b.at
            for a, b in pairs
            if (a.ids, a.generation, a.state) != (b.ids, b.generation, b.state)
        ]
        # Where no look shows the generation, none was counted.
        counted = f"{rebalances} rebalances and " if rebalances else ""
        return f"{counted}{came} new member ids", [stirs]
    # A name that several members of one look have tells no member apart.
    often = [Counter(map(_client, look.members)) for look in looks]
    first = {(_client(o), o.member_id): look.at for look in reversed(looks) for o in look.members}
    loops = {
        name: sorted(at for (who, _), at in first.items() if who == name)[1:]
        for name, count in sorted(Counter(name for name, _ in first).items())
        if count - 1 > _COMES_BACK and all(look[name] <= 1 for look in often)
    }
    said = ", ".join(f"{name} {len(times)} times" for name, times in loops.items())
    return f"rejoined with a new member id ({said})", list(loops.values())


def _idle(plan: Plan, seen: Sequence[JournalEntry], context: Context) -> Iterator[Danger]:
    """Yield the danger of members that own nothing for too long while others own several."""
    now = context.snapshot.captured_at
    patience = WARM if context.streams else IDLE
    since = {
        member.member_id: same_since(seen, now, partial(_owns_nothing, member.member_id))
        for member in (unfairly_idle(context.snapshot) if context.stable else ())
    }
    late = {id_: at for id_, at in since.items() if now - at >= patience}
    usual = 0 if plan.baseline.redacted else len(unfairly_idle(plan.baseline))
    if len(late) <= usual:
        return
    who = ", ".join(f"{context.by_id[id_].name} (since {at:%H:%M:%SZ})" for id_, at in late.items())
    yield Danger(
        kind=DangerKind.IDLE,
        message=f"{who} own{'s' if len(late) == 1 else ''} no partition "
        "while others own several, and a member's first seconds are over.",
        fix="Look at its log: its tasks should have caught up by now (KIP-441)."
        if context.streams
        else "Check its rebalance callback: in a cooperative group it must use the incremental "
        "calls (RB302), and its listener must treat an assignment as an addition (RB301).",
        members=tuple(late),
        since=min(late.values()),
    )


def _owns_nothing(member_id: str, entry: JournalEntry) -> bool:
    return any(one.member_id == member_id and not one.partitions for one in entry.members)


def unfairly_idle(snapshot: GroupSnapshot) -> list[Member]:
    """Return the members that own nothing although an assignor could give them a partition.

    Another member owns two partitions of a topic to which the idle member subscribes, and could
    spare one. Every assignor could give it to the idle member, even range, which assigns each topic
    by itself.
    """
    several = {
        topic
        for member in snapshot.members
        for topic, numbers in member.assignment.items()
        if len(numbers) > 1
    }
    return [
        member
        for member in snapshot.members
        if not owned(member) and several & set(member.subscribed_topics or several)
    ]


def live_findings(
    plan: Plan, context: Context, ignore: Mapping[str, str], step: Step | None
) -> tuple[Finding, ...]:
    """Return the findings on the live group that concern `step`.

    `step` is the next step that restarts members (None: none is left). A blocking finding is
    returned if it gates `step` or an earlier step. A warning or a question is returned only if the
    plan had no finding of the same rule. Findings on surplus members are always returned. Findings
    on missing or rejected members, or on the group's state, are left out, because `verify` decides
    them from all looks. `ignore` is rule id → reason, for the rules that the user ignores.
    """
    return tuple(
        finding
        for finding in evaluate(context, ignore=ignore)
        if (has(finding, Trait.EVERY_LOOK) or _concerns(plan, finding, step))
        and not (has(finding, Trait.HISTORY) or _answered(plan, context, finding))
    )


def _concerns(plan: Plan, finding: Finding, step: Step | None) -> bool:
    if finding.severity is not Severity.BLOCK:
        passing = step is not None and has(finding, Trait.PASSING)
        known = any(finding.rule == before.rule for before in plan.findings)
        return plan.path is not PathKind.NONE and not (known or passing)
    if step is None:
        # A finding that kept the plan from having any step still does.
        return has(finding, Trait.NEXT_START) or (
            plan.path is PathKind.NONE and finding.before_step is None
        )
    # The client matters to the mixed list only; the gate proves the target alone.
    mixes = has(finding, Trait.CLIENT_UNKNOWN) and step.aim.leaves_old
    return not mixes and (finding.before_step is None or finding.before_step <= step.id)


def decides(finding: Finding, answer: Tri) -> bool:
    """Return whether this finding blocks, is not ignored, and has the answer `answer`.

    Such a finding forbids restarts: with the answer yes it is a danger, with cannot tell an open
    question. A finding with the trait `pending` counts as cannot tell, whatever its result.
    """
    if finding.ignored or finding.severity is not Severity.BLOCK:
        return False
    says = Tri.CANNOT_TELL if has(finding, Trait.PENDING) else finding.result
    return says is answer


def _answered(plan: Plan, context: Context, finding: Finding) -> bool:
    if not rules()[finding.rule].dealt_with(plan.path, context, finding, verifying=True):
        return False
    stopped = {family for step in plan.steps for family in step.left_out}
    return not stopped or all(
        id_ in context.by_id and context.by_id[id_].family in stopped for id_ in finding.members
    )


class _Behind(NamedTuple):
    """An owned partition with lag, and what earlier looks show of its commits.

    `owner` owns the partition now, `records` is its lag. `usual` is the longest time that the group
    was seen to go without a commit. `since` is the first look that shows the committed offset as it
    is now; `arrived` is True if records have arrived since that look. `moved` is the newest look
    that shows another committed offset (None: no look does).
    """

    owner: Facts
    records: int
    usual: timedelta
    since: datetime
    arrived: bool = True
    moved: datetime | None = None

    @property
    def patience(self) -> timedelta:
        """Return how long the owner may commit nothing before that is a danger."""
        timeouts = self.owner.member.timeouts
        poll = timedelta(milliseconds=(timeouts and timeouts.rebalance_ms) or 0)
        return min(LONGEST, max(STILL, 2 * poll, 2 * self.usual))


def behind_of(snapshot: GroupSnapshot, entries: Sequence[JournalEntry]) -> Lags | None:
    """Return committed and end offset of each owned partition that has lag, for the journal.

    None if no offsets were read, or if the newest of `entries` with offsets is less than 30 s old.
    """
    last = next((entry.at for entry in reversed(entries) if entry.behind is not None), None)
    if not snapshot.lag or (last and timedelta() <= snapshot.captured_at - last < _KEPT):
        return None
    owned = {place for member in snapshot.members for place in _places(member)}
    return Lags(one for one in snapshot.lag if one.records and _place(one) in owned)


def _lag(seen: Sequence[JournalEntry], context: Context) -> Iterator[Danger]:
    """Yield the danger of owners that commit nothing while records arrive."""
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


def commit_wait(plan: Plan, seen: Sequence[JournalEntry], context: Context) -> str | None:
    """Return until when the end of the plan waits for commits, as a clause; None if it need not.

    On each partition with lag, its owner must be seen to commit after the gate of the last step
    began to hold, and recently. A partition is not waited for if no record has arrived for `FRESH`.
    `seen` are the earlier looks that succeeded, oldest first.
    """
    now, last = context.snapshot.captured_at, plan.steps[-1].id
    held = same_since(seen, now, lambda entry: entry.gate is Tri.YES and entry.step == last)
    waiting = {}
    for place, one in _behind(seen, context).items():
        # An owner that was seen to commit need not have committed at this very look.
        fresh = (
            one.moved is not None
            and one.moved >= held
            and now - one.since < min(LONGEST, max(FRESH, 2 * one.usual))
        )
        if not fresh and (one.arrived or now - one.since < FRESH):
            waiting[place] = one
    until = max((one.since + one.patience for one in waiting.values()), default=None)
    return f"until {_committed(waiting)}, {until:%H:%M:%SZ} at the latest" if until else None


def not_judged(snapshot: GroupSnapshot) -> str | None:
    """Return the sentence on owned partitions whose lag is not known; None if there are none."""
    known = {_place(one) for one in snapshot.lag if one.records is not None}
    unknown = sum(place not in known for member in snapshot.members for place in _places(member))
    said = (
        f"lag is not judged of {unknown} partitions: nothing is committed there, or their offsets "
        "were not read (READ on the group, DESCRIBE on its topics)"
    )
    return said if unknown else None


def _behind(seen: Sequence[JournalEntry], context: Context) -> dict[Place, _Behind]:
    """Return partition → its lag and commits, for the owned partitions that have lag now.

    An earlier look counts for a partition only if its present owner was in the group then, because
    the commits of another process prove nothing about that owner.
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
            found[place] = found[place]._replace(
                since=look.at, arrived=(lags[place].end or 0) > (was[place].end or 0)
            )
        found |= {place: found[place]._replace(moved=look.at) for place in moved}
        left -= moved
    return found


def _usual(seen: Sequence[JournalEntry], context: Context) -> timedelta:
    """Return the longest time that an owner was seen to commit nothing while records arrived.

    Only times after which it committed again count.
    """
    longest, now = timedelta(), context.snapshot.captured_at
    open_ = {(_place(one), one.committed) for one in context.snapshot.lag}
    begun: dict[tuple[Place, int | None], tuple[datetime, int]] = {}
    for entry in (entry for entry in seen if now - entry.at <= LONGEST):
        for one in entry.behind or ():
            run, end = (_place(one), one.committed), one.end or 0
            since, then = begun.setdefault(run, (entry.at, end))
            if run not in open_ and end > then:
                longest = max(longest, entry.at - since)
    return longest


def _committed(found: Mapping[Place, _Behind], what: str = "") -> str:
    """Return a clause on the owners of these partitions: `app-1 has committed orders-0, orders-1`.

    `what` is put before the partitions: with `nothing on ` the clause is `app-1 has committed
    nothing on orders-0, orders-1`.
    """
    names = sorted({one.owner.name for one in found.values()}, key=natural)
    labels = listed([f"{topic}-{number}" for topic, number in sorted(found)])
    return f"{listed(names)} {'has' if len(names) == 1 else 'have'} committed {what}{labels}"


def _places(member: Member) -> Iterator[Place]:
    return ((topic, number) for topic, its in member.assignment.items() for number in its)


def _place(lag: Lag) -> Place:
    return lag.topic, lag.partition


# By then a second round has begun: members poll, and their heartbeats are 3 s apart.
_SECOND_ROUND: Final = timedelta(seconds=10)


def without_owner(context: Context) -> tuple[str, ...]:
    """Return the partitions of subscribed topics that no member owns (`orders-0`).

    Kafka's own assignors leave no such partition. Empty if the group is not Stable, if its
    assignments are not known, or if the elected assignor is not one of Kafka's.
    """
    snapshot, group = context.snapshot, context.group
    online = group.type is GroupType.CONSUMER
    known = SERVER_NAMES if online else assignors().keys() - context.borrowed
    classic = (
        group.type is GroupType.CLASSIC
        and group.protocol_type == "consumer"
        and all(member.subscription is not None for member in snapshot.members)
    )
    if (
        group.assignor not in known
        or group.state is not GroupState.STABLE
        or not (classic or online)
    ):
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
    """Return the advice for partitions without an owner; None if every partition has one.

    The advice is to start a rebalance, which assigns them. While the members have not been the same
    for 10 s, it is to wait, because the second round of a COOPERATIVE rebalance may still come.
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
