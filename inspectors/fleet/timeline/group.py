"""One group's story: its records and its requests, in order, become the tables' rows.

Requests are noted when they come, by generation; what they and the records change is applied
`DISORDER` later. So a join that was logged a little after the record it led to, or by a broker
whose clock is a little off, is known by then. Records come in the order of their offsets, by their
effective times (clock.py): what is said of a group's structure rests on that order alone, and on
what the records name, never on a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from rebal.groups.errors import WireError
from rebal.groups.model import GroupType
from rebal.groups.wire import offsets_topic as kinds
from rebal.groups.wire.offsets_topic import (
    DECODERS,
    ConsumerGroupMember,
    decode_consumer_group_record,
)
from rebal.inspectors.fleet.timeline import causes, incidents
from rebal.inspectors.fleet.timeline.consumer import ConsumerGroup, Topics
from rebal.inspectors.fleet.timeline.heartbeats import heard_at, write_members
from rebal.inspectors.fleet.timeline.history import History
from rebal.inspectors.fleet.timeline.lists import Lists
from rebal.inspectors.fleet.timeline.log import MILLI, Log, Round
from rebal.inspectors.fleet.timeline.order import DISORDER, Item, Raw, Window
from rebal.inspectors.fleet.timeline.protocol import Protocols
from rebal.inspectors.fleet.timeline.reader import Value, ValueReader
from rebal.inspectors.fleet.timeline.rebalances import LOG, TOPIC, Generation
from rebal.inspectors.fleet.timeline.requests import Replacement, Requests
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.fleet.timeline.values import NOT_GIVEN, UNTOLD, Head, Seen, Values

_MOST_ROUNDS: Final = 64
"""More rebalances than these at once have no record and no leader's line: none will come."""


class Shared:
    """Parts that all groups of one scan share.

    That are rows, decoded values, protocols, topics' names, and where records may be missing.
    """

    def __init__(
        self,
        topic_names: Mapping[str, str] | None = None,
        breaks: Mapping[int, Sequence[int]] | None = None,
        recorded: Collection[str] = (),
    ) -> None:
        self.recorded = recorded
        self.rows = Rows()
        self.values = Values()
        self.reader = ValueReader(self.values)
        self.protocols = Protocols()
        self.topics = Topics(topic_names or {})
        self.breaks = breaks or {}


