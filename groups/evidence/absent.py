"""Clients that logs show and that are not in the group: rejected joins and departed members.

A rejected client is identified by its instance id, else by its client id and address, because
client ids are often equal in all pods. A client that joined after its rejection is back in the
group.

A restarted client gets a new member id, so most member ids that left the group were replaced. The
successor of a member id is another member id of the same client that first joined after the old one
had left or was last seen, or up to two minutes before it left (a surge). The same client means: the
same instance id, else the same client id and address, else the same client id (a replaced pod has
another address). A member id is the successor of at most one other, and one that only rejoins is no
successor. The client of a member id without a successor has departed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import asdict, replace

from rebal.groups.clients import is_default_client_id
from rebal.groups.evidence.exact import begins, logged_by_brokers, unnamed, when, with_joins
from rebal.groups.evidence.observations import (
    Joined,
    Left,
    Observation,
    Refused,
    Seen,
    by_field,
)
from rebal.groups.model import Departed, GroupSnapshot, Member, Refusal, Source

MOST_REFUSALS: Final = 100
# Of one client that tries again and again.
_MOST_OF_ONE: Final = 10
# Largest difference of the times that two machines' logs give to one moment.
_SAME: Final = timedelta(seconds=5)


def rejections(
    known: Sequence[Refusal], seen: Sequence[Observation], members: Sequence[Member]
) -> tuple[Refusal, ...]:
    """Return the `known` rejections and those that `seen` shows, each once, newest last.

    `members` are the present members, which may prove that a rejected client is back. If there are
    more than `MOST_REFUSALS`, only the newest rejections of each client are returned (`_bounded`).
    """
    found_joins = [one for one in seen if isinstance(one, Joined)]
    joins, unnamed_joins = (
        _Joins(found_joins, [one for one in seen if isinstance(one, Left)]),
        list(filter(unnamed, found_joins)),
    )
    here = {member.client_id for member in members}
    made = [
        _record(one, joins, alone=one.client_id not in here)
        for one in seen
        if isinstance(one, Refused) and not _is_partial_join(one, unnamed_joins)
    ]
    found: dict[Refusal, Refusal] = {}
    for one in (*known, *made):
        plain = replace(one, rejoined_as=None, rejoined_at=None)
        before = found.get(plain, plain)
        found[plain] = before if before.rejoined_as is not None else one
    resolved = [_resolved(one, joins, members) for one in without_duplicates(found.values())]
    return _bounded(sorted(resolved, key=lambda one: (when(one.at), repr(one))))


def _is_partial_join(one: Refused, joins: Sequence[Joined]) -> bool:
    """Return whether the client of the rejected join `one` sent another join with a longer list.

    Only clients that send no software name do so (aiokafka, see `begins`). The rejection is then
    one step of a longer join, not a failure.
    """
    return unnamed(one) and any(
        (join.client_id, join.host) == (one.client_id, one.host)
        and begins(one.list, join.list)
        and when(one.at) <= when(join.at)
        for join in joins
    )


class _Joins:
    """Accepted joins, indexed by the keys that identify their client.

    `new` are the joins of each member id that show that it was new.
    """

    def __init__(self, found: Sequence[Joined], left: Sequence[Left]) -> None:
        self._by: dict[object, list[Joined]] = defaultdict(list)
        self.new: dict[str, list[Joined]] = defaultdict(list)
        self._left = left
        dated = {join.member_id for join in logged_by_brokers(found) if join.accepted}
        for join in found:
            if join.evidence.source is Source.CLIENT_LOG and join.member_id in dated:
                # The brokers' times count; within its own log the order of the lines is certain.
                if join.accepted and (join.new or join.instance_id):
                    self._by[join.log, client_of(join)].append(join)
                continue
            if join.new:
                self.new[join.member_id].append(join)
            for key in (*_keys(join), (join.log, client_of(join))) if join.accepted else ():
                self._by[key].append(join)

    def after(
        self, one: Refusal, is_later: Callable[[Joined | Left], bool], *more: object
    ) -> list[Joined]:
        """Return the accepted joins of the client rejected in `one` for which `is_later` is true.

        A static client's joins are those with its instance id, a dynamic client's those with its
        connection, or its client id and address. `more` are further keys: pairs of a log's name and
        the `client_of` of a join in it. A dynamic client's join is returned only if its member id
        is newer than the rejection, or if it came over the connection of the rejected join: a join
        with an older member id is that of another process with the same client id and address.

        Processes at one address share a default client id of Java (`is_default_client_id`). With
        one, the joins are returned only if they are of more new member ids than have left between
        the rejection and a join: a process that left may have been restarted.
        """
        found = [
            join for key in (*_keys(one), *more) for join in self._by.get(key, ()) if is_later(join)
        ]
        if one.instance_id is not None:
            return found
        found = [
            join
            for join in found
            if join.new
            or (join.connection and join.connection == one.connection)
            or any(map(is_later, self.new.get(join.member_id, ())))
        ]
        shared = found and is_default_client_id(found[0].group_id, one.client_id)
        gone = {
            left.member_id
            for left in (self._left if shared else ())
            if is_later(left) and any(is_after(join, left) for join in found)
        }.intersection(join.member_id for key in _keys(one) for join in self._by.get(key, ()))
        return found if len({join.member_id for join in found}) > len(gone) else []


def _keys(one: Refusal | Joined | Member) -> Iterator[object]:
    """Yield the keys that identify the client: records with a common key belong to one client.

    A static client has one key, its instance id. A dynamic client has two: its connection, and its
    client id with its address. A key that is not known is left out.
    """
    if one.instance_id is not None:
        yield one.instance_id
        return
    if not isinstance(one, Member) and one.connection:
        yield "connection", one.connection
    if address := one.host.removeprefix("/"):
        yield one.client_id, address


def _record(one: Refused, joins: _Joins, *, alone: bool) -> Refusal:
    """Return the record of an observed rejection, marked as resolved if its client joined later.

    `alone` is True if no current member has the client's client id. A rejection in the client's own
    log shows no address. A later join in the same log is then taken as that client's only if the
    client is static, or if `alone` is True and the client id is not a default of Java
    (`is_default_client_id`).
    """
    seen = asdict(one)
    made = Refusal(**{name: seen[name] for name in Refusal.__struct_fields__ if name in seen})
    told = one.instance_id or (alone and not is_default_client_id(one.group_id, one.client_id))
    own = [(one.log, client_of(one))] if told and one.log and not one.host else []
    return _rejoined(made, joins.after(made, lambda join: _is_later(join, one), *own))


def _resolved(one: Refusal, joins: _Joins, members: Sequence[Member]) -> Refusal:
    """Return the rejection `one`, marked as resolved if its client is proven to be back.

    The proof is a later accepted join in `joins`, or a member of `members` that is the same client
    and joined after the rejection. A fenced static client (FENCED_INSTANCE_ID) is also taken as
    back while a member has its instance id.
    """
    holders = (member for member in members if member.instance_id == one.instance_id)
    holder = next(holders, None) if one.error == "FENCED_INSTANCE_ID" else None
    if holder is not None and one.rejoined_as is None:
        return replace(one, rejoined_as=holder.member_id, rejoined_at=holder.joined_at)
    if one.rejoined_as is not None or one.at is None:
        return one
    if later := joins.after(one, lambda join: _is_later(join, one)):
        return _rejoined(one, later)
    for member in members:
        came = member.joined_at if one.instance_id is not None else member.first_joined_at
        if (
            {*_keys(one)} & {*_keys(member)}
            # Else `joins` shows whose it is.
            and (one.instance_id is not None or member.member_id not in joins.new)
            and came is not None
            and came - one.at > clocks_apart(one)
        ):
            return replace(one, rejoined_as=member.member_id, rejoined_at=came)
    return one


def without_duplicates(found: Iterable[Refusal]) -> Iterator[Refusal]:
    """Yield each rejection once: skip those of a client log that the request log shows too.

    The logs show the same rejection if client id, instance id and error agree and the times differ
    by 5 s at most. The address is not compared, because a client's log has none.
    """
    logged = defaultdict[object, list[Refusal]](list)
    ordered = sorted(found, key=lambda one: (when(one.at), repr(one)))
    for one in ordered:
        if one.evidence.source is Source.REQUEST_LOG:
            logged[one.client_id, one.instance_id, one.error].append(one)
    for one in ordered:
        if one.evidence.source is Source.CLIENT_LOG and one.at is not None:
            same = logged[one.client_id, one.instance_id, one.error]
            if twins := [o for o in same if o.at and abs(o.at - one.at) <= _SAME]:
                same.remove(twins[0])
                continue
        yield one


def _rejoined(one: Refusal, later: Sequence[Joined]) -> Refusal:
    if not later:
        return one
    first = min(later, key=lambda join: (join.at is None, when(join.at), join.line, repr(join)))
    return replace(one, rejoined_as=first.member_id, rejoined_at=first.at)


def clocks_apart(one: Refusal) -> timedelta:
    """Return the time by which a join must follow the rejection `one` to be certainly later.

    It is 5 s, because another machine may have dated the join. It is zero if a dynamic client's own
    log shows the rejection: that log does not name the client's join, so both times are taken to be
    of the client's machine.
    """
    return _SAME if one.instance_id or one.evidence.source is not Source.CLIENT_LOG else timedelta()


def _is_later(seen: Joined | Left, one: Refused | Refusal) -> bool:
    if isinstance(one, Refused) and one.log == seen.log:
        return is_after(seen, one)
    apart = timedelta() if seen.evidence.source is one.evidence.source else _SAME
    return seen.at is not None and one.at is not None and seen.at - one.at > apart


def is_after(one: Seen, other: Seen) -> bool:
    """Return whether `one` was certainly logged after `other`.

    Two lines of one log and one origin (broker or client) are compared by line number, all others
    by their times in UTC.
    """
    if one.log and (one.log, one.origin) == (other.log, other.origin):
        return one.line > other.line
    return one.at is not None and other.at is not None and one.at > other.at


def _bounded(ordered: Sequence[Refusal]) -> tuple[Refusal, ...]:
    """Return at most `MOST_REFUSALS` of the rejections, in their given order.

    They are chosen in rounds: the newest rejection of each client, then the second newest of each,
    and so on, at most ten of one client.
    """
    if len(ordered) <= MOST_REFUSALS:
        return tuple(ordered)
    clients: dict[object, list[int]] = defaultdict(list)
    for number, one in reversed(list(enumerate(ordered))):
        clients[one.instance_id or (one.client_id, one.host, one.connection)].append(number)
    ranked = sorted(
        (rank, -number)
        for numbers in clients.values()
        for rank, number in enumerate(numbers[:_MOST_OF_ONE])
    )
    return tuple(ordered[n] for n in sorted(-number for _, number in ranked[:MOST_REFUSALS]))


MOST_DEPARTED: Final = 100
# A deployment may start the new pod first, and stop the old one when that is ready.
_SURGE: Final = timedelta(minutes=2)


class _Life:
    """Observed joins of one member id and its leave; at least one of them was observed.

    `joins` are in the order of the log. `first` is the first join, even if the coordinator only
    gave the client its member id. `last` is the newest accepted join, if a log shows one. Both are
    dated by the brokers' clocks if the brokers' logs show an accepted join. If no join was
    observed, `first` and `last` are the leave.
    """

    def __init__(self, joins: Sequence[Joined], left: Left | None) -> None:
        self.left = left
        self.joins = joins
        logged = [join for join in joins if join.evidence.source is not Source.CLIENT_LOG]
        timed = logged if any(join.accepted for join in logged) else joins
        shown: list[Joined | Left] = [*timed] or [one for one in (left,) if one is not None]
        self.first = shown[0]
        self.last = next((join for join in reversed(timed) if join.accepted), shown[-1])
        self.is_new = any(join.new for join in joins)

    def record(self) -> Departed:
        join, left = self.last, self.left
        asked = left is not None and not left.expired
        seen = [each.at for each in (join, left) if each is not None and each.at is not None]
        # The request log shows the list, and the client's own log its classes.
        known = with_joins(Member(member_id=join.member_id), self.joins)[0].assignors
        classes = next((each.classes for each in self.joins if each.classes), ())
        return Departed(
            member_id=join.member_id,
            client_id=join.client_id,
            instance_id=join.instance_id,
            host=join.host,
            list=known.list,
            classes=known.classes or classes,
            last_seen=max(seen, default=None),
            left=asked,
            left_at=left.at if left is not None and asked else None,
            reason=left.reason if left is not None else None,
            evidence=left.evidence if left is not None else join.evidence,
        )


def departed(snapshot: GroupSnapshot, seen: Sequence[Observation]) -> tuple[Departed, ...]:
    """Return the departed members that `snapshot` records and those that `seen` shows.

    They are sorted from oldest to newest, and only the newest `MOST_DEPARTED` are returned. Those
    whose member id or instance id is in the group now are left out, and member ids in `seen` that
    have a successor.
    """
    here = {member.member_id for member in snapshot.members}
    static = {member.instance_id for member in snapshot.members if member.instance_id is not None}
    lives = _lives(seen)
    gone = [
        life
        for name, life in lives.items()
        if name not in here and life.first.instance_id not in static
    ]
    successors = {
        name: life for name, life in lives.items() if life.is_new and life.first.instance_id is None
    }
    dynamic = [life for life in gone if life.first.instance_id is None]
    # A static member has one successor at most, and it has its instance id.
    last = {life.first.instance_id: life for life in gone if life.first.instance_id is not None}
    for by_address in (True, False):
        dynamic = _unsucceeded(dynamic, successors, by_address=by_address)
    found = {one.member_id: one for one in snapshot.departed}
    found |= {life.last.member_id: life.record() for life in (*dynamic, *last.values())}
    ordered = sorted(found.values(), key=lambda one: (when(one.last_seen), one.member_id))
    known = [o for o in ordered if o.member_id not in here and o.instance_id not in static]
    return tuple(known[-MOST_DEPARTED:])


def client_of(one: Departed | Refusal | Refused | Joined | Member) -> str:
    """Return the id that identifies the client: its instance id, else its client id."""
    return one.instance_id or one.client_id


def without_departed(snapshot: GroupSnapshot, since: Mapping[str, datetime]) -> GroupSnapshot:
    """Return `snapshot` without the clients that, by the user's statement, left for good.

    `since` maps an instance id, a client id or a member id to the time of the statement. A client
    that was seen after that time stays. Rejections of dynamic clients stay too, because several
    clients can have one client id.
    """
    if not since:
        return snapshot
    gone = tuple(
        one
        for one in snapshot.departed
        if not any(
            name in since and when(one.last_seen) <= since[name]
            for name in (client_of(one), one.member_id)
        )
    )
    refusals = tuple(
        one
        for one in snapshot.refusals
        if one.instance_id is None or one.at is None or one.at > when(since.get(one.instance_id))
    )
    return replace(snapshot, departed=gone, refusals=refusals)


def _lives(seen: Sequence[Observation]) -> dict[str, _Life]:
    joins = by_field(seen, Joined, "member_id")
    leaves = [one for one in seen if isinstance(one, Left) and one.member_id]
    # The brokers' own last: their times are of the same clock as their joins.
    leaves.sort(key=lambda one: one.evidence.source is not Source.CLIENT_LOG)
    left = {one.member_id: one for one in leaves}
    # A log that begins later shows the leave alone of a member that had joined.
    alone = [name for name, one in left.items() if one.client_id and name not in joins]
    for found in joins.values():
        found.sort(key=lambda join: (when(join.at), join.log, join.line))
    return {name: _Life([], left[name]) for name in alone} | {
        name: _Life(found, left.get(name))
        for name, found in joins.items()
        # A broker's log shows no join that comes while others join, and only members leave there.
        if any(join.accepted for join in found)
        or (name in left and left[name].evidence.source is Source.BROKER_LOG)
    }


def _unsucceeded(
    gone: Sequence[_Life], successors: dict[str, _Life], *, by_address: bool
) -> list[_Life]:
    """Return those of the past members `gone` that have no successor in `successors`.

    A successor has the same client id, with `by_address` also the same address, and joined late
    enough (`_follows`). Each successor that is found is removed from `successors`.
    """

    def key_of(life: _Life) -> tuple[str, str] | None:
        host = life.first.host.removeprefix("/") if by_address else ""
        told = host if by_address else life.first.client_id
        return (life.first.client_id, host) if told else None

    rest: list[_Life] = []
    waiting: defaultdict[tuple[str, str] | None, list[_Life]] = defaultdict(list)
    for life in sorted(successors.values(), key=lambda one: (when(one.first.at), one.first.line)):
        waiting[key_of(life)].append(life)
    for life in sorted(gone, key=lambda one: (when(one.last.at), one.last.line)):
        queue = waiting[key] if (key := key_of(life)) is not None else []
        first = next((one for one in queue if one is not life and _follows(one, life)), None)
        if first is None:
            rest.append(life)
            continue
        queue.remove(first)
        del successors[first.first.member_id]
    return rest


def _follows(other: _Life, life: _Life) -> bool:
    """Return whether `other` first joined late enough to be the successor of `life`.

    If `life` left by request, `other` must have joined after it left, or at most two minutes
    before. Otherwise `other` must have joined after `life` was last seen.
    """
    if life.left is None or life.left.expired:
        # A killed process often starts again before the session of its old id has expired.
        return is_after(other.first, life.last)
    began, left = other.first.at, life.left.at
    surge = began is not None and left is not None and left - began <= _SURGE
    return is_after(other.first, life.left) or (surge and is_after(other.first, life.last))
