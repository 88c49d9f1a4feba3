"""Who owns which partition, compactly: by topic one array of member numbers.

A million partitions are a few arrays; two states of a group are compared by counting pairs of
owners. What one member owns is looked up when somebody asks for it.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat, zip_longest
from typing import Final

from rebal.groups.model import TopicPartitions
from rebal.groups.partitions import Partitions

NOBODY: Final = -1
Pairs = Counter[tuple[int, int]]
"""(owner before, owner after) → partitions; `NOBODY` where there is none."""


class Owners:
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
        """How many partitions of the topic each member has that has any."""
        made = self._counts.get(topic)
        if made is None:
            made = self._counts[topic] = Counter(self.rows.get(topic, ()))
            del made[NOBODY]
            made.update(self.strange.get(topic, {}).values())
        return made

    @cached_property
    def total(self) -> int:
        """How many partitions have an owner."""
        topics = self.rows.keys() | self.strange.keys()
        return sum(sum(self.counts_in(topic).values()) for topic in topics)

    @cached_property
    def shares(self) -> Mapping[int, TopicPartitions]:
        """For each member that has any its partitions: topics by name, partitions ascending."""
        made: dict[int, dict[str, Partitions]] = {}
        for topic in sorted(self.rows.keys() | self.strange.keys()):
            lists: dict[int, list[int]] = {}
            for partition, number in enumerate(self.rows.get(topic, ())):
                if number != NOBODY:
                    lists.setdefault(number, []).append(partition)
            for partition, number in sorted(self.strange.get(topic, {}).items()):
                lists.setdefault(number, []).append(partition)
            for number, partitions in lists.items():
                made.setdefault(number, {})[topic] = Partitions(partitions)
        return made


class Share(Mapping[str, Partitions]):
    """What one member owns in one state."""

    __slots__ = ("_number", "_owners")

    def __init__(self, owners: Owners, number: int) -> None:
        self._owners = owners
        self._number = number

    def _found(self) -> TopicPartitions:
        return self._owners.shares.get(self._number, {})

    def __getitem__(self, topic: str) -> Partitions:
        return self._found()[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())

    def __repr__(self) -> str:
        return repr(self._found())


def compare(before: Owners, after: Owners) -> Pairs:
    """How many partitions went from whom to whom; those that nobody has ever are left out.

    A topic may have more partitions after than before.
    """
    made: Pairs = Counter()
    for topic in _topics(before, after):
        if topic in before.strange or topic in after.strange:
            made.update((a, b) for _, a, b in _ends(before, after, topic))
        else:
            old, new = before.rows.get(topic, ()), after.rows.get(topic, ())
            made.update(zip_longest(old, new, fillvalue=NOBODY))
    del made[NOBODY, NOBODY]
    return made


def moves(
    before: Owners, after: Owners
) -> tuple[dict[int, dict[str, list[int]]], dict[int, dict[str, list[int]]]]:
    """What each member gives up, and what each gets: by member, by topic name, ascending."""
    gives: dict[int, dict[str, list[int]]] = {}
    gets: dict[int, dict[str, list[int]]] = {}
    for topic in _topics(before, after):
        for partition, a, b in _ends(before, after, topic):
            if a != b:
                if a != NOBODY:
                    gives.setdefault(a, {}).setdefault(topic, []).append(partition)
                if b != NOBODY:
                    gets.setdefault(b, {}).setdefault(topic, []).append(partition)
    return gives, gets


def _topics(before: Owners, after: Owners) -> list[str]:
    return sorted({*before.rows, *before.strange, *after.rows, *after.strange})


def _ends(before: Owners, after: Owners, topic: str) -> Iterable[tuple[int, int, int]]:
    """The topic's partitions, ascending, each with both owners; none where all stays."""
    old, new = before.rows.get(topic, ()), after.rows.get(topic, ())
    was, will = before.strange.get(topic, {}), after.strange.get(topic, {})
    if not was and not will:
        both = zip_longest(old, new, fillvalue=NOBODY) if old != new else ()
        return ((n, a, b) for n, (a, b) in enumerate(both))
    # What does not exist before may exist after.
    first, last = ({**dict(enumerate(row)), **odd} for row, odd in ((old, was), (new, will)))
    partitions = sorted(first.keys() | last.keys())
    return ((n, first.get(n, NOBODY), last.get(n, NOBODY)) for n in partitions)


def packed(lists: Mapping[str, Sequence[int]]) -> TopicPartitions:
    """Lists by topic as the model has them."""
    return {topic: Partitions(numbers) for topic, numbers in lists.items()}
