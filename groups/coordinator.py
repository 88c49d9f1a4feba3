"""The group coordinator: its vote on the assignor, and the assignor lists it holds after a load.

Candidates are the assignors that every member's assignor list contains. Each member votes for the
first candidate of its list, and the candidate with the most votes wins. A tie goes to the name that
comes first in the coordinator's own table of votes, and so by the names' hashes: a
`java.util.HashMap` in the Java coordinator (4.x, ClassicGroup.selectProtocol) and Scala 2.13's
immutable HashMap in the Scala one (before 4.0, GroupMetadata.selectProtocol; builds for Scala 2.12
are treated alike). If that order depends on the member ids too (names with colliding hashes), the
tie is left open.

A coordinator that has loaded a group from `__consumer_offsets` holds only the elected assignor of
each member's list, because the record stores no other. In the next rebalance the members send their
full lists again. A static member that is down at that time does not: the coordinator keeps the
loaded list until the member's session expires, and the session timer restarts with each rebalance
(KIP-345; the coordinator's `onCompleteJoin` removes dynamic members only).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final

from rebal.groups.jvmhash import scala_improved, string_hash
from rebal.groups.model import CoordinatorKind, GroupSnapshot, Member, Record, Tri

_TREE_BIN: Final = 8
_LEVEL_BITS: Final = 5


class Vote(Record, frozen=True, kw_only=True):
    """Result of the coordinator's vote on the assignor.

    `assignor` is None when no assignor is in every list (the join is rejected, error 23) or when a
    tie cannot be decided. `candidates` are the assignors in every list, sorted by name; `votes` is
    candidate → number of votes; `tie` is True if several candidates had the most votes, even if the
    tie was decided.
    """

    assignor: str | None
    candidates: tuple[str, ...]
    votes: Mapping[str, int]
    tie: bool = False


def candidates(lists: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the assignors that every assignor list contains, sorted by name; empty if no lists."""
    return tuple(sorted(set(lists[0]).intersection(*lists[1:]))) if lists else ()


def elect(lists: Sequence[Sequence[str]], kind: CoordinatorKind) -> Vote:
    """Return the result of the vote, given the exact assignor list of each member.

    `kind` decides ties, because the Java and the Scala coordinator order candidates differently.
    """
    if not (able := candidates(lists)):
        return Vote(assignor=None, candidates=(), votes={})
    counts = Counter(next(name for name in names if name in able) for names in lists)
    votes = dict(sorted(counts.items()))
    leading = [name for name, count in votes.items() if count == max(votes.values())]
    winner = leading[0] if len(leading) == 1 else _first(leading, list(votes), kind)
    return Vote(assignor=winner, candidates=able, votes=votes, tie=len(leading) > 1)


def _first(leading: list[str], voted: list[str], kind: CoordinatorKind) -> str | None:
    places = _java_places(voted) if kind is CoordinatorKind.JAVA else None
    if kind is CoordinatorKind.SCALA:
        # Names of one hash have one place there.
        hashes = {name: scala_improved(string_hash(name)) for name in voted}
        places = {name: _scala_place(own, hashes.values()) for name, own in hashes.items()}
    if places is None:
        return None
    first, second, *_ = sorted(leading, key=places.__getitem__)
    return first if places[first] != places[second] else None


def _java_places(names: list[str]) -> Mapping[str, tuple[int, ...]] | None:
    """Return each name's bucket index in a `java.util.HashMap` with the keys `names`.

    None when a bucket is so full that the map would resize or turn it into a tree.
    """
    capacity = 16
    while len(names) > capacity * 3 // 4:
        capacity *= 2
    hashes = map(string_hash, names)
    places = {n: ((h ^ h >> 16) & (capacity - 1),) for n, h in zip(names, hashes, strict=True)}
    return None if max(Counter(places.values()).values()) >= _TREE_BIN else places


def _scala_place(own: int, hashes: Collection[int]) -> tuple[int, ...]:
    """Return a sort key for the iteration order of Scala's immutable HashMap (a trie).

    `own` is the key's hash, `hashes` are those of all keys. For each level down to the branch that
    no other hash shares, the sort key has two items: whether another hash shares the branch, and
    the branch number. Unshared branches sort first, because a node's own entries come before its
    sub-nodes.
    """
    place: tuple[int, ...] = ()
    for shift in range(0, 32, _LEVEL_BITS):
        so_far = (1 << shift + _LEVEL_BITS) - 1
        shared = sum((own ^ other) & so_far == 0 for other in hashes) > 1
        place += (shared, own >> shift & 31)
        if not shared:
            break
    return place


CLOCKS: Final = timedelta(seconds=5)
"""Tolerance for the difference of two machines' clocks."""


def has_whole_lists(snapshot: GroupSnapshot) -> bool:
    """Return whether the coordinator certainly holds every member's full assignor list.

    If it does not, the probe's answer that not every list contains an assignor proves nothing: the
    coordinator may hold only the elected assignor of a member's list.
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
    """Return whether it is certain that no coordinator has ever loaded the group.

    True if the group's partition of `__consumer_offsets` has leader epoch 0, so that its first
    leader still coordinates the group, and a rebalance has completed.
    """
    main = snapshot.group.coordinator
    return main is not None and main.leader_epoch == 0 and main.rebalanced_since_load is Tri.YES


def joined_since_load(snapshot: GroupSnapshot, member: Member) -> bool:
    """Return whether a log shows an accepted join of the member since the coordinator's last load.

    The join must be more than 5 s later than the load, because the clocks of two machines may
    differ.
    """
    coordinator = snapshot.group.coordinator
    loaded = coordinator.loaded_at if coordinator is not None else None
    # A client's own log may date its join, by another machine's clock.
    return (
        loaded is not None and member.joined_at is not None and member.joined_at > loaded + CLOCKS
    )


def _outlasts(snapshot: GroupSnapshot, member: Member) -> bool:
    session = member.timeouts.session_ms if member.timeouts is not None else None
    began = snapshot.group.generation_at
    if session is None or began is None or not snapshot.clock_compared:
        return False
    return snapshot.captured_at - began > timedelta(milliseconds=session) + CLOCKS
