"""Facts from a request log on one group: its members, its rebalances, and its assignor lists.

A member's facts come from its joins (KIP-511 software, its ordered assignor list, KIP-800 reasons).
A rebalance's facts are found by the generation number in the responses. So clocks that differ a
little, or lines out of order, move no fact to another rebalance. The facts kept are bounded by the
members and by the rebalances that are not finished.

`Lists` makes the rows of `assignor_lists`: every assignor list that a member was seen with, and
every rejected join. Joins of one member id with one list are one row. A rejected join has no member
id, so rejections of one client with one list are one row.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import astuple, replace

from rebal.groups.wire.offsets_topic import ConsumerGroupMember
from rebal.inspectors.logs.requests.lines import Request

if TYPE_CHECKING:
    # It needs pyarrow, which the readers of tables ask for in a sentence.
    from rebal.inspectors.fleet.schemas import Rows

TOPIC: Final = "offsets topic"
LOG: Final = "request log"

MILLI: Final = 1000
"""Microseconds in a millisecond: times are microseconds, durations in rows are milliseconds."""
_K = TypeVar("_K")
_V = TypeVar("_V")
NEARLY: Final = 0.9
"""The least share of a timeout between two log lines that counts as the whole timeout."""
TOLERANCE: Final = 1_000_000
"""The largest difference, in microseconds, between a record's own time and its effective one for
which its own time is evidence. Older brokers read the clock before they lock the partition."""
DISORDER: Final = 10_000_000
"""The largest clock difference of two sources, in microseconds. Requests are applied this early."""
_SPARE: Final = 256
_OPEN_LISTS: Final = 512
_CLIENT: Final = ("client_id", "instance_id", "host", "software_name", "software_version")
# The columns that a join says itself.
_REQUEST_COLUMNS: Final = (
    *_CLIENT, "protocol_type", "reason", "session_timeout_ms", "rebalance_timeout_ms",
)  # fmt: skip


class _Packed(Request, frozen=True, kw_only=True, array_like=True):
    """A request in the form that the lake stores: an array of its fields, without their names."""


_encode: Final = Encoder().encode
unpack_request: Final = Decoder(_Packed).decode
"""The inverse of `pack_request`."""


def pack_request(one: Request) -> bytes:
    """Return a request as msgpack, without its time, its log position and its `assignment`."""
    return _encode(astuple(replace(one, at=None, local=False, log="", line=0, assignment=b"")))


def is_steady(heartbeat: Request) -> bool:
    """Return whether a KIP-848 heartbeat has no error, no new epoch and no subscription."""
    epoch = heartbeat.generation
    return (
        not heartbeat.error
        and epoch is not None
        and heartbeat.member_epoch == epoch > 0
        and heartbeat.subscribed_topics is None
    )


class LoggedMember(Struct, array_like=True):
    """The facts of one member id from the request log. None: the log does not show it.

    `joined_at` is when a join was answered. `replaced` is the id of the static member whose place
    it took. `before` is the member id with which the same process left after exceeding
    max.poll.interval.ms. `gone` is whether it left. A KIP-848 member has epochs instead of
    generations: `first_epoch` is the first one, `first_at` is when it got it. Times are
    microseconds since 1970.
    """

    assignors: tuple[str, ...] | None = None
    client_id: str | None = None
    host: str | None = None
    instance_id: str | None = None
    software_name: str | None = None
    software_version: str | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    joined_at: int | None = None
    reason: str | None = None
    replaced: str | None = None
    before: str | None = None
    last_at: int = 0
    topics: tuple[str, ...] | None = None
    first_epoch: int | None = None
    incarnation: int = 1
    last_epoch: int | None = None
    first_at: int = 0
    left_at: int | None = None
    left_reason: str | None = None
    gone: bool = False

    def mark_left(self, at: int | None, reason: str | None) -> None:
        """Note that the member left the group at `at`, and why (None: not known)."""
        self.left_at, self.left_reason, self.gone = at, reason, True

    def note_request(self, request: Request, at: int) -> None:
        """Note the client id, host, instance id and software that this request shows."""
        self.client_id = request.client_id or self.client_id
        self.host = request.host or self.host
        self.instance_id = request.instance_id or self.instance_id
        if request.software_name:
            self.software_name = request.software_name
            self.software_version = request.software_version
        self.last_at = max(at, self.last_at)


UNKNOWN_MEMBER: Final = LoggedMember()
"""A member without log lines."""


class LoggedGeneration(Struct, array_like=True):
    """One generation, as its joins and syncs in the request log show it.

    `joins` maps each member id to when its join began, when it was answered, and its reason.
    `members` maps each member id to its instance id and subscription, as the leader received them.
    `assignments` is what the leader sent. `synced` are the members that got their assignment;
    `unsynced` are those whose SYNC_GROUP got an error, because the next rebalance had begun.
    `heard` is set if heartbeats show the generation, as a KIP-848 group's epoch. `applied` is set
    once it is in the timeline.
    """

    number: int
    joins: dict[str, tuple[int, int, str | None]] = {}
    leader: str | None = None
    assignor: str | None = None
    protocol_type: str | None = None
    members: dict[str, tuple[str | None, bytes | None]] = {}
    assignments: dict[str, bytes] | None = None
    synced: set[str] = set()
    unsynced: set[str] = set()
    ended: int | None = None
    last_at: int = 0
    heard: bool = False
    applied: bool = False

    @property
    def completed(self) -> bool:
        """Return whether the rebalance was completed: the leader's or another sync succeeded."""
        return bool(self.assignments or self.synced)

    def after(self, at: int) -> bool:
        """Return whether the generation's first join began after `at`.

        If no join is known, return whether its last line is after `at`.
        """
        return min([start for start, _, _ in self.joins.values()], default=self.last_at) > at

    def began(self, ended: int) -> int | None:
        """Return the start of the earliest join before `ended`; None if there is none.

        A join after `ended` is not part of the rebalance: the member rejoined the completed
        generation.
        """
        return min((start for start, _, _ in self.joins.values() if start < ended), default=None)


