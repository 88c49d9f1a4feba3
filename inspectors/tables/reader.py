"""A fleet scan's tables, read back with pyarrow and delta-rs (no Spark), and each group's history.

`open_tables` finds the last finished scan. Only the files of that scan's own table versions are
read, so a scan that was stopped half-way, or is still running, is never seen. Columns that this
version of rebal does not know are ignored; columns that an older version did not write are null.

`rows_of` and `by_group` return columns as Python values. Equal lists of texts, and equal lists of
partition numbers, share one object. Times stay microseconds since 1970: `clock.moment` converts one
to a datetime.

`read_history` returns the history of each group over the time that a scan covers. Its durations are
milliseconds, its lists oldest first. The metrics have Kafka's own names (KIP-429).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from rebal.groups.compact import Partitions
from rebal.groups.errors import RebalError
from rebal.groups.model import Record
from rebal.inspectors.clock import micros
from rebal.inspectors.fleet.lake.place import LakeError, LakePlace, find_place
from rebal.inspectors.fleet.manifest import UNNAMED, Manifest, TableEntry
from rebal.inspectors.fleet.timeline.facts import TOPIC
from rebal.inspectors.fleet.timeline.rebalances import is_slow

if TYPE_CHECKING:
    import pyarrow as pa

    from rebal.inspectors.fleet.lake.scans import Finished

_SCAN: Final = "rebal fleet scan --out"
_Row = TypeVar("_Row")
Row = dict[str, Any]
"""A row's values by column name."""
_partitions: Final = lru_cache(maxsize=16_384)(Partitions)


class TablesError(RebalError):
    """Error: a place holds no finished scan that can be read; the message says what to do."""


class Tables:
    """The tables of one finished scan; `manifest` describes what the scan read, and when.

    `place` is the lake (a folder or an object store's URL) that holds them. `scans` are the numbers
    of all scans of the same cluster that can still be read, the last one last.
    """

    def __init__(self, place: LakePlace, finished: Finished, number: int) -> None:
        self.place, self._finished = place, finished
        self.manifest: Manifest = finished.load(number)
        self.scans = tuple(row.number for row in finished.rows)

    def of_scan(self, number: int) -> Tables:
        """Return the tables of the scan `number` of the same cluster.

        Raises:
            TablesError: that scan was never finished, or was removed.
            DocumentError: another version of rebal wrote it, in a format that this version does not
                read.
        """
        if number in self.scans:
            return Tables(self.place, self._finished, number)
        cluster = self.manifest.cluster
        of = f" of the cluster {cluster}" if cluster != UNNAMED else ""
        first, last = self.scans[0], self.scans[-1]
        known = f"scan {last}" if first == last else f"scans {first} to {last}"
        raise TablesError(
            f"{self.place}: scan {number}{of} was removed or never finished; {known} can be read."
        )

    @property
    def name(self) -> str:
        """The place and cluster of the tables, as LAKE#CLUSTER."""
        return f"{self.place}#{self.manifest.cluster}"

    def read(self, name: str, columns: Sequence[str], group: str | None = None) -> pa.Table:
        """Return these columns of the table `name`, for one `group` or for all groups.

        The rows are in the order written. If `group` is given, the columns must include `group_id`.

        Raises:
            TablesError: a file of the scan is missing, cut off, or no Parquet file.
        """
        import pyarrow as pa

        from rebal.inspectors.fleet.lake.table import LakeTable, may_hold, of_groups, read_rows
        from rebal.inspectors.fleet.schemas import TABLES

        schema = pa.schema([TABLES[name].field(column) for column in columns])
        entry = self.manifest.tables.get(name, TableEntry())
        wanted = None if group is None else of_groups(pa.array([group], pa.string()))
        parts: list[pa.Table] = []
        path = name
        try:
            table = LakeTable(self.place, name, TABLES[name])
            for one in table.files(self.manifest.cluster, entry.version):
                path = f"{name}/{one.path}"
                if group is None or may_hold(one.low, one.high, [group]):
                    found = list(read_rows(self.place, path, schema, wanted))
                    if group is None and (count := sum(map(len, found))) != one.rows:
                        raise LakeError(f"it has {count} rows, not {one.rows}")
                    parts += found
        except LakeError as error:
            raise TablesError(
                f"{self.place}: {path} cannot be read ({str(error).rstrip('.')}): run the command "
                f"again if a scan ended just now, else scan again: {_SCAN} {self.place}."
            ) from None
        return pa.concat_tables(parts) if parts else schema.empty_table()


