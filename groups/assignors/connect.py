"""Assignment of connectors and tasks by the leader of a Connect worker group, as in Kafka 4.1.1.

`eager` is EagerAssignor. `incremental` is IncrementalCooperativeAssignor (KIP-415, and KAFKA-12495
of 3.4: the back-off of successive revocations), for the protocols `compatible` and `sessioned`.
Both are pure: `incremental` takes the leader's memory of earlier rebalances as `Memory` and returns
the new one.

Kafka iterates over hash maps, and these results depend on their order. A worker's connectors are
sent in the order of a Java HashSet that was made from a collection. Its number of slots is computed
as in Java up to 18; from Java 19 on, a set of exactly 12, 24, 48, … connectors has fewer slots.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from math import log
from typing import Final

from rebal.groups.assignors.javatable import HashTable, hash_order, table_size
from rebal.groups.jvmhash import string_hash, utf16
from rebal.groups.model import Record, Running
from rebal.groups.wire.consumer_protocol import CONNECTOR, ConnectorTasks

Item = tuple[str, int]
"""A task as (connector, number); a connector itself has the number `CONNECTOR`."""
Work = tuple[Item, ...]
"""Connectors of one worker, then its tasks, both in the order in which the worker holds them."""


class GivenWork(Record, frozen=True, kw_only=True):
    """Assignment of one Connect worker in a rebalance: work to start and to stop, and rejoin delay.

    `delay_ms` is the time after which the worker must rejoin, because the leader holds work back
    for a lost worker or delays the next revocation (0: no delay).
    """

    assigned: Work = ()
    revoked: Work = ()
    delay_ms: int = 0


class Memory(Record, frozen=True, kw_only=True):
    """Memory of a Connect leader of the rebalances it led; empty for a worker that never led.

    `scheduled_ms` is when the current delay ends (0: no delay), in the time of
    `ConnectRound.now_ms`. `candidates` are the workers that had no work during the delay, in order:
    they get the lost work.
    """

    generation: int = -1
    members: frozenset[str] = frozenset()
    previous: frozenset[Item] = frozenset()
    revoked: frozenset[Item] = frozenset()
    revoked_before: bool = False
    revoking_rounds: int = 0
    candidates: tuple[str, ...] = ()
    scheduled_ms: int = 0
    delay_ms: int = 0


class ConnectRound(Record, frozen=True, kw_only=True):
    """One rebalance of a Connect worker group: the input of its leader.

    `workers` is the work that each worker reports, in the coordinator's order; `configured` is all
    work that should run. `last_generation` is the last generation that the leader itself completed
    (-1: none). Times are in milliseconds; `max_delay_ms` is the leader's own
    scheduled.rebalance.max.delay.ms.
    """

    workers: Mapping[str, Work]
    configured: frozenset[Item]
    generation: int
    last_generation: int
    now_ms: int
    max_delay_ms: int


def eager(workers: Iterable[str], configured: Iterable[Item]) -> dict[str, Work]:
    """Return worker → its work: all connectors, then all tasks, dealt to the workers in turn."""
    order, items = sorted(workers, key=utf16), _sorted(configured)
    return {worker: tuple(items[i :: len(order)]) for i, worker in enumerate(order)}


def incremental(round_: ConnectRound, memory: Memory) -> tuple[dict[str, GivenWork], Memory]:
    """Return worker → its assignment, and the leader's memory after this rebalance."""
    return _Leader(round_, memory).lead()


def by_connector(work: Work, *, hashed: bool = True) -> ConnectorTasks:
    """Return `work` grouped by connector, in the form in which the leader sends it.

    With `hashed`, the connectors are in the iteration order of a Java HashSet, as in the leader;
    otherwise they are in the order of `work`. The number `CONNECTOR` among a connector's tasks
    stands for the connector itself.
    """
    connectors = [item for item in work if not _is_task(item)]
    sent = {name: [CONNECTOR] for name, _ in (_hash_set(connectors) if hashed else connectors)}
    for name, number in work:
        if number != CONNECTOR:
            sent.setdefault(name, []).append(number)
    return tuple((name, tuple(numbers)) for name, numbers in sent.items())


def work_of(sent: ConnectorTasks | None) -> Work:
    """Return the work in `sent`: its connectors, then its tasks; empty for None."""
    return _connectors_first((name, number) for name, numbers in sent or () for number in numbers)