def keep_newest(kept: dict[_K, _V], key: _K, value: _V) -> None:
    """Put `value` at the end of `kept`, and drop the oldest entry if there are too many."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > _SPARE:
        del kept[next(iter(kept))]


class LoggedLeave(Struct, array_like=True):
    """A LEAVE_GROUP of a member; `had` is how many partitions it owned (None: not known)."""

    member_id: str
    at: int
    reason: str | None = None
    had: int | None = None


class RequestFacts(Struct, array_like=True):
    """The facts of one group's request log that later rebalances need.

    `generations` and `members` are by number and member id. `instances` maps instance ids to member
    ids, `left` member ids to leaves. `left_on` maps a connection to the member that left on it, if
    nobody joined on it since. `away` are clients before 2.4, by client id and host, that may rejoin
    though their member left. `fenced` maps a member id to when it was first answered
    FENCED_INSTANCE_ID. `rejected` maps a client to its first and last rejection since the last
    rebalance. `since` is the time of the first line.
    """

    generations: dict[int, LoggedGeneration] = {}
    members: dict[str, LoggedMember] = {}
    instances: dict[str, str] = {}
    left: dict[str, LoggedLeave] = {}
    left_on: dict[str, str] = {}
    away: dict[tuple[str | None, str | None], bool] = {}
    fenced: dict[str, int] = {}
    rejected: dict[str, tuple[int, int]] = {}
    since: int | None = None
    limit: int = _SPARE

    def member(self, member_id: str) -> LoggedMember:
        """Return the facts of a member, as a new entry if it has none yet."""
        return self.members.setdefault(member_id, LoggedMember())

    def list_before(self, member_id: str) -> tuple[str, ...]:
        """Return a static member's assignor list before its restart; () if unchanged or unknown."""
        now = self.members.get(member_id, UNKNOWN_MEMBER)
        before = self.members.get(now.replaced or "", UNKNOWN_MEMBER).assignors
        return () if before is None or before == now.assignors else before

    def joined(self, request: Request, at: int, start: int) -> LoggedGeneration | None:
        """Note a successful join and return its generation.

        If that generation was complete before the join began, or its number is not valid, note
        nothing and return None.
        """
        found = self.generation(request.generation)
        if found is None or (found.ended is not None and start >= found.ended):
            return None
        found.joins[request.member_id] = (start, at, request.reason)
        found.last_at = max(found.last_at, at)
        found.assignor = request.protocol or found.assignor
        found.protocol_type = request.protocol_type or found.protocol_type
        found.leader = request.leader or found.leader
        if request.members and request.leader == request.member_id:
            found.members = {
                one.member_id: (one.group_instance_id or None, one.metadata)
                for one in request.members
            }
        return found

    def synced(self, request: Request, at: int) -> LoggedGeneration | None:
        """Note a sync; return its generation, or None if it failed or has no generation."""
        found = self.generation(request.generation)
        if found is None:
            return None
        if request.error:
            found.unsynced.add(request.member_id)
            return None
        found.last_at = max(found.last_at, at)
        if request.member_id:
            found.synced.add(request.member_id)
        found.assignor = request.protocol or found.assignor
        if request.assignments and found.ended is None:
            found.ended = at
            found.assignments = {one.member_id: one.assignment for one in request.assignments}
        return found

    def generation(self, number: int | None) -> LoggedGeneration | None:
        """Return the facts of generation `number`, in a new entry if there are none yet.

        None: `number` is None or negative.
        """
        if number is None or number < 0:
            return None
        return self.generations.setdefault(number, LoggedGeneration(number))

    def leave(self, member_id: str, at: int, reason: str | None, connection: str | None) -> None:
        """Note that a member left. Without a reason, note its connection too.

        A later join on this connection is then known as the same process.
        """
        self.left[member_id] = LoggedLeave(member_id, at, reason)
        if connection and not reason:
            keep_newest(self.left_on, connection, member_id)

    def reject(self, client: str, at: int) -> None:
        """Note that a join of this client was rejected."""
        first, last = self.rejected.get(client, (at, at))
        self.rejected[client] = (min(first, at), max(last, at))

    def take_rejected(self, until: int) -> tuple[str, ...]:
        """Return the clients with rejections up to this time, sorted; forget those rejections."""
        taken = [client for client, (first, _) in self.rejected.items() if first <= until]
        for client in taken:
            _, last = self.rejected.pop(client)
            if last > until:
                self.rejected[client] = (last, last)
        return tuple(sorted(taken))

    def forget(self, before: int, members: Container[str]) -> dict[str, LoggedMember]:
        """Drop facts that no later rebalance needs; return the dropped members.

        Facts of one sort are dropped once there are many: members if they are not in `members` and
        were last seen before `before`, leaves and rejections if they are from before `before`. A
        leave stays if a later join may belong to it.
        """
        dropped: dict[str, LoggedMember] = {}
        if len(self.members) > self.limit:
            dropped = {
                key: one
                for key, one in self.members.items()
                if key not in members and one.last_at < before
            }
            for key in dropped:
                del self.members[key]
            self.limit = _SPARE + 2 * len(self.members)
        if len(self.left) > _SPARE:
            named = {*self.left_on.values(), *(one.before for one in self.members.values())}
            self.left = {
                key: one for key, one in self.left.items() if one.at >= before or key in named
            }
        if len(self.rejected) > _SPARE:
            self.rejected = {key: one for key, one in self.rejected.items() if one[1] >= before}
        return dropped


