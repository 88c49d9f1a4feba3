"""What the request log told of one group lately: its members, and its rebalances by generation.

A member's facts are known from its joins (KIP-511 software, its ordered list, KIP-800 reasons), a
rebalance's from the generation number in the answers: so neither clocks that differ a little nor
lines out of order move a fact to another rebalance. What is kept is bounded by the members and by
the rebalances that are not finished.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final, TypeVar

MILLI: Final = 1000
"""Microseconds in a millisecond: times are microseconds, durations in rows milliseconds."""
_K = TypeVar("_K")
_V = TypeVar("_V")
NEARLY: Final = 0.9
"""Two log lines may be a little less apart than the timeout that passed between them."""
_SPARE: Final = 256


class Person:
    """One member id as the log shows it; None: not said. Times are completions of its joins."""

    __slots__ = (
        "assignors",
        "before",
        "client_id",
        "era",
        "first_at",
        "first_epoch",
        "gone",
        "host",
        "instance_id",
        "joined_at",
        "last_at",
        "last_epoch",
        "left_at",
        "left_reason",
        "protocol_type",
        "reason",
        "rebalance_timeout_ms",
        "replaced",
        "session_timeout_ms",
        "software_name",
        "software_version",
        "topics",
    )

    def __init__(self) -> None:
        self.assignors: tuple[str, ...] | None = None
        self.client_id: str | None = None
        self.host: str | None = None
        self.instance_id: str | None = None
        self.software_name: str | None = None
        self.software_version: str | None = None
        self.session_timeout_ms: int | None = None
        self.rebalance_timeout_ms: int | None = None
        self.protocol_type: str | None = None
        self.joined_at: int | None = None
        self.reason: str | None = None
        self.replaced: str | None = None
        # what its process left as when it was past max.poll.interval.ms
        self.before: Left | None = None
        self.last_at = 0
        # of a member that speaks KIP-848's own protocol: its epochs, and when the first was told
        self.topics: tuple[str, ...] | None = None
        self.first_epoch: int | None = None
        self.era = 1
        self.last_epoch: int | None = None
        self.first_at = 0
        self.left_at: int | None = None
        self.left_reason: str | None = None
        self.gone = False

    def goes(self, at: int | None, reason: str | None) -> None:
        """It is in the group no more; None: not known since when, or why."""
        self.left_at, self.left_reason, self.gone = at, reason, True

    def saw(self, request: Mapping[str, Any], at: int) -> None:
        """What any request of the member says of it."""
        self.client_id = request["client_id"] or self.client_id
        self.host = request["host"] or self.host
        self.instance_id = request["instance_id"] or self.instance_id
        if request["software_name"]:
            self.software_name = request["software_name"]
            self.software_version = request["software_version"]
        self.last_at = max(at, self.last_at)


class Round:
    """One generation as its joins and syncs show it."""

    __slots__ = (
        "applied",
        "assignments",
        "assignor",
        "ended",
        "generation",
        "heard",
        "joins",
        "last_at",
        "leader",
        "members",
        "protocol_type",
        "synced",
        "unsynced",
    )

    def __init__(self, generation: int) -> None:
        self.generation = generation
        # member id -> when its join began, when it was answered, and its reason
        self.joins: dict[str, tuple[int, int, str | None]] = {}
        self.leader: str | None = None
        self.assignor: str | None = None
        self.protocol_type: str | None = None
        self.members: list[Mapping[str, Any]] | None = None
        self.assignments: dict[str, bytes] | None = None
        self.synced: set[str] = set()
        # whose sync came too late: the next rebalance had begun
        self.unsynced: set[str] = set()
        self.ended: int | None = None
        self.last_at = 0
        # did heartbeats tell of it, as of a KIP-848 group's epoch
        self.heard = False
        self.applied = False

    def after(self, at: int) -> bool:
        """Did all that is known of it begin after this time."""
        starts = [start for start, _, _ in self.joins.values()]
        return min(starts, default=self.last_at) > at

    def began(self, ended: int) -> int | None:
        """When the first join of the rebalance began; later ones rejoined what was done already."""
        return min((start for start, _, _ in self.joins.values() if start < ended), default=None)


class Era:
    """The rounds of one incarnation of a group, and the generations of which it has records."""

    __slots__ = ("newest", "number", "recorded", "rounds")

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.newest: Round | None = None
        self.rounds: dict[int, Round] = {}
        self.recorded: dict[int, None] = {}

    def has_record(self, generation: int) -> None:
        """There is a record of this generation, applied or soon to be."""
        self.recorded[generation] = None
        if len(self.recorded) > _SPARE:
            del self.recorded[next(iter(self.recorded))]


def keep_newest(kept: dict[_K, _V], key: _K, value: _V) -> None:
    """Put `value` at the end of `kept`, and drop the oldest ones where that are too many."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > _SPARE:
        del kept[next(iter(kept))]


class Left:
    """A LEAVE_GROUP of a member; `had` is how many partitions it then had, None: not known."""

    __slots__ = ("at", "had", "member_id", "reason")

    def __init__(self, member_id: str, at: int, reason: str | None) -> None:
        self.member_id = member_id
        self.at = at
        self.reason = reason
        self.had: int | None = None


