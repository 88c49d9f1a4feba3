"""The consumer groups whose next start changes between two versions of a repository."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot, Record
from rebal.planner.check.starts import LIST, Start, aspects, of_profile, snapshot_of

_ABSENT: Final = "not declared"
_AT_LINE: Final = re.compile(r":(\d+)\Z")
_Key: TypeAlias = tuple[str | None, str]
_Clients: TypeAlias = Collection[str | None]
_Groups: TypeAlias = Mapping[_Key, Sequence[Start]]


class Changed(Record, frozen=True, kw_only=True):
    """One change of a consumer's next start; `file` and `line` (0: not known) are where it is."""

    what: str
    before: str
    after: str
    file: str
    line: int = 0


class Pair(Record, frozen=True, kw_only=True):
    """One consumer: its start, and the one before (None: only the later version declares it).

    `gone`: only the earlier version declares it, with this start.
    """

    start: Start
    before: Start | None = None
    gone: bool = False

    def changes(self) -> Iterator[Changed]:
        """Yield what changes, the assignor list first."""
        if self.before is None:
            was, now = {"consumer": _ABSENT}, {"consumer": self.start.list_text}
        elif self.gone:
            was, now = {"consumer": self.start.list_text}, {"consumer": _ABSENT}
        else:
            was, now = aspects(self.before), aspects(self.start)
            if self.before.same_list(self.start):
                del was[LIST]
        for what in (each for each in was if was[each] != now[each]):
            unwritten = [LIST] if not self.start.writes_list else []
            by_library = what in ("library", "product", *unwritten)
            named = (self.start.library.where if by_library else "") or self.start.file
            at = _AT_LINE.search(named)
            yield Changed(
                what=what,
                before=was[what],
                after=now[what],
                file=_AT_LINE.sub("", named),
                line=int(at[1]) if at else 0,
            )


class World(Record, frozen=True, kw_only=True):
    """The consumers of one group that run at the same time.

    `group_id` is None for the groups of a folder that no configuration file names; `name` is the
    group in words, with the Spring profile that is active.
    """

    group_id: str | None
    name: str
    pairs: tuple[Pair, ...]

    @property
    def befores(self) -> list[Start]:
        """Return what its consumers run before the change."""
        return [pair.before for pair in self.pairs if pair.before is not None]

    @property
    def afters(self) -> list[Start]:
        """Return what its consumers run behind the change."""
        return [pair.start for pair in self.pairs if not pair.gone]

    @property
    def changed(self) -> tuple[Pair, ...]:
        """Return the consumers whose next start changes."""
        return tuple(pair for pair in self.pairs if any(pair.changes()))

    @property
    def both(self) -> list[tuple[Start, Start]]:
        """Return the consumers whose next start changes and that both versions have."""
        pairs = ((pair.before, pair.start, pair.gone) for pair in self.changed)
        return [(one, two) for one, two, gone in pairs if one is not None and not gone]

    def planned(self, copies: int = 2) -> GroupSnapshot:
        """Return the group before the change, with the later declarations as its next starts.

        Where the library stays, its members have the later version: that is what a plan brings.
        """
        laters = [None if one.gone else one.start for one in self.pairs if one.before is not None]
        return snapshot_of(self.befores, laters, copies)

    @property
    def is_version_alone(self) -> bool:
        """Return whether only the version of a library changes, of which no file names a consumer:
        it may be a producer's, or be inherited by a project that has none.
        """
        what = {change.what for pair in self.pairs for change in pair.changes()}
        same = all(one.same_client(two) for one, two in self.both)
        return self.group_id is None and same and what <= {"library", "product"}


