"""The journal of a roll-out: one `JournalEntry` for each look at the group.

`remembered` adds the facts that the journal proves to a new snapshot. `as_stated` and `PlanContext`
apply what the user stated about the group.

A fact about a member id stays true while that id is in the group, because a client's assignor list
is fixed when its object is built. So what an entry proves of an id still holds at any later look.

The user can state the number of members of the service, and which clients left for good, at any
look. The plan records the statements made with it, the journal those made at later looks. A
statement that a client left for good covers only what the evidence shows up to that moment. If the
client is seen again later, the user is asked again.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import consumer_libraries, proven_family
from rebal.groups.compact import Lags
from rebal.groups.evidence.absent import client_of, without_departed, without_duplicates
from rebal.groups.model import (
    AssignorList,
    Coordinator,
    Departed,
    Evidence,
    GroupSnapshot,
    GroupState,
    Knowledge,
    Member,
    Moment,
    RanProtocol,
    RebalanceProtocol,
    Record,
    Refusal,
    Software,
    Source,
    Tri,
)
from rebal.groups.protocol import undisputed
from rebal.planner.admission.check import client_key, joined_since_rejection, member_of
from rebal.planner.commands import Given
from rebal.planner.context import COOPERATIVE, EAGER, Context
from rebal.planner.facts import identity_keys, owned, stated_in
from rebal.planner.goals import SHOWN
from rebal.planner.plan import Accepted, Advice, Plan, Risk, own_class_risk, with_default_settings

JOURNAL_SCHEMA: Final = "rebal.journal/2"
GOALS: Final = {shown: goal for goal, shown in SHOWN.items()}


class SeenMember(Record, frozen=True, kw_only=True):
    """One member at one look; `made` and `lacks` are the steps proven done and proven not done.

    `contradicted` are the steps whose confirmation by the operator is void, because evidence
    overrules it. `partitions` is the number of partitions that the member owned. `kept` is True if
    it kept partitions when it joined, which stays true of its id. `assignors` and `software` are
    proven by evidence, never assumed by the user.
    """

    member_id: str
    name: str = ""
    client_id: str = ""
    host: str = ""
    instance_id: str | None = None
    partitions: int = 0
    kept: bool = False
    made: tuple[int, ...] = ()
    lacks: tuple[int, ...] = ()
    contradicted: tuple[int, ...] = ()
    assignors: AssignorList | None = None
    software: Software | None = None

    @property
    def as_member(self) -> Member:
        """Return a `Member` with only the ids, the client id and the host."""
        return Member(
            member_id=self.member_id,
            client_id=self.client_id,
            host=self.host,
            instance_id=self.instance_id,
        )


class Confirmation(Record, frozen=True, kw_only=True):
    """The operator's statement that `members` (ids) have completed `step`, which no evidence shows.

    `list` is the assignor list that they run (empty: the step changes another setting). `by` is the
    operator's user name.
    """

    step: int
    reason: str
    members: tuple[str, ...]
    list: tuple[str, ...] = ()
    by: str = ""


class JournalEntry(Record, frozen=True, kw_only=True):
    """One look at the group; `blind` is the reason why the look failed (None: it succeeded).

    `plan` is the plan's `plan_key`. `step` is the step that the group was in and `gate` the answer
    of its gate; `finished`: the plan was carried out. `behind` are the offsets of the owned
    partitions that had lag (None: not read, or not recorded at this look). `rejected` are the
    rejections that this look or an earlier one showed; `dangers` are the kinds of the dangers.

    `accepted` is what the user accepted or stated at this look, a sentence each; `confirmed` is
    what the operator confirmed by hand. `left_out` are the ids of members that `step` does not
    concern. `advised` is the advice if it was to restart or start a member, or to wait after such a
    remedy had no effect. `departed` are the clients that left for good, and `expected` is the
    number of members, both as the user stated. `broker_id` is the coordinator's, and `leader_epoch`
    that of the group's offsets partition (None: not read).
    """

    at: Moment
    plan: str
    group_id: str
    step: int = 1
    gate: Tri = Tri.CANNOT_TELL
    finished: bool = False
    state: str = ""
    assignor: str | None = None
    generation: int | None = None
    members: tuple[SeenMember, ...] = ()
    behind: Lags | None = None
    rejected: tuple[Refusal, ...] = ()
    dangers: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    confirmed: Confirmation | None = None
    left_out: frozenset[str] = frozenset()
    advised: Advice | None = None
    departed: tuple[str, ...] = ()
    expected: int | None = None
    broker_id: int | None = None
    leader_epoch: int | None = None
    blind: str | None = None

    @property
    def ids(self) -> frozenset[str]:
        """Return the member ids that were in the group."""
        return frozenset(member.member_id for member in self.members)

    def is_before_load(self, coordinator: Coordinator | None) -> bool:
        """Return whether the coordinator loaded the group between this look and a later one.

        `coordinator` is the coordinator at the later look. Each load restarts the session timeouts
        of all members (GroupCoordinator.onGroupLoaded).
        """
        if coordinator is None or self.broker_id is None:
            return False
        return (
            self.broker_id != coordinator.broker_id
            or len({self.leader_epoch, coordinator.leader_epoch} - {None}) > 1
        )


def successors(gone: Sequence[Member], came: Sequence[Member], keys: int) -> dict[str, str]:
    """Return old member id → the id of the new member that replaced it.

    Members of `gone` and `came` with the same identity key are paired, each only once. The first
    `keys` of the identity keys are tried, the most reliable first (`identity_keys`).
    """
    found: dict[str, str] = {}
    for key in range(keys):
        waiting: dict[tuple[str, ...] | None, list[str]] = defaultdict(list)
        taken = set(found.values())
        for member in (one for one in came if one.member_id not in taken):
            waiting[identity_keys(member)[key]].append(member.member_id)
        for member in gone:
            own = identity_keys(member)[key]
            if own is not None and member.member_id not in found and waiting[own]:
                found[member.member_id] = waiting[own].pop()
    return found


def same_since(
    seen: Sequence[JournalEntry], now: Moment, holds: Callable[[JournalEntry], bool]
) -> Moment:
    """Return the time of the oldest look from which on `holds` is true of every look until now.

    `seen` are the earlier looks, oldest first. `now` is the time of the present look, for which it
    is known to be true; it is returned if `holds` is false of the newest look in `seen`.
    """
    return min((entry.at for entry in takewhile(holds, reversed(seen))), default=now)


def look_of(plan: Plan, snapshot: GroupSnapshot) -> JournalEntry:
    """Return the journal entry of a look, with only the facts that its snapshot shows.

    It includes exact assignor lists, even if the user only assumes them.
    """
    coordinator = snapshot.group.coordinator
    return JournalEntry(
        at=snapshot.captured_at,
        plan=plan_key(plan),
        group_id=plan.group_id,
        state=str(snapshot.group.state),
        assignor=snapshot.group.assignor,
        generation=snapshot.group.generation,
        members=tuple(
            SeenMember(
                member_id=member.member_id,
                name=member.client_id,
                client_id=member.client_id,
                host=member.host,
                instance_id=member.instance_id,
                partitions=owned(member),
                kept=member.kept_partitions > 0,
                assignors=member.assignors
                if member.assignors.knowledge is Knowledge.EXACT
                else None,
                software=proven_software(member),
            )
            for member in (undisputed(each, snapshot) for each in snapshot.members)
        ),
        rejected=tuple(
            replace(one, shown_at=one.shown_at or snapshot.captured_at) for one in snapshot.refusals
        ),
        broker_id=coordinator.broker_id if coordinator is not None else None,
        leader_epoch=coordinator.leader_epoch if coordinator is not None else None,
    )


def looks_of(plan: Plan, entries: Sequence[JournalEntry]) -> tuple[JournalEntry, ...]:
    """Return the earlier looks, oldest first, with the plan's baseline as the first one.

    The baseline counts as a look at which the step before the plan's next step was completed. A
    redacted baseline counts as a look without members, because its pseudonyms match no member id.
    """
    first = replace(look_of(plan, plan.baseline), step=(plan.next_step or 1) - 1, gate=Tri.YES)
    if plan.baseline.redacted:
        first = replace(first, members=(), gate=Tri.CANNOT_TELL)
    return (first, *entries)


def plan_key(plan: Plan) -> str:
    """Return the key that ties a journal to its plan: group, path, target and time of the plan."""
    return f"{plan.group_id} {plan.path} {plan.target} {plan.made_at.isoformat()}"


def remembered(
    plan: Plan, entries: Sequence[JournalEntry], snapshot: GroupSnapshot
) -> GroupSnapshot:
    """Return `snapshot` with the facts that earlier looks proved.

    They are the lists and clients of the members, by member id (of the plan's baseline also the
    assignors that a list holds at least), and rejections whose log has been rotated since. They
    fill gaps only: a list that contradicts evidence of this look is left out.
    Facts that the user assumed when the plan was made stay marked as assumed.
    """
    looks = looks_of(plan, entries)
    lists, clients = known_before(looks)
    known = () if plan.baseline.redacted else plan.baseline.members
    held = {member.member_id: member.assignors for member in known}
    members = tuple(
        _with(
            member,
            lists.get(member.member_id),
            clients.get(member.member_id),
            held.get(member.member_id, AssignorList()),
        )
        for member in (_rejoined(member, snapshot, entries) for member in snapshot.members)
    )
    # A journal of an older version keeps each rejection once, at the first look that showed it.
    shown = {
        _key(one): replace(one, shown_at=one.shown_at or look.at)
        for look in looks
        for one in look.rejected
    }
    kept = (
        one
        for one in without_duplicates(shown.values())
        if not any(_is_same(plan, one, other) for other in snapshot.refusals)
    )
    now = (_merged(shown.get(_key(one), one), one) for one in look_of(plan, snapshot).rejected)
    merged = replace(snapshot, members=members, refusals=(*kept, *now))
    return replace(merged, refusals=tuple(_resolved(merged, one, looks) for one in merged.refusals))


def _rejoined(member: Member, snapshot: GroupSnapshot, entries: Sequence[JournalEntry]) -> Member:
    """Return the member, marked as running EAGER if earlier looks show that it revoked partitions.

    It did if a look shows that it owned partitions in the generation before it last joined, and its
    subscription says that it joined with none: a COOPERATIVE member names its owned partitions at
    each join (KIP-429). If its subscription names no generation, a dynamic member is taken to have
    joined in the group's current one; a static member is not, because it may be down.
    """
    sent = member.subscription
    if member.ran is not None or sent is None or sent.owned_partitions is None or sent.owned_count:
        return member
    looks = [
        (entry, seen)
        for entry in entries
        for seen in entry.members
        if seen.member_id == member.member_id
    ]
    joined = snapshot.group.generation if member.instance_id is None else None
    before = (
        joined - 1
        if joined is not None and sent.generation_id in (None, -1)
        else sent.generation_id
    )
    gave_up = [
        entry.at
        for entry, seen in looks
        if seen.partitions and entry.state == GroupState.STABLE
        if before is not None and entry.generation == before
    ]
    if not gave_up or any(seen.kept for _, seen in looks):
        return member
    by = (Evidence(source=Source.SUBSCRIPTION, at=gave_up[-1], detail="the journal"),)
    return replace(member, ran=RanProtocol(value=RebalanceProtocol.EAGER, evidence=by))


def _key(one: Refusal) -> tuple[object, ...]:
    """Return the key that distinguishes one rejection from the client's next rejection."""
    # A log that is exported again has other line numbers.
    return client_key(one), one.list, one.connection or one.at or one.evidence.detail


