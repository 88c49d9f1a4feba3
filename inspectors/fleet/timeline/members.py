"""A group's members from generation to generation, and the rows of `members` they make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rebal.inspectors.fleet.timeline.log import Log, Person
from rebal.inspectors.fleet.timeline.member_rows import Heard
from rebal.inspectors.fleet.timeline.protocol import Profile
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.fleet.timeline.values import Seen


class Place(NamedTuple):
    """A point of a group's history: a generation, who led it, and when it was last confirmed."""

    incarnation: int
    generation: int | None
    leader: str | None
    at: int


class Standing:
    """A member that is in the group, since `first_generation` without a change."""

    __slots__ = (
        "first_at",
        "first_generation",
        "joined_at",
        "joined_reason",
        "profile",
        "seen",
        "timed",
    )

    def __init__(self, seen: Seen, generation: int | None, at: int) -> None:
        self.seen = seen
        self.first_generation = generation
        self.first_at = at
        self.joined_at: int | None = None
        self.joined_reason: str | None = None
        # is `joined_at` evidence of when
        self.timed = True
        # what decides which protocol it runs, as it was in the last generation
        self.profile: Profile | None = None


class Roster:
    """The members of one group now; writes a row when one changes or goes."""

    def __init__(self, group_id: str, rows: Rows, log: Log) -> None:
        self.group_id = group_id
        self.rows = rows
        self.log = log
        self.members: dict[str, Standing] = {}

    def enter(self, seen: Seen, generation: int | None, at: int, joined_at: int | None) -> Standing:
        """A member that was not there before; `joined_at` is None where it may have been."""
        standing = Standing(seen, generation, at)
        standing.joined_at = joined_at
        self.members[seen.member_id] = standing
        return standing

    def go_on(self, changed: Iterable[tuple[Standing, Seen]], last: Place, now: Place) -> None:
        """The same members in a later generation."""
        for standing, seen in changed:
            if not standing.seen.same_row(seen):
                self.write(standing, last)
                standing.first_generation, standing.first_at = now.generation, now.at
            standing.seen = seen

    def leave(
        self, member_id: str, last: Place, left_at: int | None, reason: str | None
    ) -> Standing:
        """A member that is no longer there after `last`."""
        standing = self.members.pop(member_id)
        self.write(standing, last, left_at, reason)
        return standing

    def write(
        self,
        standing: Standing,
        last: Place,
        left_at: int | None = None,
        left_reason: str | None = None,
        current: bool = False,
    ) -> None:
        """One row: the member as it was up to `last`."""
        seen, heard = standing.seen, None
        if left_at is not None:
            # the clock of the log's broker may be behind the records'
            left_at = max(left_at, standing.first_at)
        joined_at, joined_reason = standing.joined_at, standing.joined_reason
        person = self.log.persons.get(seen.member_id)
        if person is not None:
            heard = Heard(
                person.instance_id, person.client_id, person.host,
                person.session_timeout_ms, person.rebalance_timeout_ms,
                person.software_name, person.software_version, person.assignors,
            )  # fmt: skip
            joined_at = person.joined_at or joined_at
            joined_reason = person.reason or joined_reason
            if person.replaced is not None:
                seen = _as_heard(seen, person)
        self.rows.add_member(
            (
                self.group_id,
                last.incarnation,
                standing.first_generation,
                last.generation,
                seen,
                seen.generation,
                None if last.leader is None else last.leader == seen.member_id,
                heard,
                standing.first_at,
                max(last.at, standing.first_at),
                joined_at,
                joined_reason,
                left_at,
                left_reason,
                current,
            )
        )

    def close(
        self, last: Place, left_at: int | None, reason: str | None, current: bool = False
    ) -> None:
        """Every member's last row: the group ended, or what comes next is not known."""
        for standing in self.members.values():
            self.write(standing, last, left_at, reason, current)
        self.members = {}

    def forget_profiles(self) -> None:
        """The group has another type from here on: what members ran before is no hint."""
        for standing in self.members.values():
            standing.profile = None

    def clients(self) -> list[Seen]:
        """The members as they were last seen."""
        return [standing.seen for standing in self.members.values()]

    def like(self, gone: Seen) -> Iterator[Seen]:
        """Those who are there with the client id of one that went."""
        name = gone.head.client_id
        return (one.seen for one in self.members.values() if one.seen.head.client_id == name)


def _as_heard(seen: Seen, person: Person) -> Seen:
    """A static member's restart: records keep the client id and the host that it had before."""
    head = seen.head
    host = person.host
    if host is not None and head.host is not None and head.host.startswith("/"):
        host = f"/{host.removeprefix('/')}"
    if (person.client_id or head.client_id, host or head.host) == (head.client_id, head.host):
        return seen
    return seen.under(head.member_id, person.client_id, host)