def open_tables(text: str, options: Mapping[str, str] | None = None) -> Tables:
    """Return the tables of the last finished scan in a lake: `text` is LAKE or LAKE#CLUSTER.

    LAKE alone is enough if the lake holds scans of one cluster only. `options` are settings of the
    lake's object store that are not in the environment.

    Raises:
        TablesError: the lake has no finished scan.
        DocumentError: a scan cannot be read, another version of rebal wrote it in a format that
            this version does not read, or the cluster is missing or unclear.
    """
    return open_clusters(text, options, one=True)[0]


def open_clusters(
    text: str, options: Mapping[str, str] | None = None, *, one: bool = False
) -> tuple[Tables, ...]:
    """Return the tables of the last finished scan of each cluster in a lake.

    `text` is LAKE, or LAKE#CLUSTER for one cluster. If `one` is True, LAKE must hold a single
    cluster. `options` are as in `open_tables`.

    Raises:
        TablesError: the lake has no finished scan.
        DocumentError: a scan cannot be read, another version of rebal wrote it in a format that
            this version does not read, or the cluster is missing or unclear.
    """
    if find_spec("pyarrow") is None or find_spec("deltalake") is None:
        raise TablesError(
            "a scan's tables are read with pyarrow and deltalake: pip install 'rebal[lake]'."
        )
    from rebal.inspectors.fleet.lake.scans import Scans, choose_cluster, is_lake

    before, sign, after = text.rpartition("#")
    is_whole = not sign or os.path.exists(text)
    place = find_place(text if is_whole else before, options)
    cluster = None if is_whole else after
    if place.folder is not None and not place.folder.is_dir():
        what = "is a file, not a folder" if place.folder.exists() else "there is no such folder"
        raise TablesError(f"{text}: {what}; name the folder that a scan wrote: {_SCAN} DIR.")
    if not is_lake(place):
        raise TablesError(
            f"{text}: no scan wrote it (it has no table `scans`); write one: {_SCAN} {place}."
        )
    scans = Scans(place)
    found = scans.clusters()
    if not found:
        raise TablesError(f"{text}: no scan in it was finished; scan again: {_SCAN} {place}.")
    if one or cluster is not None:
        found = (choose_cluster(place, found, cluster),)
    return tuple(
        Tables(place, last, last.rows[-1].number) for last in (scans.of(name) for name in found)
    )


def rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Return the rows of `table`, each a tuple in the order of its columns.

    Lists of texts become tuples, and lists of partitions dicts of topic → `Partitions`. Times are
    microseconds since 1970.
    """
    return zip(*(values(column) for column in table.columns), strict=True)


def named_rows(table: pa.Table) -> Iterator[Row]:
    """Yield each row of `table` as column name → value, with values as in `rows_of`."""
    for values in rows_of(table):
        yield dict(zip(table.column_names, values, strict=True))


def by_group(table: pa.Table, kind: Callable[..., _Row]) -> defaultdict[str, list[_Row]]:
    """Return group id → the rows of `table`, each made by `kind` from the columns as keywords."""
    made: defaultdict[str, list[_Row]] = defaultdict(list)
    for row in named_rows(table):
        made[row["group_id"]].append(kind(**row))
    return made


def values(column: pa.ChunkedArray) -> Sequence[Any]:
    """Return the values of one column as Python values (see `rows_of`); null is None."""
    from rebal.inspectors.fleet.schemas import PARTITIONS, TEXTS, values_of

    found = values_of(column)
    if column.type == TEXTS:
        texts = [None if one is None else tuple(one) for one in found]
        same = {one: one for one in texts}
        return [same[one] for one in texts]
    if column.type == PARTITIONS:
        return [
            None
            if one is None
            else {of["topic"]: _partitions(tuple(of["partitions"] or ())) for of in one}
            for one in found
        ]
    return found


_SECOND: Final = 1_000_000
_HOUR: Final = 3600 * _SECOND
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
    *("group_id", "member_id", "instance_id", "client_id", "incarnation"),
    *("first_generation", "last_generation", "last_at", "left_at", "left_reason", "current"),
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
    """One completed or failed rebalance of a group; times are microseconds since 1970.

    `moved` is the number of partitions that changed their owner, `stopped` of those that stopped on
    members that stayed in the group (None: not known). docs/fleet-tables.md explains the fields.
    """

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
        """Return when the rebalance ended, else when it began, in microseconds since 1970."""
        return self.started_at if self.ended_at is None else self.ended_at


class ListSeen(NamedTuple):
    """One assignor list that a member sent, first at `at` and last at `last_at`.

    Times are microseconds since 1970. The list of a rejected join has no member id.
    """

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
    """One incident that an operator should know of, such as a crash loop or a deleted group.

    `times` is the number of times that it happened, from the column `count` of the table.
    """

    group_id: str
    kind: str
    started_at: int | None
    ended_at: int | None
    members: tuple[str, ...] | None
    times: int | None
    detail: str | None


class GroupHistory(Record, frozen=True, kw_only=True):
    """One group's history over the time that a scan covers; times are microseconds since 1970.

    `metrics` maps Kafka's metric name → value (None: not known). `observed_from` and
    `observed_until` bound the time that the scan's sources cover together, so a group without
    recent records is shown as of the end of the scan too. If no source has a time, they are the
    group's own first and last time. Rates are per hour of that time. If the log cleaner has left
    only the newest rebalances of the group, `observed_from` is the first of them, which is then not
    counted in the rates.

    `gone` maps each member id that is no longer in the group → when it was last in the group.
    `down` are members that timed out and neither rejoined nor were replaced (instance id, else
    client id).
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
    gone: Mapping[str, int] = {}
    down: tuple[str, ...] = ()

    @property
    def is_deleted(self) -> bool:
        """True if the group was deleted and not created again."""
        return self.deleted_at is not None and self.state == "Dead"


class ScanStanding(NamedTuple):
    """One group's state at the end of a scan, to compare with a later one.

    Each time a deleted group is created again, `incarnation` rises and generations start anew.
    `is_deleted` is True if the group was deleted and not created again.
    """

    incarnation: int | None
    generation: int | None
    is_deleted: bool


