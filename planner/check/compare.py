"""The consumer groups whose next start changes between two versions of a repository."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from rebal.groups.model import Record
from rebal.planner.check.starts import Start, aspects, is_unset, of_profile, profiles

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

    @property
    def same_list(self) -> bool:
        """Return whether the assignor list and the rebalance protocol's kind stay as they are."""
        one, two = self.before, self.after
        return one is not None and two is not None and _list(one) == _list(two)

    @property
    def is_swap(self) -> bool:
        """Return whether another client takes the place of this one."""
        one, two = self.before, self.after
        return one is not None and two is not None and not one.same_client(two)

    @property
    def is_named_first(self) -> bool:
        """Return whether a file names the library now, and only settings showed it before."""
        one, two = self.before, self.after
        if one is None or two is None:
            return False
        return one.library is None and two.library is not None

    @property
    def is_move(self) -> bool:
        """Return whether one client moves from one known assignor list, or protocol, to another."""
        one, two = self.before, self.after
        if one is None or two is None or self.same_list or self.is_swap:
            return False
        return not any(map(is_unset, (*one.names, *two.names)))


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
    def name(self) -> str:
        """Return the group's name for texts."""
        return self.group_id or f"the groups of {self.folder}"

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


def worlds(before: Sequence[Start], after: Sequence[Start]) -> Iterator[World]:
    """Yield each group with a change, once for each profile that changes it in its own way."""
    one, two = _by_key(before), _by_key(after)
    for old, new in _renamed(one, two):
        one.setdefault(new, []).extend(one.pop(old, []))
    for group_id, folder in dict.fromkeys([*one, *two]):
        mine, theirs = one.get((group_id, folder), []), two.get((group_id, folder), [])
        met: list[tuple[Pair, ...]] = []
        for profile in profiles(mine, theirs):
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
    left, right = list(before), list(after)
    stay = {start.client for start in before} & {start.client for start in after}

    def place(start: Start) -> str | None:
        return None if start.declared is None and start.client in stay else start.where

    pairs: list[Pair] = []
    for key in (_product, _client, place, _ids, _file, _alone):
        for start in list(right):
            mine = key(start)
            other = next((one for one in left if mine is not None and key(one) == mine), None)
            if other is not None:
                left.remove(other)
                right.remove(start)
                pairs.append(Pair(before=other, after=start))
    if len(left) == len(right) == 1 and place(left[0]) and place(right[0]):
        return (*pairs, Pair(before=left[0], after=right[0]))
    return (*pairs, *(Pair(before=one) for one in left), *(Pair(after=one) for one in right))


def _product(start: Start) -> tuple[str, str] | None:
    library = start.library
    return (start.where, library.product) if library is not None and library.product else None


def _client(start: Start) -> tuple[str, str | None]:
    return start.where, start.client


def _file(start: Start) -> str | None:
    return start.file if start.declared is not None else None


def _alone(start: Start) -> str | None:
    """Return the client of a manifest: a lock file may give its version, or give it no more."""
    return start.client if start.declared is None else None


def _ids(start: Start) -> tuple[str | None, str | None] | None:
    declared = start.declared
    found = (declared.client_id, declared.instance_id) if declared is not None else (None, None)
    return None if found == (None, None) else found


def _key(start: Start) -> _Key:
    return (start.group_id, "" if start.group_id is not None else start.folder)


def _by_key(starts: Sequence[Start]) -> dict[_Key, list[Start]]:
    found: dict[_Key, list[Start]] = {}
    for start in starts:
        found.setdefault(_key(start), []).append(start)
    return found


def _renamed(
    before: Mapping[_Key, Sequence[Start]], after: Mapping[_Key, Sequence[Start]]
) -> Iterator[tuple[_Key, _Key]]:
    """Yield the groups that one version alone has, and that the same place declares."""
    gone = {start.where: key for key in before.keys() - after.keys() for start in before[key]}
    for key in sorted(after.keys() - before.keys(), key=str):
        old = next((gone[start.where] for start in after[key] if start.where in gone), None)
        if old is not None:
            yield old, key
    left, came = _own_files(before, after), _own_files(after, before)
    for name in sorted(left.keys() & came.keys()):
        yield left[name], came[name]


def _own_files(
    found: Mapping[_Key, Sequence[Start]], other: Mapping[_Key, Sequence[Start]]
) -> dict[str, _Key]:
    """Return the folders that one version alone has, where no file names the group, by the name of
    a file that is in one of them only: such a folder was moved.
    """
    folders = [key for key in found.keys() - other.keys() if key[0] is None]
    names = {(start.file.rpartition("/")[2], key) for key in folders for start in found[key]}
    count = Counter(name for name, _ in names)
    return {name: key for name, key in names if count[name] == 1}


def _list(start: Start) -> tuple[str | None, tuple[str, ...]]:
    return start.protocol, start.names


def _changes(pair: Pair) -> Iterator[Changed]:
    one, two = pair.before, pair.after
    if one is None or two is None:
        shown = pair.start.list_text
        texts = (_ABSENT, shown) if one is None else (shown, _ABSENT)
        yield _changed(pair.start, "consumer", *texts)
        return
    if _list(one) != _list(two):
        yield _changed(two, LIST, one.list_text, two.list_text)
    was, now = dict(aspects(one)), dict(aspects(two))
    for what in dict.fromkeys([*was, *now]):
        if was.get(what) != now.get(what):
            yield _changed(two, what, was.get(what, _ABSENT), now.get(what, _ABSENT))


def _changed(start: Start, what: str, before: str, after: str) -> Changed:
    library = start.library
    by_library = what in ("library", "product") or (what == LIST and not start.writes_list)
    named = library.where if library is not None and by_library else start.file
    file, colon, line = named.rpartition(":")
    at = {"file": file, "line": int(line)} if colon and line.isdigit() else {"file": named}
    return Changed(what=what, before=before, after=after, **at)
