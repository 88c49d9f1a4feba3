"""`admitted` against the engine's coordinator: two accounts of admission, written apart.

A random group of 1 to 4 members is made with real requests: it joins, may be loaded by another
broker, and may rebalance after that while static members are down. The planner is told a part of
that, with the answers of the read-only probe. Where it says yes or no to restarts, the coordinator
must answer so, whether the others join again in between or not.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from random import Random
from typing import Any

import pytest

from rebal.groups.model import GroupState, Tri
from rebal.planner.admission.check import Admission, Event, Settle, admitted, restart
from rebal.planner.admission.memory import memory_of
from rebal.planner.rehearsal.engine.messages import Error, JoinRequest
from tests.planner.builder import context_of
from tests.planner.rehearsal.requests import Member, Table

NAMES = ("cooperative-sticky", "range", "sticky")
HISTORIES = ("never loaded", "loaded", "loaded, then rebalanced")
# A static member that is down is not removed while a world is told.
SESSION = 900.0
ADMITTED = (Error.NONE, Error.MEMBER_ID_REQUIRED)


class Listed(Member):
    """A member with its assignor list; `down`: its process does not run."""

    down = False

    def __init__(self, name: str, instance_id: str | None, assignors: tuple[str, ...]) -> None:
        super().__init__(name, instance_id)
        self.assignors = assignors

    def asks(self, *, known: bool = True) -> JoinRequest:
        """A join of a new process, or of one that joins again with its whole list."""
        return self.request(known, assignors=self.assignors, stamp=object(), session=SESSION)


class Group:
    """Real requests to one coordinator."""

    def __init__(self, members: list[Listed], max_size: int) -> None:
        self.table = Table(max_session=SESSION, initial_delay=0.0, max_size=max_size)
        self.members = members
        for one in members:
            self.ask(one)
        self.table.later(0.1)
        self.gather()

    def ask(self, one: Listed) -> Error:
        """Send a new process's join until it is admitted or not; return the last error."""
        group = self.table.group
        before = len(one.joins)
        group.join(one.asks(known=False), one)
        if len(one.joins) > before and one.joins[-1].error is Error.MEMBER_ID_REQUIRED:
            before = len(one.joins)
            group.join(one.asks(), one)
        return one.joins[-1].error if len(one.joins) > before else Error.NONE

    def gather(self) -> None:
        """Let every running member join again with its whole list, and sync."""
        group = self.table.group
        for one in self.members:
            preparing = group.phase is GroupState.PREPARING_REBALANCE
            if preparing and not one.down and one.name in group.lists():
                group.join(one.asks(), one)
        if group.phase is GroupState.PREPARING_REBALANCE:
            self.table.later(61)
        if group.phase is GroupState.COMPLETING_REBALANCE:
            for one in self.members:
                if one.name in group.lists() and not one.down:
                    given = {one.name: ()} if one.name == group.leader else None
                    group.sync(one.name, group.number, one, given)

    def load(self) -> None:
        self.table.group.move(1.0)
        self.table.later(2)

    def rebalance(self) -> None:
        """Have a running member make everybody join again."""
        running = next((one for one in self.members if not one.down), None)
        if running is not None:
            self.table.group.join(running.asks(), running)
            self.gather()

    def probe(self, name: str) -> bool | None:
        """The read-only probe: is this assignor in every remembered list? None: a full group."""
        asking = Listed("made-up", "made-up too", (name,))
        self.table.group.join(asking.asks(), asking)
        error = asking.joins[-1].error
        return None if error is Error.GROUP_MAX_SIZE_REACHED else error is Error.UNKNOWN_MEMBER_ID


@dataclass(frozen=True)
class World:
    """One group as it really is, and what the planner is told of it."""

    members: tuple[tuple[tuple[str, ...], bool], ...]
    history: str
    down: tuple[bool, ...]
    max_size: int

    def made(self) -> Group:
        members = [
            Listed(f"m{n}", f"i{n}" if static else None, list_)
            for n, (list_, static) in enumerate(self.members)
        ]
        group = Group(members, self.max_size)
        for one, down in zip(members, self.down, strict=True):
            if down and one.instance_id is not None:
                one.down = True
                group.table.group.silent(one.name, 0.0, one)
        if self.history != HISTORIES[0]:
            group.load()
        if self.history == HISTORIES[2]:
            group.rebalance()
        return group


def worlds(random: Random) -> Iterator[World]:
    while True:
        size = random.randint(1, 4)
        lists = [tuple(random.sample(NAMES, random.randint(1, 3))) for _ in range(size)]
        if not set(lists[0]).intersection(*lists[1:]):
            continue
        down = tuple(random.random() < 0.3 for _ in lists)
        static = [random.random() < 0.4 for _ in lists]
        if all(d and s for d, s in zip(down, static, strict=True)):
            continue
        limit = random.choice((size, size + 1, 100))
        members = tuple(zip(lists, static, strict=True))
        yield World(members, random.choice(HISTORIES), down, limit)


