"""Java classes behind assignors' names: an application's class may have the name of Kafka's own.

The name alone goes over the wire, so the coordinator admits by names. Which rebalance protocols a
member runs depends on its classes (ConsumerCoordinator asks their supportedProtocols()). A class
that extends RangeAssignor and does not override name() is called `range`.
"""

from rebal.groups.clients import assignor_of, assignors, eager_only, proven_family
from rebal.groups.model import (
    AssignorList,
    Departed,
    GroupSnapshot,
    Knowledge,
    Member,
    RebalanceProtocol,
    Source,
    Tri,
)


def borrowed_names(snapshot: GroupSnapshot) -> frozenset[str]:
    """Return the names of Kafka's assignors behind which a member's log, or what it did with its
    partitions, shows a custom class.
    """
    return frozenset().union(
        *(borrowed_in(member.assignors) | disproved(member) for member in snapshot.members)
    )


def disproved(member: Member) -> frozenset[str]:
    """Return the names of Kafka's COOPERATIVE assignors in the list of a member that runs EAGER.

    It gave up all its partitions when it rejoined, and every name of its list is COOPERATIVE. Empty
    where its own log shows Kafka's classes.
    """
    names = member.assignors.list
    is_eager = member.ran is not None and member.ran.value is RebalanceProtocol.EAGER
    if not is_eager or _prints_kafkas(member.assignors):
        return frozenset()
    return frozenset(names if all(eager_only(name) is Tri.NO for name in names) else ())


def _prints_kafkas(known: AssignorList) -> bool:
    """Return whether the member's own log shows its list, and Kafka's classes alone.

    Where all classes are Kafka's own, `classes` is empty: the names say it all.
    """
    printed = any(item.source is Source.CLIENT_LOG for item in known.evidence)
    return known.knowledge is Knowledge.EXACT and printed and not known.classes


def borrowed_in(known: AssignorList | Departed) -> frozenset[str]:
    """Return the names of Kafka's assignors in this list whose class is not Kafka's own."""
    return frozenset(
        name
        for name, each in zip(known.list, known.classes, strict=False)
        if name in assignors() and assignor_of(each) != name
    )


def class_of(member: Member, name: str) -> str | None:
    """Return the class behind `name`; None unless the member's own log shows a custom class in its
    list.
    """
    return dict(zip(member.assignors.list, member.assignors.classes, strict=False)).get(name)


def not_by_name(member: Member, name: str, borrowed: frozenset[str]) -> bool:
    """Return whether a custom class stands, or may stand, behind this name in the member's list.

    It does if the member's own log shows the class. It may if another member's log shows one
    (`borrowed`) and this member's log was not read. False for a name that no client brings, because
    such a name says nothing about its protocols.
    """
    if name not in borrowed:
        return False
    if member.assignors.classes:
        return name in borrowed_in(member.assignors)
    if _prints_kafkas(member.assignors):
        return False
    # The clients whose assignors are Java classes, and one that is not proven.
    java = (None, "java", "streams")
    return name in disproved(member) or proven_family(member.software) in java
