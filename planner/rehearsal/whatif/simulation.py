"""Simulation of an assignor: `simulate` takes a snapshot and returns a `Simulation`.

All members of the snapshot run the assignor and report to the leader the partitions they own now.
Then the changes of the what-if happen one after the other (`whatif.changes`), and after each the
group rebalances until it is at rest (`engine.leaders.Rounds`). EAGER: one rebalance for each
change, in which every partition stops. COOPERATIVE (KIP-429): members rejoin until no member has to
revoke partitions. KIP-848: the coordinator computes one target, and each member reaches it on its
own.

`simulate_workers` simulates restarts of Connect workers under each connect.protocol.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import LeaderWouldFail, Spec, SpecMember
from rebal.groups.assignors.client.kafka import KafkaAssignor
from rebal.groups.assignors.server import Undecided
from rebal.groups.assignors.spec import PartitionRule, Violation, violations
from rebal.groups.clients import worker_list
from rebal.groups.model import (
    AssignorList,
    GroupSnapshot,
    Knowledge,
    RebalanceProtocol,
    Record,
    TopicPartitions,
)
from rebal.groups.snapshot.documents import no_collection
from rebal.planner.context import names
from rebal.planner.plan import Cost
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import by_workers
from rebal.planner.rehearsal.engine.leaders import Rounds, rejoins
from rebal.planner.rehearsal.spec import Owners, start_of
from rebal.planner.rehearsal.whatif.changes import (
    DEFAULT_TIMEOUT,
    Changes,
    ChangeStep,
    Choice,
    Course,
    CustomAssignors,
    Finder,
    LeaderTime,
    WhatIfError,
    assumes,
    course,
    find_assignor,
    leader_time,
)
from rebal.planner.timeouts import Speed

MOST_ROUNDS: Final = 100


class RoundMember(Record, frozen=True, kw_only=True):
    """Partitions that one member loses and gets in one rebalance."""

    member_id: str
    revoked: TopicPartitions
    assigned: TopicPartitions


class Round(Record, frozen=True, kw_only=True):
    """One rebalance, or one new target of a KIP-848 group; counts are partitions.

    `why` is its cause (empty: it follows from the rebalance before, or from the change of
    assignor). `gone` counts partitions whose owner has left the group, `revoked` those taken from
    members that stay, `assigned` those that get a new owner, and `still_owned` those that keep
    their owner. `members` are the members whose partitions change. Under EAGER all partitions are
    revoked and assigned, and `members` is empty.
    """

    number: int
    why: str = ""
    gone: int = 0
    revoked: int
    assigned: int
    still_owned: int
    members: tuple[RoundMember, ...] = ()


class Walk:
    """A group that goes through the steps of a what-if, with the results so far.

    `numbers` maps every member that takes part to its number; a restarted member keeps its number.
    The walk ends after `most_rounds` rebalances in all. `before` and `after` are the partition
    owners at the start and now. `stops` counts the partitions that stop, `eager_stops` those that
    would stop if each step were one EAGER rebalance. `settled` is False if the group did not come
    to rest after the last step. `again` counts the partitions that one more rebalance would take
    from their owners. `violations` has one case of each rule that a custom assignor breaks, or of
    a partition with two owners.
    """

    def __init__(
        self,
        start: Spec,
        first: Owners,
        numbers: Mapping[str, int],
        choice: Choice,
        *,
        most_rounds: int,
    ) -> None:
        self._choice, self._numbers, self._most_rounds = choice, numbers, most_rounds
        self.group = Rounds(start, choice.assignor, choice.protocol)
        self.before = self.after = first
        self.rounds: list[Round] = []
        self.stops = self.eager_stops = self.again = self._gone = 0
        self.settled = True
        self.violations: dict[str, Violation] = {}

    def take(self, step: ChangeStep) -> None:
        """Apply one step to the group, and rebalance until the group is at rest.

        Raises:
            LeaderWouldFail: the real leader would throw or never end.
            CustomAssignorError: a custom assignor fails.
        """
        self._apply(step)
        self.settled, why = not self.group.spec.members, step.why
        while not self.settled and len(self.rounds) < self._most_rounds:
            self.settled, why = not self._rebalance(why), ""

    def _apply(self, step: ChangeStep) -> None:
        """Apply one step to the group, and count the partitions of the members that leave.

        If no member is left, these partitions are reported with the rebalance of the next member to
        join.
        """
        before = self.group.change(step.apply)
        spec = self.group.spec
        stayed = {member.member_id for member in spec.members}
        left = [member for member in before if member.member_id not in stayed]
        gone = sum(len(member.owned) for member in left)
        self.eager_stops += sum(len(member.owned) for member in before)
        self.stops += gone
        self._gone += gone
        if left:
            self.after = self._state(spec, {m.member_id: m.owned for m in spec.members})

    def _rebalance(self, why: str) -> bool:
        """Rebalance once, and return whether members must join again."""
        choice = self._choice
        sent, result = self.group.rebalance()
        after = self._state(sent, result)
        # Of Kafka's own assignors only a partition with two owners is told: they take claims as
        # they are, of a topic that was made anew with fewer partitions too.
        if choice.custom or after.total < sum(map(len, result.values())):
            for one in violations(sent, result, cooperative=choice.cooperative):
                if choice.custom or one.rule is PartitionRule.TWICE:
                    self.violations.setdefault(one.rule, one)
        made = self._round(why, after)
        self.rounds.append(made)
        self.stops += made.revoked
        self.after, self._gone = after, 0
        # A KIP-848 member reaches its target alone.
        return not choice.server_side and rejoins(choice.protocol, made.revoked)

    def look_ahead(self) -> None:
        """Compute `again`, the partitions that one more rebalance would take from their owners.

        It is computed for Kafka's own cooperative assignors if subscriptions differ, and stays 0
        otherwise.

        Raises:
            LeaderWouldFail: the real leader would throw or never end.
        """
        choice, spec = self._choice, self.group.spec
        asked = isinstance(choice.assignor, KafkaAssignor) and choice.cooperative and self.settled
        if asked and len({member.topics for member in spec.members}) > 1:
            _, result = self.group.compute_next()
            self.again = self.after.without(self._state(self.group.spec, result)).total

    def _round(self, why: str, after: Owners) -> Round:
        before, calm = self.after, self._choice.cooperative
        gives = before.without(after) if calm else before
        gets = after.without(before) if calm else after
        changed = sorted(gives.shares.keys() | gets.shares.keys()) if calm else ()
        names = {n: name for name, n in self._numbers.items()}
        by_now = {self._numbers[m.member_id]: m.member_id for m in self.group.spec.members}
        return Round(
            number=len(self.rounds) + 1,
            why=why,
            gone=self._gone,
            revoked=gives.total,
            assigned=gets.total,
            still_owned=before.total - gives.total,
            members=tuple(
                RoundMember(
                    member_id=by_now.get(n, names[n]),
                    revoked=gives.shares.get(n, {}),
                    assigned=gets.shares.get(n, {}),
                )
                for n in changed
            ),
        )

    def _state(self, spec: Spec, owned: Mapping[str, Sequence[tuple[str, int]]]) -> Owners:
        return Owners(
            (self._numbers[one.member_id], owned.get(one.member_id, ())) for one in spec.members
        )


class Spread(Record, frozen=True, kw_only=True):
    """The fewest and the most partitions of one member, before and after the simulation.

    `now_min` and `now_max` are before, `then_min` and `then_max` after.
    """

    now_min: int
    now_max: int
    then_min: int
    then_max: int


class TopicSpread(Record, frozen=True, kw_only=True):
    """The fewest and the most partitions of one topic that a subscriber of the topic owns.

    Owners without a subscription count too. `partitions` is the topic's final partition count.
    """

    topic: str
    partitions: int
    balance: Spread


class MemberShift(Record, frozen=True, kw_only=True):
    """One member's partitions before and after the simulation; counts are partitions.

    `name` is its short name for display. `now` is what it owns before, `then` what it owns when the
    group is at rest again. `keeps` counts partitions in both, `gives` those only in `now`, `gets`
    those only in `then`. `not_subscribed` has the partitions in `then` of topics to which the
    member does not subscribe (a known oddity of the sticky assignors). `change` is `joins` for an
    added member, `leaves` for a removed one, and empty otherwise. A restarted member appears once,
    with its id in the snapshot.
    """

    member_id: str
    name: str
    now: TopicPartitions
    then: TopicPartitions
    keeps: int
    gives: int
    gets: int
    not_subscribed: TopicPartitions
    change: str = ""


class Failure(Record, frozen=True, kw_only=True):
    """Failure of the real leader: it would throw or never end, and no member gets partitions.

    `members` and `topics` are those that the failure concerns.
    """

    message: str
    never_ends: bool
    members: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


class Simulation(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Result of a simulation; counts are partitions unless stated otherwise.

    `moved` change their owner, `stays` keep it, `started` have an owner only afterwards, and `lost`
    only before. `stops` counts each time that a partition stops under the assignor's own protocol,
    `eager_stops` if all members run EAGER, `cooperative_stops` if all run COOPERATIVE (None: the
    assignor does not support it). `again` counts the partitions that the next rebalance takes from
    their owners although nothing has changed (COOPERATIVE, if subscriptions differ).

    `rebalances` is the number of rebalances until the group is at rest, `eager_rebalances` the same
    under EAGER. `stable` is False if the group does not come to rest. With a `failure` there is no
    result, and members keep their partitions. `order` is the order in which members are passed to
    the assignor. `server_side` is True if a KIP-848 coordinator computes the assignment; each new
    target then counts as a rebalance. `what_if` describes the changes. `violations` are the rules
    that a custom assignor breaks.
    """

    group_id: str
    captured_at: datetime
    assignor: str
    assignor_now: str | None
    server_side: bool = False
    protocol: RebalanceProtocol
    what_if: tuple[str, ...] = ()
    partitions: int
    moved: int
    stays: int
    started: int
    lost: int
    balance: Spread
    topics: tuple[TopicSpread, ...]
    rebalances: int
    eager_rebalances: int
    stable: bool
    again: int = 0
    stops: int
    eager_stops: int
    cooperative_stops: int | None
    members: tuple[MemberShift, ...]
    rounds: tuple[Round, ...] = ()
    leader: LeaderTime | None = None
    failure: Failure | None = None
    violations: tuple[Violation, ...] = ()
    order: str = "as in the snapshot"
    assumes: tuple[str, ...] = ()


