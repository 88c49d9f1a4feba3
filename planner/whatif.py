"""What an assignor would do to a group: `simulate` takes a snapshot and returns a `Simulation`.

It answers for one rebalance with all members that are in the snapshot, each running the assignor
and telling the leader what it owns now; a COOPERATIVE assignor goes on until nobody has to give
anything up (KIP-429).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import Assignment, Assignor, LeaderWouldFail, Spec, SpecMember, get
from rebal.groups.model import GroupSnapshot, RebalanceProtocol, Record, TopicPartitions
from rebal.groups.partitions import Partitions
from rebal.planner.context import names
from rebal.planner.whatif_spec import TopicPartition, left_out, owners_now, spec_of

MOST_ROUNDS: Final = 100


class Spread(Record, frozen=True, kw_only=True):
    """The fewest and the most partitions that one member has, now and then."""

    now_min: int
    now_max: int
    then_min: int
    then_max: int


class TopicSpread(Record, frozen=True, kw_only=True):
    """One topic's `Spread`, over the members that subscribe to it."""

    topic: str
    partitions: int
    balance: Spread


class MemberShift(Record, frozen=True, kw_only=True):
    """One member, now and then; `name` is short and for people. Counts are partitions.

    `then` is what it owns when the group is stable again. What it `keeps` is in both, what it
    `gives` only in `now`, what it `gets` only in `then`. `not_subscribed` are those of `then` in
    topics that it did not subscribe to (a known oddity of the sticky assignors).
    """

    member_id: str
    name: str
    now: TopicPartitions
    then: TopicPartitions
    keeps: int
    gives: int
    gets: int
    not_subscribed: TopicPartitions


class RoundMember(Record, frozen=True, kw_only=True):
    """What one member gives up and gets in one round; members without either are left out."""

    member_id: str
    revoked: TopicPartitions
    assigned: TopicPartitions


class Round(Record, frozen=True, kw_only=True):
    """One rebalance of a COOPERATIVE group; counts are partitions.

    `assigned` are those that reach a new owner in this round, `still_owned` those that stay.
    """

    number: int
    revoked: int
    assigned: int
    still_owned: int
    members: tuple[RoundMember, ...] = ()


class Failure(Record, frozen=True, kw_only=True):
    """The real leader would throw or never end: no assignment goes out, nobody reads on."""

    message: str
    never_ends: bool
    members: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


class Simulation(Record, frozen=True, kw_only=True):
    """The answer. Partition counts: `moved` change their owner, `stays` do not, `started` have no
    owner now and one then, `lost` the other way round.

    `eager_stops` is how many partitions stop when all members run EAGER; `cooperative_stops` when
    all run COOPERATIVE (None: the assignor cannot). `rebalances` is until the group is stable
    (False: not after that many). With a `failure` there is no result: members are as now.
    `order` says in which order the members were handed to the assignor.
    """

    group_id: str
    captured_at: datetime
    assignor: str
    assignor_now: str | None
    protocol: RebalanceProtocol
    partitions: int
    moved: int
    stays: int
    started: int
    lost: int
    balance: Spread
    topics: tuple[TopicSpread, ...]
    rebalances: int
    stable: bool
    eager_stops: int
    cooperative_stops: int | None
    members: tuple[MemberShift, ...]
    rounds: tuple[Round, ...] = ()
    failure: Failure | None = None
    order: str = "as in the snapshot"
    assumes: tuple[str, ...] = ()


def simulate(snapshot: GroupSnapshot, assignor: str) -> Simulation:
    """What `assignor` would make of the group in `snapshot`.

    Raises:
        UnknownAssignorError: there is no such assignor.
        CannotSimulateError: the snapshot does not hold what is needed; the message says what.
    """
    chosen = get(assignor)
    spec = spec_of(snapshot)
    now = owners_now(snapshot)
    cooperative = RebalanceProtocol.COOPERATIVE in chosen.supported_protocols
    rounds: list[Round] = []
    stable = True
    failure = None
    try:
        if cooperative:
            result, rounds, stable = _until_stable(chosen, spec)
        else:
            result = chosen.assign(_as_sent(chosen, spec))
    except LeaderWouldFail as error:
        failure = Failure(
            message=str(error),
            never_ends=error.never_ends,
            members=error.members,
            topics=error.topics,
        )
        result = {member.member_id: list(member.owned) for member in spec.members}
    then = {owned: member for member, owns in result.items() for owned in owns}
    moved = sum(1 for owned, member in now.items() if then.get(owned, member) != member)
    lost = sum(1 for owned in now if owned not in then)
    shifts = _shifts(snapshot, spec, result)
    sizes = [(shift.keeps + shift.gives, len(result[shift.member_id])) for shift in shifts]
    return Simulation(
        group_id=snapshot.group.group_id,
        captured_at=snapshot.captured_at,
        assignor=assignor,
        assignor_now=snapshot.group.assignor,
        protocol=RebalanceProtocol.COOPERATIVE if cooperative else RebalanceProtocol.EAGER,
        partitions=len(now.keys() | then.keys()),
        moved=moved,
        stays=len(now) - moved - lost,
        started=sum(1 for owned in then if owned not in now),
        lost=lost,
        balance=_spread(sizes),
        topics=_topic_spreads(spec, shifts),
        rebalances=len(rounds) if cooperative else 1,
        stable=stable and failure is None,
        eager_stops=len(now),
        cooperative_stops=sum(made.revoked for made in rounds) if cooperative else None,
        members=shifts,
        rounds=tuple(rounds),
        failure=failure,
        assumes=_assumes(snapshot, assignor),
    )


