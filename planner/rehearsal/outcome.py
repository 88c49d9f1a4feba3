"""Outcome of a rehearsal: times, rebalances, partition owners, members' metrics and timelines."""

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
    """One phase of a rehearsal, such as one step of a plan, with its measures.

    `began` is in seconds since the start of the rehearsal.
    """

    name: str
    began: float
    measures: Measures


class PartitionStory(Record, frozen=True, kw_only=True):
    """One partition's owners and its gaps without an owner during a rehearsal.

    `unowned` is the total time without an owner, `longest` the longest such gap, both in seconds.
    `owners` has one entry for each time that a member owned the partition.
    """

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
    """One member's state at the end of a rehearsal, and the KIP-429 metrics of its last process.

    `state` is `running`, `rejected` or `stopped` (no process runs). `protocol` is its rebalance
    protocol, or `not modelled` where the elected assignor is not modelled. `owned` is the number of
    its partitions. Latencies are in seconds. `last_rebalance_seconds_ago` is None if the process
    never rebalanced. `revoked`, `assigned` and `lost` are the latencies of the listener's
    callbacks.
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
    """Number of restarts that were rehearsed, out of all restarts of a large group.

    One restart of each kind is rehearsed. A batch counts as one restart.
    """

    rehearsed: int
    restarts: int


class Rehearsal(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Result of one rehearsal of a script with one seed.

    If `sampled` is set, the group was too large to rehearse every restart, and one restart of each
    kind stands for the others. The measures are then approximate, `notes` come from the rehearsed
    restarts only, and `rebalances`, `partitions` and `members` are empty.

    `state` and `assignor` are those of the group at the end. `at_rest` is True if nothing was
    pending at the end: no rebalance, no start, no session timeout. `unit` is what members own:
    `partition`, `task` (Connect workers; a connector counts as a task), or `none` if assignments
    are not modelled.
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
    """Return whether a join was rejected, a client failed, or a partition had two owners.

    Two owners do not count while one of them is past its session or poll timeout and has not polled
    since: the Java client drops its partitions at its next poll.
    """
    out = run.measures.rejected > 0 or any(note.what in _OUT for note in run.notes)
    return out or run.measures.twice - run.measures.twice_past > _ROUNDING


class Range(Record, frozen=True, kw_only=True):
    """Median, 5th and 95th percentile of one figure over rehearsals with different seeds."""

    p5: float
    median: float
    p95: float


class Distribution(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Figures of several rehearsals of one script that differ only in their seed.

    `endangered` counts the rehearsals in which a join was rejected, a client failed or a partition
    had two owners. `restless` counts those in which the group did not come to rest. The ranges are
    of the fields of `Measures` with the same names.
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
    """State of a member in one column of its timeline, listed from worst to best.

    twice: one of its partitions has another owner too. rejected: the coordinator rejects its joins.
    down: its process does not run. idle: it runs and owns no partition. owns: it owns partitions.
    """

    TWICE = "twice"
    REJECTED = "rejected"
    DOWN = "down"
    IDLE = "idle"
    OWNS = "owns"


class Stretch(NamedTuple):
    """Adjacent columns of a member's timeline that show the same state and partition count.

    `start` and `end` are column numbers from 0; `end` is exclusive. `partitions` is the smallest
    number of partitions that the member owns at any time of a column. From `lanes` with `usual` it
    is the number that it owns longest, unless the state is `twice` or `rejected`.
    """

    start: int
    end: int
    doing: Doing
    partitions: int


_RANKS: Final = {doing: rank for rank, doing in enumerate(Doing)}
_DOWN: Final = ("stopped", "killed", "did not start", "failed as leader", "callback failed")


def lanes(run: Rehearsal, columns: int, *, usual: bool = False) -> dict[str, tuple[Stretch, ...]]:
    """Return each member's timeline of `columns` columns, by name in the order of the members.

    The rehearsal must have been run with `keep`. A column shows the worst state in its time, so
    that a short outage stays visible in a long rehearsal. With `usual` a column shows the state
    that lasts longest, unless a partition has two owners or the member is rejected. `usual` is for
    long rehearsals, where every column has an outage.
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
    """Yield each pair of spans in which two members own the same partition at the same time.

    `owners` are the spans of one partition. A span without an end lasts until `end` (seconds).
    """
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
    """Return the changes of each member's partitions over time, by member name.

    A change is (seconds since the start, change in owned partitions, change in partitions that have
    a second owner).
    """
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
    """Yield one member's states over time: (start, end, state, partitions owned), in seconds."""
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
    """Yield the state that each column shows; equal neighbouring columns become one stretch."""
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