@no_collection()
def simulate(
    snapshot: GroupSnapshot,
    assignor: str,
    changes: Changes | None = None,
    *,
    custom: CustomAssignors | None = None,
    most_rounds: int = MOST_ROUNDS,
    rebalance_timeout: float = DEFAULT_TIMEOUT,
) -> Simulation:
    """Simulate `assignor` on the group in `snapshot` while `changes` happen.

    `custom` are assignors by name that are not Kafka's own. `most_rounds` limits the number of
    rebalances. `rebalance_timeout` is in seconds.

    Raises:
        UnknownAssignorError: there is no such assignor.
        CannotSimulateError: the snapshot lacks data that is needed; the message says which.
        WhatIfError: the group cannot undergo one of the changes.
        CustomAssignorError: a custom assignor fails.
    """
    choice = find_assignor(assignor, snapshot, custom or {})
    spec, first = start_of(snapshot, server_side=choice.server_side)
    plan = course(snapshot, spec, changes or Changes(), server_side=choice.server_side)
    numbers = _numbers(spec, plan)
    begin = partial(Walk, plan.start, first, numbers, choice, most_rounds=most_rounds)
    made, failure = _apply_steps(plan, begin)
    before, after = made.before, made.after
    kept = before.sizes - before.without(after).sizes
    owned = len(before.by_partition.keys() & after.by_partition.keys())
    stays = kept.total()
    labels = {**names(snapshot.members), **plan.added}
    shifts = _shifts(labels, plan, made, numbers, kept)
    cooperative = choice.cooperative
    return Simulation(
        group_id=snapshot.group.group_id,
        captured_at=snapshot.captured_at,
        assignor=choice.name,
        assignor_now=snapshot.group.assignor,
        server_side=choice.server_side,
        protocol=choice.protocol,
        what_if=tuple(step.why for step in plan.steps if step.why),
        partitions=before.total + after.total - owned,
        moved=owned - stays,
        stays=stays,
        started=after.total - owned,
        lost=before.total - owned,
        balance=_spread(
            (shift.keeps + shift.gives for shift in shifts if shift.change != "joins"),
            (shift.keeps + shift.gets for shift in shifts if shift.change != "leaves"),
        ),
        topics=_topic_spreads(plan.start, made, numbers),
        rebalances=len(made.rounds),
        eager_rebalances=len(plan.steps),
        stable=made.settled and failure is None,
        again=made.again,
        stops=made.stops if cooperative else made.eager_stops,
        eager_stops=made.eager_stops,
        cooperative_stops=made.stops if cooperative and failure is None else None,
        members=shifts,
        rounds=tuple(made.rounds),
        leader=leader_time(made.group.spec, choice.name, rebalance_timeout),
        failure=failure,
        violations=tuple(made.violations.values()),
        assumes=assumes(
            snapshot,
            choice,
            _named(made, labels, numbers),
            plan.notes,
            made.group.spec,
        ),
    )