class ListKey(NamedTuple):
    """The key of an assignor list: the member and the list.

    A rejected client has no member id, so `client` identifies it.
    """

    member_id: str | None
    assignors: tuple[str, ...]
    client: tuple[str | None, ...] = ()


class ListRow(Struct, array_like=True):
    """A row of `assignor_lists` that is not written yet, because the list may be seen again.

    `columns` are the columns that the first sighting of the list shows. `at` and `last_at` are the
    times of its first and last sighting, and `times` is the number of its sightings.
    """

    columns: dict[str, str | int | None]
    at: int | None = None
    last_at: int | None = None
    generation: int | None = None
    times: int = 0

    def again(self, at: int | None, generation: int | None) -> None:
        """Count one sighting of the list, at the time `at` (None: not known).

        Of the generations with which the list is seen, the row keeps the first one that is known.
        """
        self.times += 1
        if at is not None:
            self.last_at = at if self.last_at is None else max(at, self.last_at)
            self.at = at if self.at is None else min(at, self.at)
        self.generation = generation if self.generation is None else self.generation


class Lists(Struct, array_like=True):
    """The assignor lists seen in one group that are not yet written to the table.

    `stored` is the member id and the assignor list (None: it has none) of the newest member record
    of a KIP-848 group.
    """

    seen: dict[ListKey, ListRow] = {}
    stored: tuple[str, tuple[str, ...] | None] = ("", None)
    limit: int = _OPEN_LISTS

    def joined(
        self,
        request: Request,
        at: int | None,
        names: tuple[str, ...],
        replaced: str | None,
    ) -> None:
        """Note the assignor list `names` of a join that was answered with a member id.

        `replaced` is the id of the static member whose place the member takes (None: no one's).
        """
        row = ListRow({**_request_columns(request), "replaced_member_id": replaced})
        self.seen.setdefault(ListKey(request.member_id, names), row).again(
            at, None if request.error else request.generation
        )

    def rejected(self, request: Request, at: int | None, names: tuple[str, ...]) -> None:
        """Note the list `names` of a join rejected with INCONSISTENT_GROUP_PROTOCOL (error 23)."""
        self.seen.setdefault(
            ListKey(None, names, attrgetter(*_CLIENT)(request)), ListRow(_request_columns(request))
        ).again(at, None)

    def record(
        self, member_id: str, member: ConsumerGroupMember, at: int, epoch: int | None, again: bool
    ) -> tuple[str, ...] | None:
        """Note the assignor list in a member record of a KIP-848 group, and return it.

        The result is None if the record has no list, because the member speaks the consumer
        protocol. A member that replaces a static one gets two records in one write: the first has
        the old member's list, the second its own. `again` is whether this record may be such a
        second one; then the sighting of the first record's list is removed.
        """
        listed = member.supported_protocols
        names = None if listed is None else tuple(one.name for one in listed)
        before, self.stored = self.stored, (member_id, names)
        if again and before[0] == member_id and before[1] not in (None, names):
            copied = self.seen.get(ListKey(member_id, before[1]))
            if copied is not None and copied.times == 1:
                del self.seen[ListKey(member_id, before[1])]
        if names is None:
            return None
        columns = {
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "host": member.client_host,
            "protocol_type": "consumer",
            "session_timeout_ms": member.session_timeout_ms,
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "evidence": TOPIC,
        }
        self.seen.setdefault(ListKey(member_id, names), ListRow(columns)).again(at, epoch)
        return names

    def forget(self, before: int, members: Container[str], rows: Rows) -> None:
        """Write the lists of members not in `members` that were last seen before `before`.

        Nothing is written until many lists are held.
        """
        if len(self.seen) <= self.limit:
            return
        self.write(
            [
                key
                for key, one in self.seen.items()
                if key.member_id not in members and (one.last_at is None or one.last_at < before)
            ],
            rows,
        )
        self.limit = _OPEN_LISTS + 2 * len(self.seen)

    def write(self, keys: Iterable[ListKey], rows: Rows) -> None:
        """Write these lists as rows of `assignor_lists`, and forget them."""
        written = [(key, self.seen.pop(key)) for key in keys]
        written.sort(key=lambda pair: (pair[1].at or 0, repr(pair[0])))
        for key, one in written:
            rows.add(
                "assignor_lists",
                at=one.at,
                member_id=key.member_id,
                assignors=key.assignors,
                generation=one.generation,
                refused=key.member_id is None,
                last_at=one.last_at,
                times=one.times,
                **one.columns,
            )


def _request_columns(request: Request) -> dict[str, Any]:
    return {
        **{name: getattr(request, name) for name in _REQUEST_COLUMNS},
        "source": request.log,
        "evidence": LOG,
    }
