"""Dangers that must stop a roll-out: a rejected member, a rebalance storm, an idle member.

lag.py has those of lag. Each danger is reported only after a delay of its own, so that a normal
restart is no danger: a member owns nothing in its first seconds, and each restart costs some
rebalances.

The rules that made the plan are evaluated on the live group too (`live_findings`): they find what
became dangerous after the plan was made. Findings that the plan's own path deals with are left out.
A question that a gate decides from several looks is never reported as a danger after one look.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot, GroupState, Member, Moment, Record, Tri
from rebal.planner.admission.check import if_renamed
from rebal.planner.context import Context
from rebal.planner.facts import owned
from rebal.planner.plan import Finding, PathKind, Plan, Severity, Step
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


class DangerKind(StrEnum):
    """rejected: clients that have not rejoined, which an admitted start ends; for any other nothing
    may be restarted. storm, stuck: too many rebalances, or one without end; idle: a member owns
    nothing; lag: an owner commits nothing while records arrive.
    """

    REJECTED = "rejected"
    STORM = "storm"
    STUCK = "stuck"
    IDLE = "idle"
    LAG = "lag"


class Danger(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One reason to stop."""

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
    """Return the present dangers of members; `seen` are the earlier looks that succeeded, oldest
    first, `rejected` the clients that were rejected and have not rejoined.
    """
    return (
        *_rejected(rejected, context),
        *_storm(plan, seen, context),
        *_idle(plan, seen, context),
    )


def _rejected(out: Sequence[Outsider], context: Context) -> Iterator[Danger]:
    """Yield the danger of clients that were rejected and have not rejoined."""
    if not out:
        return
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
    errors = ", ".join(sorted({one.error for one in out if one.error}))
    yield Danger(
        kind=DangerKind.REJECTED,
        message=f"{whom}: rejected ({errors}){because} and not known to be back. A Java or "
        "kafka-python client stops after one rejection; librdkafka and franz-go retry and look "
        "alive.",
        fix="Follow `next`: it names the list that is admitted, or what must come first."
        + "".join(dict.fromkeys(if_renamed(one.instance_id) for one in out)),
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
    calm = max(map(_calm_at, restless), default=now)
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
    """Return what restarts do not explain in these looks, and when those rejoins were: the group's,
    or each restless member's; none where restarts explain all.
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


def _calm_at(rejoins: Sequence[datetime]) -> datetime:
    """Return when it will have been quiet for longer than ever between these rejoins."""
    between = (after - before for before, after in pairwise(rejoins))
    return rejoins[-1] + max([CALM, *between])


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
    """Return the members that own nothing while another one owns two partitions of a topic they
    subscribe to.

    A member that owns two partitions of a topic has one to spare. Every assignor could give it to
    the idle member, even range, which assigns each topic by itself.
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
    """Return the findings that concern `step`, the next step that restarts members (None: none is
    left).

    A blocking finding is returned as long as it gates `step` or an earlier one. A warning or a
    question is returned only if the plan had no finding of the same rule. Findings on surplus
    members are always returned; all looks together decide who is missing or was rejected.
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
        unplanned = plan.path is PathKind.NONE and finding.before_step is None
        return unplanned or has(finding, Trait.NEXT_START)
    # The client matters to the mixed list only; the gate proves the target alone.
    mixes = has(finding, Trait.CLIENT_UNKNOWN) and step.aim.leaves_old
    return not mixes and (finding.before_step is None or finding.before_step <= step.id)


def decides(finding: Finding, answer: Tri) -> bool:
    """Return whether this finding keeps members from being restarted, and for the reason `answer`.

    The reason yes is a danger, cannot tell an open question.
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
