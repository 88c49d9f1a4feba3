"""The groups of a scan, each with its history and readiness, for `rebal fleet report`.

The scan's tables become snapshots, the snapshots plans, and the plans the order to upgrade the
groups in.

A group's rebalances before an earlier scan are compared with those since: better, worse, or no
clear change. The generation decides on which side a rebalance is, because no clock changes it:
generations up to the earlier scan's generation are before, later ones since. Both sides must be
complete (no generation is missing), else there is no trend. The log cleaner removes old rebalances
from the topic, which would make every group look worse.

A difference is clear if it is at least three standard errors. The error is the larger of two
estimates for a sum of independent events (a compound Poisson process): one from each side's own
events, one from both together. So a single rebalance in a short time is no trend, and neither is a
short time without a rebalance.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Final

import msgspec

from rebal.cli.errors import FailOn, UsageError
from rebal.cli.forked import mapped
from rebal.cli.params import Lake
from rebal.cli.planning import goal_named, planned
from rebal.cli.sources import whole_name
from rebal.groups.commands import rebal
from rebal.groups.errors import DocumentError
from rebal.groups.model import GroupSnapshot, Record
from rebal.inspectors.clock import micros
from rebal.inspectors.fleet.manifest import Manifest
from rebal.inspectors.tables.groups import ScannedGroups
from rebal.inspectors.tables.reader import (
    GroupHistory,
    RebalanceRow,
    ScanStanding,
    Tables,
    TablesError,
    open_tables,
    read_history,
    read_standings,
)
from rebal.planner.plan import Plan, Verdict
from rebal.planner.readiness import Pauses, Readiness, in_order, readiness, to_rehearse
from rebal.planner.rehearsal.costs.start import FULL, Pricing
from rebal.planner.timeouts import Speed
from rebal.planner.verdict import judged, worst_code

BETTER: Final = "better"
WORSE: Final = "worse"
MIXED: Final = "mixed"
UNCLEAR: Final = "unclear"
CHANGES: Final = (WORSE, MIXED, BETTER, UNCLEAR)
"""Values of `change` in a trend, the most urgent first."""
_ERRORS: Final = 3
_HOUR: Final = 3_600_000_000
_MINUTE: Final = 60_000_000


class Measure(Record, frozen=True, kw_only=True):
    """A rate per hour before the earlier scan and since, and how sure their difference is.

    `own` and `common` are two estimates of the variance of `since - before`: `own` from each side's
    own events, `common` from the events of both sides together.
    """

    before: float
    since: float
    own: float
    common: float

    @property
    def change(self) -> str:
        """Return `worse`, `better`, or `unclear` if the difference may be chance."""
        more, error = self.since - self.before, sqrt(max(self.own, self.common))
        clear = abs(more) >= _ERRORS * error and more != 0
        return UNCLEAR if not clear else WORSE if more > 0 else BETTER


class Trend(Record, frozen=True, kw_only=True):
    """The change of a group's rebalances and downtime since an earlier scan.

    `rebalances` are per hour, `downtime` is in partition-seconds per hour (None: not comparable).
    `seconds_before` and `seconds_since` are the lengths of the two compared times. If this is the
    sum of several groups' trends, `groups` is their number, and each length that of the group with
    the shortest.
    """

    rebalances: Measure
    downtime: Measure | None
    seconds_before: float
    seconds_since: float
    groups: int = 1

    @property
    def change(self) -> str:
        """Return `worse`, `better`, `unclear`, or `mixed` if one measure is better, one worse."""
        measures = (self.rebalances, self.downtime)
        found = {one.change for one in measures if one is not None} - {UNCLEAR}
        return MIXED if len(found) > 1 else next(iter(found), UNCLEAR)


class NoTrend(Record, frozen=True, kw_only=True):
    """The reason why a group's rebalances in two scans cannot be compared."""

    why: str


def trend_of(history: GroupHistory, earlier: ScanStanding | None, until: int) -> Trend | NoTrend:
    """Return the change of the group's rebalances and downtime since an earlier scan.

    The result is a NoTrend with the reason if the two scans cannot be compared.

    Args:
        history: The group in the later scan.
        earlier: The group in the earlier scan (None: it was not there).
        until: End of the time that the earlier scan covers, in microseconds since 1970.
    """
    now = history.observed_until
    if earlier is None:
        return NoTrend(why="new since then")
    if history.incarnation != earlier.incarnation or earlier.is_deleted:
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
    """Return the sum of the groups' trends; None if there are none.

    The downtime is the sum over the groups whose downtime is known (None: no group's is).
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
    """Return the lowest generation from which every generation up to `last` is known.

    `known` is sorted. None if `last` is not the newest known generation.
    """
    if known[-1] != last:
        return None
    at = len(known) - 1
    while at and known[at - 1] == known[at] - 1:
        at -= 1
    return known[at]


def _downtime(lengths: tuple[int, int], halves: Sequence[Sequence[RebalanceRow]]) -> Measure | None:
    """Return the downtime per hour before the earlier scan and since; None if not comparable.

    `lengths` are the two times in microseconds, `halves` the rebalances in each. If the length of
    no rebalance is known, an assumed one is used for all. The result is None if only some lengths
    are known, or if the number of stopped partitions of a rebalance is not known.
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


