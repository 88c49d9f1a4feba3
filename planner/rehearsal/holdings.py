"""Partitions by member: all lists, or all texts, made at once.

A million partitions are a few arrays by topic. What one member has of them is a mapping that is
made when somebody looks into it; whoever writes all of it out takes the texts, without an object
for each entry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, repeat
from typing import Final, NamedTuple

from rebal.groups.compact import Partitions
from rebal.groups.model import TopicPartitions

NOBODY: Final = -1
Write = Callable[[str], str]


class Row(NamedTuple):
    """One topic: some of its partitions, ascending, and the number of each one's member."""

    topic: str
    partitions: Sequence[int]
    members: Sequence[int]


class Holdings(ABC):
    """Rows by topic; `NOBODY` has what no member has."""

    @abstractmethod
    def by_topic(self) -> Iterable[Row]:
        """Return the rows, by the names of their topics."""

    @cached_property
    def shares(self) -> Mapping[int, TopicPartitions]:
        """For each member that has any its partitions: topics by name, partitions ascending."""
        made: dict[int, dict[str, Partitions]] = {}
        for row in self.by_topic():
            for number, partitions in _lists(row).items():
                made.setdefault(number, {})[row.topic] = Partitions(partitions)
        made.pop(NOBODY, None)
        return made

    def words(self, name: Write, runs: Write) -> Mapping[int, Sequence[str]]:
        """For each member that has any, in the order of `shares`: a topic, its partitions, …

        As `name` and `runs` write them; partitions are handed over as runs (`0-11,14`).
        """
        made: defaultdict[int, list[str]] = defaultdict(list)
        single = _Single(runs)
        for row in self.by_topic():
            topic = name(row.topic)
            if len(set(row.members)) == len(row.members):
                # Each has one: nothing to join, and no loop of ours over a million entries.
                pairs = zip(repeat(topic), map(single.__getitem__, row.partitions))
                deque(map(list.extend, map(made.__getitem__, row.members), pairs), maxlen=0)
                continue
            for number, partitions in _lists(row).items():
                one = len(partitions) == 1
                text = single[partitions[0]] if one else runs(_text(partitions))
                made[number] += (topic, text)
        made.pop(NOBODY, None)
        return made


def _lists(row: Row) -> dict[int, list[int]]:
    made: defaultdict[int, list[int]] = defaultdict(list)
    for partition, number in zip(row.partitions, row.members, strict=True):
        made[number].append(partition)
    return made


def _text(numbers: list[int]) -> str:
    """`str(Partitions(numbers))` of several that ascend, in a fraction of the time."""
    start = stop = numbers[0]
    if numbers[-1] - start == len(numbers) - 1:
        return f"{start}-{numbers[-1]}"
    parts = []
    for number in numbers[1:]:
        if number != stop + 1:
            parts.append(str(start) if start == stop else f"{start}-{stop}")
            start = number
        stop = number
    parts.append(str(start) if start == stop else f"{start}-{stop}")
    return ",".join(parts)


class Share(Mapping[str, Partitions]):
    """The partitions of member `number` in `holdings`."""

    __slots__ = ("holdings", "number")

    def __init__(self, holdings: Holdings, number: int) -> None:
        self.holdings = holdings
        self.number = number

    def _found(self) -> TopicPartitions:
        return self.holdings.shares.get(self.number, {})

    def __getitem__(self, topic: str) -> Partitions:
        return self._found()[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())

    def __repr__(self) -> str:
        return repr(self._found())


class Some(Holdings):
    """Rows that were picked out of others."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = tuple(rows)

    def by_topic(self) -> Iterable[Row]:
        """Return the rows in the given order."""
        return self._rows

    @cached_property
    def counts(self) -> Counter[int]:
        """Partition count of each member that owns any."""
        made = Counter(chain.from_iterable(row.members for row in self._rows))
        del made[NOBODY]
        return made


class Writer:
    """Writes what members have; what is of the same holdings is made at once, when it is needed."""

    def __init__(self, name: Write, runs: Write) -> None:
        self._name = name
        self._runs = runs
        self._made: dict[Holdings, Mapping[int, Sequence[str]]] = {}

    def __call__(self, owned: TopicPartitions) -> Sequence[str]:
        """Return a topic, its partitions, the next topic, …: as `Holdings.words` has them."""
        if not isinstance(owned, Share):
            pairs = ((self._name(topic), self._runs(str(of))) for topic, of in owned.items())
            return tuple(chain.from_iterable(pairs))
        made = self._made.get(owned.holdings)
        if made is None:
            made = self._made[owned.holdings] = owned.holdings.words(self._name, self._runs)
        return made.get(owned.number, ())


class _Single(dict[int, str]):
    """The text of one partition alone."""

    def __init__(self, runs: Write) -> None:
        self._runs = runs

    def __missing__(self, number: int) -> str:
        text = self[number] = self._runs(str(number))
        return text
