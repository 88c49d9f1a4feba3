"""The consumer groups whose next start changes between two versions of a repository."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from rebal.groups.model import Record
from rebal.planner.check.starts import Start, aspects, of_profile

LIST: Final = "assignor list"
_ABSENT: Final = "not declared"
_Key: TypeAlias = tuple[str | None, str]


class Changed(Record, frozen=True, kw_only=True):
    """One change of a consumer's next start; `file` and `line` (0: not known) are where it is."""

    what: str
    before: str
    after: str
    file: str
    line: int = 0


class Pair(Record, frozen=True, kw_only=True):
    """One consumer before and after; None where only one version declares it."""

    before: Start | None = None
    after: Start | None = None

    @property
    def start(self) -> Start:
        """Return the later of its starts."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def changes(self) -> tuple[Changed, ...]:
        """Return what changes, the assignor list first."""
        return tuple(_changes(self))


class World(Record, frozen=True, kw_only=True):
    """The consumers of one group that run at the same time.

    `group_id` is None for the groups of a folder that no configuration file names. `profile` is
    the Spring profile that is active (None: none).
    """

    group_id: str | None
    folder: str
    pairs: tuple[Pair, ...]
    profile: str | None = None

    @property
    def befores(self) -> list[Start]:
        """Return what its consumers run before the change."""
        return [pair.before for pair in self.pairs if pair.before is not None]

    @property
    def afters(self) -> list[Start]:
        """Return what its consumers run behind the change."""
        return [pair.after for pair in self.pairs if pair.after is not None]

    @property
    def changed(self) -> tuple[Pair, ...]:
        """Return the consumers whose next start changes."""
        return tuple(pair for pair in self.pairs if pair.changes)

    @property
    def both(self) -> tuple[tuple[Start, Start], ...]:
        """Return the consumers whose next start changes and that both versions have."""
        starts = ((pair.before, pair.after) for pair in self.changed)
        return tuple((one, two) for one, two in starts if one is not None and two is not None)

    @property
    def is_version_alone(self) -> bool:
        """Return whether only the version of a library changes, of which no file names a consumer:
        it may be a producer's, or be inherited by a project that has none.
        """
        what = {change.what for pair in self.changed for change in pair.changes}
        same = all(one.same_client(two) for one, two in self.both)
        return self.group_id is None and same and what <= {"library", "product"}


def worlds(before: Sequence[Start], after: Sequence[Start]) -> Iterator[World]:
    """Yield each group with a change, once for each profile that changes it in its own way."""
    one, two = _by_key(before), _by_key(after)
    for old, new in _renamed(one, two):
        one.setdefault(new, []).extend(one.pop(old, []))
    places, bases = {start.where for start in before}, dict[tuple[object, str], list[Start]]()
    for start in (each for each in before if each.configured and each.profile is None):
        bases.setdefault((start.client, _base(start)), []).append(start)
    for came in (each for each in after if each.profile and each.where not in places):
        # With a profile that comes, the base's consumer may take another group's name.
        base = bases.get((came.client, _base(came)), [])
        if base and came.group_id and all(each.group_id != came.group_id for each in base):
            one.setdefault((came.group_id, ""), []).append(replace(base[0], where=came.where))
    for group_id, folder in dict.fromkeys([*one, *two]):
        mine, theirs = one.get((group_id, folder), []), two.get((group_id, folder), [])
        met: list[tuple[Pair, ...]] = []
        for profile in dict.fromkeys([None, *(start.profile for start in (*mine, *theirs))]):
            pairs = pairs_of(of_profile(mine, profile), of_profile(theirs, profile))
            # Consumers whose groups no file names may be of different ones.
            for together in [pairs] if group_id is not None else [(pair,) for pair in pairs]:
                world = World(group_id=group_id, folder=folder, pairs=together, profile=profile)
                if world.changed and world.changed not in met:
                    met.append(world.changed)
                    yield world


def pairs_of(before: Sequence[Start], after: Sequence[Start]) -> tuple[Pair, ...]:
    """Return the starts of one group in pairs: of one product, of one place, of one client, or the
    only ones left on both sides.

    A manifest may name several libraries. One that both versions name is not swapped for another.
    """
    stay = {start.client for start in before} & {start.client for start in after}
    left, right = ([(one, _signs(one, stay)) for one in side] for side in (before, after))
    pairs: list[Pair] = []
    for sign in _Signs._fields:
        for new in list(right):
            own = getattr(new[1], sign)
            same = (one for one in left if own is not None and getattr(one[1], sign) == own)
            old = next(same, None)
            if old is not None:
                left.remove(old)
                right.remove(new)
                pairs.append(Pair(before=old[0], after=new[0]))
    rest = [*left, *right]
    if len(left) == len(right) == 1 and all(signs.place is not None for _, signs in rest):
        return (*pairs, Pair(before=left[0][0], after=right[0][0]))
    return (*pairs, *(Pair(before=one) for one, _ in left), *(Pair(after=one) for one, _ in right))


class _Signs(NamedTuple):
    """The signs by which a consumer is known in both versions, the surest first; None: it has none.

    The client of a manifest counts: a lock file may give its version, or give it no more.
    """

    product: object
    client: object
    place: object
    ids: object
    file: object
    manifest: object


def _signs(start: Start, stay: Collection[str | None]) -> _Signs:
    ids = start.declared.client_id, start.declared.instance_id
    return _Signs(
        product=(start.where, start.library.product) if start.library.product else None,
        client=(start.where, start.client),
        place=start.where if start.configured or start.client not in stay else None,
        ids=None if ids == (None, None) else ids,
        file=_base(start) if start.configured else None,
        manifest=None if start.configured else start.client,
    )


def _base(start: Start) -> str:
    """Return the beginning that the file's name has in common with those of its profiles."""
    return re.sub(r"[-.][^/]*\Z", "", start.file)


