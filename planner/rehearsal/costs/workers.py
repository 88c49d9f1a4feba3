"""A group of Connect workers as it goes through the rebalances of a roll-out (KIP-415).

Each worker keeps what it holds from one rebalance to the next, and the leader what it remembers;
which protocol is followed is what all offer. Under `default` a rebalance stops everything; under
`compatible` and `sessioned` it stops what moves, and what a lost worker ran is held back until the
leader's scheduled.rebalance.max.delay.ms is over, also where the worker is back before. A leader
that is new knows of nothing lost, and gives it out at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rebal.groups.assignors.connect import (
    Item,
    Memory,
    Round,
    Work,
    after,
    by_connector,
    eager,
    held_of,
    incremental,
    work_of,
)
from rebal.groups.assignors.java.javatable import hash_order
from rebal.groups.model import GroupSnapshot, Member, Record
from rebal.planner.rehearsal.costs.group import Clock

EAGER: Final = "default"
HELD_BACK: Final = 300_000
"""Milliseconds: the default of scheduled.rebalance.max.delay.ms."""
_MOST_ROUNDS: Final = 50


class Pauses(Record, frozen=True, kw_only=True):
    """What takes how long, in seconds: a restart, a rebalance, the first one of an Empty group.

    `leaves` is how long the group waits for each worker that is gone, by member id (0: it says so).
    """

    restart: float
    rebalance: float
    first: float
    leaves: Mapping[str, float] = {}


def held_back(member: Member) -> int:
    """How long this worker holds lost work back when it leads; milliseconds."""
    seen, declared = member.timeouts, member.declared
    if seen is not None and seen.held_back_ms is not None:
        return seen.held_back_ms
    if declared is not None and declared.held_back_ms is not None:
        return declared.held_back_ms
    return HELD_BACK


class RehearsedWorkers:
    """Who is in the group, what each runs, and what it has cost so far.

    `offers` are the protocols of each worker, its own first. `moved` counts what runs on another
    worker than it ran on before, `stopped` sums up what stood still at each rebalance; `held_back`
    says whether anything had to wait for a lost worker's return.
    """

    def __init__(
        self, snapshot: GroupSnapshot, offers: Mapping[str, Sequence[str]], pauses: Pauses
    ) -> None:
        self.clock = Clock()
        self.rebalances = self.moved = self.stopped = 0
        self.held_back = False
        self._pauses = pauses
        self._offers = {id_: tuple(names) for id_, names in offers.items()}
        self._delays = {member.member_id: held_back(member) for member in snapshot.members}
        self._held: dict[str, Work] = {
            member.member_id: held_of(member.worker.running or ())
            for member in snapshot.members
            if member.worker is not None
        }
        elected = snapshot.group.assignor or EAGER
        self._follows = dict.fromkeys(self._held, elected)
        self._where = {item: id_ for id_, work in self._held.items() for item in work}
        self._all = frozenset(self._where)
        self._generation = snapshot.group.generation or 1
        self._completed = dict.fromkeys(self._held, self._generation)
        leads = [m.member_id for m in snapshot.members if m.worker is not None and m.worker.leader]
        self._leader = next(iter(leads), hash_order(self._held)[0])
        self._memories: dict[str, Memory] = {}
        if elected != EAGER:
            self._memories[self._leader] = Memory(
                generation=self._generation, members=frozenset(self._held), previous=self._all
            )
        self._running: set[Item] = set(self._all)
        self._due: float | None = None

    def restart(self, ids: Sequence[str], offers: Sequence[str]) -> None:
        """These stop and come back with `offers` (empty: each with its own); until all is quiet."""
        self._stop(ids)
        back = self.clock.seconds + self._pauses.restart
        missed = max((self._pauses.leaves.get(id_, 0.0) for id_ in ids), default=0.0)
        self._until(self.clock.seconds + missed)
        if self._held:
            self._rebalance()
            self._go_on(back)
        self._until(back)
        if not self._held:
            self._leader = ids[0]
            self._until(self.clock.seconds + self._pauses.first)
        for id_ in ids:
            self._offers[id_] = tuple(offers) or self._offers[id_]
            self._held[id_], self._follows[id_], self._completed[id_] = (), self._offers[id_][0], -1
        self._rebalance()
        self._go_on(None)

    def _stop(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            self._running -= set(self._held.pop(id_))
            for kept in (self._follows, self._completed, self._memories):
                kept.pop(id_, None)

    def _until(self, time: float) -> None:
        """Time goes by; what does not run stands still."""
        seconds = max(0.0, time - self.clock.seconds)
        self.clock.wait(seconds, len(self._all) - len(self._running))

    def _go_on(self, until: float | None) -> None:
        """The rebalances that are due by then (None: all that follow)."""
        for _ in range(_MOST_ROUNDS):
            if self._due is None or (until is not None and self._due >= until):
                return
            self._until(self._due)
            self._rebalance()

    def _rebalance(self) -> None:
        """One rebalance, and those that follow at once because a worker has to give something."""
        for _ in range(_MOST_ROUNDS):
            if not self._round():
                return

    def _round(self) -> bool:
        """Whether another one follows at once."""
        elected = self._elected()
        for id_, work in self._held.items():
            if self._follows[id_] == EAGER:
                self._running -= set(work)
        self.rebalances += 1
        self.stopped += len(self._all) - len(self._running)
        self._until(self.clock.seconds + self._pauses.rebalance)
        self._generation += 1
        if self._leader not in self._held:
            self._leader = hash_order(self._held)[0]
        again = False
        self._due = None
        if elected == EAGER:
            self._held = eager(self._held, self._all)
        else:
            again = self._share_out()
        self._running = {item for work in self._held.values() for item in work}
        for id_, work in self._held.items():
            self._follows[id_], self._completed[id_] = elected, self._generation
            for item in work:
                self.moved += self._where[item] != id_
                self._where[item] = id_
        return again

    def _share_out(self) -> bool:
        """What an incremental leader makes of it; whether a worker has to give something."""
        given, self._memories[self._leader] = incremental(
            Round(
                workers={id_: work_of(by_connector(work)) for id_, work in self._held.items()},
                configured=self._all,
                generation=self._generation,
                last_generation=self._completed[self._leader],
                now_ms=round(self.clock.seconds * 1000) + 1,
                max_delay_ms=self._delays[self._leader],
            ),
            self._memories.get(self._leader, Memory()),
        )
        self._held = {id_: after(self._held[id_], one) for id_, one in given.items()}
        delay = next(iter(given.values())).delay_ms
        self._due = self.clock.seconds + delay / 1000 if delay else None
        self.held_back = self.held_back or delay > 0
        return any(one.revoked for one in given.values())

    def _elected(self) -> str:
        """The highest protocol that all of them offer, as each votes for the first of its own."""
        lists = [self._offers[id_] for id_ in self._held]
        return next((name for name in lists[0] if all(name in names for names in lists)), EAGER)