def _named(made: Walk, labels: Mapping[str, str], numbers: Mapping[str, int]) -> Undecided:
    """Return the undecided topics and members of the walk, with members' names for display.

    Undecided means that their order in a KIP-848 coordinator's tables is not known and could change
    the assignment. `labels` has the names by member id.
    """
    by_number = {numbers[member_id]: label for member_id, label in labels.items()}
    undecided = made.group.undecided
    members = (by_number[numbers[member_id]] for member_id in undecided.members)
    return Undecided(undecided.topics, frozenset(members))


def _numbers(spec: Spec, plan: Course) -> Mapping[str, int]:
    # One that is restarted keeps its number.
    everyone = [*(member.member_id for member in spec.members), *plan.added]
    numbers = {member_id: n for n, member_id in enumerate(everyone)}
    for step in plan.steps:
        numbers |= {new: numbers[old] for new, old in step.renamed.items()}
    return numbers


def _apply_steps(plan: Course, begin: Callable[[], Walk]) -> tuple[Walk, Failure | None]:
    """Apply all steps, and return the resulting walk and the leader's failure (None: no failure).

    `begin` makes a walk that has taken no step. After a failure such a walk is returned, with the
    group as it was before the first step.
    """
    walk = begin()
    try:
        for step in plan.steps:
            walk.take(step)
        walk.look_ahead()
        return walk, None
    except LeaderWouldFail as error:
        failure = Failure(
            message=str(error),
            never_ends=error.never_ends,
            members=error.members,
            topics=error.topics,
        )
    walk = begin()
    walk.settled, walk.eager_stops = False, walk.before.total
    return walk, failure