def running_of(work: Work) -> tuple[Running, ...]:
    """Return `work` as `Running` records, the form in a snapshot."""
    return tuple(
        Running(name, CONNECTOR in numbers, tuple(n for n in numbers if n != CONNECTOR))
        for name, numbers in by_connector(work, hashed=False)
    )


def held_of(running: Iterable[Running]) -> Work:
    """Return the work that the `Running` records of a snapshot describe."""
    return work_of(
        tuple(
            (one.connector, (CONNECTOR, *one.tasks) if one.itself else one.tasks) for one in running
        )
    )


def after(held: Work, given: GivenWork) -> Work:
    """Return the work of a worker with the work `held` after it applied the assignment `given`."""
    stopped = set(given.revoked)
    kept = [item for item in held if item not in stopped]
    return _connectors_first([*work_of(by_connector(given.assigned)), *kept])


def _connectors_first(items: Iterable[Item]) -> Work:
    return tuple(sorted(items, key=_is_task))


def _is_task(item: Item) -> bool:
    return item[1] != CONNECTOR


def _sorted(items: Iterable[Item]) -> list[Item]:
    return sorted(items, key=lambda item: (_is_task(item), utf16(item[0]), item[1]))


def _hash_set(items: Collection[Item]) -> HashTable[Item]:
    """Return the table of `new HashSet<>(items)`; `items` must be all connectors or all tasks."""
    table: HashTable[Item] = HashTable(table_size(len(items)))
    for name, number in items:
        hash_ = string_hash(name)
        if number != CONNECTOR:
            hash_ = (31 * hash_ + number) & 0xFFFFFFFF
        table.add((name, number), hash_, (utf16(name), number))
    return table


_BACKOFF: Final = 40


def _backoff(rounds: int, max_delay_ms: int) -> int:
    """Return the delay in ms before the next revocation, after `rounds` successive revocations."""
    if max_delay_ms <= 1:
        return max_delay_ms
    most = log(max_delay_ms) / log(_BACKOFF)
    return min(int(_BACKOFF ** min(float(rounds), most)), max_delay_ms)


