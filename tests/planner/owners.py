"""Groups of members that own something, in shorthand, for the tests of what-ifs."""

from __future__ import annotations

from typing import Any

from rebal.groups.compact import Partitions
from rebal.groups.model import GroupSnapshot, Member, Subscription, Topic
from tests.groups.stable import stable_group


def member(name: str, topics: str = "orders", **owned: str) -> Member:
    """`owned`: partitions in words by topic, `orders="0-3"`."""
    return Member(
        member_id=f"{name}-id",
        client_id=name,
        subscription=Subscription(version=3, topics=tuple(topics.split())),
        assignment={topic: Partitions.parse(text) for topic, text in owned.items()},
    )


def group(*members: Member, **fields: Any) -> GroupSnapshot:
    """A stable group on range; there are `orders` with 8 partitions and `payments` with 4."""
    usual = {
        "group_id": "checkout",
        "assignor": "range",
        "generation": 7,
        "topics": (Topic(name="orders", partitions=8), Topic(name="payments", partitions=4)),
    }
    return stable_group(*members, **{**usual, **fields})
