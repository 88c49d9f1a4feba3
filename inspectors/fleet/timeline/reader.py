"""A batch's GroupMetadataValues, read together: each distinct member of them once.

A group's members say the same value after value, but for the generation in their subscriptions; so
members are recognised by their bytes, and each value says what is new against the group's value
before it. What they say goes through the one strict codec in groups/wire, and a value that it
refuses is refused here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from rebal.groups.errors import WireError
from rebal.groups.wire.offsets_topic import decode_group_metadata, member_head_reader
from rebal.inspectors.fleet.binary_columns import Ints, Mask
from rebal.inspectors.fleet.timeline.value_columns import VERSION, Cut, cut_values
from rebal.inspectors.fleet.timeline.values import NOT_GIVEN, UNTOLD, Head, Seen, Sent, Sums, Values

_T = TypeVar("_T")
Names = tuple[str, str | None, str | None]
"""A value's protocol type, its protocol and its leader."""
_CONSUMER: Final = "consumer"
_CLASSIC: Final = "classic"
_NUMBERS: Final = bytes(12)
"""A state's time, and that there are no members."""


class Value:
    """A classic group's record: `members` are whom it names.

    Against `base`, the members of the value before it, those in `fresh` are new and those in
    `dropped` are gone; a member that changed is in both. `base` is None where that is not known.
    `sums` are theirs, where they were added up.

    A member that is in several values is one object, so it cannot say the generation that its
    subscription names in each. It learns that when it is dropped, or by `recall`.
    """

    __slots__ = (
        "_dropped",
        "_said",
        "_written_in",
        "base",
        "fresh",
        "generation",
        "leader",
        "members",
        "protocol",
        "protocol_type",
        "state_timestamp_ms",
        "sums",
    )

    def __init__(
        self,
        generation: int,
        names: Names,
        state_timestamp_ms: int | None,
        members: list[Seen],
        *,
        said: list[int] | None = None,
        sums: Sums | None = None,
        written_in: tuple[pa.Array, int] | None = None,
    ) -> None:
        self.generation = generation
        self.protocol_type, self.protocol, self.leader = names
        self.state_timestamp_ms = state_timestamp_ms
        self.members = members
        self.base: list[Seen] | None = None
        self.fresh: list[Seen] = members
        self.sums = sums
        self._written_in = written_in
        self._dropped: list[tuple[Seen, int]] = []
        self._said = said

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        said = {name: getattr(self, name) for name in self.__slots__}
        return None, said | {"_written_in": None}

    def follow(self, base: Value, fresh: list[Seen], dropped: list[tuple[Seen, int]]) -> None:
        """It is told against `base`; `dropped` have the generation that each said there."""
        self.base, self.fresh, self._dropped = base.members, fresh, dropped

    def dropped(self) -> list[Seen]:
        """Those who are gone, as they were when they were last there."""
        return [_saying(seen, generation) for seen, generation in self._dropped]

    def written(self) -> bytes | None:
        """Its bytes; None where it was read strictly."""
        if self._written_in is None:
            return None
        column, row = self._written_in
        raw: bytes = column[row].as_py()
        return raw

    def recall(self) -> None:
        """Its members say the generations that their subscriptions say here."""
        for seen, generation in zip(self.members, self._said or (), strict=False):
            _saying(seen, generation)


def _saying(seen: Seen, generation: int) -> Seen:
    if seen.generation is not None:
        seen.generation = generation
    return seen


