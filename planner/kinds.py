"""What members show of the kind of an assignor that is not Kafka's own."""

from __future__ import annotations

from rebal.groups.clients import assignors, family, proven_family
from rebal.groups.model import GroupSnapshot, Knowledge, Member


def custom(assignor: str) -> bool:
    """Is this the name of an assignor that no client brings."""
    return assignor not in assignors()


def classes_of(snapshot: GroupSnapshot) -> dict[str, str]:
    """Custom assignor → its Java class, where a member's own log shows it."""
    known = [member.assignors for member in snapshot.members if member.assignors.classes]
    return {
        name: each
        for one in known
        for name, each in zip(one.list, one.classes, strict=True)
        if custom(name)
    }


def kept_partitions(member: Member) -> bool:
    """It sent owned partitions when it last joined: only who follows COOPERATIVE does."""
    subscription = member.subscription
    return subscription is not None and any(
        len(numbers) for numbers in (subscription.owned_partitions or {}).values()
    )


def seen_cooperative(snapshot: GroupSnapshot) -> frozenset[str]:
    """The custom assignors that members are proven to run COOPERATIVE with.

    A client that fixes its protocol when it is built runs the highest that ALL of its list
    supports (KIP-429): where such a member kept its partitions, each of its assignors supports
    COOPERATIVE, and the elected one is among them.
    """
    found: set[str] = set()
    for member in snapshot.members:
        client = family(proven_family(member.software))
        if client is None or client.follows_vote or not kept_partitions(member):
            continue
        known = member.assignors
        found.update(known.list if known.knowledge is Knowledge.EXACT else known.at_least)
        found.update(filter(None, [snapshot.group.assignor]))
    return frozenset(filter(custom, found))
