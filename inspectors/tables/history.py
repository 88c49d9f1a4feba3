"""The history of each group over the time that a scan covers: `read_history`.

Times are microseconds since 1970 (`clock.moment` makes one a datetime), durations
milliseconds, lists oldest first. The metrics have Kafka's own names (KIP-429).
"""

from collections.abc import Mapping, Sequence
from math import inf
from operator import itemgetter
from typing import Any, Final, NamedTuple

from rebal.groups.model import Record
from rebal.inspectors.clock import micros
from rebal.inspectors.fleet.manifest import Manifest
from rebal.inspectors.fleet.timeline.rebalances import is_slow
from rebal.inspectors.tables.reader import Row, Tables, by_group, named_rows, rows_of

_SECOND: Final = 1_000_000
_HOUR: Final = 3600 * _SECOND
_TIMED_OUT: Final = ("session expired", "did not rejoin in time")
_FACTS: Final = (
    "group_id",
    "type",
    "state",
    "members",
    "incarnation",
    "generation",
    "deleted_at",
    "last_rebalance_at",
    "refused_total",
)
# Columns of a row of `members`, a run of generations, that say how it ended.
_RUN: Final = (
    "group_id",
    "member_id",
    "instance_id",
    "client_id",
    "incarnation",
    "first_generation",
    "last_generation",
    "last_at",
    "left_at",
    "left_reason",
    "current",
)
_MEASURED: Final = (
    "first_seen",
    "last_seen",
    "rebalance_total",
    "rebalance_latency_avg_ms",
    "rebalance_latency_max_ms",
    "rebalance_latency_total_ms",
    "failed_rebalance_total",
)


class RebalanceRow(NamedTuple):
    """One completed or failed rebalance; `moved` and `stopped` count partitions."""

    group_id: str
    incarnation: int | None
    generation: int | None
    started_at: int | None
    ended_at: int | None
    latency_ms: float | None
    cause: str | None
    failed: bool | None
    assignor_before: str | None
    assignor: str | None
    protocol: str | None
    members: int | None
    joined: tuple[str, ...] | None
    left: tuple[str, ...] | None
    refused: tuple[str, ...] | None
    partitions: int | None
    moved: int | None
    stopped: int | None
    evidence: str | None

    @property
    def at(self) -> int | None:
        """Return when it ended, else when it began."""
        return self.started_at if self.ended_at is None else self.ended_at


class ListSeen(NamedTuple):
    """An assignor list that a member sent, from `at` to `last_at`; a rejected one has no member."""

    group_id: str
    at: int | None
    last_at: int | None
    member_id: str | None
    instance_id: str | None
    client_id: str | None
    host: str | None
    assignors: tuple[str, ...] | None
    refused: bool | None
    times: int | None
    software_name: str | None
    software_version: str | None
    evidence: str | None
    protocol_type: str | None
    generation: int | None
    replaced_member_id: str | None
    reason: str | None
    session_timeout_ms: int | None
    rebalance_timeout_ms: int | None
    source: str | None


class Incident(NamedTuple):
    """Something that a person should know of: a storm, a crash loop, a group deleted, …

    It happened `times` times (the column `count`).
    """

    group_id: str
    kind: str
    started_at: int | None
    ended_at: int | None
    members: tuple[str, ...] | None
    times: int | None
    detail: str | None


class GroupHistory(Record, frozen=True, kw_only=True):
    """One group's history. `metrics` is by Kafka's name; a None in it could not be seen.

    `observed_from` and `observed_until` bound the time that the scan's sources cover together, so
    that a group without news since an earlier scan is shown as of the last one too; they are the
    group's own first and last time where no source has a time. Rates are over all of it.

    `stopped` and `moved` are partitions per completed rebalance, on average (None: not seen).
    `gone` is member id → when it was there last, of those that are not there any more. `down` are
    members that timed out and neither came back nor were replaced (instance id, else client id).
    """

    group_id: str
    type: str | None
    state: str | None
    members: int | None
    incarnation: int | None
    generation: int | None
    deleted_at: int | None
    observed_from: int | None
    observed_until: int | None
    last_rebalance_at: int | None
    refused_total: int | None
    metrics: Mapping[str, float | int | None]
    rebalances: tuple[RebalanceRow, ...] = ()
    lists: tuple[ListSeen, ...] = ()
    incidents: tuple[Incident, ...] = ()
    stopped: float | None = None
    moved: float | None = None
    gone: Mapping[str, int] = {}
    down: tuple[str, ...] = ()

    @property
    def is_gone(self) -> bool:
        """Deleted, and not made again."""
        return self.deleted_at is not None and self.state == "Dead"


class ScanStanding(NamedTuple):
    """One group at the end of an earlier scan; generations count within an incarnation."""

    incarnation: int | None
    generation: int | None
    is_gone: bool


def read_standings(tables: Tables, group: str | None = None) -> dict[str, ScanStanding]:
    """Return group id → how it stood, of all groups or of the one named.

    Raises:
        TablesError: the table cannot be read.
    """
    return {
        group_id: ScanStanding(incarnation, generation, deleted_at is not None and state == "Dead")
        for group_id, incarnation, generation, deleted_at, state in rows_of(
            tables.read(
                "groups", ("group_id", "incarnation", "generation", "deleted_at", "state"), group
            )
        )
    }


