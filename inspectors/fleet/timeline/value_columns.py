"""GroupMetadataValues (v3) of a batch cut into their fields, all of them at once, by numpy.

Only lengths are followed here. Each value is cut into pieces of bytes, and equal pieces get equal
codes, so that what a piece says is read once. A value of another version, or one whose lengths do
not add up, is left to the strict codec in groups/wire.

    value    start | generation | names | time and count | member… | what follows
    member   head | subscription | its generation | rest

`start` is the version and the protocol type, `names` are the protocol and the leader, `head` is a
member up to its subscription, and `rest` is what follows the generation in its subscription
(KIP-792), and its assignment. Where a subscription has none, the generation is an empty piece.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from rebal.groups.wire.schema import layout, smallest_entry
from rebal.inspectors.fleet.binary_columns import (
    END,
    Bytes,
    Ints,
    Mask,
    buffers,
    numbers,
    walk,
)

VERSION: Final = 3
"""The version of the values that are cut here, which brokers since 2.3 write."""
_OF_VALUE, _OF_MEMBER = 5, 4
"""Pieces of a value beside its members', and of a member."""
_MESSAGE: Final = "GroupMetadataValue"
_MOST: Final = 10_000
"""Members of a value that is cut here, at most: each step takes one member of all values."""
_WITH_GENERATION: Final = 18
"""Bytes of the shortest subscription up to the end of its generation."""
_LONGEST_RACK: Final = 64
_NULL: Final = -1
_OF_ENTRY: Final = ("member_id", "subscription", "assignment", END)


class Cut(NamedTuple):
    """The values that could be cut, and their members, one value's after another's.

    `start`, `names`, `head`, `sent`, `at_generation` and `rest` are codes: places in `pieces`.
    """

    rows: Ints
    """Where the values are in the batch."""
    start: Ints
    names: Ints
    generation: Ints
    stamp: Ints
    first: Ints
    """Where each value's members begin, and where the last one's end."""
    head: Ints
    sent: Ints
    at_generation: Ints
    rest: Ints
    has_generation: Mask
    sent_generation: Ints
    has_rack: Mask
    """Whether a rack follows the generation: then `rest` begins with it."""
    begin: Ints
    """Where a member begins in `data`."""
    sent_at: Ints
    """Where its subscription begins, which ends four bytes before its assignment."""
    given_at: Ints
    end: Ints
    pieces: pa.LargeBinaryArray
    data: Bytes

    def head_bytes(self, member: int) -> bytes:
        """A member up to its subscription."""
        return self.data[self.begin[member] : self.sent_at[member] - 4].tobytes()

    def sent_bytes(self, member: int) -> bytes:
        """A member's subscription."""
        return self.data[self.sent_at[member] : self.given_at[member] - 4].tobytes()

    def given_bytes(self, member: int) -> bytes:
        """A member's assignment."""
        return self.data[self.given_at[member] : self.end[member]].tobytes()


class _Heads(NamedTuple):
    """Of each value where it begins, where its start ends, its names, and it; and its members."""

    begin: Ints
    start: Ints
    names: Ints
    end: Ints
    counts: Ints


def cut_values(values: pa.Array, rows: Ints) -> Cut:
    """Cut the values in these rows of a binary column, in their order; none of them is null."""
    bounds, data = buffers(values)
    heads, whole = _heads(data, bounds[rows], bounds[rows + 1])
    rows, heads = rows[whole], _only(heads, whole)
    first, places, whole = _members(data, heads)
    if not whole.all():
        places = places[:, np.repeat(whole, heads.counts)]
        rows, heads = rows[whole], _only(heads, whole)
        first = _sums(heads.counts)
    return _encoded(data, rows, heads, first, places)


def _only(heads: _Heads, which: Mask) -> _Heads:
    return _Heads(*(column[which] for column in heads))