def _shifts(
    labels: Mapping[str, str],
    plan: Course,
    made: Walk,
    numbers: Mapping[str, int],
    kept: Mapping[int, int],
) -> tuple[MemberShift, ...]:
    before, after = made.before, made.after
    present = {numbers[member.member_id]: member for member in made.group.spec.members}
    had, has = before.sizes, after.sizes
    shifts = []
    for member_id, label in labels.items():
        n = numbers[member_id]
        then = after.shares.get(n, {})
        shifts.append(
            MemberShift(
                member_id=member_id,
                name=label,
                now=before.shares.get(n, {}),
                then=then,
                keeps=kept[n],
                gives=had[n] - kept[n],
                gets=has[n] - kept[n],
                not_subscribed={t: then[t] for t in then if t not in present[n].topics},
                change="joins" if member_id in plan.added else "" if n in present else "leaves",
            )
        )
    return tuple(shifts)


def _spread(now: Iterable[int], then: Iterable[int]) -> Spread:
    now, then = tuple(now) or (0,), tuple(then) or (0,)
    return Spread(now_min=min(now), now_max=max(now), then_min=min(then), then_max=max(then))


def _topic_spreads(start: Spec, made: Walk, numbers: Mapping[str, int]) -> tuple[TopicSpread, ...]:
    """Return, for each topic, the fewest and the most partitions of a member before and after.

    The members are the topic's subscribers and all others that own some of it. A topic without such
    members is left out.
    """
    spec, counts = made.group.spec, made.group.spec.partitions
    states = [
        (owners.by_topic, _takers((numbers[member.member_id], member) for member in of.members))
        for of, owners in ((start, made.before), (spec, made.after))
    ]
    spreads = []
    for topic in sorted(counts):
        sizes = []
        for by_topic, takers in states:
            owned = by_topic.get(topic, Counter[int]())
            sizes.append([owned[n] for n in owned.keys() | takers.get(topic, set())])
        if any(sizes):
            spreads.append(
                TopicSpread(topic=topic, partitions=counts[topic], balance=_spread(*sizes))
            )
    return tuple(spreads)