def _merged(known: Refusal, one: Refusal) -> Refusal:
    """Return the rejection `one` of this look, completed by `known` from earlier looks.

    `known` gives the time at which the rejection was first shown and, if `one` does not show it,
    how the client rejoined.
    """
    back = known if one.rejoined_as is None else one
    return replace(
        one,
        shown_at=known.shown_at,
        rejoined_as=back.rejoined_as,
        rejoined_at=back.rejoined_at,
    )


def _is_same(plan: Plan, one: Refusal, other: Refusal) -> bool:
    """Return whether two rejections may be of the same client.

    A client's own log has no address, so an empty address matches any. Rejections in a redacted
    baseline are compared by list, error and time, because its pseudonyms match no client.
    """
    if plan.baseline.redacted and one.shown_at == plan.baseline.captured_at:
        return (one.list, one.error, one.at) == (other.list, other.error, other.at)
    if one.instance_id or other.instance_id:
        return one.instance_id == other.instance_id
    return one.client_id == other.client_id and (
        one.host == other.host or "" in (one.host, other.host)
    )


def _resolved(snapshot: GroupSnapshot, one: Refusal, looks: Sequence[JournalEntry]) -> Refusal:
    """Return the rejection, marked as resolved if its client has joined since.

    The client has joined if it has a member id that no look had, up to the look that first showed
    the rejection (a coordinator reload may bring an old id back). That id is in the group, in a
    later look, or only in this look's log, if the member joined and left between two looks.
    """
    shown_at = one.shown_at or snapshot.captured_at
    if one.rejoined_as is not None or shown_at == snapshot.captured_at:
        return one
    told = one.instance_id or one.host
    member = member_of(snapshot, one) if told else None
    later = {
        gone.member_id
        for gone in snapshot.departed
        if told and client_key(gone) == client_key(one)
        if gone.last_seen is not None and gone.last_seen > max(shown_at, one.at or shown_at)
    } | {
        seen.member_id
        for look in looks
        for seen in look.members
        if seen.instance_id == one.instance_id is not None
    }
    if member is not None and joined_since_rejection(member, one) is not Tri.NO:
        later.add(member.member_id)
    new = later.difference(*(look.ids for look in looks if look.at <= shown_at))
    return replace(one, rejoined_as=min(new)) if new else one


def known_before(
    looks: Sequence[JournalEntry],
) -> tuple[dict[str, AssignorList], dict[str, Software]]:
    """Return member id → exact list, and member id → client, as the looks proved them."""
    seen = [member for look in looks for member in look.members]
    return (
        {one.member_id: one.assignors for one in seen if one.assignors is not None},
        {one.member_id: one.software for one in seen if one.software is not None},
    )


def list_is_assumed(member: Member) -> bool:
    """Return whether this member's assignor list is the user's statement, not evidence."""
    return any(item.source is Source.ASSUMED for item in member.assignors.evidence)


def proven_software(member: Member) -> Software | None:
    """Return the member's client software if its family is proven, else None."""
    return member.software if proven_family(member.software) is not None else None


def _with(
    member: Member,
    assignors: AssignorList | None,
    software: Software | None,
    held: AssignorList,
) -> Member:
    now, names = member.assignors, set(assignors.list) if assignors is not None else set()
    fits = set(now.at_least) <= names and not set(now.lacks) & names
    gap = now.knowledge is not Knowledge.EXACT and member.protocol_type != "consumer"
    if gap and held.at_least:
        unknown = now.knowledge is Knowledge.UNKNOWN
        proofs = (one for one in held.evidence if one.source is not Source.ASSUMED)
        now = replace(
            now,
            knowledge=Knowledge.BOUNDED if unknown else now.knowledge,
            at_least=tuple(sorted({*now.at_least, *held.at_least}.difference(now.lacks))),
            evidence=tuple(dict.fromkeys((*now.evidence, *proofs))),
        )
    return replace(
        member,
        assignors=assignors if assignors is not None and gap and fits else now,
        software=proven_software(member) or software or member.software,
    )


class PlanContext(Context):
    """A group and the goal of an existing plan, with the plan's own step numbers.

    `expected`, `accepted` and `given` are those of this command line, else the plan's.
    """

    anew = ("--new-attempt",)

    def __init__(
        self,
        plan: Plan,
        snapshot: GroupSnapshot,
        expected: int | None = None,
        accepted: Accepted | None = None,
        given: Given | None = None,
    ) -> None:
        accepted = accepted or plan.accepted
        if Risk.UNREAD_SETTINGS in accepted.ignore:
            snapshot = with_default_settings(snapshot)
        client = plan.to if plan.to in consumer_libraries() else None
        goal = EAGER if client else GOALS.get(plan.to, COOPERATIVE)
        super().__init__(
            snapshot,
            goal=goal,
            target=plan.target,
            only_target=plan.only_target,
            planning=True,
            expect_members=expected,
            families=accepted.families,
            given=given or plan.given,
            remembers=Risk.FORGOTTEN_LISTS in accepted.ignore,
            own_classes=own_class_risk(goal) in accepted.ignore,
            client=client,
        )
        self._plan = plan
        self._said_now = dict(accepted.families.items() - plan.accepted.families.items())
        self._planned = {member.member_id for member in plan.baseline.members}
        self.counted = accepted.members is not None or snapshot.expected_members is not None
        last = len(plan.steps) or 1
        self.leaving_step = next(
            (step.id for step in plan.steps if step.target_list == (plan.target,)), last
        )
        self.narrow_step = next((step.id for step in plan.steps if step.aim.leaves_old), last)

    def stated_family(self, member: Member) -> str | None:
        """Return the client family that the user states for this member; None if none.

        While a plan replaces the client library, the families recorded in the plan apply only to
        the members that the plan saw, and families stated since apply to all others.
        """
        if self.client is None:
            return super().stated_family(member)
        return stated_in(
            self._plan.accepted.families if member.member_id in self._planned else self._said_now,
            member,
        )

    @cached_property
    def restarted(self) -> frozenset[str]:
        """Return the ids of members that joined since the plan was made.

        Empty if the coordinator is known to have been reloaded since, or if the baseline is
        redacted.
        """
        baseline = self._plan.baseline
        now_in, made_in = (
            group.coordinator.leader_epoch if group.coordinator is not None else None
            for group in (self.group, baseline.group)
        )
        if baseline.redacted or (now_in is not None and now_in != made_in):
            return frozenset()
        return frozenset(self.by_id) - self._planned


