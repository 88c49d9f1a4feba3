"""Change of a group's rebalances since an earlier scan: better, worse, or no clear change.

A rebalance belongs before or after the earlier scan by its generation, which no clock changes:
those up to that scan's generation came before it, the others since. Both sides must be whole
(generations without a gap), else there is no trend: a topic that the log cleaner has compacted
lacks old rebalances, and would make every group look worse.

A difference is clear where it is at least three standard errors. The error is the larger of two
estimates for a sum of independent events (a compound Poisson process): one from each side's own
events, one from both together. So a single rebalance in a short time is no trend, and neither is a
short time without one.
"""

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Final

from rebal.groups.model import Record
from rebal.inspectors.tables.history import GroupHistory, RebalanceRow, ScanStanding
from rebal.planner.timeouts import Speed

BETTER: Final = "better"
WORSE: Final = "worse"
MIXED: Final = "mixed"
UNCLEAR: Final = "unclear"
CHANGES: Final = (WORSE, MIXED, BETTER, UNCLEAR)
"""Values of a change, the most urgent first."""
_ERRORS: Final = 3
_HOUR: Final = 3_600_000_000
_MINUTE: Final = 60_000_000


class Measure(Record, frozen=True, kw_only=True):
    """A rate per hour before the earlier scan and since; `own` and `common` are its variances."""

    before: float
    since: float
    own: float
    common: float

    @property
    def change(self) -> str:
        """Return `worse`, `better`, or `unclear` where the difference may be chance."""
        error = sqrt(max(self.own, self.common))
        if abs(self.since - self.before) < _ERRORS * error or self.since == self.before:
            return UNCLEAR
        return WORSE if self.since > self.before else BETTER


class Trend(Record, frozen=True, kw_only=True):
    """Rebalances per hour and downtime in partition-seconds per hour (None: not comparable).

    `seconds_before` and `seconds_since` are the lengths of the two times; of a fleet, the shortest
    among its groups. `groups` is the number of groups.
    """

    rebalances: Measure
    downtime: Measure | None
    seconds_before: float
    seconds_since: float
    groups: int = 1

    @property
    def change(self) -> str:
        """Return the change of both measures: `mixed` where one is better and one worse."""
        measures = (self.rebalances, self.downtime)
        found = {one.change for one in measures if one is not None} - {UNCLEAR}
        return MIXED if len(found) > 1 else next(iter(found), UNCLEAR)


class NoTrend(Record, frozen=True, kw_only=True):
    """Two scans of a group that cannot be compared, and why."""

    why: str


def trend_of(history: GroupHistory, earlier: ScanStanding | None, until: int) -> Trend | NoTrend:
    """Return how often the group rebalanced before an earlier scan, and since.

    Args:
        history: The group in the later scan.
        earlier: The group in the earlier scan (None: it was not there).
        until: End of what the earlier scan saw, in microseconds since 1970.
    """
    now = history.observed_until
    if earlier is None:
        return NoTrend(why="new since then")
    if history.incarnation != earlier.incarnation or earlier.is_gone:
        return NoTrend(why="deleted and created again since then")
    if now is None or now <= until:
        return NoTrend(why="the scans end at the same time")
    mine = [one for one in history.rebalances if one.incarnation == history.incarnation]
    known = sorted({one.generation for one in mine if one.generation is not None})
    if earlier.generation is None or history.generation is None or not known:
        return NoTrend(why="no rebalance is known")
    first = _first_of_run(known, history.generation)
    if first is None or first > earlier.generation:
        return NoTrend(why="not all its rebalances are known")
    start = max((one.at or 0 for one in mine if one.generation == first), default=0)
    if not start or min(until - start, now - until) < _MINUTE:
        return NoTrend(why="less than a minute of it was seen before or since")
    counted = [one for one in mine if not one.failed and one.members != 0]
    before = [one for one in counted if first < (one.generation or 0) <= earlier.generation]
    since = [one for one in counted if (one.generation or 0) > earlier.generation]
    lengths = until - start, now - until
    return Trend(
        rebalances=_measure(lengths, ([1.0] * len(before), [1.0] * len(since))),
        downtime=_downtime(lengths, (before, since)),
        seconds_before=lengths[0] / 1e6,
        seconds_since=lengths[1] / 1e6,
    )


def sum_of(trends: Iterable[Trend]) -> Trend | None:
    """Return the trend of all these groups together; None where there are none.

    Its downtime is that of the groups whose downtime is known, None where it is of none.
    """
    every = list(trends)
    if not every:
        return None
    downtimes = [one.downtime for one in every if one.downtime is not None]
    return Trend(
        rebalances=_added(one.rebalances for one in every),
        downtime=_added(downtimes) if downtimes else None,
        seconds_before=min(one.seconds_before for one in every),
        seconds_since=min(one.seconds_since for one in every),
        groups=len(every),
    )


def _first_of_run(known: Sequence[int], last: int) -> int | None:
    """Return the lowest generation from which all up to `last` are known."""
    if known[-1] != last:
        return None
    at = len(known) - 1
    while at and known[at - 1] == known[at] - 1:
        at -= 1
    return known[at]


def _downtime(lengths: tuple[int, int], halves: Sequence[Sequence[RebalanceRow]]) -> Measure | None:
    """Return the downtime; each rebalance has the assumed length where the length of none is known.

    `halves` are the rebalances before the earlier scan, and those since. Where only some lengths
    are known, one side would be measured and the other assumed: None.
    """
    every = [one for half in halves for one in half]
    timed = [one for one in every if one.latency_ms is not None]
    if any(one.stopped is None for one in every) or 0 < len(timed) < len(every):
        return None
    assumed = Speed().rebalance * 1000
    before, since = (
        [
            (one.stopped or 0) * (assumed if one.latency_ms is None else one.latency_ms) / 1000
            for one in half
        ]
        for half in halves
    )
    return _measure(lengths, (before, since))


def _measure(lengths: tuple[int, int], amounts: tuple[Sequence[float], Sequence[float]]) -> Measure:
    hours = [length / _HOUR for length in lengths]
    squares = [sum(amount * amount for amount in side) for side in amounts]
    together = sum(squares) / sum(hours)
    return Measure(
        before=sum(amounts[0]) / hours[0],
        since=sum(amounts[1]) / hours[1],
        own=sum(square / hour**2 for square, hour in zip(squares, hours, strict=True)),
        common=sum(together / hour for hour in hours),
    )


def _added(measures: Iterable[Measure]) -> Measure:
    every = list(measures)
    return Measure(
        before=sum(one.before for one in every),
        since=sum(one.since for one in every),
        own=sum(one.own for one in every),
        common=sum(one.common for one in every),
    )
