"""Clients that should be in the group and are not (`Outsider`); `outsiders_of` finds them.

Logs show which clients were rejected; the plan and its journal show which members were in the group
before. Both can mislead: a log is rotated, its times may have no zone, and the coordinator counts a
member that stopped without leaving until its session ends. So a client may be out although the
count shows no missing member. Such an outsider is in doubt (`Doubt`), and the end of a plan waits
until the doubt is settled.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec.structs import replace

from rebal.groups.clients import family as known_family
from rebal.groups.clients import is_default_client_id, proven_family
from rebal.groups.coordinator import CLOCKS
from rebal.groups.evidence.exact import when
from rebal.groups.model import (
    Evidence,
    GroupState,
    Member,
    Moment,
    Record,
    Refusal,
    Tri,
)
from rebal.planner.admission.check import address, unresolved_rejections
from rebal.planner.context import Context, names
from rebal.planner.facts import KEYS, natural, stated_in
from rebal.planner.plan import Plan
from rebal.planner.timeouts import longest_session
from rebal.planner.verdict import worst
from rebal.planner.verification.journal import (
    JournalEntry,
    PlanContext,
    known_before,
    looks_of,
    same_since,
    successors,
)


class OutsiderKind(StrEnum):
    """The reason why a client counts as an outsider.

    rejected: a log shows that the coordinator rejected it; missing: it was a member before.
    """

    REJECTED = "rejected"
    MISSING = "missing"


class Doubt(StrEnum):
    """The reason why it is not known whether a client is out, or which client is.

    none: it is known to be out; time: a log shows that it was rejected, but not when; count: the
    user did not give the number of members; entry: a stopped static member, which still counts, may
    hide that the client is missing; name: it is one of several clients, of which fewer are missing;
    past: the group was complete since it was rejected, or its rejection is older than the plan.
    """

    NONE = "none"
    TIME = "time"
    COUNT = "count"
    ENTRY = "entry"
    NAME = "name"
    PAST = "past"


class Outsider(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One client that should be in the group and is not.

    `name` is the process to start, with its address if the client id alone is ambiguous. `list` is
    the list that was rejected, or that the missing member had (empty: not known); `error` is
    Kafka's name of the rejection. `takes_mixed`: its client starts with eager and cooperative
    assignors in one list. `since` is when it was rejected. `behind` are the static members that may
    have stopped and still count, so that no member seems to be missing. `until` is the time after
    which a group that is still complete proves that the client is not missing (None: no such time
    is known). `was_member` is True if it was a member before, so that it is missing.
    """

    kind: OutsiderKind
    name: str
    doubt: Doubt = Doubt.NONE
    client_id: str = ""
    instance_id: str | None = None
    host: str = ""
    list: tuple[str, ...] = ()
    error: str | None = None
    family: str | None = None
    takes_mixed: Tri = Tri.CANNOT_TELL
    since: Moment | None = None
    until: Moment | None = None
    behind: tuple[str, ...] = ()
    was_member: bool = True
    evidence: tuple[Evidence, ...] = ()

    @property
    def label(self) -> str:
        """Return the name, with the address unless the client has an instance id."""
        known = not self.host or self.instance_id or self.name.endswith(f"({self.host})")
        return self.name if known else f"{self.name} ({self.host})"


def outsiders_of(
    plan: Plan, seen: Sequence[JournalEntry], context: Context, *, estimated: bool
) -> tuple[Outsider, ...]:
    """Return the clients that are out or may be: first the rejected ones, then the missing ones.

    Rejected clients that were members come before the others. A missing member that is also a
    rejected client is returned once, as rejected. `seen` are the earlier looks, oldest first.
    `estimated` is True if no user gave the number of members.
    """
    left = {one.instance_id or one.client_id for one in context.snapshot.departed}

    def rank(numbered: tuple[int, Outsider]) -> tuple[bool, bool, int]:
        number, one = numbered
        return one.doubt is not Doubt.NONE, (one.instance_id or one.client_id) not in left, -number

    rejections = enumerate(_rejections(plan, seen, context, estimated=estimated))
    missing = list(_missing(plan, seen, context))
    families = {
        **plan.accepted.families,
        **{f.name: f.family for f in context.members if f.family and f.family_proven},
        **{one.instance_id or one.client_id: one.family for one in missing if one.family},
    }
    every = {one.family for one in missing}
    same = every.pop() if len(every) == 1 else families.get("*")
    rejected: dict[tuple[bool, int], Outsider] = {}
    for number, one in sorted(rejections, key=rank):
        # A missing member that no earlier one explains is the newest client that was rejected, of
        # those that were members before if there are any.
        unnamed = (
            context.missing
            - sum(each.doubt is Doubt.NONE for each in rejected.values())
            - len(missing)
        )
        doubt = Doubt.NONE if unnamed > 0 else one.doubt
        if doubt is Doubt.PAST:
            continue
        own = _paired(one, missing) if doubt is Doubt.NONE else None
        if own is not None:
            missing.remove(own)
        family = one.family or families.get(one.instance_id or one.client_id, same)
        alike = [known_family(family).mixed, *([] if own is None else [own.takes_mixed])]
        if one.instance_id is None:
            # The name is also that of others who are out and, without its address, any member's. A
            # member that came since may be this client: then one that nobody knows is out.
            alike += [each.takes_mixed for each in missing if each.client_id == one.client_id]
            alike += [
                context.may_take_mixed(facts) if _was_there(facts.member, one) else Tri.NO
                for facts in context.members
                if not one.host and facts.member.client_id == one.client_id
            ]
        rejected[one.doubt is Doubt.NONE, number] = replace(
            one,
            doubt=doubt,
            family=own.family if own is not None and own.family else family,
            takes_mixed=worst(alike),
            was_member=own is not None,
        )
    made = (rejected[each] for each in sorted(rejected))
    found = (*sorted(made, key=lambda one: not one.was_member), *missing)
    often = Counter(member.client_id for member in context.snapshot.members)
    often.update(one.client_id for one in found)
    return tuple(
        replace(one, name=one.label)
        if often[one.client_id] > 1
        or not one.client_id
        or is_default_client_id(context.group.group_id, one.client_id)
        else one
        for one in found
    )


def missing_text(context: Context, outsiders: Sequence[Outsider]) -> str:
    """Return the clause that says how many members are missing, with their names."""
    gone = [one for one in outsiders if one.was_member]
    named = f": {', '.join(one.label for one in gone)}" if gone else ""
    if len(gone) > context.missing:
        named = f": {context.missing} of {', '.join(one.name for one in gone[:6])}"
    return (
        f"{context.missing} of {context.expected} expected members "
        f"{'is' if context.missing == 1 else 'are'} not in the group{named}"
    )


def _paired(one: Outsider, missing: Sequence[Outsider]) -> Outsider | None:
    """Return the missing member that the rejected client `one` was; None if it was none of them.

    It has the same instance id, or, if there is none, the same client id; one at the same address
    is preferred.
    """
    same = [
        each
        for each in missing
        if each.instance_id == one.instance_id
        if one.instance_id is not None or each.client_id == one.client_id != ""
    ]
    return min(same, key=lambda each: each.host != one.host, default=None)


def _missing(plan: Plan, seen: Sequence[JournalEntry], context: Context) -> Iterator[Outsider]:
    """Yield the missing members.

    They are in doubt (`Doubt.NAME`) if more clients left the group than are missing from the count.
    """
    gone = _unmatched_members(plan, seen, context)
    if not gone:
        return
    said, labels = plan.accepted.families, names(gone)
    lists, clients = known_before(looks_of(plan, seen))
    then = PlanContext(plan, plan.baseline)
    # A client that came later, or whose bytes left it open, may not accept a mixed list.
    mixed = {facts.member.instance_id or facts.member.client_id for facts in then.members} - {
        facts.member.instance_id or facts.member.client_id
        for facts in then.members
        if then.may_take_mixed(facts) is not Tri.YES
    }
    for member in sorted(gone, key=lambda member: natural(labels[member.member_id])):
        known = lists.get(member.member_id)
        family = proven_family(clients.get(member.member_id)) or stated_in(said, member)
        open_ = family is None and (member.instance_id or member.client_id) not in mixed
        yield Outsider(
            kind=OutsiderKind.MISSING,
            name=labels[member.member_id],
            doubt=Doubt.NONE if len(gone) <= context.missing else Doubt.NAME,
            client_id=member.client_id,
            instance_id=member.instance_id,
            host=address(member.host),
            list=known.list if known is not None else (),
            family=family,
            takes_mixed=Tri.NO if open_ else known_family(family).mixed,
        )


