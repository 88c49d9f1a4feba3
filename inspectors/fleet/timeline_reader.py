"""One group's GroupMetadataValues in their order, of which only what changed is decoded.

A member whose bytes are those of the value before is the same entry again; so is one that only
says another generation in its subscription, which its entry then takes over. What is new goes
through the one strict codec in groups/wire, and a value that it refuses is refused here.
"""

from __future__ import annotations

import struct
from typing import Final

from rebal.groups.wire.group_metadata import (
    GroupMetadataMember,
    decode_group_metadata,
    read_head,
    read_member,
)
from rebal.groups.wire.primitives import Reader
from rebal.inspectors.fleet.timeline_members import NOT_GIVEN, Seen
from rebal.inspectors.fleet.timeline_values import UNTOLD, Given, Sent, Values

_BY_HEART: Final = 3
"""The version that brokers since 2.3 write; only its members are recognised by their bytes."""
_SHORTEST: Final = 10
"""Bytes of the shortest member there can be, as `read_head` counts them."""
_WHAT: Final = "group metadata value"
_INT32: Final = struct.Struct(">i").unpack_from
_LAST: Final = struct.Struct(">qi")
_NULL_RACK: Final = b"\xff\xff"
_NEVER: Final = b""


class Entry:
    """One member of a value: `seen` is what it says, `key` its member id as it is written.

    Its bytes are `before`, four bytes of the subscription's generation, and `after`; where there is
    no such generation, all are `before`. `head` are those up to the subscription.
    """

    __slots__ = ("after", "before", "cut", "head", "key", "seen", "size")

    def __init__(self, raw: bytes, head: int, subscription: bytes, seen: Seen) -> None:
        self.key = _key(raw, 0)
        self.head = raw[:head]
        self.size = len(raw)
        self.seen = seen
        self.before, self.after = raw, _NEVER
        told = seen.sent.generation is not None and seen.sent.version == _BY_HEART
        if told and subscription[-2:] == _NULL_RACK:
            generation = head + 4 + len(subscription) - 6
            self.before, self.after = raw[:generation], raw[generation + 4 :]
        self.cut = len(self.before)


class Value:
    """A classic group's record: `entries` are its members.

    Against the entries of the value before, `base`, those in `fresh` are new and those in `dropped`
    are gone; a member that changed is in both. `base` is None where nothing is known of that.
    """

    __slots__ = (
        "base",
        "dropped",
        "entries",
        "fresh",
        "generation",
        "leader",
        "protocol",
        "protocol_type",
        "state_timestamp_ms",
    )
    base: list[Entry] | None
    dropped: list[Entry]
    entries: list[Entry]
    fresh: list[Entry]

    def __init__(
        self, protocol_type: str, generation: int, protocol: str | None, leader: str | None,
        state_timestamp_ms: int | None,
    ) -> None:  # fmt: skip
        self.protocol_type = protocol_type
        self.generation = generation
        self.protocol = protocol
        self.leader = leader
        self.state_timestamp_ms = state_timestamp_ms


