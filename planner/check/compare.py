"""The consumer groups whose next start changes between two versions of a repository."""

import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence
from functools import cache
from operator import itemgetter
from typing import Final, TypeAlias

from rebal.groups.model import GroupSnapshot, Record
from rebal.planner.check.starts import LIST, Start, aspects, snapshot_of

_ABSENT: Final = "not declared"
# A way to know a consumer in both versions, by its number, and what it comes to.
_Sign: TypeAlias = tuple[int, Hashable]
# Behind these, a sign counts where one consumer alone has it on each side.
_SURE: Final = 6


class StartChange(Record, frozen=True, kw_only=True):
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

    @property
    def ran(self) -> Start | None:
        """Return its start before in the group that it starts in."""
        groups = {one.declared.group_id for one in (self.before, self.start) if one is not None}
        return self.before if len(groups) == 1 else None

    def changes(self) -> Iterator[StartChange]:
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
            by_default = what == LIST and not self.start.writes_list
            named = (by_default or what in ("library", "product")) and self.start.library.where
            yield StartChange(
                what=what,
                before=was[what],
                after=now[what],
                file=named or self.start.file,
                line=self.start.library.line if named else 0,
            )


class GroupWorld(Record, frozen=True, kw_only=True):
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
        return [pair.ran for pair in self.pairs if pair.ran is not None]

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
        pairs = ((pair.ran, pair.start, pair.gone) for pair in self.changed)
        return [(one, two) for one, two, gone in pairs if one is not None and not gone]

    def planned(self, copies: int = 2) -> GroupSnapshot:
        """Return the group before the change, with the later declarations as its next starts.

        Where the library stays, its members have the later version: that is what a plan brings.
        """
        laters = [None if one.gone else one.start for one in self.pairs if one.ran is not None]
        return snapshot_of(self.befores, laters, copies)

    @property
    def is_version_alone(self) -> bool:
        """Return whether only the version of a library changes, of which no file names a consumer:
        it may be a producer's, or be inherited by a project that has none.
        """
        what = {change.what for pair in self.pairs for change in pair.changes()}
        same = all(one.same_client(two) for one, two in self.both)
        return self.group_id is None and same and what <= {"library", "product"}


def worlds(before: Sequence[Start], after: Sequence[Start]) -> Iterator[GroupWorld]:
    """Yield each group with a change, once for each profile that changes it in its own way."""
    found: dict[tuple[Pair, ...], GroupWorld] = {}
    for profile in dict.fromkeys([None, *(start.declared.profile for start in (*before, *after))]):
        active = f" (profile {profile})" if profile else ""
        groups: dict[str | Pair, list[Pair]] = defaultdict(list)
        for pair in pairs_of(of_profile(before, profile), of_profile(after, profile)):
            # Consumers whose groups no file names may be of different ones.
            groups[pair.start.declared.group_id or pair].append(pair)
        for pairs in groups.values():
            start = pairs[0].start
            name = (start.declared.group_id or f"the groups of {start.folder}") + active
            world = GroupWorld(group_id=start.declared.group_id, name=name, pairs=tuple(pairs))
            found.setdefault(world.changed, world)
    return (world for changed, world in found.items() if changed)


def of_profile(starts: Sequence[Start], profile: str | None) -> list[Start]:
    """Return the starts while `profile` is active: its own replace those of their group in the same
    base; where that has none of the group, the first one, which then joins another group.
    """
    own = [one for one in starts if one.declared.profile == profile]
    plain = [one for one in starts if one.declared.profile is None and profile is not None]
    replaced = set[Start]()
    for new in own if plain else ():
        base = [one for one in plain if one.configured and _base(one.file) == _base(new.file)]
        same = [one for one in base if one.declared.group_id == new.declared.group_id]
        others = [one for one in base if one.client == new.client and one not in replaced]
        replaced.update(same or others[:1])
    return [*own, *(one for one in plain if one not in replaced)]


def pairs_of(before: Sequence[Start], after: Sequence[Start]) -> tuple[Pair, ...]:
    """Return the starts in pairs: those of one group by their signs, or the only ones left of it on
    both sides; then, of a group that comes, those of a place or a file that has another name.
    """
    groups = {_group(one) for one in before}
    ran, come = ({(_group(one), one.client) for one in each} for each in (before, after))
    by_sign: dict[_Sign, tuple[list[Start], list[Start]]] = defaultdict(lambda: ([], []))
    for side, starts in enumerate((before, after)):
        for one in starts:
            moves = side == 0 or _group(one) not in groups
            for sign in _signs(one, ran & come, moves=moves, new=side == 1):
                by_sign[sign][side].append(one)
    left, right, pairs = dict.fromkeys(before), dict.fromkeys(after), list[Pair]()
    for sign in sorted(by_sign, key=itemgetter(0)):
        olds, news = (
            [one for one in each if one in still]
            for each, still in zip(by_sign[sign], (left, right), strict=True)
        )
        if sign[0] < _SURE or len(olds) == len(news) == 1:
            for old, new in zip(olds, news, strict=False):
                pairs.append(Pair(before=old, start=new))
                del left[old], right[new]
    gone = (Pair(before=one, start=one, gone=True) for one in left)
    return (*pairs, *gone, *(Pair(start=one) for one in right))


def _signs(one: Start, stay: Collection[object], *, moves: bool, new: bool) -> Iterator[_Sign]:
    """Yield the signs by which a consumer is known in both versions, the surest first.

    A manifest may name several libraries: the clients that both versions name in a group `stay`,
    and are not swapped for others. `moves`: the other version may have it in another group. A
    profile that comes takes the place of its base, and leaves it to that. A folder that was moved
    keeps its name as a rule, or else its files'. `new`: it is of the later version.
    """
    group, client, where = _group(one), one.client, one.declared.where
    own = one.declared.client_id, one.declared.instance_id
    swaps = one.configured or (group, client) not in stay
    last, both = ((*one.file.split("/")[-names:],) for names in (1, 2))
    rows = (
        (one.library.product, (group, where, one.library.product)),
        (True, (group, where, client)),
        (swaps, (group, where)),
        (any(own), (group, *own)),
        (one.configured, (group, _base(one.file))),
        (not one.configured, (group, client)),
        (swaps, group),
        (moves, (where, client)),
        (moves, where),
        (
            moves and one.configured,
            (client, _base(one.file), new is (one.declared.profile is None)),
        ),
        *(
            (moves and group[0] is None, key)
            for key in ((both, client), both, (last, client), last)
        ),
    )
    return ((number, key) for number, (holds, key) in enumerate(rows) if holds)


def _group(one: Start) -> tuple[str | None, str]:
    """Return the group, or the folder of one whose group no file names."""
    group_id = one.declared.group_id
    return group_id, "" if group_id is not None else one.folder


@cache
def _base(file: str) -> str:
    """Return the beginning that the file's name has in common with those of its profiles."""
    return re.sub(r"[-.][^/]*\Z", "", file)