class _Leader:
    def __init__(self, round_: ConnectRound, memory: Memory) -> None:
        self._round = round_
        self._before = memory
        self._workers = hash_order(round_.workers)
        self._candidates = memory.candidates
        self._scheduled, self._delay = memory.scheduled_ms, memory.delay_ms
        self._revoked_before = memory.revoked_before
        self._rounds = memory.revoking_rounds
        held = {worker: dict.fromkeys(round_.workers[worker]) for worker in self._workers}
        count = Counter(item for items in held.values() for item in items)
        active = frozenset(count)
        remembered = memory.generation == round_.last_generation
        previous = memory.previous if remembered else frozenset()
        if memory.revoked & active:
            # The workers never got to know what they were to stop.
            previous = active
        deleted = previous - round_.configured
        twice = {item for item, times in count.items() if times > 1}
        self._lost = _sorted(previous - active - deleted)
        self._new = _sorted(round_.configured - previous - active)
        self._held = held
        self._revoke = {
            worker: dict.fromkeys([*_among(items, deleted), *_among(items, twice)])
            for worker, items in held.items()
        }
        self._next = {
            worker: dict.fromkeys(i for i in items if i not in deleted and i not in twice)
            for worker, items in held.items()
        }

    def lead(self) -> tuple[dict[str, GivenWork], Memory]:
        start = [*self._new, *self._lost_to_share_out()]
        if self._delay == 0:
            self._balance()
        else:
            self._revoked_before = False
        for kind in (False, True):
            self._share_out(kind, [item for item in start if _is_task(item) is kind])
        given = {
            worker: GivenWork(
                assigned=_connectors_first(i for i in items if i not in self._held[worker]),
                revoked=_connectors_first(self._revoke[worker]),
                delay_ms=self._delay,
            )
            for worker, items in self._next.items()
        }
        revoked = frozenset(item for items in self._revoke.values() for item in items)
        running = frozenset(item for items in self._next.values() for item in items)
        return given, Memory(
            generation=self._round.generation,
            members=frozenset(self._workers),
            previous=(running - revoked) | frozenset(self._lost),
            revoked=revoked,
            revoked_before=self._revoked_before,
            revoking_rounds=self._rounds,
            candidates=self._candidates,
            scheduled_ms=self._scheduled,
            delay_ms=self._delay,
        )

    def _lost_to_share_out(self) -> Sequence[Item]:
        """Return the lost work that any worker may get now; update the delay and the candidates.

        Lost work waits until the delay ends. It does not wait if the longest delay is 0, or if no
        delay is running and no worker has left. When the delay has ended, this method assigns the
        lost work to the candidates, the workers that had no work during the delay. It returns that
        work only if there are no candidates.
        """
        if not self._lost and not self._revoked_before:
            self._candidates, self._scheduled, self._delay = (), 0, 0
            return ()
        now, most = self._round.now_ms, self._round.max_delay_ms
        nobody_left = self._before.members <= set(self._workers)
        if (self._scheduled <= 0 and nobody_left) or most == 0:
            return self._lost
        if 0 < self._scheduled <= now:
            candidates = [worker for worker in self._candidates if worker in self._next]
            for kind in (False, True):
                lost = (item for item in self._lost if _is_task(item) is kind)
                for worker, item in zip(cycle(candidates), lost, strict=False):
                    self._next[worker][item] = None
            self._candidates, self._scheduled, self._delay = (), 0, 0
            self._revoked_before = False
            return () if candidates else self._lost
        empty = hash_order(worker for worker in self._workers if not self._next[worker])
        self._candidates = tuple(dict.fromkeys([*self._candidates, *empty]))
        self._delay = min(self._scheduled - now, most) if self._scheduled > now else most
        self._scheduled = now + self._delay
        return ()

    def _balance(self) -> None:
        """Revoke work from workers above their share.

        If the previous rebalance revoked work too, a back-off delay is set instead; work is then
        revoked only if that delay is 0.
        """
        excess = {worker: items for worker, items in self._excess().items() if items}
        if not excess:
            if self._revoked_before:
                self._revoked_before, self._rounds = False, 0
            return
        if self._revoked_before:
            self._rounds += 1
            self._delay = _backoff(self._rounds, self._round.max_delay_ms)
            if self._delay:
                self._scheduled = self._round.now_ms + self._delay
                return
        self._revoked_before = True
        for worker, items in excess.items():
            for item in items:
                self._revoke[worker][item] = None
                self._next[worker].pop(item, None)

    def _excess(self) -> dict[str, list[Item]]:
        if not self._round.configured or not any(self._next.values()):
            return {}
        made: dict[str, list[Item]] = {worker: [] for worker in self._workers}
        for kind in (False, True):
            total = sum(_is_task(item) is kind for item in self._round.configured)
            loads = {
                worker: [item for item in items if _is_task(item) is kind]
                for worker, items in self._next.items()
            }
            for worker, items in _over(loads, total):
                made[worker] += items
        return made

    def _share_out(self, kind: bool, items: Sequence[Item]) -> None:
        """Assign `items`, which are all tasks (`kind` True) or all connectors, to the workers.

        Each item goes to one of the workers with the fewest items of this kind. These workers take
        turns in the order of their names.
        """
        sizes = {
            worker: sum(_is_task(item) is kind for item in held)
            for worker, held in self._next.items()
        }
        order = sorted(self._workers, key=lambda worker: (sizes[worker], utf16(worker)))
        turn = level = 0
        for item in items:
            if turn == level:
                # The next turn is that of all who have as little as the first now.
                first, turn = sizes[order[0]], 0
                above = (n for n, worker in enumerate(order) if sizes[worker] > first)
                level = next(above, len(order))
            self._next[order[turn]][item] = None
            sizes[order[turn]] += 1
            turn += 1


def _among(items: Collection[Item], some: Collection[Item]) -> Iterator[Item]:
    """Yield those of a worker's `items` that are also in `some`: connectors, then tasks.

    Connectors and tasks are each in the iteration order of a Java HashSet that was made of all the
    worker's items of this kind, and from which those that are not in `some` were then removed.
    """
    if not any(map(some.__contains__, items)):
        return
    for kind in (False, True):
        held = _hash_set([item for item in items if _is_task(item) is kind])
        for item in [item for item in items if item not in some]:
            held.remove(item)
        yield from held


def _over(loads: Mapping[str, list[Item]], total: int) -> Iterator[tuple[str, list[Item]]]:
    # What a worker has beyond its share are the first items it holds.
    least, extras = divmod(total, len(loads))
    sizes = Counter(len(items) for items in loads.values())
    if sizes[least + 1] == extras and sizes[least] + sizes[least + 1] == len(loads):
        return
    for worker, items in loads.items():
        if len(items) > least:
            most = least + (extras > 0)
            extras -= 1
            if len(items) > most:
                yield worker, items[: len(items) - most]
