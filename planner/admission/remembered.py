"""The coordinator's memory of a group, as far as it is known, and the worlds that fit it; pure.

A world says which list the coordinator holds of each member that it counts. `worlds` sums all
worlds up for a joiner: which of its assignors every remembered list holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from rebal.groups.model import GroupState, GroupType, Record

_Mask: TypeAlias = Callable[[Iterable[str]], int]
_Met: TypeAlias = tuple[int, int, int]
_World: TypeAlias = tuple[frozenset[str], frozenset[str]]


class Held(Record, frozen=True, kw_only=True):
    """One assignor list that the coordinator may remember: the names in it, and those not in it.

    `exact`: it holds no name but `names`.
    """

    names: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    exact: bool = False


class Entry(Record, frozen=True, kw_only=True):
    """One member that the coordinator counts, with the lists it may remember of it, one of which
    is true. `name` is for texts. A dynamic member has no `instance_id`.

    `whole` is the list that the member sends when it joins again, where the coordinator may
    remember less of it (a load); None: it sends what is remembered.
    """

    member_id: str
    lists: tuple[Held, ...]
    whole: Held | None = None
    instance_id: str | None = None
    name: str = ""


class CoordinatorMemory(Record, frozen=True, kw_only=True):
    """The coordinator's memory of one group, as far as the evidence tells.

    `cases` are histories of which one is true (the lists as the members sent them; the lists as a
    coordinator load left them): the entries of a case may each take any of their lists. A KIP-848
    group's entries are its classic members; `others` counts its other members. `in_all` are
    assignors that every list holds (elected, or a probe's yes), `not_in_all` those that some list
    lacks (a probe's no), `rejected` the lists whose joins this very memory has rejected.

    `max_size` is group.max.size (KIP-848: group.consumer.max.size), `session_ms` the bounds of
    session.timeout.ms; None where not read. `room` is how many more members are known to fit: a
    probe that was answered shows one, and who was a member before found room.
    `left` are entries that left after the look, `came` those that have joined since; `settled`: a
    rebalance has completed since; `emptied` says that nobody was left
    in between.
    """

    state: GroupState = GroupState.STABLE
    type: GroupType = GroupType.CLASSIC
    protocol_type: str | None = "consumer"
    elected: str | None = None
    cases: tuple[tuple[Entry, ...], ...] = ((),)
    others: int = 0
    in_all: frozenset[str] = frozenset()
    not_in_all: frozenset[str] = frozenset()
    rejected: tuple[frozenset[str], ...] = ()
    max_size: int | None = None
    room: int = 0
    session_ms: tuple[int, int] | None = None
    left: frozenset[str] = frozenset()
    came: tuple[Entry, ...] = ()
    settled: bool = False
    emptied: bool = False

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return the entries that are counted, in any case."""
        return (*(e for e in self.cases[0] if e.member_id not in self.left), *self.came)

    @property
    def size(self) -> int:
        """Return the number of members that the coordinator counts."""
        return len(self.entries) + self.others

    @property
    def empty(self) -> bool:
        """Return whether nobody is counted: the group is Empty when the last leave is through."""
        return self.size == 0


def worlds(memory: CoordinatorMemory, names: Sequence[str]) -> frozenset[_World] | None:
    """The distinct pairs of the joiner's assignors that all lists hold: least and most, a world.

    The least is of the lists as they are remembered. Once a member has left or joined, the others
    may have joined again, each with its whole list: the most is of those. Lists are sets of bits,
    one a name that matters. The evidence speaks of the lists of the look, so their meeting is
    carried beside those of the members still counted. None: no world fits the evidence.
    """
    said = {*memory.in_all, *memory.not_in_all, *(n for each in memory.rejected for n in each)}
    bit = {name: 1 << n for n, name in enumerate(sorted({*names, *said}))}
    full = (1 << len(bit)) - 1

    def mask(found: Iterable[str]) -> int:
        return sum(bit[name] for name in set(found) if name in bit)

    must, never = mask(memory.in_all), [mask({name}) for name in memory.not_in_all]
    never += [mask(each) for each in memory.rejected]
    left: set[_Met] = set()
    for case in memory.cases:
        choices = [
            frozenset(
                (look, full, full) if entry.member_id in memory.left else (look, least, most)
                for look, least, most in _choices(memory, entry, mask, full, must)
            )
            for entry in case
        ]
        # In every fitting world each list of the look holds what `in_all` names.
        for whole, least, most in _meet({(full, full, full)}, choices):
            fits = whole & must == must and not any(whole & each for each in never)
            if fits or not case:
                left.add((full, least, most))
    if not left:
        return None
    came = [
        frozenset((full, one, one) for held in entry.lists for one in _options(held, mask, full, 0))
        for entry in memory.came
    ]
    mine = mask(names)

    def named(found: int) -> frozenset[str]:
        return frozenset(name for name in names if bit[name] & found & mine)

    return frozenset((named(least), named(most)) for _, least, most in _meet(left, came))


def _meet(met: set[_Met], choices: Iterable[frozenset[_Met]]) -> set[_Met]:
    """All intersections of one of `met` with one choice of each entry.

    Entries with the same choices are the same to it: it goes on until nothing is new.
    """
    for options, count in Counter(choices).items():
        for _ in range(count):
            more = {(a & x, b & y, c & z) for a, b, c in met for x, y, z in options}
            if more == met:
                break
            met = more
    return met


def _choices(
    memory: CoordinatorMemory, entry: Entry, mask: _Mask, full: int, must: int
) -> Iterator[_Met]:
    """Each list that may be remembered of an entry at the look, with the least and the most that
    it may be once others have come or left. In a completed rebalance a dynamic member has joined
    again, and a static one may have been down."""
    again = bool(memory.left or memory.came)
    for held in entry.lists:
        for look in _options(held, mask, full, must):
            if entry.whole is None or entry.whole == held or not again:
                yield look, look, look
                continue
            for whole in _options(entry.whole, mask, full, must):
                if whole & look != look:
                    continue
                if not memory.settled:
                    yield look, look, whole
                    continue
                yield look, whole, whole
                if entry.instance_id is not None:
                    yield look, look, look


def _options(held: Held, mask: _Mask, full: int, must: int) -> Iterator[int]:
    """Each set of names, of those that matter, that this list can be."""
    base = mask(held.names)
    if held.exact:
        if base & must == must:
            yield base
        return
    base |= must
    if base & mask(held.lacks):
        return
    free = full & ~base & ~mask(held.lacks)
    subset = free
    while True:
        yield base | subset
        if not subset:
            return
        subset = (subset - 1) & free