class ValueReader:
    """Reads one group's values in the order in which they come."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._entries: list[Entry] = []
        self._by_key: dict[bytes, Entry] = {}
        self._consumer = False
        # what a value begins with, what is between its generation and its time, and its texts
        self._head: tuple[bytes, bytes, tuple[str, str | None, str | None]] | None = None

    def read(self, data: bytes, alone: bool) -> Value:
        """The value in `data`.

        Unless the records stand `alone`, without a log, another generation in a subscription makes
        another entry. Only the protocol type `consumer` has subscriptions that can be read.

        Raises:
            WireError: as `decode_group_metadata`.
        """
        value, at, count = self._known_head(data) or self._strict_head(data)
        if not at:
            members = decode_group_metadata(data).members
            value.entries = [Entry(_NEVER, 0, _NEVER, self._seen(one)) for one in members]
            value.base, value.fresh, value.dropped = None, value.entries, []
            return value
        before = value.base = self._entries
        fresh, again = list[Entry](), list[tuple[Seen, int]]()
        entries = list[Entry]()
        expected, size, came = 0, len(before), 0
        starts = data.startswith
        for _ in range(count):
            entry = before[expected] if expected < size else None
            expected += 1
            if entry is None or not starts(entry.before, at):
                entry = self._by_key.get(_key(data, at))
                if entry is None:
                    came += 1
                else:
                    expected = before.index(entry) + 1
                if entry is None or not starts(entry.before, at):
                    entry = self._changed(data, at, entry) or self._anew(data, at)
                    fresh.append(entry)
            if entry.after:
                generation = at + entry.cut
                if not starts(entry.after, generation + 4) or (
                    not alone and _INT32(data, generation)[0] != entry.seen.generation
                ):
                    entry = self._changed(data, at, entry) or self._anew(data, at)
                    fresh.append(entry)
                    generation = at + entry.cut
                again.append((entry.seen, generation))
            entries.append(entry)
            at += entry.size
        value.entries, value.fresh, value.dropped = entries, fresh, []
        if fresh or len(entries) != size:
            self._note(value, before, came)
        for seen, place in again:
            (seen.generation,) = _INT32(data, place)
        self._entries = entries
        return value

    def _known_head(self, data: bytes) -> tuple[Value, int, int] | None:
        """As `_strict_head`, where all but numbers is as it was in the value before."""
        if self._head is None:
            return None
        first, names, texts = self._head
        at = len(first) + 4
        end = at + len(names) + _LAST.size
        if end > len(data) or not (data.startswith(first) and data.startswith(names, at)):
            return None
        stamp, count = _LAST.unpack_from(data, at + len(names))
        if not 0 <= count * _SHORTEST <= len(data) - end:
            return None
        protocol_type, protocol, leader = texts
        generation = _INT32(data, at - 4)[0]
        return Value(protocol_type, generation, protocol, leader, stamp), end, count

    def _strict_head(self, data: bytes) -> tuple[Value, int, int]:
        """A value without its members, where these begin, and how many they are.

        They begin at 0 where they are not of the version that is recognised by its bytes.
        """
        reader = Reader(data, _WHAT)
        head = read_head(reader)
        consumer = head.protocol_type == "consumer"
        if head.version != _BY_HEART or consumer is not self._consumer:
            self._entries, self._by_key, self._consumer = [], {}, consumer
        self._head = None
        value = Value(*head[1:6])
        if head.version != _BY_HEART:
            return value, 0, head.members
        first = 4 + int.from_bytes(data[2:4], "big")
        names = data[first + 4 : reader.offset - _LAST.size]
        self._head = (data[:first], names, (head.protocol_type, head.protocol, head.leader))
        return value, reader.offset, head.members

    def _note(self, value: Value, before: list[Entry], came: int) -> None:
        """What is new against the value before, of which `came` are members that were not there."""
        kept = set(value.entries)
        if len(kept) != len(value.entries):
            value.base = None
        if value.fresh or len(before) != len(kept) - came:
            value.dropped = [one for one in before if one not in kept]
        for one in value.dropped:
            self._by_key.pop(one.key, None)
        for one in value.fresh:
            self._by_key[one.key] = one

    def _changed(self, data: bytes, at: int, old: Entry | None) -> Entry | None:
        """A member whose bytes up to the subscription are known; None where they are not."""
        if old is None or not data.startswith(old.head, at):
            return None
        sent_at = at + len(old.head) + 4
        try:
            given_at = sent_at + _INT32(data, sent_at - 4)[0] + 4
            end = given_at + _INT32(data, given_at - 4)[0]
        except struct.error:
            return None
        if not sent_at <= given_at - 4 <= given_at <= end <= len(data):
            return None
        subscription = data[sent_at : given_at - 4]
        seen = old.seen.rejoined(*self._blobs(subscription, data[given_at:end]))
        return Entry(data[at:end], len(old.head), subscription, seen)

    def _anew(self, data: bytes, at: int) -> Entry:
        reader = Reader(data, _WHAT)
        reader.offset = at
        member = read_member(reader, _BY_HEART)
        raw = data[at : reader.offset]
        head = len(raw) - 8 - len(member.subscription) - len(member.assignment)
        return Entry(raw, head, member.subscription, self._seen(member))

    def _seen(self, member: GroupMetadataMember) -> Seen:
        sent, given = self._blobs(member.subscription, member.assignment)
        return Seen(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            sent=sent,
            given=given,
            protocol_type="classic",
        )

    def _blobs(self, subscription: bytes, assignment: bytes) -> tuple[Sent, Given]:
        if not self._consumer:
            return UNTOLD, NOT_GIVEN
        return self._values.sent(subscription), self._values.given(assignment)


def _key(data: bytes, at: int) -> bytes:
    """The member id that begins at `at`, as it is written; what is there of one that is cut off."""
    size = data[at : at + 2]
    return data[at + 2 : at + 2 + int.from_bytes(size, "big")]