def _as_sent(assignor: Assignor, spec: Spec) -> Spec:
    """`spec` with the user data that each member sends."""
    return replace(
        spec,
        members=tuple(
            replace(member, user_data=assignor.subscription_user_data(member))
            for member in spec.members
        ),
    )


def _until_stable(assignor: Assignor, spec: Spec) -> tuple[Assignment, list[Round], bool]:
    """Rounds until nobody gives anything up: each one who does rejoins with what is left."""
    rounds: list[Round] = []
    spec = _as_sent(assignor, spec)
    result: Assignment = {}
    while len(rounds) < MOST_ROUNDS:
        result = assignor.assign(spec)
        made = _round(len(rounds) + 1, spec, result)
        rounds.append(made)
        if not made.revoked:
            return result, rounds, True
        spec = replace(
            spec,
            members=tuple(
                assignor.on_assignment(
                    member, sorted(result[member.member_id]), None, (member.generation or 0) + 1
                )
                for member in spec.members
            ),
        )
    return result, rounds, False


def _round(number: int, spec: Spec, result: Assignment) -> Round:
    members: list[RoundMember] = []
    revoked = assigned = still = 0
    for member in spec.members:
        before, after = set(member.owned), set(result[member.member_id])
        lost, new = before - after, after - before
        revoked += len(lost)
        assigned += len(new)
        still += len(before & after)
        if lost or new:
            members.append(
                RoundMember(
                    member_id=member.member_id, revoked=_grouped(lost), assigned=_grouped(new)
                )
            )
    return Round(
        number=number, revoked=revoked, assigned=assigned, still_owned=still, members=tuple(members)
    )


def _shifts(snapshot: GroupSnapshot, spec: Spec, result: Assignment) -> tuple[MemberShift, ...]:
    labels = names(snapshot.members)
    return tuple(_shift(member, labels, result[member.member_id]) for member in spec.members)


def _shift(
    member: SpecMember, labels: Mapping[str, str], gets: list[TopicPartition]
) -> MemberShift:
    before, after = set(member.owned), set(gets)
    return MemberShift(
        member_id=member.member_id,
        name=labels[member.member_id],
        now=_grouped(before),
        then=_grouped(after),
        keeps=len(before & after),
        gives=len(before - after),
        gets=len(after - before),
        not_subscribed=_grouped(owned for owned in after if owned[0] not in member.topics),
    )


def _spread(counts: Iterable[tuple[int, int]]) -> Spread:
    """The spread of `(now, then)` counts, one for each member."""
    now, then = zip(*counts, strict=True)
    return Spread(now_min=min(now), now_max=max(now), then_min=min(then), then_max=max(then))


def _topic_spreads(spec: Spec, shifts: tuple[MemberShift, ...]) -> tuple[TopicSpread, ...]:
    counts: dict[str, list[tuple[int, int]]] = {}
    for member, shift in zip(spec.members, shifts, strict=True):
        for topic in dict.fromkeys((*member.topics, *shift.now, *shift.then)):
            count = (len(shift.now.get(topic, ())), len(shift.then.get(topic, ())))
            counts.setdefault(topic, []).append(count)
    return tuple(
        TopicSpread(topic=topic, partitions=spec.partitions[topic], balance=_spread(counts[topic]))
        for topic in sorted(counts)
        if topic in spec.partitions
    )


def _grouped(partitions: Iterable[TopicPartition]) -> TopicPartitions:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return {topic: Partitions(numbers) for topic, numbers in by_topic.items()}


def _assumes(snapshot: GroupSnapshot, assignor: str) -> tuple[str, ...]:
    made = [
        f"every member runs {assignor}"
        + (
            " and tells the leader what it owns now"
            if "sticky" in assignor
            else ", which does not ask what they own now"
        ),
        "members reach the leader in the order of the snapshot (the order in which they will "
        "join cannot be known; it rarely matters)",
    ]
    others = sorted(
        {
            member.software.family
            for member in snapshot.members
            if member.software is not None and member.software.family not in (None, "java")
        }
    )
    if others:
        made.append(
            f"the leader is a Java client; one of {', '.join(others)} may choose other partitions"
        )
    if snapshot.redacted and "sticky" in assignor:
        made.append(
            "the snapshot is redacted: the sticky assignors go by hashes of the real member ids, "
            "so other, equally good partitions may move"
        )
    unknown = left_out(snapshot)
    if unknown:
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        made.append(
            "the leader knows no more topics than the snapshot: members also subscribe to "
            f"{', '.join(unknown[:5])}{more}"
        )
    return tuple(made)
