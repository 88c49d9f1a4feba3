"""Members that a log shows and that are not in the group now: `departed()`; pure.

A restarted client has a new member id, so most ids that are not in the group were replaced. A
successor is an id that was new after the other one had left or was last seen, or just before it
left (a surge), of the same client: instance id, else client id and address, else client id alone (a
pod that is replaced has another address). Each id succeeds one other; who has no successor has
departed. A member that only rejoins succeeds nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import timedelta
from typing import Final

from rebal.groups.evidence.exact import when
from rebal.groups.evidence.observations import Joined, Left, Observation
from rebal.groups.evidence.rejections import is_after
from rebal.groups.model import Departed, GroupSnapshot

MOST_DEPARTED: Final = 100
# A deployment may start the new pod first, and stop the old one when that is ready.
_SURGE: Final = timedelta(minutes=2)


class _Life:
    """One member id: its joins in the order of the log, and its leave.

    `first` is any join, also one that only gave it its id; `last` is the newest accepted one.
    """

    def __init__(self, joins: Sequence[Joined], left: Left | None) -> None:
        self.left = left
        self.first = joins[0]
        self.last = next(join for join in reversed(joins) if join.accepted)
        self.is_new = any(join.new for join in joins)

    def record(self) -> Departed:
        """It, as a member that departed."""
        join, left = self.last, self.left
        seen = [each.at for each in (join, left) if each is not None and each.at is not None]
        return Departed(
            member_id=join.member_id,
            client_id=join.client_id,
            instance_id=join.instance_id,
            host=join.host,
            list=join.list,
            last_seen=max(seen, default=None),
            left=left is not None,
            left_at=left.at if left is not None else None,
            reason=left.reason if left is not None else None,
            evidence=left.evidence if left is not None else join.evidence,
        )


def departed(snapshot: GroupSnapshot, seen: Sequence[Observation]) -> tuple[Departed, ...]:
    """Those known before and those that `seen` shows, oldest first; nobody who is in the group."""
    here = {member.member_id for member in snapshot.members}
    static = {member.instance_id for member in snapshot.members if member.instance_id is not None}
    lives = _lives(seen)
    gone = [life for name, life in lives.items() if name not in here]
    gone = [life for life in gone if life.first.instance_id not in static]
    successors = {
        name: life for name, life in lives.items() if life.is_new and life.first.instance_id is None
    }
    dynamic = [life for life in gone if life.first.instance_id is None]
    # A static member has one successor at most, and it has its instance id.
    last = {life.first.instance_id: life for life in gone if life.first.instance_id is not None}
    for same in (_by_address, _by_client_id):
        dynamic = _unsucceeded(dynamic, successors, same)
    found = {one.member_id: one for one in snapshot.departed}
    found |= {life.last.member_id: life.record() for life in (*dynamic, *last.values())}
    ordered = sorted(found.values(), key=lambda one: (when(one.last_seen), one.member_id))
    known = [o for o in ordered if o.member_id not in here and o.instance_id not in static]
    return tuple(known[-MOST_DEPARTED:])


def _lives(seen: Iterable[Observation]) -> dict[str, _Life]:
    joins: dict[str, list[Joined]] = {}
    left: dict[str, Left] = {}
    for one in seen:
        if isinstance(one, Joined):
            joins.setdefault(one.member_id, []).append(one)
        elif isinstance(one, Left) and one.member_id:
            left[one.member_id] = one
    for found in joins.values():
        found.sort(key=lambda join: (when(join.at), join.log, join.line))
    return {
        name: _Life(found, left.get(name))
        for name, found in joins.items()
        if any(join.accepted for join in found)
    }


def _by_address(life: _Life) -> Hashable:
    host = life.first.host.removeprefix("/")
    return (life.first.client_id, host) if host else None


def _by_client_id(life: _Life) -> Hashable:
    return life.first.client_id or None


def _unsucceeded(
    gone: Sequence[_Life], successors: dict[str, _Life], same: Callable[[_Life], Hashable]
) -> list[_Life]:
    """Who of `gone` has no successor; whoever succeeds somebody is taken out of `successors`."""
    rest: list[_Life] = []
    waiting: dict[Hashable, list[_Life]] = {}
    for life in sorted(successors.values(), key=lambda one: (when(one.first.at), one.first.line)):
        waiting.setdefault(same(life), []).append(life)
    for life in sorted(gone, key=lambda one: (when(one.last.at), one.last.line)):
        key = same(life)
        queue = waiting.get(key, []) if key is not None else []
        first = next((one for one in queue if one is not life and _follows(one, life)), None)
        if first is None:
            rest.append(life)
            continue
        queue.remove(first)
        del successors[first.first.member_id]
    return rest


def _follows(other: _Life, life: _Life) -> bool:
    """Whether one began after the other was last seen, or shortly before it left."""
    if life.left is None:
        return is_after(other.first, life.last)
    if is_after(other.first, life.left):
        return True
    began, left = other.first.at, life.left.at
    surge = began is not None and left is not None and left - began <= _SURGE
    return surge and is_after(other.first, life.last)
