"""The coordinator's vote: which assignor a classic group elects from its members' lists.

Candidates are the assignors that every list holds; each member votes for the first candidate of its
list; most votes win. A tie goes to the name that comes first in the coordinator's own table of
votes, and so by the names' hashes: a `java.util.HashMap` in the Java coordinator (4.x,
ClassicGroup.selectProtocol) and Scala 2.13's immutable HashMap in the Scala one (before 4.0,
GroupMetadata.selectProtocol; builds for Scala 2.12 are treated alike). If that order depends on the
member ids too (names with colliding hashes), the tie is left open.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from rebal.groups.jvmhash import scala_improved, string_hash
from rebal.groups.model import CoordinatorKind, Record

_TREE_BIN: Final = 8
_HASH_BITS: Final = 32
_LEVEL_BITS: Final = 5


class Vote(Record, frozen=True, kw_only=True):
    """Result of a vote.

    `assignor` is None when no assignor is in every list (the join is rejected, error 23) or when a
    tie cannot be decided. `candidates` are sorted by name; `votes` counts by candidate; `tie` is
    True if several candidates had the most votes, even if the tie was decided.
    """

    assignor: str | None
    candidates: tuple[str, ...]
    votes: Mapping[str, int]
    tie: bool = False


def candidates(lists: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the assignors that every list holds, sorted by name; empty if there are no lists."""
    if not lists:
        return ()
    return tuple(sorted(set(lists[0]).intersection(*lists[1:])))


def elect(lists: Sequence[Sequence[str]], kind: CoordinatorKind) -> Vote:
    """Return the vote of the members that have these exact lists in order, one list for each
    member.
    """
    able = candidates(lists)
    if not able:
        return Vote(assignor=None, candidates=(), votes={})
    counts = Counter(next(name for name in names if name in able) for names in lists)
    votes = dict(sorted(counts.items()))
    most = max(votes.values())
    leading = [name for name, count in votes.items() if count == most]
    winner = leading[0] if len(leading) == 1 else _first(leading, list(votes), kind)
    return Vote(assignor=winner, candidates=able, votes=votes, tie=len(leading) > 1)


def _first(leading: list[str], voted: list[str], kind: CoordinatorKind) -> str | None:
    """Return the one of `leading` that the table of all `voted` names lists first, if certain."""
    tables = {CoordinatorKind.JAVA: _java_places, CoordinatorKind.SCALA: _scala_places}
    places = tables[kind](voted) if kind in tables else None
    if places is None:
        return None
    first = min(places[name] for name in leading)
    winners = [name for name in leading if places[name] == first]
    return winners[0] if len(winners) == 1 else None


def _java_places(names: list[str]) -> dict[str, tuple[int, ...]] | None:
    """Return each name's bucket in a HashMap of `names`.

    None when a bucket is so full that the map would resize or turn it into a tree.
    """
    capacity = 16
    while len(names) > capacity * 3 // 4:
        capacity *= 2
    hashes = {name: string_hash(name) for name in names}
    places: dict[str, tuple[int, ...]] = {
        name: ((h ^ h >> 16) & (capacity - 1),) for name, h in hashes.items()
    }
    if max(Counter(places.values()).values()) >= _TREE_BIN:
        return None
    return places


def _scala_places(names: list[str]) -> dict[str, tuple[int, ...]]:
    """Return each name's place in a Scala 2.13 immutable HashMap; equal hashes have one place."""
    hashes = {name: scala_improved(string_hash(name)) for name in names}
    return {name: _scala_place(own, hashes.values()) for name, own in hashes.items()}


def _scala_place(own: int, hashes: Collection[int]) -> tuple[int, ...]:
    """Return a hash's branch at each level of the table, down to the one that it has for itself.

    Before each branch comes whether others share it: a node's own entries come before everything
    in its sub-nodes.
    """
    place: tuple[int, ...] = ()
    for shift in range(0, _HASH_BITS, _LEVEL_BITS):
        so_far = (1 << shift + _LEVEL_BITS) - 1
        shared = sum((own ^ other) & so_far == 0 for other in hashes) > 1
        place += (shared, own >> shift & 31)
        if not shared:
            break
    return place