def as_stated(
    plan: Plan,
    entries: Sequence[JournalEntry],
    snapshot: GroupSnapshot,
    given: Accepted | None,
    expect_members: int | None,
) -> tuple[Plan, GroupSnapshot, Accepted, int]:
    """Apply what the user stated to the plan and the snapshot.

    Return the plan, the snapshot, all statements, and the number of members of the whole service.
    The statements are those of the plan, the journal and this command line together. Clients that
    left for good are removed from the plan's baseline and from the snapshot. The returned
    snapshot's departed members are those that may return and that the number of members does not
    count. `entries` are the earlier looks, oldest first. `given` and `expect_members` are this
    command line's.
    """
    planned, given = plan.accepted, given or Accepted()
    accepted = Accepted(
        families={**planned.families, **given.families},
        ignore={**planned.ignore, **given.ignore},
        departed=tuple(dict.fromkeys([*planned.departed, *given.departed])),
        members=planned.members,
    )
    since = dict.fromkeys(accepted.departed, snapshot.captured_at) | departed_since(plan, entries)
    counted = [entry.expected for entry in entries if entry.expected is not None]
    number = expect_members or next(reversed(counted), accepted.members)
    baseline = without_departed(plan.baseline, since)
    plan = replace(plan, baseline=baseline)
    if plan.accepted.members is None:
        plan = replace(plan, expected_members=PlanContext(plan, baseline).expected)
    seen = without_departed(snapshot, since)
    return (
        plan,
        replace(seen, departed=_may_return(plan, entries, seen)),
        replace(accepted, departed=tuple(since), members=number),
        number or plan.expected_members or len(baseline.members),
    )


def departed_since(plan: Plan, entries: Sequence[JournalEntry]) -> dict[str, Moment]:
    """Return the name of each client that left for good → the time of the user's statement.

    The statements are those of the plan and of its journal.
    """
    return {
        **{name: entry.at for entry in reversed(entries) for name in entry.departed},
        **dict.fromkeys(plan.accepted.departed, plan.baseline.captured_at),
    }


def here_again(departed: Iterable[str], snapshot: GroupSnapshot) -> list[str]:
    """Return the names of clients that are members now, although stated to have left for good."""
    known = {name for one in snapshot.members for name in (client_of(one), one.member_id)}
    return [name for name in departed if name in known]


def _may_return(
    plan: Plan, entries: Sequence[JournalEntry], snapshot: GroupSnapshot
) -> tuple[Departed, ...]:
    """Return the departed members that the number of members does not count, oldest first.

    A member that the plan or a look saw in the group is counted. A member that had departed before
    the plan has returned if the group has more members of its client than the plan saw.
    """
    known = plan.baseline
    here, then = (Counter(map(client_of, each.members)) for each in (snapshot, known))
    before = [one for one in known.departed if here[client_of(one)] <= then[client_of(one)]]
    counted = {member.member_id for member in known.members}.union(*(one.ids for one in entries))
    asked = {client_of(one) for one in known.departed}
    return (
        *before,
        *(
            one
            for one in snapshot.departed
            if one.member_id not in counted and client_of(one) not in asked
        ),
    )