def _by_key(starts: Sequence[Start]) -> dict[_Key, list[Start]]:
    found: dict[_Key, list[Start]] = {}
    for start in starts:
        folder = "" if start.group_id is not None else start.folder
        found.setdefault((start.group_id, folder), []).append(start)
    return found


def _renamed(
    before: Mapping[_Key, Sequence[Start]], after: Mapping[_Key, Sequence[Start]]
) -> Iterator[tuple[_Key, _Key]]:
    """Yield the groups that one version alone has, and that the same place declares."""
    gone = {start.where: key for key in before if key not in after for start in before[key]}
    for key in sorted(after.keys() - before.keys(), key=str):
        old = next((gone[start.where] for start in after[key] if start.where in gone), None)
        if old is not None:
            yield old, key
    # A folder that was moved keeps its name as a rule, or else its files'.
    for depth in (2, 1):
        left, came = _own_files(before, after, depth), _own_files(after, before, depth)
        for name in sorted(left.keys() & came.keys()):
            yield left[name], came[name]


def _own_files(
    found: Mapping[_Key, Sequence[Start]], other: Mapping[_Key, Sequence[Start]], depth: int
) -> dict[tuple[str, ...], _Key]:
    """Return the folders that one version alone has, where no file names the group, by the last
    names of a file's path that no other of them has.
    """
    folders = [key for key in found.keys() - other.keys() if key[0] is None]
    files = ((start.file.split("/"), key) for key in folders for start in found[key])
    names = {(tuple(parts[-depth:]), key) for parts, key in files}
    count = Counter(name for name, _ in names)
    return {name: key for name, key in names if count[name] == 1}


def _changes(pair: Pair) -> Iterator[Changed]:
    one, two = pair.before, pair.after
    if one is None or two is None:
        shown = pair.start.list_text
        texts = (_ABSENT, shown) if one is None else (shown, _ABSENT)
        yield _changed(pair.start, "consumer", *texts)
        return
    if not one.same_list(two) and one.list_text != two.list_text:
        yield _changed(two, LIST, one.list_text, two.list_text)
    was, now = aspects(one), aspects(two)
    yield from (_changed(two, what, was[what], now[what]) for what in was if was[what] != now[what])


def _changed(start: Start, what: str, before: str, after: str) -> Changed:
    by_library = what in ("library", "product") or (what == LIST and not start.writes_list)
    named = (start.library.where if by_library else "") or start.file
    file, colon, line = named.rpartition(":")
    at = {"file": file, "line": int(line)} if colon and line.isdigit() else {"file": named}
    return Changed(what=what, before=before, after=after, **at)