class Log:
    """The facts of one group's request log that its next rebalances need."""

    def __init__(self) -> None:
        self.era = Era()
        self.before = self.era
        self.cut_at: int | None = None
        self.persons: dict[str, Person] = {}
        self.instances: dict[str, str] = {}
        self.left: dict[str, Left] = {}
        # connection -> who left on it, and nobody has joined on it since
        self.left_on: dict[str, Left] = {}
        # clients before 2.4 that may come back though their member went, by name and host
        self.away: dict[tuple[str | None, str | None], bool] = {}
        # member -> when it was answered FENCED_INSTANCE_ID first
        self.fenced: dict[str, int] = {}
        # client -> when it was refused first and last since the last rebalance
        self.refused: dict[str, tuple[int, int]] = {}
        self.since: int | None = None
        # do records tell when the group was created again
        self.recorded = False
        self._limit = _SPARE

    def person(self, member_id: str) -> Person:
        """The member, new if need be."""
        found = self.persons.get(member_id)
        if found is None:
            found = self.persons[member_id] = Person()
        return found

    def cut(self, at: int) -> None:
        """The group ended at `at`: what begins later belongs to another one's generations."""
        self.before, self.era, self.cut_at = self.era, Era(self.era.number + 1), at

    def cuts(self, before: int, after: int) -> bool:
        """Did the group end between these times."""
        return self.cut_at is not None and before < self.cut_at <= after

    def begins_again(self, generation: int | None, start: int, first: bool) -> bool:
        """Is this join one of a group that was created again.

        `first` is whether the member was never seen before: only then can a generation 1 after
        later ones be one, and not a line that came late.
        """
        newest = self.era.newest
        if newest is None or not first or generation != 1 or self.recorded:
            return False
        return newest.generation + newest.heard > 1 and newest.last_at < start

    def joined(self, request: Mapping[str, Any], at: int, start: int, first: bool) -> Round | None:
        """A join that was answered without an error; its round unless that was done before."""
        generation = request["generation"]
        if self.begins_again(generation, start, first):
            self.cut(start)
        found = self._round(generation, start)
        if found is None:
            return None
        late = found.ended is not None and start >= found.ended
        if late:
            return None
        member_id = request["member_id"]
        found.joins[member_id] = (start, at, request["reason"])
        found.last_at = max(found.last_at, at)
        found.assignor = request["protocol"] or found.assignor
        found.protocol_type = request["protocol_type"] or found.protocol_type
        found.leader = request["leader"] or found.leader
        if request["members"] and request["leader"] == member_id:
            found.members = request["members"]
        return found

    def synced(self, request: Mapping[str, Any], at: int) -> Round | None:
        """A sync; its round where it was answered without an error."""
        found = self._round(request["generation"], at)
        if found is None:
            return None
        if request["error"]:
            found.unsynced.add(request["member_id"])
            return None
        found.last_at = max(found.last_at, at)
        if request["member_id"]:
            found.synced.add(request["member_id"])
        found.assignor = request["protocol"] or found.assignor
        if request["assignments"] and found.ended is None:
            found.ended = at
            found.assignments = {
                one["member_id"]: one["assignment"] for one in request["assignments"]
            }
        return found

    def _round(self, generation: int | None, start: int) -> Round | None:
        if generation is None or generation < 0:
            return None
        early = self.cut_at is not None and start < self.cut_at
        rounds = (self.before if early else self.era).rounds
        found = rounds.get(generation)
        if found is None:
            found = rounds[generation] = Round(generation)
            newest = self.era.newest
            if not early and (newest is None or newest.generation < generation):
                self.era.newest = found
        return found

    def leave(self, member_id: str, at: int, reason: str | None, connection: str | None) -> None:
        """A member left; who comes back on its connection is the same process."""
        left = self.left[member_id] = Left(member_id, at, reason)
        if connection and not reason:
            keep_newest(self.left_on, connection, left)

    def refuse(self, client: str, at: int) -> None:
        """A join of this client was refused."""
        first, last = self.refused.get(client, (at, at))
        self.refused[client] = (min(first, at), max(last, at))

    def take_refused(self, until: int) -> tuple[str, ...]:
        """The clients that were refused up to this time, and not asked for yet."""
        if not self.refused:
            return ()
        taken = [client for client, (first, _) in self.refused.items() if first <= until]
        for client in taken:
            _, last = self.refused.pop(client)
            if last > until:
                self.refused[client] = (last, last)
        return tuple(sorted(taken))

    def reached(self, member_id: str, epoch: int, joined: bool, start: int, at: int) -> None:
        """A KIP-848 member was told an epoch that is new to it."""
        found = self._round(epoch, at)
        if found is not None:
            found.last_at = max(found.last_at, at)
            found.synced.add(member_id)
            found.heard = True
            if joined:
                found.joins[member_id] = (start, at, None)

    def forget(self, before: int, members: Container[str]) -> dict[str, Person]:
        """Drop what no later rebalance asks for; the persons that are gone since before this."""
        dropped: dict[str, Person] = {}
        if len(self.persons) > self._limit:
            dropped = {
                key: person
                for key, person in self.persons.items()
                if key not in members and person.last_at < before
            }
            for key in dropped:
                del self.persons[key]
            self._limit = _SPARE + 2 * len(self.persons)
        if len(self.left) > _SPARE:
            self.left = {key: found for key, found in self.left.items() if found.at >= before}
        if len(self.refused) > _SPARE:
            self.refused = {key: one for key, one in self.refused.items() if one[1] >= before}
        return dropped
