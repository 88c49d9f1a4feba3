"""Capabilities of client families, each answered with yes, no or cannot tell.

The facts by version stand in groups/clients.py.
"""

from collections.abc import Collection, Iterable
from functools import lru_cache

from rebal.groups.clients import (
    assignor_of,
    assignors,
    eager_only,
    families,
    family,
    fixes_protocol,
    older,
    version_tuple,
)
from rebal.groups.model import GroupSnapshot, Member, Software, Tri
from rebal.planner.verdict import opposite


@lru_cache(1)
def speak_kip848() -> frozenset[str]:
    """Return the families of which some version supports group.protocol=consumer."""
    return frozenset(k for k, known in families().items() if version_tuple(known.kip848_since))


def stays_eager(key: str | None) -> bool:
    """Return whether no version of this client has a cooperative assignor.

    If only newer versions have one, the member is upgraded during the roll-out: in the first bounce
    (Java, sarama), or while the members that reject mixed lists (librdkafka, kafka-python) are
    stopped.
    """
    return family(key).cooperative() is Tri.NO


def refuses_mixed(key: str | None) -> bool:
    """Return whether this client has a cooperative assignor but rejects mixed lists."""
    return family(key).mixed_list == "refused"


def is_mixed(names: Iterable[str]) -> bool:
    """Return whether the list holds both eager and cooperative assignors."""
    return {Tri.YES, Tri.NO} <= {cooperative(name) for name in names}


def refuted(guess: str, held: Collection[str]) -> bool:
    """Return whether a list that holds these assignors disproves a guessed family.

    It does if the list holds a cooperative assignor and no version of the client has one, or if the
    list is mixed and the client rejects mixed lists.
    """
    if stays_eager(guess):
        return Tri.YES in map(cooperative, held)
    return refuses_mixed(guess) and is_mixed(held)


def assumed(client_id: str, key: str) -> str:
    """Return the value of `--assume-family`; without a client id it is of every unproven member."""
    return f"{client_id}={key}" if client_id else key


@lru_cache(4096)
def cooperative(assignor: str) -> Tri:
    """Return whether `assignor` supports COOPERATIVE; `cannot tell` for an unknown one."""
    return opposite(eager_only(assignor))


def cannot_hold(key: str, version: str | None, assignor: str, elected: str | None) -> bool:
    """Return whether the elected assignor proves that the list of this client, a family and its
    version, lacks `assignor`.

    It does if the client has no cooperative assignor, or rejects mixed lists and an assignor of the
    other protocol is elected.
    """
    other = cooperative(assignor)
    can = family(key)
    if other is Tri.YES and can.cooperative(version) is Tri.NO:
        return True
    if elected is None or assignor == elected or can.mixed is not Tri.NO:
        return False
    now = cooperative(elected)
    return Tri.CANNOT_TELL not in (now, other) and now is not other


def custom(assignor: str) -> bool:
    """Return whether no known client brings an assignor of this name."""
    return assignor not in assignors()


def classes_of(snapshot: GroupSnapshot) -> dict[str, str]:
    """Return assignor name → Java class for each custom class that a member's log shows.

    A custom class can have the name of one of Kafka's. A plan's configuration never replaces it by
    Kafka's class of that name.
    """
    known = [member.assignors for member in snapshot.members if member.assignors.classes]
    return {
        name: each
        for one in known
        for name, each in zip(one.list, one.classes, strict=True)
        if custom(name) or assignor_of(each) != name
    }


def runs_cooperative(member: Member) -> bool:
    """Return whether this member's own behaviour proves that its whole list supports COOPERATIVE.

    A client that fixes its protocol when it is built runs the highest one that ALL of its assignors
    support (KIP-429). It proves nothing about another member, which may run an older class of the
    same name.
    """
    return fixes_protocol(member.software) and member.kept_partitions > 0


def stops_at_repeats(family: str | None, software: Software | None) -> bool:
    """Return whether this client may stop at a list that names an assignor twice: Java of 3.1 to
    4.1, and one whose version is not known. Later ones drop the second with a warning (KIP-1161).
    """
    if family != "java" or software is None:
        return family == "java"
    return older(software, "4.2") is not Tri.NO and older(software, "3.1") is not Tri.YES