def _sums(counts: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _heads(data: Bytes, begin: Ints, end: Ints) -> tuple[_Heads, Mask]:
    """Each value up to its members, and whether it is as such a value is."""
    places, plain = walk(data, begin + 2, layout(_MESSAGE, VERSION), until="members")
    counts = numbers(data, places["members"], "i4")
    whole = plain & (numbers(data, begin, "i2") == VERSION) & (counts >= 0) & (counts <= _MOST)
    shortest = smallest_entry(_MESSAGE, VERSION, "members")
    whole &= places["members"] + 4 + counts * shortest <= end
    return (
        _Heads(begin, places["generation"], places["state_timestamp_ms"], end, counts),
        whole,
    )


def _members(data: Bytes, heads: _Heads) -> tuple[Ints, Ints, Mask]:
    """Where members begin by value; where each, its subscription, its assignment begin, and it
    ends; and which values have no member that is cut off."""
    first = _sums(heads.counts)
    places = np.zeros((4, int(first[-1])), np.int64)
    whole = np.ones(len(heads.counts), np.bool_)
    # the n-th member of all values at once, the values with the most members first
    fields = layout(_MESSAGE, VERSION, "members")
    live = np.argsort(-heads.counts, kind="stable")
    fewer = -heads.counts[live]
    at = heads.names[live] + 12
    for nth in range(int(heads.counts.max(initial=0))):
        size = int(np.searchsorted(fewer, -nth))
        live, fewer, at = live[:size], fewer[:size], at[:size]
        found_at, plain = walk(data, at, fields)
        found = np.stack([found_at[place] for place in _OF_ENTRY])
        plain &= found[3] <= heads.end[live]
        if not plain.all():
            whole[live[~plain]] = False
            live, fewer, found = live[plain], fewer[plain], found[:, plain]
        places[:, first[live] + nth] = found
        at = found[3]
    return first, places, whole


def _tails(data: Bytes, begin: Ints, end: Ints) -> Ints:
    """Bytes that follow the generation in each subscription, -1 where it has none.

    That is a version 3's rack, or nothing: no byte of its text is 0, so that the shortest rack that
    can be there is the one that is.
    """
    version, size = numbers(data, begin, "i2"), end - begin
    tails = np.full(len(begin), -1, np.int64)
    tails[(version == 2) & (size >= _WITH_GENERATION)] = 0
    third = (version == 3) & (size >= _WITH_GENERATION + 2)
    null = third & (numbers(data, end - 2, "i2") == _NULL)
    tails[null] = 2
    left = np.flatnonzero(third & ~null)
    for length in range(_LONGEST_RACK + 1):
        if not len(left):
            break
        found = numbers(data, end[left] - 2 - length, "i2") == length
        found &= size[left] >= _WITH_GENERATION + 2 + length
        tails[left[found]] = 2 + length
        left = left[~found]
    return tails


def _encoded(data: Bytes, rows: Ints, heads: _Heads, first: Ints, places: Ints) -> Cut:
    member, sent, given, end = places
    tail = _tails(data, sent + 4, given)
    has = tail >= 0
    generation = np.where(has, given - 4 - tail, given)
    values = np.arange(len(rows)) * _OF_VALUE + first[:-1] * _OF_MEMBER
    members = np.arange(len(sent)) * _OF_MEMBER + 4
    members += np.repeat(np.arange(len(rows)) * _OF_VALUE, heads.counts)
    cuts = np.zeros(len(rows) * _OF_VALUE + len(sent) * _OF_MEMBER + 1, np.int64)
    for n, place in enumerate((heads.begin, heads.start, heads.start + 4, heads.names)):
        cuts[values + n] = place
    for n, place in enumerate((member, sent, generation, generation + 4 * has)):
        cuts[members + n] = place
    ends = heads.names + 12
    ends[heads.counts > 0] = end[first[1:][heads.counts > 0] - 1]
    cuts[values + 4 + heads.counts * _OF_MEMBER] = ends
    cuts[-1] = heads.end[-1] if len(rows) else 0
    pieces = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(cuts) - 1, [None, pa.py_buffer(cuts), pa.py_buffer(data)]
    ).dictionary_encode()
    codes = pieces.indices.to_numpy().astype(np.int64)
    return Cut(
        rows,
        codes[values],
        codes[values + 2],
        numbers(data, heads.start, "i4"),
        numbers(data, heads.names, "i8"),
        first,
        codes[members],
        codes[members + 1],
        codes[members + 2],
        codes[members + 3],
        has,
        numbers(data, generation, "i4"),
        tail > 2,
        member,
        sent + 4,
        given + 4,
        end,
        pieces.dictionary,
        data,
    )
