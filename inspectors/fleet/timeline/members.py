"""A group's members from generation to generation, and the rows of `members` they make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import Struct

from rebal.inspectors.fleet.timeline.facts import LoggedMember, RequestFacts
from rebal.inspectors.fleet.timeline.rows import HEARD, Rows
from rebal.inspectors.fleet.timeline.values import Member

_heard: Final = attrgetter(*HEARD)


class Place(NamedTuple):
    """A point of a group's history: a generation, who led it, and when it was last confirmed."""

    incarnation: int
    generation: int | None
    leader: str | None
    at: int


class MemberSpan(Struct, eq=False, array_like=True):
    """A member that is in the group, since `first_generation` without a change.

    `generation` is the one in its subscription. `joined_at` is None where it may have been there
    before; `timed` is whether it is evidence of when. `kept` is whether it named partitions that it
    still owned when it joined last.
    """

    member: Member
    generation: int | None
    first_generation: int | None
    first_at: int
    joined_at: int | None = None
    timed: bool = True
    kept: bool = False

    @property
    def member_id(self) -> str:
        """The member's id."""
        return self.member.member_id


Members = dict[str, MemberSpan]
"""The members of one group now, by id."""


def go_on(
    changed: Iterable[tuple[MemberSpan, Member]], last: Place, now: Place,
    facts: RequestFacts, rows: Rows,
) -> None:  # fmt: skip
    """Go on with members that changed in a later generation: add a row of each that shows it."""
    for span, member in changed:
        if not span.member.same_row(member):
            write(span, last, facts, rows)
            span.first_generation, span.first_at = now.generation, now.at
        span.member = member
        span.kept |= bool(member.subscription.owned)


def write(
    span: MemberSpan, last: Place, facts: RequestFacts, rows: Rows,
    *, left_at: int | None = None, left_reason: str | None = None, current: bool = False,
) -> None:  # fmt: skip
    """One row: the member as it was up to `last`."""
    member, said, joined_at, joined_reason = span.member, None, span.joined_at, None
    if left_at is not None:
        # the clock of the log's broker may be behind the records'
        left_at = max(left_at, span.first_at)
    logged = facts.members.get(span.member_id)
    if logged is not None:
        said = _heard(logged)
        joined_at = logged.joined_at or joined_at
        joined_reason = logged.reason
        if logged.replaced is not None:
            member = _as_heard(member, logged)
    rows.add(
        "members",
        incarnation=last.incarnation,
        first_generation=span.first_generation,
        last_generation=last.generation,
        member=member,
        subscription_generation=span.generation,
        heard=said,
        leader=None if last.leader is None else last.leader == member.member_id,
        first_at=span.first_at,
        last_at=max(last.at, span.first_at),
        joined_at=joined_at,
        joined_reason=joined_reason,
        left_at=left_at,
        left_reason=left_reason,
        current=current,
    )


def like(members: Members, gone: Member) -> Iterator[Member]:
    """Return the present members with the client id of one that left."""
    name = gone.identity.client_id
    return (one.member for one in members.values() if one.member.identity.client_id == name)


def _as_heard(member: Member, logged: LoggedMember) -> Member:
    """Return a restarted static member: records keep its client id and host of before."""
    known = member.identity
    host = logged.host
    if host is not None and known.host is not None and known.host.startswith("/"):
        host = f"/{host.removeprefix('/')}"
    if (logged.client_id or known.client_id, host or known.host) == (known.client_id, known.host):
        return member
    return member.under(known.member_id, logged.client_id, host)