def _unmatched_members(plan: Plan, seen: Sequence[JournalEntry], context: Context) -> list[Member]:
    """Return the members of the most complete earlier look that match no member of the group now.

    Empty if no member is missing. A restarted member has a new member id. It is matched by instance
    id, then by client id and host, then by client id, each member once; so of equal clients at
    other addresses, only their number is known. If more are unmatched than are missing, they are
    matched by host alone too, only then because several processes of a service may share a host.
    """
    if not context.missing:
        return []
    here = {member.member_id: member for member in context.snapshot.members}
    was = {member.member_id: member for member in _roster(plan, seen, context.expected or 0)}
    gone = [member for id_, member in was.items() if id_ not in here]
    new = [member for id_, member in here.items() if id_ not in was]
    replaced = successors(gone, new, KEYS - 1)
    if len(gone) - len(replaced) > context.missing:
        replaced = successors(gone, new, KEYS)
    return [member for member in gone if member.member_id not in replaced]


def _roster(plan: Plan, seen: Sequence[JournalEntry], expected: int) -> list[Member]:
    """Return the members of the most complete earlier look, or of the plan's baseline.

    A look is considered only if it had the number of members that was expected then. The look with
    the most members is taken, then the one with the most processes (both up to `expected`), then
    the newest. Processes count because the old entry of a killed member beside its new one fills
    the number, but not the place of another process.
    """
    first, *later = looks_of(plan, seen)
    full = [
        look for look in later if len(look.members) >= (look.expected or plan.expected_members or 1)
    ]

    def rank(look: JournalEntry) -> tuple[int, int, Moment]:
        processes = {one.instance_id or (one.client_id, one.host) for one in look.members}
        return min(len(look.members), expected), min(len(processes), expected), look.at

    return [one.as_member for one in max((first, *full), key=rank).members]


def _rejections(
    plan: Plan, seen: Sequence[JournalEntry], context: Context, *, estimated: bool
) -> Iterator[Outsider]:
    """Yield the rejected clients that are not known to have rejoined, each with its doubt.

    A rejection happened at the latest at the first look that showed it. If this machine's clock was
    not compared with the brokers' (`clock_compared`), the log's time is used only if it is more
    than a day older than the plan.
    """
    static = {f.member.instance_id for f in context.members if f.static}
    now = context.snapshot.captured_at
    compared = plan.baseline.clock_compared and context.snapshot.clock_compared
    full = not context.missing and bool(context.members)
    counted = None if estimated else context.expected
    for one in unresolved_rejections(context.snapshot):
        shown_at = one.shown_at or now
        long_ago = when(one.at) < plan.baseline.captured_at - timedelta(days=1)
        at = one.at if compared or long_ago else None
        latest = min(at or shown_at, shown_at)
        until, behind = _hidden_until(plan, seen, context, latest, counted)
        # A load of the coordinator may bring back the entry of a dynamic member that has left.
        lasts = longest_session(
            f.member
            for f in context.members
            if at is None or f.member.instance_id == one.instance_id
        )
        # Its own old entry, with the id that it had, does not stand for it.
        open_ = full and at is None and behind and one.instance_id not in behind
        bounds = (*([now - lasts] if full else ()), *_settled(plan, seen, context, one))
        # One that joined since may have stopped again; its own entry has its own session.
        hidden = bool(behind) or (until is not None and one.instance_id not in static)
        doubt = Doubt.ENTRY if hidden else Doubt.PAST
        if not open_ and all(latest > each for each in bounds):
            doubt = Doubt.TIME if full and one.at is None else Doubt.NONE
            until = latest + lasts if doubt is Doubt.TIME or (full and counted) else None
        elif estimated and one.instance_id not in static:
            doubt = Doubt.COUNT
        yield Outsider(
            kind=OutsiderKind.REJECTED,
            name=one.instance_id or one.client_id or "a client",
            doubt=doubt,
            client_id=one.client_id,
            instance_id=one.instance_id,
            host=address(one.host),
            list=one.list,
            error=one.error,
            family=proven_family(one.software),
            since=one.at,
            until=None if doubt in (Doubt.COUNT, Doubt.PAST) else until,
            behind=behind if doubt is Doubt.ENTRY else (),
            evidence=(one.evidence,),
        )


