"""Who holds which partition, where members claim some that do not exist (any more).

Then a partition can be in several members' lists, or in none. Of several the last one counts.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Sequence

from rebal.groups.assignors.client.problem import Problem


class Holding:
    """The partitions that exist, in the lists of `members` (in the order that decides)."""

    def __init__(
        self, problem: Problem, members: Sequence[int], lists: Sequence[Sequence[int]]
    ) -> None:
        self._problem = problem
        self._step = len(problem.topics)
        self._members = members
        self._place = {member: place for place, member in enumerate(members)}
        self._places: dict[int, list[int]] = {}
        self._of_topic: list[Counter[int]] = [Counter() for _ in problem.topics]
        for place, member in enumerate(members):
            for code in lists[member]:
                if problem.exists(code):
                    self._places.setdefault(code, []).append(place)
        for code in self._places:
            self._of_topic[code % self._step][self._holder(code)] += 1
        self._none = [
            count - sum(of.values())
            for count, of in zip(problem.counts, self._of_topic, strict=True)
        ]

    def _holder(self, code: int) -> int:
        return self._members[self._places[code][-1]]

    def move(self, code: int, source: int | None, to: int) -> None:
        """One more of `code` in the list of `to`, and one less in that of `source`, if any."""
        held = self._of_topic[code % self._step]
        places = self._places.get(code)
        if places is None:
            places = self._places[code] = []
            self._none[code % self._step] -= 1
        else:
            held[self._holder(code)] -= 1
            if source is not None:
                places.remove(self._place[source])
        insort(places, self._place[to])
        held[self._holder(code)] += 1

    def some_have_none(self, topic: int) -> bool:
        """Whether a partition of the topic is in no list."""
        return self._none[topic] > 0

    def holds(self, member: int, topic: int) -> bool:
        """Whether it counts as the holder of a partition of the topic."""
        return self._of_topic[topic][member] > 0

    def holders(self, topic: int) -> Iterator[tuple[int, int | None]]:
        """Each of the topic's partitions with its holder."""
        for code in self._problem.codes_of(topic):
            yield code, self._holder(code) if code in self._places else None
