"""The input of an assignor bench case, as bench/java/AssignorCase.java generates it, and a digest.

`Case.subscribed()` and `Case.before()` are plain lists, so that rebal's and kafka-python's inputs
are made from the same numbers.
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from rebal.groups.assignors import Assignment, Spec, SpecMember

GENERATION = 7


@dataclass(frozen=True)
class Case:
    """`shape` is uniform or general, `event` fresh, added (a member joins) or removed."""

    assignor: str
    shape: str
    topics: int
    partitions: int
    members: int
    event: str

    @classmethod
    def parse(cls, words: list[str]) -> "Case":
        assignor, shape, topics, partitions, members, event = words
        return cls(assignor, shape, int(topics), int(partitions), int(members), event)

    def words(self) -> list[str]:
        numbers = (self.topics, self.partitions, self.members)
        return [self.assignor, self.shape, *map(str, numbers), self.event]

    @property
    def each(self) -> int:
        """Partitions of one topic."""
        return self.partitions // self.topics

    @property
    def present(self) -> range:
        """The members that take part."""
        return range(
            1 if self.event == "removed" else 0,
            self.members + 1 if self.event == "added" else self.members,
        )

    def names(self) -> list[str]:
        return [f"topic-{t:05}" for t in range(self.topics)]

    def subscribed(self) -> list[list[int]]:
        """For each member, the one that joins included, the topics it subscribes to."""
        everything = list(range(self.topics))
        if self.shape == "uniform":
            return [everything] * (self.members + 1)
        state = 1
        result = []
        for _ in range(self.members + 1):
            mine = []
            for t in everything:
                state = (state * 1103515245 + 12345) % 2147483648
                if (state >> 16) % 2:
                    mine.append(t)
            result.append(mine)
        return result

    def before(self) -> list[list[tuple[int, range]]]:
        """For each member before the event, `(topic, partitions)`: dealt among subscribers."""
        takers = [list(range(self.members))] * self.topics
        if self.shape != "uniform":
            takers = [[] for _ in range(self.topics)]
            for m, mine in enumerate(self.subscribed()[: self.members]):
                for t in mine:
                    takers[t].append(m)
        owned: list[list[tuple[int, range]]] = [[] for _ in range(self.members)]
        # Every n-th partition, one range object for all topics with n takers.
        shares: dict[int, list[range]] = {}
        turn = 0
        for t, members in enumerate(takers):
            count = len(members)
            if count not in shares:
                shares[count] = [range(p, self.each, count) for p in range(min(self.each, count))]
            first = turn % count
            for member, share in zip(
                members[first:] + members[:first], shares[count], strict=False
            ):
                owned[member].append((t, share))
            turn += self.each
        return owned


def spec_of(case: Case) -> Spec:
    """Return the case as input of rebal's assignors."""
    names = case.names()
    before = [] if case.event == "fresh" else case.before()
    subscribed = case.subscribed()
    topics = [tuple(map(names.__getitem__, mine)) for mine in subscribed[:1]] * len(subscribed)
    if case.shape != "uniform":
        topics = [tuple(map(names.__getitem__, mine)) for mine in subscribed]
    members = []
    sent = _Previous(names)
    for m in case.present:
        mine = before[m] if m < len(before) else None
        sticky = case.assignor == "sticky"
        members.append(
            SpecMember(
                member_id=f"member-{m:05}",
                topics=topics[m],
                owned=tuple((names[t], p) for t, ps in mine or () for p in ps)
                if not sticky
                else (),
                generation=GENERATION if mine is not None and not sticky else None,
                user_data=sent.by(mine) if mine is not None and sticky else None,
            )
        )
    return Spec(members=tuple(members), partitions=dict.fromkeys(names, case.each))


class _Previous:
    """`sticky` members' user data, v1."""

    def __init__(self, names: list[str]) -> None:
        self._names = [struct.pack(">h", len(name)) + name.encode() for name in names]
        self._numbers: dict[range, bytes] = {}

    def by(self, owned: list[tuple[int, range]]) -> bytes:
        parts = [struct.pack(">i", len(owned))]
        for t, ps in owned:
            numbers = self._numbers.get(ps)
            if numbers is None:
                numbers = self._numbers[ps] = struct.pack(f">i{len(ps)}i", len(ps), *ps)
            parts += (self._names[t], numbers)
        parts.append(struct.pack(">i", GENERATION))
        return b"".join(parts)


def digest(result: Mapping[str, Iterable[tuple[str, int]]] | Assignment) -> str:
    """SHA-256 over members by name, each with its partitions in the order returned."""
    sha = hashlib.sha256()
    for member in sorted(result):
        pairs = chain.from_iterable(result[member])
        sha.update(" ".join(chain((member,), map(str, pairs))).encode())
        sha.update(b"\n")
    return sha.hexdigest()