def _was_there(member: Member, one: Outsider) -> bool:
    """Return whether this member is known to have joined before the client was rejected.

    If so, it is another process than that client.
    """
    return bool(member.first_joined_at and one.since and member.first_joined_at <= one.since)


def _settled(
    plan: Plan, seen: Sequence[JournalEntry], context: Context, one: Refusal
) -> Iterator[datetime]:
    """Yield times; a client that was rejected before one of them is known to have rejoined.

    Each time is that of an earlier look at a Stable group with as many dynamic members as are
    expected, less the longest session: no entry of a stopped member is older than that. The plan's
    baseline counts too, but its number of members may include entries of static members that have
    left since, and of the client itself. A group that rebalances proves nothing, because it still
    holds entries of members that left.
    """
    if (
        len(plan.baseline.members) >= (plan.expected_members or 0)
        and plan.baseline.group.state == GroupState.STABLE
    ):
        here = {facts.member.instance_id for facts in context.members} - {one.instance_id} | {None}
        left = [
            member
            for member in plan.baseline.members
            if member.instance_id not in here
            or (member.instance_id == one.instance_id and member.client_id == one.client_id)
        ]
        made_at = plan.baseline.captured_at
        # What no evidence of the plan showed may have a time of another machine's clock.
        apart = timedelta(milliseconds=1) if one.shown_at == made_at else CLOCKS
        yield made_at - (longest_session(left) if left else timedelta()) - apart
    lasts = longest_session(facts.member for facts in context.members)
    yield from (
        look.at - lasts
        for look in seen
        if look.state == GroupState.STABLE
        and sum(member.instance_id is None for member in look.members) >= (context.expected or 1)
    )


def _hidden_until(
    plan: Plan,
    seen: Sequence[JournalEntry],
    context: Context,
    at: datetime,
    counted: int | None,
) -> tuple[datetime | None, tuple[str, ...]]:
    """Return when stopped static members can no longer hide that a client is missing, and who.

    `at` is the time of the client's rejection, `counted` the number of members that the user gave.
    A stopped static member counts until its session ends. The names are those of the static members
    that were there at `at`. The time is None if no static member can hide it: there is none, their
    sessions are over, or the rejection was older than a session when the plan was made. A session
    is counted from `at`, or from the oldest look since which the members, their number and the
    coordinator are the same, if that is later: each completed rebalance (KIP-345) and each
    coordinator load restarts it.
    """
    static = [facts for facts in context.members if facts.static]
    lasts = longest_session(facts.member for facts in static)
    same = same_since(
        seen,
        context.snapshot.captured_at,
        lambda entry: (
            entry.ids == context.by_id.keys()
            and entry.expected == counted
            and not entry.is_before_load(context.group.coordinator)
        ),
    )
    until = max(at, same) + lasts
    if (
        not static
        or at < plan.baseline.captured_at - lasts
        or context.snapshot.captured_at >= until
    ):
        return None, ()
    first, *later = looks_of(plan, seen)
    known = first.ids.union(*(entry.ids for entry in later if entry.at <= at))
    # By its pseudonyms, any member may be one of a redacted baseline.
    return until, tuple(
        f.name for f in static if plan.baseline.redacted or f.member.member_id in known
    )
