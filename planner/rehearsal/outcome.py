"""Outcome of a rehearsal: times, rebalances, owners of partitions, members' metrics."""

from typing import Final

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
    measures = run.measures
    out = measures.rejected or any(note.what in _OUT for note in run.notes)
    return bool(out) or measures.twice - measures.twice_past > _ROUNDING


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