def read_standings(tables: Tables, group: str | None = None) -> dict[str, ScanStanding]:
    """Return group id → the group's state at the end of the scan, for all groups or the one named.

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


def read_history(tables: Tables, group: str | None = None) -> dict[str, GroupHistory]:
    """Return group id → the group's history, for all groups (sorted by id) or for the one named.

    Raises:
        TablesError: a table cannot be read.
    """
    rebalances = by_group(tables.read("rebalances", RebalanceRow._fields, group), RebalanceRow)
    lists = by_group(tables.read("assignor_lists", ListSeen._fields, group), ListSeen)
    # A tuple has a `count` of its own.
    happened = by_group(
        tables.read(
            "incidents",
            ("group_id", "kind", "started_at", "ended_at", "members", "count", "detail"),
            group,
        ).rename_columns(Incident._fields),
        Incident,
    )
    runs = by_group(tables.read("members", _RUN, group), Row)
    groups = named_rows(tables.read("groups", (*_FACTS, *_MEASURED), group))
    made = {}
    for row in sorted(groups, key=itemgetter("group_id")):
        facts: dict[str, Any] = {name: row[name] for name in _FACTS}
        group_id = row["group_id"]
        since, until = observed_span(tables.manifest, row["first_seen"], row["last_seen"])
        seen = sorted(rebalances[group_id], key=lambda one: (one.at or 0, one.generation or 0))
        first = next((one for one in seen if not one.failed), None)
        is_cut = first is not None and first.evidence == TOPIC and first.joined is None
        if first is not None and is_cut:
            since = max(filter(None, (since, first.at)), default=None)
        made[group_id] = GroupHistory(
            **facts,
            observed_from=since,
            observed_until=until,
            metrics=_metrics(row, since, until, is_cut=is_cut),
            rebalances=tuple(seen),
            lists=tuple(sorted(lists[group_id], key=lambda one: one.at or 0)),
            incidents=tuple(sorted(happened[group_id], key=lambda one: one.started_at or 0)),
            gone=_last_present(runs[group_id]),
            down=_down(runs[group_id], facts["members"] or 0, facts["incarnation"], seen),
        )
    return made


def observed_span(
    manifest: Manifest, first: int | None, last: int | None
) -> tuple[int | None, int | None]:
    """Return the start and the end of the time that the scan's sources cover.

    If no source has a time, they are `first` and `last`. All times are microseconds since 1970.
    """
    since, until = manifest.observed_from, manifest.observed_until
    return micros(since) if since else first, micros(until) if until else last


def _metrics(
    row: Mapping[str, Any], since: int | None, until: int | None, *, is_cut: bool
) -> dict[str, float | int | None]:
    hours = 0 if since is None or until is None else (until - since) / _HOUR
    last = row["last_rebalance_at"]
    return {
        "rebalance-total": row["rebalance_total"],
        "rebalance-rate-per-hour": _rate(row["rebalance_total"], hours, is_cut),
        "rebalance-latency-avg": row["rebalance_latency_avg_ms"],
        "rebalance-latency-max": row["rebalance_latency_max_ms"],
        "rebalance-latency-total": row["rebalance_latency_total_ms"],
        "failed-rebalance-total": row["failed_rebalance_total"],
        "failed-rebalance-rate-per-hour": _rate(row["failed_rebalance_total"], hours),
        "last-rebalance-seconds-ago": (until - last) / _SECOND if until and last else None,
    }


def _rate(count: int | None, hours: float, left_out: int = 0) -> float | None:
    return (count - left_out) / hours if count is not None and hours > 0 else None


def _client(run: Row) -> tuple[int | None, str | None, str | None]:
    """Return the key by which a member's restarted client is recognized under a new member id.

    It is the group's incarnation with the instance id, or with the client id if there is none.
    """
    other = None if run["instance_id"] else run["client_id"]
    return run["incarnation"], run["instance_id"], other


def _last_present(runs: Sequence[Row]) -> dict[str, int]:
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
    """Return the members that timed out and are still missing, each by its first id that is known.

    The ids are instance id, client id and member id, in this order. A timed-out member is not
    missing if a later one with its instance or client id replaces it; each later member replaces
    one at most, because all processes may have one client id, and first one that left by itself.
    Nor is it missing if the group now has at least as many members (`members`) as in the last
    generation of the timed-out one.
    """
    ends = [
        (
            run["left_reason"] in ("session expired", "did not rejoin in time")
            or is_slow(run["left_reason"]),
            run["last_generation"] or 0,
            run,
        )
        for run in runs
        if run["incarnation"] == incarnation and run["left_at"] is not None
    ]
    doubtful = {_client(run) for timed_out, _, run in ends if timed_out}
    if not doubtful:
        return ()
    here = {run["member_id"] for run in runs if run["current"]}
    counts = {one.generation: one.members for one in rebalances if one.incarnation == incarnation}
    arrivals: dict[str, Row] = {}
    mine = (run for run in runs if _client(run) in doubtful)
    for run in sorted(mine, key=lambda one: one["first_generation"] or 0):
        arrivals.setdefault(run["member_id"], run)
    found = []
    alike = (end for end in ends if _client(end[2]) in doubtful)
    for timed_out, last, run in sorted(alike, key=itemgetter(0, 1)):
        later = (
            one["member_id"]
            for one in arrivals.values()
            if _client(one) == _client(run) and (one["first_generation"] or 0) > last
        )
        successor = next(later, None)
        if successor is not None:
            del arrivals[successor]
        elif (
            timed_out
            and run["member_id"] not in here
            and members < (counts.get(run["last_generation"]) or inf)
        ):
            found.append(run["instance_id"] or run["client_id"] or run["member_id"])
    return tuple(dict.fromkeys(found))