def _takers(members: Iterable[tuple[int, SpecMember]]) -> dict[str, set[int]]:
    takers: dict[str, set[int]] = {}
    for n, member in members:
        for topic in member.topics:
            takers.setdefault(topic, set()).add(n)
    return takers


class WorkersRun(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A value of connect.protocol, and the cost of the restarts if every worker has this value."""

    protocol: str
    cost: Cost


class WorkersSimulation(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Simulated restarts of Connect workers, with their cost under each connect.protocol.

    `restarted` has the workers' display names in the order of their restarts. `assignor_now` is the
    elected protocol by its name on the wire (`default`, `compatible` or `sessioned`).
    """

    group_id: str
    assignor_now: str | None
    workers: int
    connectors: int
    tasks: int
    restarted: tuple[str, ...]
    runs: tuple[WorkersRun, ...]


def simulate_workers(
    snapshot: GroupSnapshot, protocols: Sequence[str], restarted: Sequence[str] = ()
) -> WorkersSimulation:
    """Simulate restarts of the workers `restarted` (empty: all workers), and return their costs.

    The simulation of each of `protocols` (values of connect.protocol) starts from the connectors
    and tasks that the workers run now. Workers are named by member id, client id or short name.

    Raises:
        WhatIfError: the group has no Connect workers, the snapshot does not show what every worker
            runs, or a worker does not exist.
    """
    group = snapshot.group
    running = [m.worker for m in snapshot.members if m.worker is not None]
    if group.protocol_type != "connect":
        raise WhatIfError(
            f"{group.group_id} is no group of Connect workers: {', '.join(protocols)} is for them."
        )
    if (
        not running
        or len(running) < len(snapshot.members)
        or any(worker.running is None for worker in running)
    ):
        raise WhatIfError(
            f"cannot simulate {group.group_id}: what its workers run is not known; capture it "
            "while it is Stable: rebal inspect GROUP --save."
        )
    find = Finder(snapshot)
    order = list(dict.fromkeys(map(find, restarted)) or find.labels)
    return WorkersSimulation(
        group_id=group.group_id,
        assignor_now=group.assignor,
        workers=len(running),
        connectors=sum(worker.connectors or 0 for worker in running),
        tasks=sum(worker.tasks or 0 for worker in running),
        restarted=tuple(find.labels[id_] for id_ in order),
        runs=tuple(_run(snapshot, name, order) for name in protocols),
    )


def _run(snapshot: GroupSnapshot, protocol: str, order: Sequence[str]) -> WorkersRun:
    offers = worker_list(protocol) or ()
    all_offer = AssignorList(knowledge=Knowledge.EXACT, list=offers)
    under = replace(
        snapshot,
        group=replace(snapshot.group, assignor=offers[0]),
        members=tuple(replace(member, assignors=all_offer) for member in snapshot.members),
    )
    speed, eager = Speed().at(snapshot.cluster), offers[0] == "default"
    cost = by_workers(Roll(snapshot=under, order=tuple(order), eager_after=eager, speed=speed))
    assert cost is not None, "it has a pricing"
    return WorkersRun(protocol=protocol, cost=cost)
