"""Groups of members that own something, in shorthand, for the tests of what-ifs."""

from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.groups.compact import Partitions
from rebal.groups.model import GroupSnapshot, Member, Subscription, Topic
from tests.groups.observed import stable_group


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


@st.composite
def snapshots(draw: st.DrawFn, abandoned: bool = True) -> GroupSnapshot:
    """Draw a group in which, if `abandoned`, owners may not subscribe to what they own."""
    topics = {"orders": draw(st.integers(1, 12)), "payments": draw(st.integers(1, 6))}
    names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1))
    wanted = {n: draw(st.sampled_from(["orders", "payments", "orders payments"])) for n in names}
    owned: dict[str, dict[str, list[int]]] = {name: {} for name in names}
    for topic, partitions in topics.items():
        takers = [name for name in names if abandoned or topic in wanted[name]]
        for p in range(partitions):
            owner = draw(st.none() | st.sampled_from(takers)) if takers else None
            if owner is not None:
                owned[owner].setdefault(topic, []).append(p)
    return group(
        *(
            replace(
                member(name, wanted[name]),
                assignment={t: Partitions(p) for t, p in owned[name].items()},
            )
            for name in names
        ),
        topics=tuple(Topic(name=t, partitions=n) for t, n in topics.items()),
    )
