"""A server-side assignor with the contract of the client-side ones, and the input it works on."""

from __future__ import annotations

import base64
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, TypeVar

from rebal.groups.assignors.javatable import HashTable, hash_order, string_hash, utf16
from rebal.groups.assignors.spec import Assignment, Owned, Spec, SpecMember
from rebal.groups.model import RebalanceProtocol

_COOPERATIVE: Final = frozenset({RebalanceProtocol.COOPERATIVE})
_K = TypeVar("_K", bound=Hashable)
Lists = list[list[tuple[int, int]]]
"""For each member its `(topic, partition)` numbers."""


class ServerAssignor:
    """`uniform` or `range` of the coordinator of Kafka 4.1.1 (KIP-848, "Server Side Assignors").

    The result is a target assignment: the members reach it one by one, each giving up and getting
    only what changes, so that there is one computation and no further round.
    """

    def __init__(
        self,
        name: str,
        lists: Callable[[ServerProblem], Lists],
        topic_ids: Mapping[str, str],
    ) -> None:
        self.name = name
        self.version = 0
        self.supported_protocols = _COOPERATIVE
        self._lists = lists
        self._topic_ids = topic_ids

    def subscription_user_data(self, member: SpecMember) -> bytes | None:  # noqa: ARG002
        """None: members of a KIP-848 group send none."""
        return None

    def assign(self, spec: Spec) -> Assignment:
        """Member id → its target, sorted by topic, then partition (a target is a set)."""
        if not spec.members:
            return {}
        problem = ServerProblem(spec, self._topic_ids)
        names = problem.topics
        return {
            member.member_id: sorted((names[topic], partition) for topic, partition in target)
            for member, target in zip(problem.members, self._lists(problem), strict=True)
        }

    def on_assignment(
        self,
        member: SpecMember,
        assigned: Owned,
        user_data: bytes | None,  # noqa: ARG002 - there is none
        generation: int,
    ) -> SpecMember:
        """The member when it has reached its target; `generation` is the member epoch."""
        return SpecMember(
            member_id=member.member_id,
            topics=member.topics,
            instance_id=member.instance_id,
            rack=member.rack,
            owned=tuple(assigned),
            generation=generation,
        )


class ServerProblem:
    """Members and topics as numbers, both in the iteration order of the coordinator's tables.

    Topics that do not exist are left out. `subscribed` and `targets` are by member: its topics, and
    for each of them (in its table's order) the partitions that it is to own now, ascending.
    """

    def __init__(self, spec: Spec, topic_ids: Mapping[str, str]) -> None:
        by_id = {member.member_id: member for member in spec.members}
        self.members: list[SpecMember] = [by_id[name] for name in hash_order(by_id)]
        wanted = {name for member in self.members for name in member.topics}
        names: HashTable[str] = _SizedTable(len(wanted))
        for name in dict.fromkeys((*self.members[0].topics, *sorted(wanted))):
            names.add(name, string_hash(name), utf16(name))
        known = [name for name in names if spec.partitions.get(name, 0) > 0]
        self._bits = {name: _bits(topic_ids.get(name)) for name in known}
        self.topics: list[str] = self._in_set_order(known)
        self.number = {name: n for n, name in enumerate(self.topics)}
        self.counts = [spec.partitions[name] for name in self.topics]
        self.uniform = len({frozenset(member.topics) for member in self.members}) == 1
        self.subscribed = [
            [self.number[name] for name in dict.fromkeys(member.topics) if name in self.number]
            for member in self.members
        ]
        self.targets = [self._target(member.owned) for member in self.members]

    def by_instance(self) -> list[int]:
        """Static members by instance id, then the others by member id."""
        keys = [
            (1, m.member_id) if m.instance_id is None else (0, m.instance_id) for m in self.members
        ]
        return sorted(range(len(keys)), key=lambda n: (keys[n][0], utf16(keys[n][1])))

    def by_topic_id(self, topic: int) -> tuple[int, int, int, str]:
        """The sort key of a topic's id (two signed halves); topics without one come last."""
        name = self.topics[topic]
        bits = self._bits[name]
        return (1, 0, 0, name) if bits is None else (0, *bits, name)

    def set_order(self, partitions: list[int]) -> list[int]:
        """`partitions` in the iteration order of the set that a stored target becomes."""
        table: HashTable[int] = _SizedTable(len(partitions))
        for partition in partitions:
            table.add(partition, partition, partition)
        return list(table)

    def _in_set_order(self, names: list[str]) -> list[str]:
        """As a HashSet made of another collection: it is sized at once."""
        return self._ordered(names, _SizedTable(sum(self._bits[n] is not None for n in names)))

    def _ordered(self, names: Iterable[str], table: HashTable[str]) -> list[str]:
        rest = []
        for name in names:
            bits = self._bits[name]
            if bits is None:
                rest.append(name)
            else:
                mixed = (bits[0] ^ bits[1]) & 0xFFFFFFFFFFFFFFFF
                table.add(name, (mixed >> 32) ^ (mixed & 0xFFFFFFFF), bits)
        return [*table, *sorted(rest)]

    def _target(self, owned: Owned) -> list[tuple[int, list[int]]]:
        """By topic that somebody subscribes to, in the order of the table."""
        by_topic: dict[str, list[int]] = {}
        for name, partition in owned:
            # A topic never shrinks: one of that name with fewer partitions is another topic.
            if name in self.number and partition < self.counts[self.number[name]]:
                by_topic.setdefault(name, []).append(partition)
        return [
            (self.number[name], sorted(set(by_topic[name])))
            for name in self._ordered(by_topic, HashTable())
        ]


class _SizedTable(HashTable[_K]):
    """A table made for `expected` keys, as `new HashSet<>(collection)` makes it."""

    __slots__ = ()

    def __init__(self, expected: int) -> None:
        super().__init__()
        wanted = max(int(expected / 0.75) + 1, 16)
        while self._size < wanted:
            self._size *= 2


def _bits(topic_id: str | None) -> tuple[int, int] | None:
    """The two signed 64-bit halves of an id; None for none, or for text that is no id."""
    try:
        raw = base64.urlsafe_b64decode(f"{topic_id or ''}==")
    except ValueError:
        return None
    if len(raw) != 16:
        return None
    return (int.from_bytes(raw[:8], signed=True), int.from_bytes(raw[8:], signed=True))
