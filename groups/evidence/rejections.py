"""Rejected joins, each of its own client, and which of them the client got over: `rejections()`.

A client is known by its instance id, else by its client id and address: in all pods the client id
is the same. One that joined since is in the group again, whoever else was rejected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from rebal.groups.evidence.exact import begins, unnamed, when
from rebal.groups.evidence.observations import Joined, Observation, Refused, Seen
from rebal.groups.model import Member, Moment, Refusal, Source

MOST_REFUSALS: Final = 100
# Of one client that tries again and again.
_MOST_OF_ONE: Final = 10
# How far apart two logs may date one rejection.
_SAME: Final = timedelta(seconds=5)


def rejections(
    known: Sequence[Refusal], seen: Sequence[Observation], members: Sequence[Member]
) -> tuple[Refusal, ...]:
    """All rejections once, the newest last, no more than `MOST_REFUSALS`.

    Of a client that was rejected often the newest ones stay; every client keeps one.
    """
    joins = _Joins(one for one in seen if isinstance(one, Joined) and one.accepted)
    made = [_record(one, joins) for one in _final(seen)]
    found: dict[Refusal, Refusal] = {}
    for one in (*known, *made):
        plain = replace(one, rejoined_as=None, rejoined_at=None)
        before = found.get(plain, plain)
        found[plain] = before if before.rejoined_as is not None else one
    resolved = [_resolved(one, joins, members) for one in _once(found.values())]
    return _bounded(sorted(resolved, key=lambda one: (when(one.at), repr(one))))


def _final(seen: Sequence[Observation]) -> Iterator[Refused]:
    """The rejections, but for those that the same client got over by joining with a longer list."""
    joins = [one for one in seen if isinstance(one, Joined) and unnamed(one)]
    for one in seen:
        if isinstance(one, Refused) and not (
            unnamed(one)
            and any(
                (join.client_id, join.host) == (one.client_id, one.host)
                and begins(one.list, join.list)
                and when(one.at) <= when(join.at)
                for join in joins
            )
        ):
            yield one


class _Joins:
    """Accepted joins by what tells their client."""

    def __init__(self, joins: Iterable[Joined]) -> None:
        self._by: dict[object, list[Joined]] = defaultdict(list)
        for join in joins:
            for key in _keys(join):
                self._by[key].append(join)

    def of(self, one: Refusal) -> list[Joined]:
        """Those of the client that was rejected."""
        return [join for key in _keys(one) for join in self._by.get(key, ())]


def _keys(one: Refusal | Joined | Member) -> Iterator[object]:
    """What tells the client: two with a key in common are the same one."""
    if one.instance_id is not None:
        yield one.instance_id
        return
    if not isinstance(one, Member) and one.connection:
        yield "connection", one.connection
    address = one.host.removeprefix("/")
    if address:
        yield one.client_id, address


def _record(one: Refused, joins: _Joins) -> Refusal:
    made = Refusal(
        at=one.at,
        times=one.times,
        error=one.error,
        client_id=one.client_id,
        instance_id=one.instance_id,
        host=one.host,
        connection=one.connection,
        list=one.list,
        software=one.software,
        evidence=one.evidence,
    )
    later = [join for join in joins.of(made) if is_after(join, one)]
    return _rejoined(made, later)


def _resolved(one: Refusal, joins: _Joins, members: Sequence[Member]) -> Refusal:
    """`one`, resolved by what a member in the group or a join with a known time shows."""
    if one.rejoined_as is not None or one.at is None:
        return one
    at = one.at
    found = _rejoined(one, [join for join in joins.of(one) if join.at and join.at > at])
    if found.rejoined_as is not None:
        return found
    for member in members:
        if (
            {*_keys(one)} & {*_keys(member)}
            and member.joined_at is not None
            and member.joined_at > at
        ):
            return replace(one, rejoined_as=member.member_id, rejoined_at=member.joined_at)
    return one


def _once(found: Iterable[Refusal]) -> Iterator[Refusal]:
    """Each rejection once: a client's own log shows those of the request log again.

    Two logs show the same one where client, error and moment agree; a client's log has no address.
    """
    logged = defaultdict[object, list[Refusal]](list)
    ordered = sorted(found, key=lambda one: (when(one.at), repr(one)))
    for one in ordered:
        if one.evidence.source is Source.REQUEST_LOG:
            logged[one.client_id, one.instance_id, one.error].append(one)
    for one in ordered:
        if one.evidence.source is Source.CLIENT_LOG and one.at is not None:
            same = logged[one.client_id, one.instance_id, one.error]
            twin = next((o for o in same if o.at and abs(o.at - one.at) <= _SAME), None)
            if twin is not None:
                same.remove(twin)
                continue
        yield one


def _rejoined(one: Refusal, later: Sequence[Joined]) -> Refusal:
    if not later:
        return one
    first = min(later, key=lambda join: (join.at is None, when(join.at), join.line, repr(join)))
    at: Moment | None = first.at
    return replace(one, rejoined_as=first.member_id, rejoined_at=at)


def is_after(one: Seen, other: Seen) -> bool:
    """Whether one line was written after another, as far as it can be told.

    Lines of one log are in their order, whatever its clock; others are compared by their moments.
    """
    if one.log and one.log == other.log:
        return one.line > other.line
    moments: list[Moment | None] = [getattr(each, "at", None) for each in (one, other)]
    return moments[0] is not None and moments[1] is not None and moments[0] > moments[1]


def _bounded(ordered: Sequence[Refusal]) -> tuple[Refusal, ...]:
    """The newest of each client, then the newest of all; still in their order."""
    if len(ordered) <= MOST_REFUSALS:
        return tuple(ordered)
    clients: dict[object, list[int]] = defaultdict(list)
    for number in range(len(ordered) - 1, -1, -1):
        clients[_client(ordered[number])].append(number)
    ranked = sorted(
        (rank, -number)
        for numbers in clients.values()
        for rank, number in enumerate(numbers[:_MOST_OF_ONE])
    )
    kept = sorted(-number for _, number in ranked[:MOST_REFUSALS])
    return tuple(ordered[number] for number in kept)


def _client(one: Refusal) -> object:
    return one.instance_id or (one.client_id, one.host, one.connection)