GONE: Final = "gone"
# Members above which it is worth while to plan on all processors.
_MANY: Final = 5000
# Work on rehearsals (planner/rehearsal/large.py) after which a report leaves the rest estimated: so
# much, less what its members take anyhow, so that a report of any fleet is there in seconds.
_ENOUGH: Final = 190_000
_A_MEMBER: Final = 11
_LEAST: Final = 40_000
VERDICTS: Final = (*(verdict.value for verdict in Verdict), GONE)
_HARMLESS: Final = frozenset(
    {
        "deleted",
        "recreated",
        "hidden list",
        "session expired",
        "converted to consumer",
        "converted to classic",
    }
)


class FleetGroup(Record, frozen=True, kw_only=True):
    """One group of a scan: its history and its readiness (None: the group was deleted).

    `trend` compares the group with an earlier scan (None: no earlier scan can be read, or the group
    was deleted).
    `before` is the verdict by the earlier scan (None: not requested, or the group was not in it).
    """

    history: GroupHistory
    readiness: Readiness | None = None
    trend: Trend | NoTrend | None = None
    before: str | None = None

    @property
    def group_id(self) -> str:
        """The group's name."""
        return self.history.group_id

    @property
    def verdict(self) -> str:
        """The verdict of the group's plan, or `gone` for a deleted group."""
        return GONE if self.readiness is None else self.readiness.plan.verdict.value

    @property
    def held(self) -> tuple[str, ...]:
        """Sentences on missing members that must rejoin before the roll-out of a ready group."""
        return () if self.readiness is None else self.readiness.held

    @property
    def change(self) -> str | None:
        """`worse`, `mixed`, `better` or `unclear`; None if the scans cannot be compared."""
        return self.trend.change if isinstance(self.trend, Trend) else None

    @property
    def observed_seconds(self) -> float | None:
        """Length of the history for rates per hour, in seconds; None if it is not known."""
        since, until = self.history.observed_from, self.history.observed_until
        return None if since is None or until is None else (until - since) / 1e6

    @property
    def downtime_per_hour(self) -> float | None:
        """Downtime in partition-seconds per hour; an unknown rebalance length is assumed.

        None if the partitions that a rebalance stopped, or the length of the history, are not
        known.
        """
        return pauses_of(self.history).downtime

    @property
    def troubles(self) -> tuple[str, ...]:
        """Kinds of the group's harmful incidents in the last hour of the history, each once."""
        since = (self.history.observed_until or 0) - _HOUR
        kinds = (
            incident.kind
            for incident in self.history.incidents
            if hurts(incident.kind) and (incident.ended_at is None or incident.ended_at >= since)
        )
        return tuple(dict.fromkeys(kinds))


