"""Order of a group's members in the coordinator's hash table.

The coordinator takes a new leader from it, and sends the members to the leader in this order. The
Java coordinator (ClassicGroup.members) has a java.util.HashMap, the Scala one (GroupMetadata) a
scala.collection.mutable.HashMap of Scala 2.13, which sorts a bucket by hash. A KIP-848 group
(ModernGroup.members) has an org.apache.kafka.timeline.TimelineHashMap. None of them shrinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rebal.groups.jvmhash import string_hash
from rebal.groups.model import CoordinatorKind

FIRST_SIZE: Final = 16
"""Buckets of a new table, for both."""
FIRST_TIMELINE_SIZE: Final = 2
"""Buckets of a new TimelineHashMap."""
_SIGN: Final = 0x80000000
_FIBONACCI: Final = -7046029254386353131


def table_size(size: int, members: int, kind: CoordinatorKind) -> int:
    """Return the number of buckets after the table of `size` has got its last of `members`.

    Both double a table that is three quarters full: Java after the entry that is too many, Scala
    before the one that fills it.
    """
    count = members + 1 if kind is CoordinatorKind.SCALA else members
    while count > size * 3 // 4:
        size *= 2
    return size


def table_order(member_ids: Iterable[str], size: int, kind: CoordinatorKind) -> list[str]:
    """Return the ids in the order of a table with `size` buckets.

    `member_ids` are in the order in which they were added. Buckets of more than eight members,
    which Java turns into trees, are not modelled.
    """
    sorts = kind is CoordinatorKind.SCALA

    def place(member_id: str) -> tuple[int, int]:
        hashed = string_hash(member_id)
        spread = hashed ^ hashed >> 16
        # Scala compares signed hashes.
        return spread & (size - 1), spread ^ _SIGN if sorts else 0

    return sorted(member_ids, key=place)


def timeline_size(size: int, members: int) -> int:
    """Return the number of buckets after a TimelineHashMap of `size` has got its last of `members`.

    BaseHashTable doubles before an element is put that may be one too many. Each member is put more
    than once, the last one too: its join, then its assignment.
    """
    while (members + 1) * 3 > size * 4:
        size *= 2
    return size


def timeline_order(member_ids: Sequence[str], size: int) -> list[str]:
    """Return the ids in the order of a TimelineHashMap with `size` buckets.

    `member_ids` are in the order in which they were added; an iteration takes each bucket from its
    end. Source: BaseHashTable.findSlot.
    """
    shift = 65 - size.bit_length()

    def slot(member_id: str) -> int:
        hashed = string_hash(member_id)
        signed = hashed - 2 * _SIGN if hashed >= _SIGN else hashed
        return (signed * _FIBONACCI & 2**64 - 1) >> shift

    newest_first = list(reversed(member_ids))
    return sorted(newest_first, key=slot)
