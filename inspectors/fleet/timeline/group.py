"""The timeline: one pass over the records and requests of all groups, in order, to table rows.

`make_tables(records)` takes rows of `schemas.TIMELINE`, sorted by `ORDER`, one group after another.
It yields `(kind, batch)`: rows of the tables in `schemas.MADE`, rows that a later scan may replace
(kinds that begin with `schemas.OPEN`), input rows that wait for the next scan, and the state of
each group, from which the next scan continues. It needs no Spark, no wall clock and no file. The
same rows, in any number of scans, give the same tables. Memory holds only the present state of one
group. Rows come out group by group; within a group in the order in which they are complete.

A row holds a group's state from the previous scan (`state` is set), a record (`key` is set), or a
line of a request log. Records of kinds 0 and 1 (commits) are not part of it. Requests come
`DISORDER` early and are noted by generation. So a join that was logged a little after its record,
or by a broker whose clock is a little off, is known in time. Records come in the order of their
offsets, by effective time (`runs.effective_times`). The group's structure follows from that order
and from the contents of the records, never from a clock.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
from msgspec.structs import replace

from rebal.groups.errors import WireError
from rebal.groups.model import GroupType
from rebal.groups.wire import offsets_topic as kinds
from rebal.inspectors.fleet.schemas import OPEN, SETTLED, Rows
from rebal.inspectors.fleet.timeline import history, incidents, requests
from rebal.inspectors.fleet.timeline.consumer import ConsumerGroupRecords, Epoch
from rebal.inspectors.fleet.timeline.facts import (
    DISORDER,
    LOG,
    MILLI,
    TOLERANCE,
    TOPIC,
    LoggedMember,
    unpack_request,
)
from rebal.inspectors.fleet.timeline.history import SCHEMA, TimelineState, Tombstone, decode, encode
from rebal.inspectors.fleet.timeline.rebalances import Generation, MemberSpan
from rebal.inspectors.fleet.timeline.values import (
    KEPT,
    GenerationMember,
    MemberSubscription,
    Named,
    read_value,
)
from rebal.inspectors.logs.requests.lines import Request

ORDER: Final = ("group_id", "at", "partition", "offset", "source", "position")
"""The sort order of a group's rows after its state: nulls last, requests `DISORDER` early."""
FORM: Final = f"state {SCHEMA}"
"""The format of saved states (column `form`) that this rebal can continue from."""
_Line = tuple[int | None, int | None, bytes | None]
# After so many rows of a group those that are made are handed on.
_OFTEN: Final = 1024
_decode_key: Final = lru_cache(maxsize=KEPT)(kinds.decode_key)
_MOST_NAMED: Final = 20
_NOT_DECODED: Final = (GroupType.SHARE, GroupType.STREAMS)
# More rebalances than these at once have no record and no leader's line: none will come.
_MOST_LOGGED: Final = 64


class TimelineRow(NamedTuple):
    """A row of `TIMELINE` of one group. It is a record if it has a key.

    `told_at` is the row's own timestamp, if that is not `at`, the effective time.
    """

    group_id: str
    at: int
    told_at: int | None
    key: bytes
    value: bytes | None
    partition: int
    offset: int
    source: str
    position: int | None = None
    state: bytes | None = None

    @property
    def timed(self) -> bool:
        """Return whether `at` can be trusted as the time when the record was written."""
        return abs(self.own_at - self.at) <= TOLERANCE

    @property
    def own_at(self) -> int:
        """The row's own timestamp, not the effective time."""
        return self.at if self.told_at is None else self.told_at


