"""Assignors that are not Kafka's own: their classes, and what members show of their kind."""

from __future__ import annotations

from rebal.groups.clients import assignor_of, assignors, family, proven_family
from rebal.groups.model import GroupSnapshot, Member


def custom(assignor: str) -> bool:
    """Is this the name of an assignor that no client brings."""
    return assignor not in assignors()


def classes_of(snapshot: GroupSnapshot) -> dict[str, str]:
    """Assignor → its Java class, where a member's own log shows one that is not Kafka's.

    The name may be that of Kafka's own: the text of a plan never swaps a class under one name.
    """
    known = [member.assignors for member in snapshot.members if member.assignors.classes]
    return {
        name: each
        for one in known
        for name, each in zip(one.list, one.classes, strict=True)
        if custom(name) or assignor_of(each) != name
    }


def kept_partitions(member: Member) -> bool:
    """It sent owned partitions when it last joined: only who follows COOPERATIVE does."""
    subscription = member.subscription
    return subscription is not None and any(
        len(numbers) for numbers in (subscription.owned_partitions or {}).values()
    )


def runs_cooperative(member: Member) -> bool:
    """Did this member itself show that it follows COOPERATIVE with all of its list?

    A client that fixes its protocol when it is built runs the highest that ALL of its list
    supports (KIP-429). It proves nothing of another member, whose class of the same name may be
    older.
    """
    client = family(proven_family(member.software))
    return client is not None and not client.follows_vote and kept_partitions(member)