class FleetReport(Record, frozen=True, kw_only=True):
    """The requested groups, in the order to upgrade them; finished and deleted ones are last.

    `earlier` is the scan to compare the groups with (None: none can be read). `baseline` is True if
    the user named that scan; verdicts are compared then too. `vanished` are the names of groups
    that only the earlier scan has.
    """

    lake: Lake
    manifest: Manifest
    to: str
    groups: tuple[FleetGroup, ...]
    earlier: Manifest | None = None
    baseline: bool = False
    vanished: tuple[str, ...] = ()

    @property
    def trend(self) -> Trend | None:
        """The summed trend of all groups that can be compared; None if there are none."""
        return sum_of(one.trend for one in self.groups if isinstance(one.trend, Trend))

    @property
    def changed(self) -> tuple[FleetGroup, ...]:
        """Groups whose rebalances or downtime clearly changed, the most urgent first."""
        return tuple(
            sorted((one for one in self.groups if one.change not in (None, UNCLEAR)), key=_urgency)
        )

    @property
    def counts(self) -> Mapping[str, int]:
        """Verdict → number of groups; verdicts without a group are left out."""
        found = Counter(group.verdict for group in self.groups)
        return {verdict: found[verdict] for verdict in VERDICTS if found[verdict]}

    @property
    def estimated(self) -> int:
        """The number of groups whose cost is estimated instead of rehearsed."""
        outlays = (one.readiness.outlay for one in self.groups if one.readiness is not None)
        return sum(outlay.estimated for outlay in outlays if outlay is not None)

    @property
    def unread(self) -> int:
        """The number of records that the scan could not read."""
        errors = self.manifest.tables.get("errors")
        return errors.rows if errors is not None else 0

    @property
    def to_take(self) -> tuple[FleetGroup, ...]:
        """Groups whose upgrade can start now, in order; groups with missing members cannot."""
        return tuple(
            group for group in self.groups if group.verdict == Verdict.READY and not group.held
        )

    @property
    def to_hold(self) -> tuple[FleetGroup, ...]:
        """Groups that are ready by their plan but have a member that is down or rejected."""
        return tuple(group for group in self.groups if group.held)

    @property
    def worst(self) -> tuple[FleetGroup, ...]:
        """Groups with `troubles`, then other groups with downtime; both by downtime per hour.

        Deleted groups are left out.
        """
        hurt = [
            group
            for group in self.groups
            if group.verdict != GONE and (group.troubles or group.downtime_per_hour)
        ]
        return tuple(
            sorted(
                hurt,
                key=lambda one: (not one.troubles, -(one.downtime_per_hour or 0), one.group_id),
            )
        )

    def exit_code(self, fail_on: FailOn, exit_zero: bool) -> int:
        """Return the worst exit code of the groups' plans; deleted groups do not count."""
        plans = [group.readiness.plan for group in self.groups if group.readiness is not None]
        return worst_code(judged(one.exit_code, one.findings, fail_on, exit_zero) for one in plans)


def make_fleet_report(
    folder: str,
    *,
    options: Mapping[str, str] | None = None,
    baseline: int | None = None,
    match: str | None = None,
    group: str | None = None,
    to: str = "cooperative",
) -> FleetReport:
    """Return the report on the groups that match, on one named group, or on all groups.

    A cost is the one that the group's own plan predicts by rehearsal. If there is too much to
    rehearse, only the first groups in the order are rehearsed, and the costs of the others are
    estimated.

    The groups are compared with the scan `baseline`, or with the scan before the last one.

    Args:
        folder: The lake, or LAKE#CLUSTER.
        options: Settings of the lake's store that are not in the environment.
        baseline: Number of the scan to compare with; None for the one before.
        match: Regular expression for whole group names.
        group: One group's name.
        to: Goal of the plans.

    Raises:
        TablesError: no finished scan is in the lake, or the baseline is not.
        UsageError: no such group in the scan, an invalid pattern, no such goal, or a baseline that
            is the last scan itself.
    """
    pattern, to = whole_name(match), goal_named(to, None)
    lake = Lake(folder, dict(options or {}))
    tables = open_tables(lake.text, lake.options)
    earlier = _earlier(tables, baseline)
    history = {
        name: one for name, one in read_history(tables, group).items() if pattern.fullmatch(name)
    }
    if group is not None and not history:
        raise UsageError(
            f"{folder}: the scan saw no group {group}. Those it saw are in its report:",
            rebal("fleet report", (folder,), lake.settings),
        )
    if match is not None and not history:
        raise UsageError(f"{folder}: no group of the scan matches {match} as a whole name.")
    scanned = ScannedGroups(tables, group)
    alive = [name for name, one in history.items() if not one.is_deleted]

    def rehearsed(name: str, pricing: Pricing = FULL) -> Readiness:
        return _ready(planned(scanned.snapshot(name), to, pricing), history[name])

    def estimated(name: str) -> Readiness:
        return rehearsed(name, Pricing(rough=True))

    members = sum(one.members or 0 for one in history.values())
    if group is not None:
        ordered = in_order([rehearsed(group)] if alive else [])
    else:
        ordered = in_order(mapped(estimated, alive, worth_it=members > _MANY))
        first = to_rehearse(ordered, max(_LEAST, _ENOUGH - _A_MEMBER * members))
        exact = dict(zip(first, mapped(rehearsed, first, worth_it=members > _MANY), strict=True))
        ordered = in_order(exact.get(one.plan.group_id, one) for one in ordered)
    by_name = {one.plan.group_id: one for one in ordered}
    names = (*by_name, *(name for name, one in history.items() if one.is_deleted))
    compared = _compared(earlier, group, verdicts=baseline is not None)
    return FleetReport(
        lake=lake,
        manifest=tables.manifest,
        to=to,
        groups=tuple(
            FleetGroup(
                history=history[name],
                readiness=by_name.get(name),
                trend=compared.trend(history[name]),
                before=compared.verdict(name, to),
            )
            for name in names
        ),
        earlier=compared.manifest,
        baseline=baseline is not None,
        vanished=tuple(
            name
            for name, one in compared.standings.items()
            if not one.is_deleted and name not in history and pattern.fullmatch(name)
        ),
    )