# The columns of `Incident`: a tuple has a `count` of its own.
_INCIDENT: Final = ("group_id", "kind", "started_at", "ended_at", "members", "count", "detail")


def read_history(tables: Tables, group: str | None = None) -> dict[str, GroupHistory]:
    """Return group id → its history, of all groups by their names or of the one named.

    Raises:
        TablesError: a table cannot be read.
    """
    rebalances = by_group(tables.read("rebalances", RebalanceRow._fields, group), RebalanceRow)
    lists = by_group(tables.read("assignor_lists", ListSeen._fields, group), ListSeen)
    happened = by_group(
        tables.read("incidents", _INCIDENT, group).rename_columns(Incident._fields), Incident
    )
    runs = by_group(tables.read("members", _RUN, group), Row)
    groups = named_rows(tables.read("groups", (*_FACTS, *_MEASURED), group))
    made = {}
    for row in sorted(groups, key=itemgetter("group_id")):
        facts: dict[str, Any] = {name: row[name] for name in _FACTS}
        group_id = row["group_id"]
        since, until = observed(tables.manifest, row["first_seen"], row["last_seen"])
        seen = sorted(rebalances[group_id], key=lambda one: (one.at or 0, one.generation or 0))
        done = [one for one in seen if not one.failed]
        made[group_id] = GroupHistory(
            **facts,
            observed_from=since,
            observed_until=until,
            metrics=_metrics(row, since, until),
            rebalances=tuple(seen),
            lists=tuple(sorted(lists[group_id], key=lambda one: one.at or 0)),
            incidents=tuple(sorted(happened[group_id], key=lambda one: one.started_at or 0)),
            stopped=_average([one.stopped for one in done]),
            moved=_average([one.moved for one in done]),
            gone=_gone(runs[group_id]),
            down=_down(runs[group_id], facts["members"] or 0, facts["incarnation"], seen),
        )
    return made


def observed(
    manifest: Manifest, first: int | None, last: int | None
) -> tuple[int | None, int | None]:
    """Return the time that a scan's sources cover; where none has one, that from `first` to `last`.

    Times are microseconds since 1970.
    """
    since, until = manifest.observed_from, manifest.observed_until
    return micros(since) if since else first, micros(until) if until else last


def _metrics(
    row: Mapping[str, Any], since: int | None, until: int | None
) -> dict[str, float | int | None]:
    hours = 0 if since is None or until is None else (until - since) / _HOUR
    last = row["last_rebalance_at"]
    return {
        "rebalance-total": row["rebalance_total"],
        "rebalance-rate-per-hour": _rate(row["rebalance_total"], hours),
        "rebalance-latency-avg": row["rebalance_latency_avg_ms"],
        "rebalance-latency-max": row["rebalance_latency_max_ms"],
        "rebalance-latency-total": row["rebalance_latency_total_ms"],
        "failed-rebalance-total": row["failed_rebalance_total"],
        "failed-rebalance-rate-per-hour": _rate(row["failed_rebalance_total"], hours),
        "last-rebalance-seconds-ago": (until - last) / _SECOND if until and last else None,
    }


def _rate(count: int | None, hours: float) -> float | None:
    return count / hours if count is not None and hours > 0 else None


def _client(run: Row) -> tuple[int | None, str | None, str | None]:
    """Return the client that a successor has too: its instance id, else its client id."""
    instance_id = run["instance_id"]
    return run["incarnation"], instance_id, None if instance_id else run["client_id"]


def _gone(runs: Sequence[Row]) -> dict[str, int]:
    made: dict[str, int] = {}
    here = {run["member_id"] for run in runs if run["current"]}
    for run in runs:
        end = run["left_at"] or run["last_at"]
        if run["member_id"] not in here and end is not None:
            made[run["member_id"]] = max(end, made.get(run["member_id"], 0))
    return made


def _down(
    runs: Sequence[Row], members: int, incarnation: int | None, rebalances: Sequence[RebalanceRow]
) -> tuple[str, ...]:
    """Return the members that timed out and are missing since: instance, client or member ids.

    Client ids may be equal in all processes, so each later arrival replaces one member at most, and
    a group with as many members as before misses none.
    """
    lost = [
        run
        for run in runs
        if run["incarnation"] == incarnation
        and (run["left_reason"] in _TIMED_OUT or is_slow(run["left_reason"]))
    ]
    if not lost:
        return ()
    here = {run["member_id"] for run in runs if run["current"]}
    counts = {one.generation: one.members for one in rebalances if one.incarnation == incarnation}
    arrivals: dict[str, Row] = {}
    for run in sorted(runs, key=lambda one: one["first_generation"] or 0):
        arrivals.setdefault(run["member_id"], run)
    found = []
    for run in sorted(lost, key=lambda one: one["last_generation"] or 0):
        later = (
            one["member_id"]
            for one in arrivals.values()
            if _client(one) == _client(run)
            and (one["first_generation"] or 0) > (run["last_generation"] or 0)
        )
        successor = next(later, None)
        if successor is not None:
            del arrivals[successor]
        elif run["member_id"] not in here and members < (counts.get(run["last_generation"]) or inf):
            found.append(run["instance_id"] or run["client_id"] or run["member_id"])
    return tuple(dict.fromkeys(found))


def _average(counts: list[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return sum(known) / len(known) if known else None
