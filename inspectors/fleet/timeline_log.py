"""What the request log told of one group lately: its members, and its rebalances by generation.

A member's facts are known from its joins (KIP-511 software, its ordered list, KIP-800 reasons), a
rebalance's from the generation number in the answers: so neither clocks that differ a little nor
lines out of order move a fact to another rebalance. What is kept is bounded by the members and by
the rebalances that are not finished.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final

MILLI: Final = 1000
"""Microseconds in a millisecond: times are microseconds, durations in rows milliseconds."""
_SPARE: Final = 256


class Person:
    """One member id as the log shows it; None: not said. Times are completions of its joins."""

    __slots__ = (
        "assignors",
        "client_id",
        "expired",
        "generation",
        "host",
        "instance_id",
        "joined_at",
        "last_at",
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
        self.generation: int | None = None
        self.replaced: str | None = None
        self.topics: tuple[str, ...] | None = None
        self.expired = False
        self.last_at = 0

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
        "joins",
        "last_at",
        "leader",
        "members",
        "protocol_type",
        "synced",
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
        self.ended: int | None = None
        self.last_at = 0
        self.applied = False

    def began(self, ended: int) -> int | None:
        """When the first join of the rebalance began; later ones rejoined what was done already."""
        return min((start for start, _, _ in self.joins.values() if start < ended), default=None)


class Log:
    """The facts of one group's request log that its next rebalances need."""

    def __init__(self) -> None:
        self.rounds: dict[int, Round] = {}
        self.before: dict[int, Round] = {}
        self.cut_at: int | None = None
        self.persons: dict[str, Person] = {}
        self.instances: dict[str, str] = {}
        self.left: dict[str, tuple[int, str | None]] = {}
        self.refused: list[tuple[int, str]] = []
        self.since: int | None = None

    def person(self, member_id: str) -> Person:
        """The member, new if need be."""
        found = self.persons.get(member_id)
        if found is None:
            found = self.persons[member_id] = Person()
        return found

    def cut(self, at: int) -> dict[int, Round]:
        """The group ended at `at`: what begins later belongs to another one's generations."""
        self.before, self.rounds, self.cut_at = self.rounds, {}, at
        return self.before

    def joined(self, request: Mapping[str, Any], at: int, start: int) -> Round | None:
        """A join that was answered without an error; its round unless that was done before."""
        found = self._round(request["generation"], start)
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
        """A sync that was answered without an error."""
        found = self._round(request["generation"], at)
        if found is None:
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
        rounds = self.rounds
        if self.cut_at is not None and start < self.cut_at:
            rounds = self.before
        found = rounds.get(generation)
        if found is None:
            found = rounds[generation] = Round(generation)
        return found

    def forget(self, before: int, members: Container[str]) -> None:
        """Drop what no later rebalance asks for: members that are gone since before this time."""
        if len(self.persons) > _SPARE:
            self.persons = {
                key: person
                for key, person in self.persons.items()
                if key in members or person.last_at >= before
            }
        if len(self.left) > _SPARE:
            self.left = {key: found for key, found in self.left.items() if found[0] >= before}
        if len(self.refused) > _SPARE:
            self.refused = [one for one in self.refused if one[0] >= before]