class GroupTimeline:
    """Give it one group's inputs in the order of time, then `finish`."""

    def __init__(self, group_id: str, shared: Shared) -> None:
        self.group_id = group_id
        self.shared = shared
        self.log = Log()
        self.log.recorded = group_id in shared.recorded
        self.history = History(group_id, shared.rows, shared.protocols, self.log)
        self.lists = Lists(group_id, shared.rows)
        self.requests = Requests(self.log, self.lists, self.history)
        self.consumer: ConsumerGroup | None = None
        # do records tell of its KIP-848 members
        self.recorded = False
        self.type = GroupType.UNKNOWN
        self.protocol_type: str | None = None
        self.partition: int | None = None
        self.first_at: int | None = None
        self.last_at = 0
        # the latest timestamp that a record told
        self.latest: int | None = None
        self.deleted_at: int | None = None
        self.told_until = 0
        self.sources: set[str] = set()
        self._window = Window()
        self._era = self.log.era
        self._key: tuple[bytes, kinds.Key] = (b"", kinds.UnknownKey(version=-1))
        self._newest: dict[int, int] = {}
        # rebalances that the log shows, until records tell them or pass them by
        self._held: dict[int, Round] = {}
        self._dying: Item | None = None
        self._tombstone: tuple[Item, GroupType] | None = None

    def share(self, shared: Shared) -> None:
        """Use what this scan's groups share, after the state was read from bytes."""
        self.shared = shared
        self.type = GroupType(self.type)
        if self._tombstone is not None:
            item, kind = self._tombstone
            self._tombstone = item, GroupType(kind)
        self.lists.rows = shared.rows
        self.history.share(shared.rows, shared.protocols)
        if self.consumer is not None:
            self.consumer.values, self.consumer.topics = shared.values, shared.topics

    def record(self, at: int, raw: Raw) -> None:
        """One record of `__consumer_offsets` whose key names this group."""
        self._came(at, TOPIC)
        own = at if raw.told_at is None else raw.told_at
        self.latest = own if self.latest is None else max(own, self.latest)
        offset, value = raw.offset, raw.value
        self.partition = raw.partition if self.partition is None else self.partition
        item = Item(at, self.log.era, offset, raw.told_at)
        try:
            if raw.key != self._key[0]:
                self._key = (raw.key, kinds.decode_key(raw.key))
            item.key = self._key[1]
            item.value = None if value is None else self._decoded(item.key, value)
        except WireError as error:
            self._error(at, raw, str(error))
            return
        newest = self._newest.get(raw.partition, -1)
        if offset <= newest:
            if offset != newest:
                self._error(at, raw, "it came after newer records of its group")
            return
        self._newest[raw.partition] = offset
        item.before = newest
        if isinstance(item.value, Value):
            self.log.era.has_record(item.value.generation)
        elif value is None and isinstance(item.key, kinds.GroupMetadataKey):
            self.log.cut(at)
        self._window.put(item)
        self._drain(self.last_at - DISORDER)

    def request(self, at: int | None, request: Mapping[str, Any]) -> None:
        """One line of a broker's request log about this group."""
        if at is None:
            self.requests.note_untimed(request)
            return
        if self.requests.says_nothing_new(request):
            return
        self._came(at, LOG)
        round_ = self.requests.note(at, request)
        if round_ is None:
            self._drain(self.last_at - DISORDER)
            return
        item = Item(at, self.log.era)
        if isinstance(round_, Replacement):
            item.replacement = round_
        else:
            item.round_ = round_
        self._window.put(item)
        self._drain(self.last_at - DISORDER)

    def finish(self) -> None:
        """The end of this group's inputs."""
        self._drain(None)
        self._apply_held(None)
        if self._tombstone is not None and self.type is GroupType.UNKNOWN:
            self._dying, self.type = self._tombstone
        if self._dying is not None:
            self._die()
        if self.consumer is not None:
            for generation in self.consumer.finish(self.last_at):
                self.history.advance(generation)
        self.lists.close()
        self._hear()
        count = self.history.finish()
        now = self.history.now
        self.shared.rows.add(
            "groups",
            (
                self.group_id,
                str(self.type),
                self.protocol_type,
                self._state(count),
                self.partition,
                now.assignor if now else None,
                now.number if now else None,
                self.consumer.target_epoch if self.consumer else None,
                now.leader if now else None,
                count,
                self.history.incarnation,
                self.first_at,
                self.last_at,
                self.deleted_at,
                *self.history.metrics.columns(self.log.since is not None),
                tuple(sorted(self.sources)),
            ),
        )

    @property
    def place(self) -> tuple[int | None, int | None] | None:
        """The partition and the offset of its newest record; None: it has records in several."""
        if len(self._newest) > 1:
            return None
        return next(iter(self._newest.items()), (None, None))

    def _hear(self) -> None:
        """KIP-848 members of whom only the log tells, and the type that it shows by them."""
        beat = heard_at(self.log.persons)
        if beat is None or self.recorded:
            return
        now = self.history.now
        classic = now is not None and now.members is not None and now.ended > beat
        write_members(self.history, self.log.persons, stay=not classic)
        if not classic and self.type is not GroupType.CONSUMER:
            self._became(GroupType.CONSUMER, self.last_at)

    def _came(self, at: int, source: str) -> None:
        if self.first_at is None or at < self.first_at:
            self.first_at = at
        self.last_at = max(at, self.last_at)
        self.sources.add(source)

    def _decoded(self, key: kinds.Key, value: bytes) -> Any:
        if isinstance(key, kinds.GroupMetadataKey):
            return self.shared.reader.read(value)
        if key.version in DECODERS:
            return decode_consumer_group_record(key.version, value)
        return None

    def _drain(self, until: int | None) -> None:
        for item in self._window.take(until):
            self._apply(item)
        if until is None:
            return
        members = self.history.roster.members
        if len(self.log.era.rounds) > _MOST_ROUNDS:
            self._apply_held(None)
            self.history.rounds = self.log.era.rounds
            self.history.catch_up(until)
        self.lists.forget(until, members)
        dropped = self.log.forget(until, members)
        if dropped and not self.recorded:
            write_members(self.history, dropped)

    def _apply(self, item: Item) -> None:
        if item.offset is not None:
            for end in self.shared.breaks.get(self.partition or 0, ()):
                self.history.cut |= 0 <= item.before <= end < item.offset
        if item.era.number > self._era.number:
            if TOPIC not in self.sources:
                # no record tells that the group ended, nor of what the log showed before
                self.history.catch_up(item.at)
                self.history.end(item.at, None, told=False)
            self._apply_held(None)
            self._era = item.era
        self.history.rounds = item.era.rounds
        key, value = item.key, item.value
        if key is None:
            self._apply_logged(item)
            return
        kind = kinds.group_type(key.version)
        if self._dying is not None and value is not None:
            if kind is not self.type and self._goes_on(self._dying, item):
                self._dying = None
            else:
                self._die()
        if kind in (GroupType.SHARE, GroupType.STREAMS):
            self.type = kind
            return
        if isinstance(key, kinds.GroupMetadataKey):
            if value is None:
                self._buried(item, GroupType.CLASSIC)
                return
            self._became(GroupType.CLASSIC, item.at)
            self._apply_held(value.generation)
            self._classic(item, value)
            return
        if value is None and key.version == kinds.CONSUMER_GROUP_METADATA:
            self._buried(item, GroupType.CONSUMER)
            return
        if value is not None:
            self.recorded = True
            self._became(GroupType.CONSUMER, item.at)
        if self.consumer is None:
            return
        over = self.consumer.put(key, value, item.at, item.timed)
        self._told_lists(key, value, item.at)
        for generation in over:
            self.history.advance(generation)

    def _became(self, kind: GroupType, at: int) -> None:
        """The group's type, when it changes: a conversion (KIP-848), both ways."""
        was, self.type = self.type, kind
        self.deleted_at = None
        if kind is GroupType.CONSUMER and (self.consumer is None or was is not kind):
            self.consumer = ConsumerGroup(self.shared.values, self.shared.topics)
            self.protocol_type = "consumer"
        if kind is GroupType.CLASSIC:
            self._end_consumer(at)
        if was in (kind, GroupType.UNKNOWN) or self.history.now is None:
            return
        members = self.history.roster.members
        to = incidents.TO_CONSUMER if kind is GroupType.CONSUMER else incidents.TO_CLASSIC
        self.history.incidents.converted(to, at, members)

    def _end_consumer(self, at: int) -> None:
        """The KIP-848 group is no more: its last generation, before it was taken apart."""
        if self.consumer is None:
            return
        over = self.consumer.finish(at, ended=at)
        self.consumer = None
        for generation in over:
            self.history.advance(generation)

    def _buried(self, item: Item, kind: GroupType) -> None:
        """A tombstone of a group of this kind; of a deleted one the log cleaner leaves no more."""
        self._dying = item if self.type is kind else None
        if self.type is GroupType.UNKNOWN:
            self._tombstone = item, kind

    def _goes_on(self, dying: Item, item: Item) -> bool:
        """Return whether a record of the other type after a tombstone converts the group.

        It names a member that was there, or goes on with the generation's number. A conversion of
        an empty group does neither, but is one write of the coordinator, and so has one time.
        """
        key, value, now = item.key, item.value, self.history.now
        if isinstance(key, kinds.MemberKey) and key.member_id in self.history.roster.members:
            return True
        number = getattr(value, "epoch", None) or getattr(value, "generation", None)
        goes_on = now is not None and number is not None and 1 < now.number <= number
        return goes_on or item.own_at == dying.own_at

    def _die(self) -> None:
        """The tombstone was the end of the group: nothing of another type followed it."""
        dying, self._dying = self._dying, None
        assert dying is not None
        self._end_consumer(dying.at)
        self.history.end(dying.at, causes.DELETED)
        self.deleted_at = dying.at

    def _classic(self, item: Item, value: Value) -> None:
        at = item.at
        self.protocol_type = value.protocol_type or self.protocol_type
        first = self.history.now is None
        self.history.advance(
            Generation(
                value.generation,
                _ended(at, value) if first and item.timed else at,
                value.members,
                TOPIC,
                assignor=value.protocol,
                leader=value.leader,
                protocol_type=value.protocol_type or None,
                timed=item.timed,
            )
        )

    def _apply_logged(self, item: Item) -> None:
        """What the log shows, of which there is no record yet."""
        if item.replacement is not None:
            if item.replacement.generation not in item.era.recorded:
                self.history.replace(*item.replacement, item.at)
        elif item.round_ is not None and item.round_.generation not in item.era.recorded:
            self._held[item.round_.generation] = item.round_
            # without records there is nothing to wait for
            if not self.log.recorded or len(self._held) > _MOST_ROUNDS:
                self._apply_held(None)

    def _apply_held(self, before: int | None) -> None:
        """Apply what the log alone shows, up to the generation of the next record (None: all).

        The log's clock may be behind or ahead of the records': numbers tell which came first.
        """
        for number in sorted(self._held):
            if before is None or number < before:
                self._apply_round(self._held.pop(number))
            elif number == before:
                del self._held[number]

    def _apply_round(self, round_: Round) -> None:
        """A rebalance of which there is no record: what the leader was handed and what it sent."""
        if round_.applied or round_.assignments is None:
            return
        assert round_.ended is not None
        now = self.history.now
        if now is not None and round_.generation < now.number and not round_.after(now.completed):
            return
        if self.type is GroupType.UNKNOWN:
            self.type = GroupType.CLASSIC
        self.protocol_type = round_.protocol_type or self.protocol_type
        consumer = round_.protocol_type in (None, "consumer")
        handed = {one["member_id"]: one for one in round_.members or ()}
        seen = []
        for member_id in sorted(handed.keys() | round_.assignments.keys()):
            one = handed.get(member_id)
            person = self.log.persons.get(member_id)
            instance_id = one["instance_id"] if one else None
            metadata = one["metadata"] if one else None
            blob = round_.assignments.get(member_id, b"")
            head = Head(
                member_id,
                instance_id or (person.instance_id if person else None),
                person.client_id if person else None,
                person.host if person else None,
                person.rebalance_timeout_ms if person else None,
                person.session_timeout_ms if person else None,
                "classic",
            )
            sent = self.shared.values.sent(metadata) if metadata and consumer else UNTOLD
            seen.append(Seen(head, sent, self.shared.values.given(blob) if consumer else NOT_GIVEN))
        self.history.advance(
            Generation(
                round_.generation,
                round_.ended,
                seen,
                LOG,
                assignor=round_.assignor,
                leader=round_.leader,
                protocol_type=round_.protocol_type or "consumer",
            )
        )

    def _told_lists(self, key: kinds.Key, value: Any, at: int) -> None:
        """A classic member of a KIP-848 group: its record holds its whole list."""
        if isinstance(key, kinds.MemberKey) and isinstance(value, ConsumerGroupMember):
            epoch = self.consumer.epoch if self.consumer is not None else None
            again = self.consumer is not None and self.consumer.waits_for(key.member_id)
            names = self.lists.stored(key.member_id, value, at, epoch, again)
            if names is not None:
                self.log.person(key.member_id).assignors = names
            elif key.member_id in self.log.persons:
                self.log.persons[key.member_id].assignors = None

    def _state(self, members: int | None) -> str | None:
        if self.history.ended:
            return "Dead"
        if self.type is GroupType.CONSUMER:
            return self.consumer.state if self.consumer is not None and self.recorded else None
        if members is None or self.history.now is None:
            return None
        return "Stable" if members else "Empty"

    def _error(self, at: int, raw: Raw, error: str) -> None:
        place = (
            raw.source,
            raw.partition,
            raw.offset,
            at if raw.told_at is None else raw.told_at,
            self.group_id,
        )
        self.shared.rows.add("errors", (*place, "record", error, raw.key, raw.value))


def _ended(at: int, value: Value) -> int:
    """Return when the rebalance of a group's first record ended; the record may be a later rewrite.

    The state's time is then far before the record's, for a static member's restart keeps it.
    """
    stamp = (value.state_timestamp_ms or -1) * MILLI
    if not value.members or not 0 < stamp <= at:
        return at
    longest = max(
        one.head.rebalance_timeout_ms or one.head.session_timeout_ms or 0 for one in value.members
    )
    return stamp if at - stamp > longest * MILLI else at
