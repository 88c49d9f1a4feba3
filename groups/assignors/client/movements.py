"""Which partitions have moved between which members, so that none is moved there and back.

Before a partition of a topic goes from A to B, the leader looks for one of the same topic that it
has moved from B to A: that one goes home instead.
"""

from __future__ import annotations

from collections.abc import Hashable

from rebal.groups.assignors.client.problem import Problem
from rebal.groups.assignors.java.javatable import HashTable, partition_hash


class Movements:
    """Each moved partition with the member it came from at first and the one it is with now."""

    def __init__(self, problem: Problem) -> None:
        self._hashes = problem.topic_hashes
        self._moved: dict[int, tuple[int, int]] = {}
        self._between: dict[tuple[int, int, int], HashTable[int]] = {}

    def stand_in(self, code: int, owner: int, to: int) -> int:
        """The partition to move to `to` instead of `code`: itself, or one that goes home."""
        source = self._moved.get(code, (owner,))[0]
        back = self._between.get((code % len(self._hashes), to, source))
        return code if back is None else back.first()

    def record(self, code: int, owner: int, to: int) -> None:
        """Note that `code` moves from `owner` to `to`."""
        partition, topic = divmod(code, len(self._hashes))
        source = owner
        before = self._moved.pop(code, None)
        if before is not None:
            table = self._between[topic, *before]
            table.remove(code)
            if not table:
                del self._between[topic, *before]
            source = before[0]
            if source == to:
                return
        self._moved[code] = (source, to)
        table = self._between.setdefault((topic, source, to), HashTable())
        table.add(code, partition_hash(self._hashes[topic], partition))

    def state(self) -> Hashable:
        """Equal when the same moves have been made, and would be taken back in the same order."""
        return tuple((key, tuple(table)) for key, table in sorted(self._between.items()))
