"""Assignor lists in a coordinator's memory once it has loaded the group from its records.

A record keeps the elected assignor alone of each list. In the next rebalance the members send their
lists again, but for a static member that is down then: it keeps what the load left until its
session ends, which begins anew with each rebalance (KIP-345; the coordinator's `onCompleteJoin`
removes dynamic members only).
"""

from datetime import timedelta
from typing import Final

from rebal.groups.model import GroupSnapshot, Member, Tri

CLOCKS: Final = timedelta(seconds=5)
"""How far two machines' clocks may differ unseen."""


def has_whole_lists(snapshot: GroupSnapshot) -> bool:
    """Return whether the coordinator certainly holds each list as its member sent it.

    Only then does a probe's "no" show that a member's list lacks the assignor.
    """
    coordinator = snapshot.group.coordinator
    if coordinator is None or coordinator.rebalanced_since_load is not Tri.YES:
        return False
    return never_loaded(snapshot) or all(
        member.instance_id is None
        or joined_since_load(snapshot, member)
        or _outlasts(snapshot, member)
        for member in snapshot.members
    )


def never_loaded(snapshot: GroupSnapshot) -> bool:
    """Return whether the partition's first leader still coordinates the group (leader epoch 0)."""
    coordinator = snapshot.group.coordinator
    return (
        coordinator is not None
        and coordinator.leader_epoch == 0
        and coordinator.rebalanced_since_load is Tri.YES
    )


def joined_since_load(snapshot: GroupSnapshot, member: Member) -> bool:
    """Return whether a log shows an accepted join of this member after the last load."""
    coordinator = snapshot.group.coordinator
    loaded = coordinator.loaded_at if coordinator is not None else None
    # A client's own log may date its join, by another machine's clock.
    return (
        loaded is not None and member.joined_at is not None and member.joined_at > loaded + CLOCKS
    )


def _outlasts(snapshot: GroupSnapshot, member: Member) -> bool:
    """Return whether the last rebalance is longer ago than this member's session lasts."""
    session = member.timeouts.session_ms if member.timeouts is not None else None
    began = snapshot.group.generation_at
    if session is None or began is None or not snapshot.clock_compared:
        return False
    return snapshot.captured_at - began > timedelta(milliseconds=session) + CLOCKS
