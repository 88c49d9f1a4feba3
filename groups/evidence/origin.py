"""Telling a group's own logs from those of another broker, cluster or time: `own()`; pure.

A group id is not unique: another cluster has it too, and so has last month's log. A log is the
group's own where it shows one of the member ids that are in the group now, or names its cluster or
its coordinator. One that does neither may still show only rejections, which leave no member: it
counts where it reaches up to now and shows nobody join who is not in the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from rebal.groups.evidence.observations import (
    Introduced,
    Joined,
    Left,
    LogRead,
    Observation,
    Ran,
    Seen,
)
from rebal.groups.model import GroupSnapshot

# A log that ends so shortly before the group was read, or after it, is of now.
_NOW: Final = timedelta(minutes=5)


def own(
    snapshot: GroupSnapshot, seen: Sequence[Observation]
) -> tuple[list[Observation], tuple[str, ...]]:
    """What of `seen` (of this group, times placed) the group's own logs show, and what is not used.

    Observations without an origin are no log's, and stay.
    """
    origins: dict[str, list[Seen]] = {}
    for one in seen:
        if isinstance(one, Seen) and one.origin:
            origins.setdefault(one.origin, []).append(one)
    if not origins:
        return list(seen), ()
    logs: dict[str, list[LogRead]] = {}
    for one in seen:
        if isinstance(one, LogRead):
            logs.setdefault(one.origin, []).append(one)
    foreign = {
        name: logs.get(name, [])
        for name, found in origins.items()
        if not _is_own(snapshot, found, logs.get(name, []))
    }
    kept = [one for one in seen if not (isinstance(one, Seen) and one.origin in foreign)]
    return kept, (*_notes(foreign), *_of_brokers(origins, logs, foreign))


def _is_own(snapshot: GroupSnapshot, found: Sequence[Seen], logs: Sequence[LogRead]) -> bool:
    group = snapshot.group
    here = {member.member_id for member in snapshot.members}
    if any(isinstance(o, Joined | Introduced | Ran) and o.member_id in here for o in found):
        return True
    if any((group.group_id, member_id) in log.members for log in logs for member_id in here):
        return True
    named = {cluster_id for log in logs for cluster_id in log.cluster_ids}
    if named and snapshot.cluster.cluster_id is not None:
        return named == {snapshot.cluster.cluster_id}
    coordinator = group.coordinator
    if coordinator is not None and coordinator.host:
        address = f"{coordinator.host}:{coordinator.port}"
        if any(log.broker == address for log in logs):
            return True
    return _is_of_now(snapshot, logs) and not _strangers(found)


def _is_of_now(snapshot: GroupSnapshot, logs: Sequence[LogRead]) -> bool:
    return any(
        log.last_at is not None and abs(snapshot.captured_at - log.last_at) <= _NOW for log in logs
    )


def _strangers(found: Sequence[Seen]) -> bool:
    """Whether somebody joined who did not leave, and so should be in the group."""
    joined = {one.member_id for one in found if isinstance(one, Joined) and one.accepted}
    replaced = {one.replaced_member_id for one in found if isinstance(one, Joined)}
    return bool(joined - {one.member_id for one in found if isinstance(one, Left)} - replaced)


def _notes(foreign: dict[str, list[LogRead]]) -> Iterator[str]:
    clients = sum(any(log.client for log in logs) for logs in foreign.values())
    for number, kind, whose in (
        (len(foreign) - clients, "request", "broker, cluster or time"),
        (clients, "client", "member, cluster or time"),
    ):
        if number:
            one = number == 1
            yield (
                f"{number} {kind} log{'' if one else 's'} of this group show{'s' if one else ''} "
                f"none of its members, so {'it is' if one else 'they are'} of another {whose} and "
                f"{'is' if one else 'are'} not used"
            )


def _of_brokers(
    origins: dict[str, list[Seen]],
    logs: dict[str, list[LogRead]],
    foreign: dict[str, list[LogRead]],
) -> Iterator[str]:
    """One sentence where request logs of several brokers show the group."""
    brokers = {name: log.broker for name in origins for log in logs.get(name, ()) if log.broker}
    used = sorted({broker for name, broker in brokers.items() if name not in foreign})
    unused = sorted({broker for name, broker in brokers.items() if name in foreign} - {*used})
    if used and unused:
        yield (
            f"of the brokers in the request logs, {' and '.join(used)} coordinated this group, and "
            f"{' and '.join(unused)} did not: what {'they' if len(unused) > 1 else 'it'} logged of "
            "a group of this name is not used"
        )
