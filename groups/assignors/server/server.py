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
"""Topic numbers in the order of a hash table: one list for each slot that is not empty."""


class Targets(NamedTuple):
    """Result of a server-side assignor: `lists` are the partition codes of each member.

    `topics` and `members` are those that share a slot in one of the coordinator's hash tables and
    whose order in it could change the result. That order depends on the history of the table, and
    no response of the broker shows it.
    """

    lists: list[list[int]]
    topics: frozenset[int] = frozenset()
    members: frozenset[int] = frozenset()


class Undecided(NamedTuple):
    """Topic names and member ids whose order in the coordinator's tables is unknown.

    Their order could change the target assignment.
    """

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
        """Return None: members of a KIP-848 group send no user data."""
        return None

    def assign(self, spec: Spec) -> Assignment:
        """Return the target assignment: member id → `(topic, partition)` list, sorted.

        The order has no meaning, because a target is a set of partitions.
        """
        return self.assign_with_undecided(spec)[0]

    def assign_with_undecided(self, spec: Spec) -> tuple[Assignment, Undecided]:
        """Return the target assignment, and the topics and members whose order could change it."""
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
        """Return the member with the target `assigned`; `generation` is its member epoch."""
        return replace(member, owned=tuple(assigned), generation=generation, user_data=None)


class ServerProblem:
    """Input of a server-side assignor, with members, topics and partitions as numbers.

    Members and topics are numbered in the iteration order of the coordinator's tables. Topics that
    do not exist are left out. The number of a partition is its code: codes go by the names of the
    topics, then by partition, and the codes of topic t begin at `starts[t]`.
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
        """Topic numbers of each member's subscription; equal subscriptions share one list."""
        lists = {
            topics: [self.number[name] for name in dict.fromkeys(topics) if name in self.number]
            for topics in {member.topics for member in self.members}
        }
        return [lists[member.topics] for member in self.members]

    @cached_property
    def members_by_shared_slot(self) -> list[list[int]]:
        """Groups of members that share a slot of the coordinator's table, in the slots' order."""
        sizes = [len(slot) for slot in table_of(m.member_id for m in self.members).slots()]
        ends = zip(sizes, accumulate(sizes), strict=True)
        return [list(range(end - size, end)) for size, end in ends if size > 1]

    def reordered(self, order: Sequence[int]) -> ServerProblem:
        """Return a copy with the members in the order `order`, a list of member numbers."""
        other = copy(self)
        other.members = [self.members[member] for member in order]
        for name in ("subscribed", "members_by_shared_slot"):
            other.__dict__.pop(name, None)
        return other

    @cached_property
    def pairs(self) -> list[TopicPartition]:
        """The `(topic, partition)` of every code, as a list with the code as index."""
        numbers = list(range(max(self.counts, default=0)))
        made: list[TopicPartition] = []
        for name, codes in self._codes.items():
            made += zip(repeat(name), islice(numbers, len(codes)))
        return made

    def target(self, member: int) -> list[int]:
        """Return the codes of the target assignment that the member with this number has now.

        Topics that no member subscribes to, and partitions that do not exist, are left out.
        """
        owned, of = self.members[member].owned, self._codes
        try:
            codes = [of[name][partition] for name, partition in owned]
        except (KeyError, IndexError):
            # A topic never shrinks: one of that name with fewer partitions is another topic.
            codes = [of[name][p] for name, p in owned if name in of and p < len(of[name])]
        return codes if len(set(codes)) == len(codes) else list(dict.fromkeys(codes))

    def by_topic(self, codes: Iterable[int]) -> dict[int, list[int]]:
        """Return the partitions in `codes` by topic number, ascending within each topic.

        The topics are in the order in which they first occur in `codes`.
        """
        made: dict[int, list[int]] = {}
        for name, partition in map(self.pairs.__getitem__, codes):
            made.setdefault(self.number[name], []).append(partition)
        return {topic: sorted(partitions) for topic, partitions in made.items()}

    def table(self, topics: Iterable[int]) -> Slots:
        """Return `topics` in the iteration order of the Java map that holds a member's target.

        Topics that share a slot of the map are in one list. `topics` must be in the order in which
        the coordinator adds them to the map.
        """
        if (key := tuple(topics)) not in self._tables:
            slots = self._slots([self.topics[topic] for topic in key], HashTable())
            self._tables[key] = [[self.number[name] for name in slot] for slot in slots]
        return self._tables[key]

    def by_topic_id(self, topic: int) -> tuple[int, int, int, str]:
        """Return a sort key by topic id; topics without an id come last.

        Java compares an id as two signed 64-bit halves.
        """
        name = self.topics[topic]
        bits = self._bits[name]
        return (1, 0, 0, name) if bits is None else (0, *bits, name)

    def set_order(self, partitions: list[int]) -> list[int]:
        """Return one topic's `partitions` in the iteration order of a Java HashSet of them."""
        table: HashTable[int] = HashTable(table_size(len(partitions)))
        for partition in partitions:
            table.add(partition, partition, partition)
        return list(table)

    def _slots(self, names: Iterable[str], table: HashTable[str]) -> list[list[str]]:
        """Add the topics `names` to the hash table `table`, and return them grouped by slot.

        Topics without an id are not added. They are last, sorted by name, each in a group of its
        own.
        """
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
    """Return the target assignment by the server-side `range`.

    It is computed as the client-side `range` without racks, so a group that changes from one to the
    other keeps its assignment.
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
