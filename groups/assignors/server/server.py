"""Input and contract of the server-side assignors, and the server-side `range`."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import accumulate, chain, islice, repeat
from typing import NamedTuple

from msgspec.structs import replace

from rebal.groups.assignors.javatable import HashTable, hash_order, table_of, table_size
from rebal.groups.assignors.spec import (
    Assignment,
    Owned,
    Spec,
    SpecMember,
    TopicPartition,
    by_instance,
)
from rebal.groups.jvmhash import string_hash, utf16
from rebal.groups.model import RebalanceProtocol

Slots = Sequence[Sequence[int]]
"""Topics in the order of a table, those that share a place in it together."""


class Targets(NamedTuple):
    """The codes of each member, and the topics and members whose unknown order could change them.

    Such topics or members share a place in one of the coordinator's tables. The history of the
    table decides which comes first, and no response of the broker shows it.
    """

    lists: list[list[int]]
    topics: frozenset[int] = frozenset()
    members: frozenset[int] = frozenset()


class Undecided(NamedTuple):
    """Names of topics and member ids whose order is unknown and could change the result."""

    topics: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()


class ServerAssignor:
    """`uniform` or `range` of the coordinator of Kafka 4.1.1 (KIP-848, "Server Side Assignors").

    The result is a target assignment: each member reaches it by itself, revoking and receiving only
    what changes, so that one computation is enough.
    """

    def __init__(
        self,
        name: str,
        targets: Callable[[ServerProblem], Targets],
        topic_ids: Mapping[str, str],
    ) -> None:
        self.name = name
        self.supported_protocols = frozenset({RebalanceProtocol.COOPERATIVE})
        self._targets = targets
        self._topic_ids = topic_ids

    def subscription_user_data(self, member: SpecMember) -> bytes | None:  # noqa: ARG002
        """Return None: members of a KIP-848 group send none."""
        return None

    def assign(self, spec: Spec) -> Assignment:
        """Return member id → its target, sorted by topic, then partition (a target is a set)."""
        return self.assign_and_tell(spec)[0]

    def assign_and_tell(self, spec: Spec) -> tuple[Assignment, Undecided]:
        """Return the result of `assign`, and the unknown table orders that could change it."""
        if not spec.members:
            return {}, Undecided()
        problem = ServerProblem(spec, self._topic_ids)
        made, pairs = self._targets(problem), problem.pairs
        targets = {
            member.member_id: list(map(pairs.__getitem__, sorted(codes)))
            for member, codes in zip(problem.members, made.lists, strict=True)
        }
        return targets, Undecided(
            frozenset(problem.topics[topic] for topic in made.topics),
            frozenset(problem.members[member].member_id for member in made.members),
        )

    def on_assignment(
        self,
        member: SpecMember,
        assigned: Owned,
        user_data: bytes | None,  # noqa: ARG002 - there is none
        generation: int,
    ) -> SpecMember:
        """Return the member at its target; `generation` is the member epoch."""
        return replace(member, owned=tuple(assigned), generation=generation, user_data=None)


class ServerProblem:
    """Members and topics as numbers, both in the iteration order of the coordinator's tables.

    Topics that do not exist are left out. A partition's code is one number; codes go by the names
    of the topics, then by partition, and a topic's begin with its entry in `starts`.
    """

    def __init__(self, spec: Spec, topic_ids: Mapping[str, str]) -> None:
        by_id = {member.member_id: member for member in spec.members}
        self.members: list[SpecMember] = [by_id[name] for name in hash_order(by_id)]
        wanted = set().union(*{member.topics for member in self.members})
        names: HashTable[str] = HashTable(table_size(len(wanted)))
        for name in (*self.members[0].topics, *sorted(wanted)):
            names.add(name, string_hash(name), utf16(name))
        known = [name for name in names if spec.partitions.get(name, 0) > 0]
        self._bits = {name: _bits(topic_ids.get(name)) for name in known}
        # A HashSet made of another collection is sized at once.
        slots = self._slots(known, HashTable(table_size(sum(map(bool, self._bits.values())))))
        self.topics: list[str] = list(chain.from_iterable(slots))
        self.number = {name: n for n, name in enumerate(self.topics)}
        self.slots: Slots = [[self.number[name] for name in slot] for slot in slots]
        self.counts = [spec.partitions[name] for name in self.topics]
        self.total = sum(self.counts)
        self._codes: dict[str, range] = {}
        start = 0
        for name in sorted(self.topics):
            self._codes[name] = range(start, start + spec.partitions[name])
            start += spec.partitions[name]
        self.starts = [self._codes[name].start for name in self.topics]
        self._tables: dict[tuple[int, ...], Slots] = {}

    @property
    def uniform(self) -> bool:
        """True if all members subscribe to the same topics."""
        return len(set(map(frozenset, {member.topics for member in self.members}))) == 1

    @cached_property
    def subscribed(self) -> list[list[int]]:
        """For each member its topics; members that subscribe alike share one list."""
        lists = {
            topics: [self.number[name] for name in dict.fromkeys(topics) if name in self.number]
            for topics in {member.topics for member in self.members}
        }
        return [lists[member.topics] for member in self.members]

    @cached_property
    def shared_places(self) -> list[list[int]]:
        """Members that share a place in the coordinator's table, in the order of that place."""
        sizes = [len(slot) for slot in table_of(m.member_id for m in self.members).slots()]
        ends = zip(sizes, accumulate(sizes), strict=True)
        return [list(range(end - size, end)) for size, end in ends if size > 1]

    def reordered(self, order: Sequence[int]) -> ServerProblem:
        """Return the same problem with the members in another order."""
        other = copy(self)
        other.members = [self.members[member] for member in order]
        for name in ("subscribed", "shared_places"):
            other.__dict__.pop(name, None)
        return other

    @cached_property
    def pairs(self) -> list[TopicPartition]:
        """`(topic, partition)` of each code."""
        numbers = list(range(max(self.counts, default=0)))
        made: list[TopicPartition] = []
        for name, codes in self._codes.items():
            made += zip(repeat(name), islice(numbers, len(codes)))
        return made

    def target(self, member: int) -> list[int]:
        """Return the codes that the member owns now, without topics to which no member
        subscribes.
        """
        owned, of = self.members[member].owned, self._codes
        try:
            codes = [of[name][partition] for name, partition in owned]
        except (KeyError, IndexError):
            # A topic never shrinks: one of that name with fewer partitions is another topic.
            codes = [of[name][p] for name, p in owned if name in of and p < len(of[name])]
        return codes if len(set(codes)) == len(codes) else list(dict.fromkeys(codes))

    def by_topic(self, codes: Iterable[int]) -> dict[int, list[int]]:
        """Return topic → its partitions among `codes`, ascending; topics in the codes' order."""
        made: dict[int, list[int]] = {}
        for name, partition in map(self.pairs.__getitem__, codes):
            made.setdefault(self.number[name], []).append(partition)
        return {topic: sorted(partitions) for topic, partitions in made.items()}

    def table(self, topics: Iterable[int]) -> Slots:
        """Return the iteration order of a member's target to which `topics` were added in this
        order.
        """
        if (key := tuple(topics)) not in self._tables:
            slots = self._slots([self.topics[topic] for topic in key], HashTable())
            self._tables[key] = [[self.number[name] for name in slot] for slot in slots]
        return self._tables[key]

    def by_topic_id(self, topic: int) -> tuple[int, int, int, str]:
        """Return a sort key for a topic: its id as two signed halves; topics without an id come
        last.
        """
        name = self.topics[topic]
        bits = self._bits[name]
        return (1, 0, 0, name) if bits is None else (0, *bits, name)

    def set_order(self, partitions: list[int]) -> list[int]:
        """Return `partitions` in the iteration order of the set that stores a target."""
        table: HashTable[int] = HashTable(table_size(len(partitions)))
        for partition in partitions:
            table.add(partition, partition, partition)
        return list(table)

    def _slots(self, names: Iterable[str], table: HashTable[str]) -> list[list[str]]:
        """Return names by place in `table`; topics without an id are last, each on its own."""
        rest = []
        for name in names:
            if (bits := self._bits[name]) is None:
                rest.append([name])
            else:
                mixed = (bits[0] ^ bits[1]) & 0xFFFFFFFFFFFFFFFF
                table.add(name, (mixed >> 32) ^ (mixed & 0xFFFFFFFF), bits)
        return [*table.slots(), *sorted(rest)]


def _bits(topic_id: str | None) -> tuple[int, int] | None:
    # None also for text that is no id.
    try:
        raw = base64.urlsafe_b64decode(f"{topic_id or ''}==")
    except ValueError:
        return None
    halves = int.from_bytes(raw[:8], signed=True), int.from_bytes(raw[8:], signed=True)
    return halves if len(raw) == 16 else None


def assign_range(problem: ServerProblem) -> Targets:
    """Return each member's target of `range`.

    The arithmetic is that of the client-side `range` without racks, so a group that changes from
    one to the other keeps its assignment.
    """
    takers: list[list[int]] = [[] for _ in problem.topics]
    for member in by_instance(problem.members):
        for topic in problem.subscribed[member]:
            takers[topic].append(member)
    result: list[list[int]] = [[] for _ in problem.members]
    for topic, members in enumerate(takers):
        base, more = divmod(problem.counts[topic], len(members))
        first, start = problem.starts[topic], 0
        for place, member in enumerate(members):
            stop = start + base + (place < more)
            result[member] += range(first + start, first + stop)
            start = stop
    return Targets(result)
