"""Members' lanes of a rehearsal: what each of them owned over time, in so many columns."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from rebal.planner.rehearsal.outcome import Ownership, Rehearsal


class Doing(StrEnum):
    """States of a member in a column; of several the first listed is shown.

    twice: a partition that it owns has another owner too; rejected: the coordinator does not let it
    in; down: its process does not run; idle: it runs and owns nothing; owns.
    """

    TWICE = "twice"
    REJECTED = "rejected"
    DOWN = "down"
    IDLE = "idle"
    OWNS = "owns"


class Stretch(NamedTuple):
    """Columns `start` to `end` (the end not included), and the fewest partitions owned in them."""

    start: int
    end: int
    doing: Doing
    partitions: int


_RANKS: Final = {doing: rank for rank, doing in enumerate(Doing)}
_ALWAYS: Final = (Doing.TWICE, Doing.REJECTED)
_DOWN: Final = ("stopped", "killed", "did not start", "failed as leader", "callback failed")


def lanes(run: Rehearsal, columns: int, *, usual: bool = False) -> dict[str, tuple[Stretch, ...]]:
    """Return each member's stretches, by name in the order of the members.

    The rehearsal must have been run with `keep`. A column shows the worst moment in it, so a short
    stop is seen however long the story is. With `usual` it shows what went on for the longest time,
    for long stories in which every column has a stop; two owners and a rejection show all the same.
    """
    length = max(run.measures.seconds, 1e-9)
    changes = _changes(run)
    return {
        member.name: tuple(
            _squeezed(
                _moments(run, changes.get(member.name, ()), member.name),
                columns,
                length,
                usual=usual,
            )
        )
        for member in run.members
    }


def overlaps(owners: Sequence[Ownership], end: float) -> Iterator[tuple[Ownership, Ownership]]:
    """Yield the pairs of one partition's owners that had it at the same time."""
    if all(one.end is not None and one.end <= other.start for one, other in pairwise(owners)):
        return
    latest: list[Ownership] = []
    for span in sorted(owners, key=lambda one: one.start):
        latest = [one for one in latest if _end(one, end) > span.start]
        for other in latest:
            if other.owner != span.owner:
                yield other, span
        latest.append(span)


def _end(span: Ownership, end: float) -> float:
    return end if span.end is None else span.end


def _changes(run: Rehearsal) -> dict[str, list[tuple[float, int, int]]]:
    """Return by member: when, how many partitions more, how many more with a second owner."""
    end = run.measures.seconds
    # Partitions change hands together: a moment has one entry, however many they are.
    owned: dict[str, dict[float, int]] = defaultdict(lambda: defaultdict(int))
    twice: dict[str, dict[float, int]] = defaultdict(lambda: defaultdict(int))
    for story in run.partitions:
        for span in story.owners:
            of_owner = owned[span.owner]
            of_owner[span.start] += 1
            if span.end is not None:
                of_owner[span.end] -= 1
        for one, other in overlaps(story.owners, end):
            for owner in (one.owner, other.owner):
                twice[owner][other.start] += 1
                twice[owner][min(_end(one, end), _end(other, end))] -= 1
    return {
        name: [
            *((at, more, 0) for at, more in owned[name].items()),
            *((at, 0, more) for at, more in twice[name].items()),
        ]
        for name in list(owned)
    }


def _moments(
    run: Rehearsal, changes: Iterable[tuple[float, int, int]], name: str
) -> Iterator[tuple[float, float, Doing, int]]:
    """Yield from when to when the member did what, and with how many partitions."""
    notes = [
        (note.at, note.what)
        for note in run.notes
        if note.who == name and note.what in (*_DOWN, "started", "rejected")
    ]
    born = not notes or notes[0][1] not in ("started", "did not start")
    timed: list[tuple[float, int, int, str]] = [
        *((at, owned, twice, "") for at, owned, twice in changes),
        *((at, 0, 0, what) for at, what in notes),
    ]
    timed.sort(key=lambda one: one[0])
    owned = twice = 0
    up, rejected = born, False
    stops = [(0.0, 0, 0, ""), *timed, (run.measures.seconds, 0, 0, "")]
    for (at, more, twofold, what), (until, *_) in pairwise(stops):
        owned, twice = owned + more, twice + twofold
        if what:
            up = what in ("started", "rejected")
            rejected = what == "rejected" or (rejected and what != "started")
        if until > at:
            yield at, until, _doing(owned, twice, up=up, rejected=rejected), owned


def _doing(owned: int, twice: int, *, up: bool, rejected: bool) -> Doing:
    if twice:
        return Doing.TWICE
    if owned:
        return Doing.OWNS
    if rejected:
        return Doing.REJECTED
    return Doing.IDLE if up else Doing.DOWN


def _squeezed(
    moments: Iterable[tuple[float, float, Doing, int]], columns: int, length: float, *, usual: bool
) -> Iterator[Stretch]:
    """Yield what each column shows, equal neighbours joined."""
    found: list[dict[tuple[Doing, int], float]] = [{} for _ in range(columns)]
    for at, until, doing, owned in moments:
        first = min(int(at / length * columns), columns - 1)
        last = min(int(max(until / length * columns - 1e-9, first)), columns - 1)
        for column in range(first, last + 1):
            lasts = min(until, (column + 1) * length / columns) - max(at, column * length / columns)
            cell = found[column]
            cell[doing, owned] = cell.get((doing, owned), 0.0) + lasts
    cells = [_usual(cell) if usual else _worst(cell) for cell in found]
    start = 0
    for column in range(1, columns + 1):
        if column == columns or cells[column] != cells[start]:
            yield Stretch(start, column, *cells[start])
            start = column


def _worst(cell: dict[tuple[Doing, int], float]) -> tuple[Doing, int]:
    if not cell:
        return Doing.DOWN, 0
    worst = min((doing for doing, _ in cell), key=_RANKS.__getitem__)
    return worst, min(owned for _, owned in cell)


def _usual(cell: dict[tuple[Doing, int], float]) -> tuple[Doing, int]:
    worst = _worst(cell)
    return worst if worst[0] in _ALWAYS else max(cell, key=cell.__getitem__, default=worst)
