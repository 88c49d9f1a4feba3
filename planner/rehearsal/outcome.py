"""Outcome of a rehearsal: times, rebalances, owners of partitions, members' metrics and lanes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from rebal.groups.model import Record
from rebal.planner.rehearsal.engine.ledger import Measures, Note, Ownership, Rebalance

__all__ = [
    "CallbackTimes",
    "Distribution",
    "Measures",
    "MemberStory",
    "Note",
    "Ownership",
    "PartitionStory",
    "Phase",
    "Range",
    "Rebalance",
    "Rehearsal",
    "Sampled",
    "endangered",
]

_OUT: Final = ("did not start", "failed as leader", "callback failed")
# Seconds: two sums of the same spans may differ by less.
_ROUNDING: Final = 1e-6


class Phase(Record, frozen=True, kw_only=True):
    """One part of the story; `began` in seconds since the start."""

    name: str
    began: float
    measures: Measures


class PartitionStory(Record, frozen=True, kw_only=True):
    """One partition: how long it had no owner, in all and at the longest, and who had it when."""

    topic: str
    partition: int
    unowned: float
    longest: float
    owners: tuple[Ownership, ...] = ()


class CallbackTimes(Record, frozen=True, kw_only=True):
    """KIP-429's latencies of one callback in seconds: average and longest over `count` calls."""

    count: int
    average: float
    longest: float


class MemberStory(Record, frozen=True, kw_only=True):
    """One member at the end, and KIP-429's metrics of its process that ran last.

    `state` is running, rejected or stopped (no process runs), `protocol` its rebalance protocol
    (not modelled: where its assignor is not). `owned` are its partitions. The metrics are
    rebalance-total, rebalance-rate-per-hour, rebalance-latency (average, maximum, total), the
    failed ones, last-rebalance-seconds-ago (None: never), and the callbacks' latencies.
    """

    name: str
    state: str
    protocol: str
    owned: int
    rebalance_total: int
    rebalance_rate_per_hour: float
    rebalance_latency_avg: float
    rebalance_latency_max: float
    rebalance_latency_total: float
    failed_rebalance_total: int
    failed_rebalance_rate_per_hour: float
    last_rebalance_seconds_ago: float | None
    revoked: CallbackTimes
    assigned: CallbackTimes
    lost: CallbackTimes


class Sampled(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The number of restarts of a large group that were rehearsed, one of each kind, and of all.

    A batch counts as one restart.
    """

    rehearsed: int
    restarts: int


class Rehearsal(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A whole story as it would go, by one seed.

    Where `sampled` is not None one restart of each kind counts for the others: the measures are
    about right, `notes` are those of the restarts that were rehearsed, and rebalances, partitions
    and members are not listed.

    `at_rest` says whether the group came to rest at the end. `unit` is what members own: partition,
    task (of Connect workers: a connector counts as a task), or none where it is not modelled.
    """

    about: str
    seed: int
    at_rest: bool
    state: str
    assignor: str | None
    measures: Measures
    phases: tuple[Phase, ...] = ()
    rebalances: tuple[Rebalance, ...] = ()
    notes: tuple[Note, ...] = ()
    partitions: tuple[PartitionStory, ...] = ()
    members: tuple[MemberStory, ...] = ()
    assumes: tuple[str, ...] = ()
    unit: str = "partition"
    sampled: Sampled | None = None


def endangered(run: Rehearsal) -> bool:
    """Return whether a client is kept out or ends by an error, or a partition is owned twice.

    A member past its session or poll timeout that has not polled since does not count: Java gives
    up what it owns at the next poll.
    """
    out = run.measures.rejected > 0 or any(note.what in _OUT for note in run.notes)
    return out or run.measures.twice - run.measures.twice_past > _ROUNDING


class Range(Record, frozen=True, kw_only=True):
    """One figure over several seeds: the median, and the values that 5 % and 95 % stay below."""

    p5: float
    median: float
    p95: float


class Distribution(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The figures of many runs that differ in their seed.

    `endangered` counts the runs with a danger (`endangered`), `restless` those in which the group
    did not come to rest.
    """

    runs: int
    endangered: int
    restless: int
    seconds: Range
    unowned: Range
    longest: Range
    rebalances: Range
    moved: Range


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
        yield from ((other, span) for other in latest if other.owner != span.owner)
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
            owned[span.owner][span.start] += 1
            if span.end is not None:
                owned[span.owner][span.end] -= 1
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
    timed: list[tuple[float, int, int, str]] = [
        *((at, owned, twice, "") for at, owned, twice in changes),
        *((at, 0, 0, what) for at, what in notes),
    ]
    timed.sort(key=lambda one: one[0])
    owned = twice = 0
    up, rejected = not notes or notes[0][1] not in ("started", "did not start"), False
    ends = run.measures.seconds, 0, 0, ""
    for (at, more, twofold, what), (until, *_) in pairwise([(0.0, 0, 0, ""), *timed, ends]):
        owned, twice = owned + more, twice + twofold
        if what:
            up = what in ("started", "rejected")
            rejected = what == "rejected" or (rejected and what != "started")
        if until > at:
            yield at, until, _doing(owned, twice, up=up, rejected=rejected), owned


def _doing(owned: int, twice: int, *, up: bool, rejected: bool) -> Doing:
    if twice or owned:
        return Doing.TWICE if twice else Doing.OWNS
    if rejected:
        return Doing.REJECTED
    return Doing.IDLE if up else Doing.DOWN


def _squeezed(
    moments: Iterable[tuple[float, float, Doing, int]], columns: int, length: float, *, usual: bool
) -> Iterator[Stretch]:
    """Yield what each column shows, equal neighbours joined."""
    found = [defaultdict[tuple[Doing, int], float](float) for _ in range(columns)]
    for at, until, doing, owned in moments:
        first = min(int(at / length * columns), columns - 1)
        last = min(int(max(until / length * columns - 1e-9, first)), columns - 1)
        for column in range(first, last + 1):
            lasts = min(until, (column + 1) * length / columns) - max(at, column * length / columns)
            found[column][doing, owned] += lasts
    cells = [_usual(cell) if usual else _worst(cell) for cell in found]
    start = 0
    for column in range(1, columns + 1):
        if column == columns or cells[column] != cells[start]:
            yield Stretch(start, column, *cells[start])
            start = column


def _worst(cell: dict[tuple[Doing, int], float]) -> tuple[Doing, int]:
    worst = min((doing for doing, _ in cell), key=_RANKS.__getitem__, default=Doing.DOWN)
    return worst, min((owned for _, owned in cell), default=0)


def _usual(cell: dict[tuple[Doing, int], float]) -> tuple[Doing, int]:
    worst = _worst(cell)
    always = worst[0] in (Doing.TWICE, Doing.REJECTED)
    return worst if always else max(cell, key=cell.__getitem__, default=worst)