def told(world: World, group: Group, random: Random) -> dict[str, Any]:
    """A part of the truth, as evidence."""
    members = []
    for n, (list_, static) in enumerate(world.members):
        one: dict[str, Any] = {"id": f"m{n}", "family": None}
        if static:
            one["instance"] = f"i{n}"
        kind = random.choice(("exact", "exact", "some", "nothing"))
        if kind == "exact":
            one["list"] = list(list_)
        elif kind == "some":
            one["at_least"] = [name for name in list_ if random.random() < 0.5]
            one["lacks"] = [name for name in NAMES if name not in list_ and random.random() < 0.5]
        members.append(one)
    loaded = world.history == HISTORIES[1]
    probed = {name: group.probe(name) for name in NAMES if random.random() < 0.3}
    return {
        "members": members,
        "elected": group.table.group.assignor,
        "reloaded": random.choice((loaded, None)),
        "probe": {name: yes for name, yes in probed.items() if yes is not None} or None,
        "cluster": {"settings": {"group.max.size": str(world.max_size)}},
    }


Step = tuple[int, tuple[str, ...], bool]


def carried_out(world: World, steps: list[Step], settles: tuple[bool, ...]) -> Error:
    """Restart these members one after the other; return the first error, or none.

    `settles` says of each stop and start whether the others have joined again when it is over.
    """
    group = world.made()
    coordinator = group.table.group
    waits = iter(settles)
    for number, (who, names, killed) in enumerate(steps):
        old = group.members[who]
        leaves = old.instance_id is None and not killed
        if leaves:
            coordinator.leave(old.name, old)
        coordinator.silent(old.name, group.table.agenda.now, old)
        old.down = True
        if next(waits) and leaves:
            group.gather()
        new = Listed(f"n{number}", old.instance_id, names)
        group.members[who] = new
        error = group.ask(new)
        if error not in ADMITTED:
            return error
        if next(waits):
            group.gather()
    return Error.NONE


def asked(evidence: dict[str, Any], steps: list[Step], *, settle: bool) -> Admission:
    memory = memory_of(context_of(copy.deepcopy(evidence)))
    ids = sorted(entry.member_id for entry in memory.cases[0])
    events: list[Event] = []
    for who, names, killed in steps:
        events += restart(memory, ids[who], names, killed=killed)
        events += [Settle()] if settle else []
    return admitted(memory, events)


def some_steps(random: Random, world: World, most: int) -> list[Step]:
    many = random.randint(1, min(most, len(world.members)))
    return [
        (who, tuple(random.sample(NAMES, random.randint(1, 2))), random.random() < 0.3)
        for who in random.sample(range(len(world.members)), many)
    ]


def cases(seed: int, most: int) -> Iterator[tuple[World, dict[str, Any], list[Step]]]:
    random = Random(seed)
    for world in islice(worlds(random), 120):
        evidence = told(world, world.made(), random)
        for _ in range(3):
            yield world, evidence, some_steps(random, world, most)


@pytest.mark.parametrize("seed", range(4))
def test_coordinator_answers_one_restart_as_the_planner_says(seed: int) -> None:
    counted: Counter[Tri] = Counter()
    for world, evidence, steps in cases(seed, 1):
        answer = asked(evidence, steps, settle=False)
        counted[answer.verdict] += 1
        if answer.verdict is Tri.CANNOT_TELL:
            continue
        errors = {carried_out(world, steps, (settles, False)) for settles in (True, False)}
        shown = (world, evidence, steps, answer, errors)
        if answer.verdict is Tri.YES:
            assert errors == {Error.NONE}, shown
        elif answer.error is not None:
            assert {error.name for error in errors} == {answer.error}, shown
        else:
            assert Error.NONE not in errors, shown
    assert min(counted[Tri.YES], counted[Tri.NO]) > 50, counted


@pytest.mark.parametrize("seed", range(4))
def test_coordinator_admits_restarts_in_turn_if_the_planner_says_yes(seed: int) -> None:
    counted: Counter[Tri] = Counter()
    for world, evidence, steps in cases(seed, 3):
        answer = asked(evidence, steps, settle=False)
        counted[answer.verdict] += 1
        if answer.verdict is Tri.YES:
            for settles in product((True, False), repeat=2 * len(steps)):
                error = carried_out(world, steps, settles)
                assert error is Error.NONE, (world, evidence, steps, settles, answer)
    assert counted[Tri.YES] > 50, counted


@pytest.mark.parametrize("seed", range(4))
def test_coordinator_answers_restarts_that_settle_in_between_as_the_planner_says(seed: int) -> None:
    counted: Counter[Tri] = Counter()
    for world, evidence, asked_for in cases(seed, 3):
        # The planner counts a killed member for longer than the barrier of the rebalance does.
        steps = [(who, names, False) for who, names, _ in asked_for]
        answer = asked(evidence, steps, settle=True)
        counted[answer.verdict] += 1
        if answer.verdict is not Tri.CANNOT_TELL:
            error = carried_out(world, steps, (True,) * 2 * len(steps))
            shown = (world, evidence, steps, answer, error)
            assert (error is Error.NONE) is (answer.verdict is Tri.YES), shown
    assert min(counted[Tri.YES], counted[Tri.NO]) > 50, counted