class ValueReader:
    """Reads the values of a batch, in which each group's rows are one after another."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def read(
        self, groups: Sequence[str], values: pa.Array, rows: Sequence[int], heard: Collection[str]
    ) -> dict[int, Value]:
        """Values in these rows of a binary column, none of them null, by their row.

        One that is not there is for `read_strictly`. `groups` are all rows' groups. Of the groups
        in `heard` there is a log: another generation in a subscription makes another member.
        """
        cut = cut_values(values, np.array(rows, np.int64))
        if not len(cut.rows):
            return {}
        return _Batch(cut, [groups[row] for row in cut.rows.tolist()], heard).values(
            self._values, values
        )

    def read_strictly(self, data: bytes) -> Value:
        """One value by itself.

        Raises:
            WireError: as `decode_group_metadata`.
        """
        value = decode_group_metadata(data)
        consumer = value.protocol_type == _CONSUMER
        members = []
        for one in value.members:
            sent = self._values.sent(one.subscription) if consumer else UNTOLD
            given = self._values.given(one.assignment) if consumer else NOT_GIVEN
            head = Head(
                one.member_id, one.instance_id, one.client_id, one.client_host,
                one.rebalance_timeout_ms, one.session_timeout_ms, _CLASSIC,
            )  # fmt: skip
            members.append(Seen(head, sent, given))
        names = (value.protocol_type, value.protocol, value.leader)
        return Value(value.generation, names, value.state_timestamp_ms, members)


class _Batch:
    """Values that were cut; `owner` is which of them each member is in."""

    def __init__(self, cut: Cut, groups: list[str], heard: Collection[str]) -> None:
        self.cut = cut
        self.names = _names(cut)
        self.owner = np.repeat(np.arange(len(groups)), np.diff(cut.first))
        consumer = _mask(one is not None and one[0] == _CONSUMER for one in self.names)
        self.consumer = consumer[self.owner]
        self.apart = _mask(group in heard for group in groups)
        self.readable = _mask(one is not None for one in self.names)
        again = [a == b for a, b in itertools.pairwise(groups)]
        self.follows = _mask([False, *again][: len(groups)])

    def values(self, values: Values, column: pa.Array) -> dict[int, Value]:
        """Those that the codec takes, by their row in the column."""
        cut = self.cut
        codes, examples = self._distinct()
        seen = self._decoded(values, examples)
        self.readable[self.owner[_mask(one is None for one in seen)[codes]]] = False
        members: list[Any] = [seen[code] for code in codes.tolist()]
        told, fresh, dropped = self._changes(codes)
        came, went = _parts(fresh, cut.first), _parts(dropped, cut.first)
        own = np.array([(one and one.generation) or 0 for one in seen], np.int64)
        said = np.where(cut.has_generation, cut.sent_generation, own[codes])
        left = list(
            zip([members[m] for m in dropped.tolist()], said[dropped].tolist(), strict=True)
        )
        says = np.bincount(self.owner[cut.has_generation], minlength=len(told)) > 0
        sums = self._sums(seen, codes)
        first, spoken = cut.first.tolist(), said.tolist()
        new = [members[m] for m in fresh.tolist()]
        made: dict[int, Value] = {}
        before: Value | None = None
        rows = zip(
            cut.rows.tolist(), cut.generation.tolist(), self.names, cut.stamp.tolist(),
            says.tolist(), told.tolist(), self.readable.tolist(), sums, strict=True,
        )  # fmt: skip
        for n, (row, generation, names, stamp, is_said, is_told, readable, of_all) in enumerate(
            rows
        ):
            if not readable or names is None:
                continue
            here = slice(first[n], first[n + 1])
            value = Value(
                generation, names, stamp, members[here],
                said=spoken[here] if is_said else None, sums=of_all, written_in=(column, row),
            )  # fmt: skip
            if is_told and before is not None:
                value.follow(before, new[came[n] : came[n + 1]], left[went[n - 1] : went[n]])
            made[row] = before = value
        return made

    def _sums(self, seen: Sequence[Seen | None], codes: Ints) -> list[Sums]:
        """Of each value; values have members or have not."""
        counts = np.array([one.count if one else 0 for one in seen], np.int64)[codes]
        sessions = np.array([one.session_ms if one else 0 for one in seen], np.int64)[codes]
        size = len(self.cut.rows)
        known = np.bincount(self.owner[counts < 0], minlength=size) == 0
        total = np.bincount(self.owner, counts, size).astype(np.int64)
        some = np.bincount(self.owner[counts > 0], minlength=size) > 0
        empty = np.bincount(self.owner[counts == 0], minlength=size) > 0
        shortest = np.full(size, np.iinfo(np.int64).max)
        np.minimum.at(shortest, self.owner, sessions)
        shortest[np.diff(self.cut.first) == 0] = 0
        return [
            Sums(assigned if sure else None, *rest)
            for sure, assigned, *rest in zip(
                known.tolist(), total.tolist(), some.tolist(), empty.tolist(), shortest.tolist(),
                strict=True,
            )
        ]  # fmt: skip

    def _distinct(self) -> tuple[Ints, Ints]:
        """A code for each member, the same for all that are the same; and a member of each."""
        cut, size = self.cut, len(self.cut.pieces)
        flags = self.consumer + 2 * self.apart[self.owner]
        codes = cut.head * 4 + flags
        for part in (cut.sent, cut.rest):
            codes = _codes(codes) * size + np.where(self.consumer, part, 0)
        if self.apart.any():
            codes = _codes(codes) * size + np.where(flags == 3, cut.at_generation, 0)
        codes = _codes(codes)
        examples = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
        examples[codes[::-1]] = np.arange(len(codes))[::-1]
        return codes, examples

    def _decoded(self, values: Values, examples: Ints) -> list[Seen | None]:
        """What these members say; None where only the strict codec can tell what is wrong."""
        cut = self.cut
        consumer = self.consumer[examples]
        apart = self.apart[self.owner[examples]]
        placed = consumer & cut.has_generation[examples]

        def sent_by(n: int) -> Sent | None:
            found = values.sent(cut.sent_bytes(examples[n]))
            if placed[n] and found.generation != cut.sent_generation[examples[n]]:
                return None
            # Only of what was read to its end it is sure which bytes are the generation.
            return found if found.exact or apart[n] or not placed[n] else None

        heads = _once(cut.head[examples], lambda n: _read_head(cut.head_bytes(examples[n])))
        generation = np.where(apart, cut.at_generation[examples], 0)
        rack = np.where(cut.has_rack[examples], cut.rest[examples], 0)
        sent = _codes(cut.sent[examples] * len(cut.pieces) + generation) * len(cut.pieces) + rack
        subscriptions = np.where(consumer, sent, -1)
        sents: list[Sent | None] = _once(subscriptions, sent_by, UNTOLD)
        givens = _once(
            np.where(consumer, cut.rest[examples], -1),
            lambda n: values.given(cut.given_bytes(examples[n])),
            NOT_GIVEN,
        )
        made: list[Seen | None] = [
            None if head is None or sent is None else Seen(head, sent, given)
            for head, sent, given in zip(heads, sents, givens, strict=True)
        ]
        return made

    def _changes(self, codes: Ints) -> tuple[Mask, Ints, Ints]:
        """Which values are told against the one before; the members that are new in one of these,
        and those that are not in it any more."""
        size = len(self.follows)
        told = self.follows & self.readable
        told[1:] &= self.readable[:-1]
        keys = codes * (size + 1) + self.owner
        order = np.argsort(keys, kind="stable")
        step = np.diff(keys[order])
        twice = self.owner[order[1:][step == 0]]
        told[twice] = False
        told[(twice + 1)[twice + 1 < size]] = False
        stayed, stays = np.zeros((2, len(codes)), np.bool_)
        stayed[order[1:][step == 1]] = True
        stays[order[:-1][step == 1]] = True
        next_told = np.append(told[1:], False)
        fresh = np.flatnonzero(~stayed & told[self.owner])
        return told, fresh, np.flatnonzero(~stays & next_told[self.owner])


def _names(cut: Cut) -> list[Names | None]:
    """Each value's; None where the codec refuses them."""
    known: dict[tuple[int, int], Names | None] = {}
    made = []
    for pair in zip(cut.start.tolist(), cut.names.tolist(), strict=True):
        if pair not in known:
            start, names = (cut.pieces[code].as_py() for code in pair)
            try:
                value = decode_group_metadata(start + bytes(4) + names + _NUMBERS)
                known[pair] = (value.protocol_type, value.protocol, value.leader)
            except WireError:
                known[pair] = None
        made.append(known[pair])
    return made


def _once(codes: Ints, read: Callable[[int], _T], nothing: _T | None = None) -> list[_T]:
    """What is read at a place of each code, for all places that have it; `nothing` for -1."""
    distinct, first, places = np.unique(codes, return_index=True, return_inverse=True)
    found = [
        nothing if code < 0 and nothing is not None else read(n)
        for code, n in zip(distinct.tolist(), first.tolist(), strict=True)
    ]
    return [found[place] for place in places.tolist()]


def _read_head(raw: bytes) -> Head | None:
    """A member up to its subscription; None where only the strict codec can tell what is wrong."""
    try:
        return Head._make((*member_head_reader(VERSION)(raw), _CLASSIC))
    except WireError:
        return None


def _parts(places: Ints, first: Ints) -> list[int]:
    """Where each value's begin among these places of members, in order."""
    found: list[int] = np.searchsorted(places, first).tolist()
    return found


def _mask(answers: Iterable[bool]) -> Mask:
    return np.array(list(answers), np.bool_)


def _codes(numbers: Ints) -> Ints:
    """Numbers from 0 for the distinct ones."""
    codes: Ints = pa.array(numbers).dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes
