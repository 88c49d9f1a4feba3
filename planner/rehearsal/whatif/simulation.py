"""Simulation of an assignor: `simulate` takes a snapshot and returns a `Simulation`.

All members of the snapshot run the assignor and report to the leader the partitions they own now.
Then the what-if's changes happen (`changes`), and the group rebalances until it is at rest, as the
engine's `Rounds` give it. EAGER: one rebalance a step, in which everything stops. COOPERATIVE
(KIP-429): each member that had to give something up rejoins, until nobody has to. A KIP-848
coordinator computes one target, which the members reach one by one.

`simulate_workers` has restarts of Connect workers under each connect.protocol.
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
from rebal.groups.assignors.spec import Violation, violations
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
    chosen,
    course,
    leader_time,
)
from rebal.planner.timeouts import Speed

MOST_ROUNDS: Final = 100


class RoundMember(Record, frozen=True, kw_only=True):
    """Partitions that one member loses and gets in one round; unchanged members are left out."""

    member_id: str
    revoked: TopicPartitions
    assigned: TopicPartitions


class Round(Record, frozen=True, kw_only=True):
    """One rebalance (or one new target of a KIP-848 group); counts are partitions.

    `why` is what set it off (empty: a follow-up of the round before, or the change of assignor).
    `gone` had an owner that has left; `revoked` are taken from members that stay (under EAGER:
    everything); `assigned` reach an owner that did not have them when the round began; members
    `still_owned` the rest. Under EAGER `members` is empty.
    """

    number: int
    why: str = ""
    gone: int = 0
    revoked: int
    assigned: int
    still_owned: int
    members: tuple[RoundMember, ...] = ()


class Walk:
    """The group on its way through the steps, and what has come of it so far.

    `numbers` has every member that takes part. It stops after `most_rounds`, over all steps.
    `before` and `after` are the owners at the start and now. `eager_stops` is what stops when each
    step is one EAGER rebalance; `stops` what stops the way the assignor works. `settled` is False
    where the last step did not come to rest; `again` is what the next rebalance would take from
    its owners all the same. `violations` are by rule.
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
        """Go one step, until the group is at rest again.

        Raises:
            LeaderWouldFail: the real leader throws or never ends on the way.
            CustomAssignorError: a custom assignor fails.
        """
        self._apply(step)
        self.settled, why = not self.group.spec.members, step.why
        while not self.settled and len(self.rounds) < self._most_rounds:
            self.settled, why = not self._rebalance(why), ""

    def _apply(self, step: ChangeStep) -> None:
        """Change the group, and count the partitions that lose their owner by it.

        Those of a group that is left empty count at the rebalance of whoever joins next.
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
        if choice.custom:
            for one in violations(sent, result, cooperative=choice.cooperative):
                self.violations.setdefault(one.rule, one)
        after = self._state(sent, result)
        made = self._round(why, after)
        self.rounds.append(made)
        self.stops += made.revoked
        self.after, self._gone = after, 0
        # A KIP-848 member reaches its target alone.
        return not choice.server_side and rejoins(choice.protocol, made.revoked)

    def look_ahead(self) -> None:
        """Compute `again`; only Kafka's own take away again, and only where subscriptions differ.

        Raises:
            LeaderWouldFail: as `take` does.
        """
        choice, spec = self._choice, self.group.spec
        asked = isinstance(choice.assignor, KafkaAssignor) and choice.cooperative and self.settled
        if asked and len({member.topics for member in spec.members}) > 1:
            _, result = self.group.next()
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
    """The fewest and the most partitions that one member has, now and then."""

    now_min: int
    now_max: int
    then_min: int
    then_max: int


class TopicSpread(Record, frozen=True, kw_only=True):
    """One topic's `Spread`, over the members that subscribe to it; `partitions` is as it ends."""

    topic: str
    partitions: int
    balance: Spread


class MemberShift(Record, frozen=True, kw_only=True):
    """One member, now and then; `name` is short and for people. Counts are partitions.

    `then` is what it owns when the group is at rest again. What it `keeps` is in both, what it
    `gives` only in `now`, what it `gets` only in `then`. `not_subscribed` are those of `then` in
    topics that it did not subscribe to (a known oddity of the sticky assignors). `change` is
    `joins` or `leaves` where it is not in the group all the time; a member that is restarted is
    one member, by the id that it has now.
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
    """The real leader would throw or never end: no assignment goes out, nobody reads on."""

    message: str
    never_ends: bool
    members: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


class Simulation(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The answer. Partition counts: `moved` change their owner, `stays` do not, `started` have no
    owner now and one then, `lost` the other way round.

    `stops` is how many partitions stop, each time counted, the way the assignor works;
    `eager_stops` when all members run EAGER and `cooperative_stops` when all run COOPERATIVE
    (None: the assignor cannot). `rebalances` is until the group is at rest, `eager_rebalances` the
    same under EAGER; `stable` is False where it does not come to rest in so many. `again` is how
    many partitions the next rebalance takes from their owners though nothing has changed by then
    (COOPERATIVE, subscriptions that differ). With a `failure` there is no result: members are as
    now. `order` says in which order the members were handed to the assignor. `server_side`: a
    KIP-848 coordinator computes it, each new target counting as a rebalance. `what_if` are the
    changes in words; `violations` what a custom assignor does wrong.
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

    `custom` are assignors by name that are not Kafka's own; `rebalance_timeout` is in seconds.

    Raises:
        UnknownAssignorError: there is no such assignor.
        CannotSimulateError: the snapshot does not hold what is needed; the message says what.
        WhatIfError: the group cannot undergo one of the changes.
        CustomAssignorError: a custom assignor fails.
    """
    choice = chosen(assignor, snapshot, custom or {})
    spec, first = start_of(snapshot, server_side=choice.server_side)
    plan = course(snapshot, spec, changes or Changes())
    numbers = _numbers(spec, plan)
    begin = partial(Walk, plan.start, first, numbers, choice, most_rounds=most_rounds)
    made, failure = _walked(plan, begin)
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
    """Return the topics and members of unknown table order, members by displayed name."""
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


def _walked(plan: Course, begin: Callable[[], Walk]) -> tuple[Walk, Failure | None]:
    """Take every step; where the leader would fail, return the group unchanged."""
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
    """Over a topic's subscribers, and whoever owns some of it all the same."""
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
    """Cost of the restarts while every worker has this connect.protocol."""

    protocol: str
    cost: Cost


class WorkersSimulation(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The restarts of `restarted` (names for people, in order), one by one or as its paces say.

    `assignor_now` is the elected protocol as it is called on the wire.
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
    """Restart the workers in `restarted` (none named: each of them) and count the cost.

    Each of `protocols` (values of connect.protocol) starts from what the workers run now. Workers
    are named by member id, client id or short name.

    Raises:
        WhatIfError: no Connect workers, not known what they run, or no such worker.
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