@dataclass(frozen=True)
class Options:
    """Settings for making the rows of groups.

    `topic_names` maps topic ids to names, for KIP-848 records. A topic without a name appears by
    its id, unless the group's own records name it. `breaks` are, by partition, offsets after which
    records may be missing: the generations in such a gap are not known. `recorded` are the groups
    that have records. A generation of such a group that only a log shows is applied when the next
    generation's record comes, or at the end of the input, and one of another group at its own time.

    `until` is a time in microseconds since 1970. A later row, or one without a time, gives open
    rows only and waits for the next scan, which may read rows from before it. `span` is the time
    that all sources cover. A group with a timestamp outside it keeps no state, as a later scan may
    believe that timestamp.
    """

    topic_names: Mapping[str, str] = field(default_factory=dict)
    breaks: Mapping[int, Sequence[int]] = field(default_factory=dict)
    recorded: Collection[str] = ()
    until: int | None = None
    span: tuple[int, int] | None = None


def make_tables(
    records: Iterable[TimelineRow], options: Options
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield (kind, batch) with rows of the tables `MADE`, of states, and of input that waits."""
    rows = Rows(options.topic_names, options.breaks)
    for group_id, of_group in groupby(records, key=attrgetter("group_id")):
        rows.group_id = group_id
        yield from _apply_rows(group_id, of_group, options, rows)
    yield from rows.take(rest=True)


def _apply_rows(
    group_id: str, records: Iterable[TimelineRow], options: Options, rows: Rows
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Apply the rows of one group; yield (kind, batch) with rows that are ready to be written."""
    until, span = options.until, options.span
    state = TimelineState(group_id=group_id, recorded=group_id in options.recorded)
    saved: dict[str, Any] | None = None
    is_settled = True
    recent_lines: set[_Line] = set()
    for number, record in enumerate(records):
        if record.state is not None:
            state = decode(record.state, group_id)
            continue
        if _is_duplicate(record, recent_lines):
            continue
        is_request, told_at = record.key is None, record.told_at
        early = DISORDER if is_request else 0
        if record.at is None or (until is not None and record.at - early > until):
            saved = saved or _begin_open_rows(state, until, rows)
            own = record.at if told_at is None else told_at
            rows.add("waiting", **record._replace(at=own, told_at=None)._asdict())
        if is_request:
            request = replace(unpack_request(record.value or b""), log=record.source)
            apply_request(state, rows, record.at, request)
        else:
            is_settled &= told_at is None or span is None or span[0] <= told_at <= span[1]
            apply_record(state, rows, record)
        if number % _OFTEN == 0:
            yield from rows.take()
    saved = saved or _begin_open_rows(state, until, rows)
    finish(state, rows)
    rows.kind = SETTLED
    if not is_settled or saved["state"] is None:
        saved |= {"state": None, "form": None}
    unnamed, rows.unnamed = sorted(rows.unnamed), set()
    rows.add("states", **saved, latest=state.latest, recorded=state.recorded, unnamed=unnamed)
    yield from rows.take()


def _is_duplicate(row: TimelineRow, recent_lines: set[_Line]) -> bool:
    """Return whether a request log row is a duplicate; copies of logs may hold the same line.

    `recent_lines` holds only the lines with the time of the last row, since rows with equal times
    come one after another.
    """
    if row.key is not None:
        return False
    if any(at != row.at for at, _, _ in islice(recent_lines, 1)):
        recent_lines.clear()
    count = len(recent_lines)
    recent_lines.add((row.at, row.told_at, row.value))
    return len(recent_lines) == count


def _begin_open_rows(state: TimelineState, until: int | None, rows: Rows) -> dict[str, Any]:
    """Make all rows that the group adds from here on open ones; return its row of `states`.

    The row lacks `latest`, `recorded` and `unnamed`. It holds the group's state as it is now.
    `until` is as in `Options`.
    """
    rows.kind = OPEN
    state.told_until = max(state.told_until, until or 0)
    # of a group with records in several partitions there is no one place to go on from
    partition, offset = next(iter(state.newest.items()), (None, None))
    is_split = len(state.newest) > 1
    return {
        "state": None if is_split else encode(state),
        "form": FORM,
        "partition": None if is_split else partition,
        "offset": None if is_split else offset,
        "told_until": state.told_until,
    }


def apply_record(state: TimelineState, rows: Rows, record: TimelineRow) -> None:
    """Apply one record of `__consumer_offsets` whose key names this group."""
    _note_source(state, record.at, TOPIC)
    state.told_until = max(record.at, state.told_until)
    state.latest = max(record.own_at, state.latest or record.own_at)
    state.partition = record.partition if state.partition is None else state.partition
    try:
        key, value = _decode(record)
    except WireError as error:
        _error(rows, record, str(error))
        return
    newest = state.newest.get(record.partition, -1)
    if record.offset <= newest:
        if record.offset != newest:
            _error(rows, record, "it came after newer records of its group")
        return
    state.newest[record.partition] = record.offset
    for end in rows.breaks.get(record.partition, ()):
        state.cut |= 0 <= newest <= end < record.offset
    _apply(state, rows, record, key, value)


def apply_request(state: TimelineState, rows: Rows, at: int | None, request: Request) -> None:
    """Apply one line of a broker's request log about this group, whose time is `at`."""
    if at is None:
        requests.note(state, rows, at, request)
        return
    if requests.says_nothing_new(state, request):
        return
    order = at - DISORDER
    _note_source(state, at, LOG)
    state.told_until = max(order, state.told_until)
    requests.note(state, rows, at, request)
    history.apply_logged(state, rows, order)
    if len(state.facts.generations) > _MOST_LOGGED:
        # Nothing more can come of rebalances that were last heard of before this time.
        logged = state.facts.generations.items()
        late = [number for number, one in logged if not one.applied and one.last_at < order]
        history.catch_up(state, rows, max(late, default=-1) + 1)
    state.lists.forget(order, state.members, rows)
    dropped = state.facts.forget(order, state.members)
    if dropped and not state.has_member_records:
        _write_members(state, rows, dropped)


def finish(state: TimelineState, rows: Rows) -> None:
    """Apply the end of the group's input, and write its row of `groups`."""
    history.apply_logged(state, rows, None)
    if state.dying is not None:
        state.type = state.dying.type
        _end_deleted(state, rows, state.dying)
    if state.consumer is not None:
        _advance(state, rows, state.consumer.finish(state.last_at, rows))
    state.lists.write(list(state.lists.seen), rows)
    _write_heartbeat_members(state, rows)
    count = history.finish(state, rows)
    now = state.generation
    rows.add(
        "groups",
        type=str(state.type),
        protocol_type=state.protocol_type,
        state=_state(state, count),
        partition=state.partition,
        assignor=now.assignor if now is not None else None,
        generation=now.number if now is not None else None,
        assignment_epoch=state.consumer.target_epoch if state.consumer is not None else None,
        leader=now.leader if now is not None else None,
        members=count,
        incarnation=state.incarnation,
        first_seen=state.first_at,
        last_seen=state.last_at,
        deleted_at=state.deleted_at,
        **state.metrics.columns(state.facts.since is not None),
        sources=sorted(state.sources),
    )


def _write_heartbeat_members(state: TimelineState, rows: Rows) -> None:
    """Write the KIP-848 members that only heartbeats in the log show.

    The group becomes a KIP-848 group, unless a classic generation with known members ended after
    the last of these heartbeats.
    """
    beats = [one.last_at for one in state.facts.members.values() if one.first_epoch is not None]
    if not beats or state.has_member_records:
        return
    now = state.generation
    classic = now is not None and now.size is not None and now.ended > max(beats)
    _write_members(state, rows, state.facts.members, stay=not classic)
    if not classic and state.type is not GroupType.CONSUMER:
        _became(state, rows, GroupType.CONSUMER, state.last_at)


def _write_members(
    state: TimelineState, rows: Rows, members: Mapping[str, LoggedMember], stay: bool = True
) -> None:
    """Write a row for each of `members` that a log shows with KIP-848 heartbeats.

    The row covers the member's first to last epoch. `stay` is whether members that have not left
    are still present. A heartbeat names the member, its topics and its epoch, and the response the
    next epoch. The response's assignment is not used: it has topic ids and no names.
    """
    for member_id, logged in sorted(members.items()):
        if logged.first_epoch is None:
            continue
        member = GenerationMember(
            member_id,
            logged.instance_id,
            logged.client_id,
            logged.host,
            logged.rebalance_timeout_ms,
            None,
            "consumer",
            MemberSubscription(topics=logged.topics),
        )
        history.write(
            state,
            rows,
            MemberSpan(member, None, logged.first_epoch, logged.first_at),
            last=Generation(
                number=logged.last_epoch or logged.first_epoch, ended=logged.last_at, source=LOG
            ),
            incarnation=logged.incarnation,
            left_at=logged.left_at,
            left_reason=logged.left_reason,
            current=stay and not logged.gone,
        )


def _note_source(state: TimelineState, at: int, source: str) -> None:
    state.first_at = min(at, state.first_at or at)
    state.last_at = max(at, state.last_at)
    state.sources.add(source)


def _decode(record: TimelineRow) -> tuple[kinds.Key, Any]:
    key, value = _decode_key(record.key), record.value
    if value is not None and key.version == kinds.GROUP_METADATA:
        return key, read_value(value)
    if value is None or key.version not in kinds.DECODERS:
        return key, value if kinds.group_type(key.version) in _NOT_DECODED else None
    return key, kinds.decode_consumer_group_record(key.version, value)


def _apply(
    state: TimelineState, rows: Rows, record: TimelineRow, key: kinds.Key, value: Any
) -> None:
    kind = kinds.group_type(key.version)
    if state.dying is not None and value is not None:
        if state.type is kind or (
            state.type is not GroupType.UNKNOWN
            and (kind in _NOT_DECODED or not _is_conversion(state, state.dying, record, key, value))
        ):
            _end_deleted(state, rows, state.dying)
        state.dying = None
    if value is None and key.version in kinds.OF_GROUPS:
        # of a deleted group the log cleaner leaves no more
        dies = state.type in (kind, GroupType.UNKNOWN)
        state.dying = Tombstone(record.at, record.own_at, kind) if dies else None
        return
    if kind in _NOT_DECODED:
        if value is not None:
            history.revive(state, rows, record.at)
            state.type, state.deleted_at = kind, None
        return
    if value is not None and key.version == kinds.GROUP_METADATA:
        _became(state, rows, GroupType.CLASSIC, record.at)
        _classic(state, rows, record, *value)
        return
    if value is not None:
        state.has_member_records = True
        _became(state, rows, GroupType.CONSUMER, record.at)
    if state.consumer is not None:
        over = state.consumer.put(key, value, record.at, record.timed, rows)
        _note_list(state, state.consumer, key, value, record.at)
        _advance(state, rows, over)


def _advance(state: TimelineState, rows: Rows, over: list[Epoch]) -> None:
    for generation, members in over:
        history.advance(state, rows, generation, members)


def _became(state: TimelineState, rows: Rows, kind: GroupType, at: int) -> None:
    """Set the group's type to `kind`; write an incident if this converts the group (KIP-848).

    A conversion may go in both directions.
    """
    was, state.type = state.type, kind
    state.deleted_at = None
    if kind is GroupType.CONSUMER and (state.consumer is None or was is not kind):
        state.consumer = ConsumerGroupRecords()
        state.protocol_type = "consumer"
    if kind is GroupType.CLASSIC:
        _end_consumer(state, rows, at)
    if was in (kind, GroupType.UNKNOWN) or state.generation is None:
        return
    to: incidents.Kind = (
        "converted to consumer" if kind is GroupType.CONSUMER else "converted to classic"
    )
    incidents.add(rows, to, at, to, members=sorted(state.members)[:_MOST_NAMED])


def _end_consumer(state: TimelineState, rows: Rows, at: int) -> None:
    """Apply the last epoch of a KIP-848 group that ends at `at`, and drop the group's records."""
    consumer, state.consumer = state.consumer, None
    if consumer is not None:
        _advance(state, rows, consumer.finish(at, rows, ended=at))


def _is_conversion(
    state: TimelineState, dying: Tombstone, record: TimelineRow, key: kinds.Key, value: Any
) -> bool:
    """Return whether a record of the other group type, after a tombstone, converts the group.

    Otherwise the group was deleted and created again. The record of a conversion names a member of
    the group, or continues the number of its generation. A conversion of an empty group does
    neither, but the coordinator writes both records at once, so they have the same timestamp.
    """
    now, number = state.generation, None
    if isinstance(value, tuple):
        number = value[0].generation
    elif isinstance(value, kinds.GroupEpoch):
        number = value.epoch
    return (
        record.own_at == dying.own_at
        or (isinstance(key, kinds.MemberKey) and key.member_id in state.members)
        or (now is not None and number is not None and 1 < now.number <= number)
    )


def _end_deleted(state: TimelineState, rows: Rows, tombstone: Tombstone) -> None:
    """End the timeline of a group that was deleted at its tombstone.

    The caller knows that the group was not converted: no record of the other protocol followed.
    """
    _end_consumer(state, rows, tombstone.at)
    history.end(state, rows, tombstone.at, "group deleted", tombstone.at)
    state.deleted_at = tombstone.at


def _classic(
    state: TimelineState,
    rows: Rows,
    record: TimelineRow,
    value: kinds.GroupMetadata,
    members: Named,
) -> None:
    state.protocol_type = value.protocol_type or state.protocol_type
    new = Generation(
        number=value.generation,
        ended=_ended(record.at, value, members)
        if state.generation is None and record.timed
        else record.at,
        source=TOPIC,
        size=len(members),
        assignor=value.protocol,
        leader=value.leader,
        protocol_type=value.protocol_type or None,
        timed=record.timed,
    )
    history.advance(state, rows, new, members)


def _note_list(
    state: TimelineState, consumer: ConsumerGroupRecords, key: kinds.Key, value: Any, at: int
) -> None:
    """Note the assignor list in the record of a classic member of a KIP-848 group."""
    if isinstance(key, kinds.MemberKey) and isinstance(value, kinds.ConsumerGroupMember):
        names = state.lists.record(
            key.member_id, value, at, consumer.epoch, key.member_id in dict(consumer.waiting)
        )
        if names is not None or key.member_id in state.facts.members:
            state.facts.member(key.member_id).assignors = names


def _state(state: TimelineState, members: int | None) -> str | None:
    if state.ended:
        return "Dead"
    if state.type is GroupType.CONSUMER:
        known = state.consumer if state.has_member_records else None
        return None if known is None else known.state
    if members is None or state.generation is None:
        return None
    return "Stable" if members else "Empty"


def _error(rows: Rows, record: TimelineRow, error: str) -> None:
    rows.add(
        "errors",
        source=record.source,
        partition=record.partition,
        offset=record.offset,
        at=record.own_at,
        what="record",
        error=error,
        key=record.key,
        value=record.value,
    )


def _ended(at: int, value: kinds.GroupMetadata, members: Named) -> int:
    """Return when the rebalance of a group's first record ended.

    `at` is the record's time. The record may be a later rewrite, as of a static member's restart,
    which keeps the group state's timestamp. If that timestamp is long before `at`, it is returned,
    otherwise `at`.
    """
    stamp = (value.state_timestamp_ms or -1) * MILLI
    if not members or not 0 < stamp <= at:
        return at
    longest = max(one.rebalance_timeout_ms or one.session_timeout_ms or 0 for one in members)
    return stamp if at - stamp > longest * MILLI else at
