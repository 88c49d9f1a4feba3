"""Who owns which partition, compactly: by topic one array of member numbers.

A million partitions are a few arrays; two states of a group are compared by counting pairs of
owners, topic by topic.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
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
        self.rows = {topic: array("i", [NOBODY]) * count for topic, count in counts.items()}
        self.strange: dict[str, dict[int, int]] = {}
        for number, partitions in owned:
            name, row = "", array("i")
            for topic, partition in partitions:
                if topic is not name:
                    name, row = topic, self.rows.get(topic, array("i"))
                if partition < len(row):
                    row[partition] = number
                else:
                    self.strange.setdefault(topic, {})[partition] = number

    def by_member(self, members: int) -> Sequence[TopicPartitions]:
        """For each of so many members its partitions: topics by name, partitions ascending."""
        made: list[dict[str, Partitions]] = [{} for _ in range(members)]
        for topic in sorted(self.rows.keys() | self.strange.keys()):
            lists: dict[int, list[int]] = {}
            for partition, number in enumerate(self.rows.get(topic, ())):
                if number != NOBODY:
                    lists.setdefault(number, []).append(partition)
            for partition, number in sorted(self.strange.get(topic, {}).items()):
                lists.setdefault(number, []).append(partition)
            for number, partitions in lists.items():
                made[number][topic] = Partitions(partitions)
        return made


def compare(before: Owners, after: Owners) -> dict[str, Pairs]:
    """Topic → how many partitions went from whom to whom; those that nobody has ever are left out.

    A topic may have more partitions after than before.
    """
    made: dict[str, Pairs] = {}
    for topic in sorted({*before.rows, *before.strange, *after.rows, *after.strange}):
        old, new = before.rows.get(topic, ()), after.rows.get(topic, ())
        pairs: Pairs = Counter(zip_longest(old, new, fillvalue=NOBODY))
        was, will = before.strange.get(topic, {}), after.strange.get(topic, {})
        for partition in was.keys() | will.keys():
            pairs[was.get(partition, NOBODY), will.get(partition, NOBODY)] += 1
        del pairs[NOBODY, NOBODY]
        if pairs:
            made[topic] = pairs
    return made


def moves(
    before: Owners, after: Owners, changed: Iterable[str]
) -> tuple[dict[int, dict[str, list[int]]], dict[int, dict[str, list[int]]]]:
    """What each member gives up, and what each gets, in the `changed` topics: by member, topic."""
    gives: dict[int, dict[str, list[int]]] = {}
    gets: dict[int, dict[str, list[int]]] = {}
    for topic in changed:
        old, new = before.rows.get(topic, ()), after.rows.get(topic, ())
        ends = [(n, a, b) for n, (a, b) in enumerate(zip_longest(old, new, fillvalue=NOBODY))]
        was, will = before.strange.get(topic, {}), after.strange.get(topic, {})
        ends += [(n, was.get(n, NOBODY), will.get(n, NOBODY)) for n in sorted({*was, *will})]
        for partition, a, b in ends:
            if a != b:
                if a != NOBODY:
                    gives.setdefault(a, {}).setdefault(topic, []).append(partition)
                if b != NOBODY:
                    gets.setdefault(b, {}).setdefault(topic, []).append(partition)
    return gives, gets


def total(pairs: Iterable[Pairs]) -> Pairs:
    """All topics together."""
    made: Pairs = Counter()
    for one in pairs:
        made.update(one)
    return made


def packed(lists: Mapping[str, Sequence[int]]) -> TopicPartitions:
    """Lists by topic as the model has them."""
    return {topic: Partitions(numbers) for topic, numbers in lists.items()}