def hurts(kind: str) -> bool:
    """Return whether an incident of this kind keeps partitions from being consumed."""
    return kind not in _HARMLESS


def pauses_of(history: GroupHistory) -> Pauses:
    """Return the downtime of the group's observed rebalances.

    A rebalance of unknown length counts with the average length, or with an assumed one if no
    length is known. The one with which the history begins is left out: what it stopped is not known
    after the log cleaner, and else nothing.
    """
    average = history.metrics["rebalance-latency-avg"]
    usual = Speed().rebalance * 1000 if average is None else average
    since, until = history.observed_from, history.observed_until
    seen = [
        (one.stopped, one.moved or 0, usual if one.latency_ms is None else one.latency_ms)
        for one in history.rebalances
        if not one.failed and one.members != 0 and one.at != since
    ]
    known = [(stopped, moved, length) for stopped, moved, length in seen if stopped is not None]
    if since is None or until is None or until <= since or len(known) < len(seen):
        return Pauses()
    # From milliseconds over microseconds to seconds per hour.
    scale = 3.6e6 / (until - since)
    return Pauses(
        downtime=scale * sum(stopped * length for stopped, _, length in known),
        avoidable=scale * sum(max(0, stopped - moved) * length for stopped, moved, length in known),
        is_assumed=average is None,
    )


def _ready(plan: Plan, history: GroupHistory) -> Readiness:
    # A report needs neither the group nor the steps again, which are most of what a plan holds.
    ready = readiness(plan, pauses_of(history), history.down)
    baseline = GroupSnapshot(group=plan.baseline.group, captured_at=plan.baseline.captured_at)
    slim = msgspec.structs.replace(plan, baseline=baseline, steps=(), withheld=(), not_checked=())
    return msgspec.structs.replace(ready, plan=slim)


class _Compared(Record, frozen=True, kw_only=True):
    """The earlier scan that the groups are compared with.

    `manifest` is None if no earlier scan can be read. `standings` is group → its state at the end
    of that scan. `scanned` are the groups as that scan saw them (None: verdicts are not compared).
    """

    manifest: Manifest | None = None
    standings: Mapping[str, ScanStanding] = {}
    scanned: ScannedGroups | None = None

    def trend(self, history: GroupHistory) -> Trend | NoTrend | None:
        """Return the group's change since the earlier scan, or the reason why it is not known.

        Return None if the group was deleted, or if no earlier scan can be read.
        """
        if self.manifest is None or history.is_deleted:
            return None
        until = self.manifest.observed_until
        if until is None:
            return NoTrend(why="the records of the scan before have no time")
        return trend_of(history, self.standings.get(history.group_id), micros(until))

    def verdict(self, name: str, to: str) -> str | None:
        """Return the group's verdict by the earlier scan.

        None if that scan has no such group, or if verdicts are not compared.
        """
        if self.scanned is None or name not in self.standings:
            return None
        gone = self.standings[name].is_deleted
        return GONE if gone else planned(self.scanned.snapshot(name), to, None).verdict.value


def _compared(tables: Tables | None, group: str | None, *, verdicts: bool) -> _Compared:
    if tables is None:
        return _Compared()
    try:
        return _Compared(
            manifest=tables.manifest,
            standings=read_standings(tables, group),
            scanned=ScannedGroups(tables, group) if verdicts else None,
        )
    except TablesError:
        # A scan that ended at this moment removed what nobody asked for by its number.
        if verdicts:
            raise
        return _Compared()


def _earlier(tables: Tables, baseline: int | None) -> Tables | None:
    last = tables.manifest.run
    if baseline == last:
        raise UsageError(f"--baseline {baseline}: it is the last scan; name one before it.")
    if baseline is not None:
        return tables.of_scan(baseline)
    before = [number for number in tables.scans if number < last]
    try:
        return tables.of_scan(before[-1]) if before else None
    except DocumentError:
        # Another version wrote it, and nobody asked for it.
        return None


def _urgency(group: FleetGroup) -> tuple[int, float, str]:
    assert isinstance(group.trend, Trend)
    measure = group.trend.downtime or group.trend.rebalances
    return CHANGES.index(group.trend.change), measure.before - measure.since, group.group_id
