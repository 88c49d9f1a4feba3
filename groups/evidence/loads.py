"""The coordinator's last load of the group, as the coordinator's own log shows it.

After a load the coordinator remembers the elected assignor alone for each member, until the member
rejoins. Where the records of `__consumer_offsets` cannot be read, the log of the broker that is the
coordinator now shows it instead: each load and each completed rebalance is a line there. A log that
ends before the group was read could miss a load, and one with gaps could too. So a rebalance counts
only if the log ends close to that time, in the file that shows the rebalance, and the log names a
member that is in the group now.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from rebal.groups.evidence.absent import is_after
from rebal.groups.evidence.logs import NOW
from rebal.groups.evidence.observations import (
    Joined,
    Loaded,
    LogRead,
    Observation,
    Rebalanced,
    Seen,
)
from rebal.groups.model import GroupSnapshot, Tri


def with_loads(snapshot: GroupSnapshot, seen: Sequence[Observation]) -> GroupSnapshot:
    """Return `snapshot` with what its coordinator's own log shows of the last load.

    An answer that the records gave is kept.
    """
    coordinator = snapshot.group.coordinator
    if coordinator is None or coordinator.rebalanced_since_load is not Tri.CANNOT_TELL:
        return snapshot
    for log in seen:
        if not (
            isinstance(log, LogRead)
            and log.broker_id == coordinator.broker_id
            and log.last_at is not None
            and abs(snapshot.captured_at - log.last_at) <= NOW
        ):
            continue
        shown = [one for one in seen if isinstance(one, Seen) and one.log == log.log]
        loads = (one for one in shown if isinstance(one, Loaded))
        load = max(loads, key=lambda one: one.line, default=None)
        ended = [one for one in shown if isinstance(one, Rebalanced)]
        rebalanced = any(load is None or is_after(one, load) for one in ended)
        if _is_bound(snapshot, shown, log) if rebalanced else load is not None:
            made = replace(
                coordinator,
                rebalanced_since_load=Tri.YES if rebalanced else Tri.NO,
                rebalanced_why=(
                    f"{log.log} shows {'a' if rebalanced else 'no'} rebalance after the last load"
                ),
                loaded_at=load.at if load is not None else coordinator.loaded_at,
            )
            return replace(snapshot, group=replace(snapshot.group, coordinator=made))
    return snapshot


def _is_bound(snapshot: GroupSnapshot, shown: Sequence[Seen], log: LogRead) -> bool:
    """Return whether the log names a member that is in the group now."""
    named = {(one.group_id, one.member_id) for one in shown if isinstance(one, Joined)}
    here = {(snapshot.group.group_id, member.member_id) for member in snapshot.members}
    return not here.isdisjoint(named | log.members)
