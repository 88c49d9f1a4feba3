"""Owners of partitions in compact form: one array of member numbers a topic.

A million partitions are a few arrays; of two states of a group what stays is counted, and what
moves is kept.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, compress, repeat, zip_longest
from operator import eq
from typing import NamedTuple

from rebal.planner.rehearsal.holdings import NOBODY, Holdings, Row, Some


class Kept(NamedTuple):
    """Partition counts of two states: kept by each member, and with any owner."""

    by_member: Counter[int]
    owned: int


class Moves(NamedTuple):
    """Partitions that members lose, and partitions that they get."""

    gives: Some
    gets: Some


class Owners(Holdings):
    """The owner of each partition, as a number; a partition that does not exist can have one too.

    `counts` are the topics' partition counts. The last one to claim a partition is its owner.
    """

    def __init__(
        self,
        counts: Mapping[str, int],
        owned: Iterable[tuple[int, Iterable[tuple[str, int]]]],
    ) -> None:
        places: dict[str, range] = {}
        size = 0
        for topic, count in counts.items():
            places[topic] = range(size, size + count)
            size += count
        every = array("i", [NOBODY]) * size
        self.strange: dict[str, dict[int, int]] = {}
        self._counts: dict[str, Counter[int]] = {}
        for number, pairs in owned:
            try:
                found = [places[topic][partition] for topic, partition in pairs]
            except (KeyError, IndexError):
                found = list(self._known(number, pairs, places))
            deque(map(every.__setitem__, found, repeat(number)), maxlen=0)
        self.rows = {topic: every[at.start : at.stop] for topic, at in places.items()}

    def _known(
        self, number: int, pairs: Iterable[tuple[str, int]], places: Mapping[str, range]
    ) -> Iterator[int]:
        for topic, partition in pairs:
            at = places.get(topic, range(0))
            if partition < len(at):
                yield at[partition]
            else:
                self.strange.setdefault(topic, {})[partition] = number

    def counts_in(self, topic: str) -> Mapping[int, int]:
        """Return the partition count in the topic of each member that owns any of it."""
        made = self._counts.get(topic)
        if made is None:
            made = self._counts[topic] = Counter(self.rows.get(topic, ()))
            del made[NOBODY]
            made.update(self.strange.get(topic, {}).values())
        return made

    @cached_property
    def sizes(self) -> Counter[int]:
        """Partition count of each member that owns any."""
        rows = chain(self.rows.values(), (odd.values() for odd in self.strange.values()))
        made = Counter(chain.from_iterable(rows))
        del made[NOBODY]
        return made

    @cached_property
    def total(self) -> int:
        """Number of partitions that have an owner."""
        odd = sum(map(len, self.strange.values()))
        return odd + sum(len(row) - row.count(NOBODY) for row in self.rows.values())

    def by_topic(self) -> Iterator[Row]:
        """All of each topic's partitions."""
        for topic in sorted(self.rows.keys() | self.strange.keys()):
            row, strange = self.rows.get(topic, ()), self.strange.get(topic)
            if strange:
                odd = sorted(strange)
                members = (*row, *map(strange.__getitem__, odd))
                yield Row(topic, (*range(len(row)), *odd), members)
            else:
                yield Row(topic, range(len(row)), row)


def compare(before: Owners, after: Owners) -> Kept:
    """Count the partitions that keep their owner. A topic may gain partitions."""
    stay: list[Iterable[int]] = []
    owned = 0
    for topic in _topics(before, after):
        old: Sequence[int] = before.rows.get(topic, ())
        new: Sequence[int] = after.rows.get(topic, ())
        if topic in before.strange or topic in after.strange:
            ends = tuple(_ends(before, after, topic))
            old, new = tuple(a for _, a, _ in ends), tuple(b for _, _, b in ends)
        if old == new:
            stay.append(old)
            owned += len(old) - old.count(NOBODY)
        else:
            stay.append(compress(old, map(eq, old, new)))
            owned += sum(a != NOBODY != b for a, b in zip(old, new, strict=False))
    made = Counter(chain.from_iterable(stay))
    del made[NOBODY]
    return Kept(made, owned)


def moves(before: Owners, after: Owners) -> Moves:
    """Return the partitions that change, lose or gain an owner."""
    gives, gets = [], []
    for topic in _topics(before, after):
        moved = [end for end in _ends(before, after, topic) if end[1] != end[2]]
        if moved:
            partitions, old, new = (array("i", column) for column in zip(*moved, strict=True))
            gives.append(Row(topic, partitions, old))
            gets.append(Row(topic, partitions, new))
    return Moves(Some(gives), Some(gets))


def _topics(before: Owners, after: Owners) -> list[str]:
    return sorted({*before.rows, *before.strange, *after.rows, *after.strange})


def _ends(before: Owners, after: Owners, topic: str) -> Iterable[tuple[int, int, int]]:
    """Return the topic's partitions, ascending, each with both owners; none where all stays."""
    old, new = before.rows.get(topic, ()), after.rows.get(topic, ())
    was, will = before.strange.get(topic, {}), after.strange.get(topic, {})
    if not was and not will:
        both = zip_longest(old, new, fillvalue=NOBODY) if old != new else ()
        return ((n, a, b) for n, (a, b) in enumerate(both))
    # What does not exist before may exist after.
    first, last = ({**dict(enumerate(row)), **odd} for row, odd in ((old, was), (new, will)))
    partitions = sorted(first.keys() | last.keys())
    return ((n, first.get(n, NOBODY), last.get(n, NOBODY)) for n in partitions)
