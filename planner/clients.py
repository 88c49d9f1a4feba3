"""What a client family can do, in three values, as rules and routes ask it (groups/clients.py)."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from functools import lru_cache

from rebal.groups.clients import (
    assignor_of,
    assignors,
    eager_only,
    families,
    family,
    named_families,
    proven_family,
    version_tuple,
)
from rebal.groups.model import GroupSnapshot, Member, Record, Software, Tri
from rebal.planner.verdict import opposite


class Able(Record, frozen=True, kw_only=True):
    """What a client of a family (and version, where it matters) can do.

    `cooperative`: it has a cooperative assignor. `mixed`: it takes a list of eager and cooperative
    assignors. `follows_vote`: its rebalance protocol is that of the elected assignor, not one that
    was fixed when the client was built.
    """

    cooperative: Tri = Tri.CANNOT_TELL
    mixed: Tri = Tri.CANNOT_TELL
    follows_vote: bool = False


@lru_cache(4096)
def able(key: str, version: str | None) -> Able:
    """What clients of this family can do; all `cannot tell` for a family that is not known."""
    known = family(key)
    if known is None:
        return Able()
    return Able(
        cooperative=known.cooperative(version),
        mixed=known.mixed,
        follows_vote=known.follows_vote,
    )


def candidates(software: Software) -> tuple[str, ...]:
    """The families that a member's bytes leave: `java >= 3.4 or franz-go` are two (clients.py)."""
    return named_families(software.version_range)


@lru_cache(4096)
def speak_kip848() -> frozenset[str]:
    """The families of which some version can use group.protocol=consumer."""
    return frozenset(k for k, known in families().items() if version_tuple(known.kip848_since))


def stays_eager(key: str | None) -> bool:
    """Has no version of this client a cooperative assignor?

    An old version of a client that has one is upgraded on the way: in the first bounce (Java,
    sarama), or in the stop that clients need which refuse mixed lists (librdkafka, kafka-python).
    """
    known = family(key)
    return known is not None and known.cooperative() is Tri.NO


def refuses_mixed(key: str | None) -> bool:
    """Return whether this client has a cooperative assignor and refuses it beside an eager one."""
    known = family(key)
    return known is not None and known.mixed_list == "refused"


def is_mixed(names: Iterable[str]) -> bool:
    """Return whether the list holds eager and cooperative assignors, as some clients refuse."""
    return {Tri.YES, Tri.NO} <= {cooperative(name) for name in names}


@lru_cache(1)
def without_mixed() -> frozenset[str]:
    """Return the families that are not known to take a list of eager and cooperative assignors."""
    return frozenset(key for key, known in families().items() if known.mixed is not Tri.YES)


def refuted(guess: str, held: Collection[str]) -> bool:
    """Return whether a list that holds these assignors proves that a guessed family is wrong.

    No version of the client has a cooperative assignor and the list holds one, or it refuses a list
    of both kinds and the list is one.
    """
    kinds = set(map(cooperative, held))
    if stays_eager(guess):
        return Tri.YES in kinds
    return refuses_mixed(guess) and {Tri.YES, Tri.NO} <= kinds


def assume_family(found: Iterable[tuple[str, str | None]], most: int = 3) -> str:
    """Return `--assume-family` options for these client ids and the families they are taken for.

    FAMILY stands where none is guessed, CLIENT_ID where there is no client id.
    """
    texts = dict.fromkeys(f"{name or 'CLIENT_ID'}={key or 'FAMILY'}" for name, key in found)
    words = [shlex.quote(text) for text in texts]
    more = " …" if len(words) > most else ""
    return " ".join(f"--assume-family {word}" for word in words[:most]) + more


@lru_cache(4096)
def cooperative(assignor: str) -> Tri:
    """Does `assignor` support COOPERATIVE; `cannot tell` for one that is not known."""
    return opposite(eager_only(assignor))


def cannot_hold(can: Able, assignor: str, elected: str | None) -> bool:
    """Is it proven that a client's list lacks `assignor`, which holds the elected one?

    It has no cooperative assignor; or takes one kind only, and the other one is elected.
    """
    other = cooperative(assignor)
    if can.cooperative is Tri.NO and other is Tri.YES:
        return True
    if elected is None or assignor == elected or can.mixed is not Tri.NO:
        return False
    now = cooperative(elected)
    return Tri.CANNOT_TELL not in (now, other) and now is not other


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