def worlds(before: Sequence[Start], after: Sequence[Start]) -> Iterator[World]:
    """Yield each group with a change, once for each profile that changes it in its own way."""
    one, two = _by_key(before), _by_key(after)
    for old, new in _renamed(one, two):
        one.setdefault(new, []).extend(one.pop(old, []))
    plain = (each for each in before if each.configured and each.profile is None)
    known = {(each.client, _base(each)): each for each in reversed([*plain])}
    places = {start.where for start in before}
    bases = {
        came.where: replace(base, where=came.where)
        for came in after
        for base in [known.get((came.client, _base(came)))]
        if came.profile and came.declared.group_id and came.where not in places
        if base is not None and base.declared.group_id != came.declared.group_id
    }
    found: dict[tuple[Pair, ...], World] = {}
    for group_id, folder in dict.fromkeys([*one, *two]):
        mine, theirs = one.get((group_id, folder), []), two.get((group_id, folder), [])
        for profile in dict.fromkeys([None, *(start.profile for start in (*mine, *theirs))]):
            active = f" (profile {profile})" if profile else ""
            pairs = pairs_of(of_profile(mine, profile), of_profile(theirs, profile), bases)
            # Consumers whose groups no file names may be of different ones.
            for together in [pairs] if group_id is not None else [(pair,) for pair in pairs]:
                name = (group_id or f"the groups of {folder}") + active
                world = World(group_id=group_id, name=name, pairs=together)
                found.setdefault(world.changed, world)
    return (world for changed, world in found.items() if changed)


def _stays(start: Start, stay: _Clients) -> bool:
    """Return whether it is of a manifest, and both versions name its client there."""
    return not start.configured and start.client in stay


# The signs by which a consumer is known in both versions, the surest first; None: it has none. The
# client of a manifest counts: a lock file may give its version, or give it no more.
_SIGNS: Final[tuple[Callable[[Start, _Clients], object], ...]] = (
    lambda one, _: (one.where, one.library.product) if one.library.product else None,
    lambda one, _: (one.where, one.client),
    lambda one, stay: None if _stays(one, stay) else one.where,
    lambda one, _: (
        (one.declared.client_id, one.declared.instance_id)
        if one.declared.client_id or one.declared.instance_id
        else None
    ),
    lambda one, _: _base(one) if one.configured else None,
    lambda one, _: None if one.configured else one.client,
)


def pairs_of(
    before: Sequence[Start], after: Sequence[Start], bases: Mapping[str, Start]
) -> tuple[Pair, ...]:
    """Return the starts of one group in pairs: of one product, of one place, of one client, or the
    only ones left on both sides.

    A manifest may name several libraries. One that both versions name is not swapped for another.
    With a profile that comes, the base's consumer may take another group's name: `bases` are the
    starts before such ones, by place.
    """
    stay = {start.client for start in before} & {start.client for start in after}
    left, right, pairs = list(before), list(after), list[Pair]()
    for sign in _SIGNS:
        for new in list(right):
            own = sign(new, stay)
            old = next((one for one in left if own is not None and sign(one, stay) == own), None)
            if old is not None:
                left.remove(old)
                right.remove(new)
                pairs.append(Pair(before=old, start=new))
    if len(left) == len(right) == 1 and not any(_stays(one, stay) for one in (*left, *right)):
        return (*pairs, Pair(before=left[0], start=right[0]))
    pairs += (Pair(before=one, start=one, gone=True) for one in left)
    return (*pairs, *(Pair(before=bases.get(one.where), start=one) for one in right))


def _base(start: Start) -> str:
    """Return the beginning that the file's name has in common with those of its profiles."""
    return re.sub(r"[-.][^/]*\Z", "", start.file)


def _by_key(starts: Sequence[Start]) -> dict[_Key, list[Start]]:
    found: dict[_Key, list[Start]] = {}
    for start in starts:
        folder = "" if start.declared.group_id is not None else start.folder
        found.setdefault((start.declared.group_id, folder), []).append(start)
    return found


def _renamed(before: _Groups, after: _Groups) -> Iterator[tuple[_Key, _Key]]:
    """Yield the groups that one version alone has, and that the same place declares; a folder that
    was moved keeps its name as a rule, or else its files'.
    """
    for names in (0, 2, 1):
        left, came = _own(before, after, names), _own(after, before, names)
        met = ((left[name], came[name]) for name in sorted(left.keys() & came.keys()))
        yield from sorted(met, key=lambda keys: str(keys[1]))


def _own(found: _Groups, other: _Groups, names: int) -> dict[tuple[str, ...], _Key]:
    """Return the groups that one version alone has, by what no other of them has: a place, or the
    last `names` of a file's path where no file names the group.
    """
    alone = [key for key in found.keys() - other.keys() if key[0] is None or not names]
    starts = ((start, key) for key in alone for start in found[key])
    signs = {
        ((*start.file.split("/")[-names:],) if names else (start.where,), key)
        for start, key in starts
    }
    count = Counter(sign for sign, _ in signs)
    return {sign: key for sign, key in signs if count[sign] == 1}
