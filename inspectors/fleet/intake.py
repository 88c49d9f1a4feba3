"""Intake of a scan: reads each record and log line once, reduces it, stores it and counts it.

rows ─┬─ offset commits ── reduced ────────── commit_parts
      ├─ group and member records ─────────── packed runs, and the news of their groups
      ├─ broken records ───────────────────── errors
      └─ all other kinds: only counted

`read_records` and `read_logs` run this in Spark's tasks: `take_in` takes rows of the source,
`take_requests` takes parts of request logs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from rebal.groups.errors import DocumentError, WireError
from rebal.groups.evidence.logs import zone_name, zone_offset
from rebal.groups.wire.offsets_topic import (
    GROUP_METADATA,
    KINDS,
    OFFSET_COMMITS,
    decode_key,
    decode_offset_commit,
    generation_in,
    kind_name,
)
from rebal.inspectors.fleet.commits import CommitSums, name_topics
from rebal.inspectors.fleet.increments import encoded, summed
from rebal.inspectors.fleet.lake.place import LakePlace
from rebal.inspectors.fleet.lake.run import Freed, LakeScan, remove
from rebal.inspectors.fleet.lake.table import DataFile, of_groups, read_rows
from rebal.inspectors.fleet.lake.writer import REPORT_DDL, PartWriter, Target, TaskReport
from rebal.inspectors.fleet.manifest import ReadLog
from rebal.inspectors.fleet.runs import gathered, in_order, latest_time, pack, runs_of, span_of
from rebal.inspectors.fleet.schemas import (
    ERRORS,
    RUNS,
    TEXT,
    TIME,
    TIMELINE,
    in_columns,
    values_of,
)
from rebal.inspectors.fleet.sources.requests import SYNCED, read_parts, read_syncs
from rebal.inspectors.fleet.sources.source import (
    SKIPPED,
    SOURCE,
    TOPIC,
    UNREADABLE,
    FilePart,
    RecordSource,
    error_row,
    share_out,
)
from rebal.inspectors.fleet.spark.tasks import Say, cores_of, in_shares, in_tasks
from rebal.inspectors.logs.lines import Zone

Read = Callable[[Any], Iterator[pa.RecordBatch]]
_TASKS_PER_CORE: Final = 4
# Generations by which a log's zone is found; all must show the same one.
_LOOKED_AT: Final = 64
_CLASSIC: Final = GROUP_METADATA.to_bytes(2, "big")
# Less than one record in so many of what was read is almost nothing.
_FEW: Final = 10
# A scan that goes on from another one may find this many broken records alone.
_MANY: Final = 100
# Bytes of rows that a task sorts at once: more memory costs a new worker more than it saves.
_HELD: Final = 16 << 20

REPEATED: Final = "REPEATED"
HISTORY: Final = frozenset(KINDS) - frozenset(OFFSET_COMMITS)
"""The record kinds that the timeline uses: all but offset commits."""
# Bytes of an offset commit's value with empty metadata, by its version.
_SHORTEST: Final = np.array([20, 28, 20, 24, 24])
_NONE: Final = -1
_Ints = np.ndarray[Any, np.dtype[np.int64]]
_Mask = np.ndarray[Any, np.dtype[np.bool_]]


def read_records(spark: SparkSession, lake_scan: LakeScan, source: RecordSource) -> TaskReport:
    """Read and store the records that no earlier scan has read; return the sum of the task reports.

    If a record may have come twice, all are read again and each partition and offset is kept once.

    Raises:
        DocumentError: the source holds no records of `__consumer_offsets`, or too few readable
            ones.
        RequestError: the cluster's topic is not the one that an earlier scan read.
    """
    after = lake_scan.previous.offsets
    shares, read = source.share(cores_of(spark), after), source.read
    if lake_scan.previous.run:
        read = partial(
            only_new,
            read=read,
            after=after,
            place=lake_scan.place,
            broken=[one.path for one in lake_scan.earlier("broken")],
        )
    work = partial(take_in, target=lake_scan.target, latest=latest_time())
    found = TaskReport()
    found.take(in_shares(spark, shares, partial(work, read=read), REPORT_DDL).collect())
    if found.may_repeat:
        remove(
            lake_scan.place,
            [Freed(one.path, one.size) for files in found.made.values() for one in files],
        )
        rows = in_shares(spark, shares, read, from_arrow_schema(SOURCE, prefer_timestamp_ntz=False))
        once = TaskReport()
        once.take(in_tasks(_each_once(rows), partial(work, read=iter), REPORT_DDL).collect())
        repeated = max(0, found.rows - once.rows)
        once.records[REPEATED] = repeated
        once.rows += repeated
        found = once
    check_records(source.names, found.records, before=lake_scan.previous.run > 0)
    return found


def _each_once(rows: DataFrame) -> DataFrame:
    # What is no record may have no place, and is never a copy.
    broken = sql.when(sql.col("problem").isNotNull(), sql.monotonically_increasing_id())
    copies = rows.groupBy("partition", "offset", broken.alias("broken"))
    columns = sorted(SOURCE.names, key="source".__ne__)
    first = copies.agg(sql.min(sql.struct(columns)).alias("first"))
    return first.select([f"first.{name}" for name in SOURCE.names])


def check_records(names: Sequence[str], ended: Mapping[str, int], before: bool) -> None:
    """Check that at least a tenth of a source's records are records of `__consumer_offsets`.

    `names` are the source's names for the error message. `ended` has the number of its records by
    kind. If an earlier scan was finished (`before`), a source of fewer than 100 records, or of
    none, is not checked.

    Raises:
        DocumentError: there is no record, or fewer than a tenth are of a known kind and readable.
    """
    read = sum(ended.values())
    known = sum(ended.get(name, 0) for name in KINDS.values())
    if known * _FEW >= read > 0 or (before and read < _MANY):
        return
    if not read:
        raise DocumentError(
            f"{', '.join(names)}: no record of {TOPIC} is in there; nothing to report on."
        )
    raise DocumentError(
        f"{', '.join(names)}: {known:,} of {read:,} records are {TOPIC}'s; it seems to be "
        f"something else: give records of {TOPIC}, with key and value as brokers wrote them; a "
        "broker's request log goes to --request-log."
    )


def check_request_logs(paths: Sequence[str], counts: Mapping[str, int]) -> None:
    """Check that request logs hold a line of Kafka's request logger.

    `counts` are those of `RequestLines`.

    Raises:
        DocumentError: the files have lines, and none is from the request logger.
    """
    if counts["lines"] and not counts["requests"]:
        raise DocumentError(
            f"{', '.join(paths)}: none of {counts['lines']:,} lines is a request log's; give the "
            "file of kafka.request.logger at DEBUG."
        )


def read_logs(
    spark: SparkSession,
    lake_scan: LakeScan,
    paths: Sequence[str],
    totals: TaskReport,
    *,
    zone: Zone,
    say: Say,
) -> tuple[Sequence[ReadLog], int | None]:
    """Read and store the request log lines that no earlier scan has read.

    Returns the logs with the position up to which each was read, and how far their clock is ahead
    of UTC, in milliseconds, as this or an earlier scan found it (None: not found).

    `zone` is the time zone of times that name none. If it is None, the zone is found from the
    records of this scan, else it is that of the previous scan, else UTC. The counts of lines are
    added to `totals`.

    Raises:
        DocumentError: a path is missing or cannot be read, a folder holds no file, or no line is
            from the request logger.
    """
    before = lake_scan.previous
    shares, read = share_out(paths, _TASKS_PER_CORE * cores_of(spark), before.logs)
    ahead_ms = before.log_ahead_ms
    if zone is None:
        ahead_ms = _find_zone(spark, lake_scan, shares, totals.files("records"), ahead_ms)
        if ahead_ms:
            zone = timedelta(milliseconds=ahead_ms)
            say(f"the request logs' times are read as {zone_name(zone)}: no zone is printed")
    take = partial(take_requests, target=lake_scan.target, zone=zone, latest=latest_time())
    totals.take(in_shares(spark, shares, take, REPORT_DDL).collect())
    check_request_logs(paths, totals.lines)
    return read, ahead_ms


def _find_zone(
    spark: SparkSession,
    lake_scan: LakeScan,
    shares: Sequence[Sequence[FilePart]],
    records: Sequence[DataFile],
    before: int | None,
) -> int | None:
    """Return how far the logs' clock is ahead of UTC, in milliseconds.

    For each generation that is in both, it compares the time of the leader's SYNC_GROUP in the logs
    (`shares`) with the timestamp of the generation's record in the lake files `records`: the
    coordinator does both at one moment. `inspect` does the same with one group's log
    (`groups.evidence.logs`). If no generation is in both, or the differences do not agree, the
    result is `before`, which the previous scan found (None: unknown).
    """
    if not records:
        return before
    found = in_shares(spark, shares, read_syncs, SYNCED).limit(_LOOKED_AT).collect()
    synced = {(one["group_id"], one["generation"]): one["at"] for one in found}
    written = _written_in(
        lake_scan.place,
        [one.path for one in records],
        of_groups(pa.array({group_id for group_id, _ in synced}, TEXT)),
    )
    apart = [timedelta(microseconds=synced[key] - written[key]) for key in synced.keys() & written]
    zones = [one for one in set(map(zone_offset, apart)) if one is not None]
    return zones[0] // timedelta(milliseconds=1) if len(zones) == 1 else before


def _written_in(
    place: LakePlace, paths: Sequence[str], wanted: pc.Expression
) -> dict[tuple[str, int], int]:
    """Return when each generation's first record was written, by group id and generation.

    `paths` are lake files of packed runs, and `wanted` is the condition for the runs to read. Times
    are microseconds since 1970.
    """
    written: dict[tuple[str, int], int] = {}
    found = (rows for path in paths for rows in read_rows(place, path, RUNS, wanted))
    for run in chain.from_iterable(map(runs_of, found)):
        rows = run.rows()
        for key, value, at in zip(
            *(values_of(rows[name]) for name in ("key", "value", "at")), strict=True
        ):
            if key.startswith(_CLASSIC) and value is not None:
                generation = run.group_id, generation_in(value)
                written[generation] = min(at, written.get(generation, at))
    return written


def only_new(
    share: Any,
    read: Read,
    after: Mapping[int, int],
    place: LakePlace,
    broken: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yield the batches that `read` yields for a task's share, without rows of earlier scans.

    Records up to the offsets in `after` (by partition) are left out. A row without an offset is
    left out if one of the lake files `broken` has a row with the same file name and the same text.
    """
    known: set[tuple[str, bytes]] | None = None
    for batch in read(share):
        rows = _later(pa.Table.from_batches([batch]), after)
        if rows["offset"].null_count:
            if known is None:
                unplaced = pc.field("offset").is_null()
                found = (
                    read_rows(
                        place,
                        path,
                        pa.schema(
                            [
                                (name, ERRORS.field(name).type)
                                for name in ("source", "offset", "value")
                            ]
                        ),
                        unplaced,
                    )
                    for path in broken
                )
                known = {line for one in chain.from_iterable(found) for line in _hashed(one)}
            of = zip(rows["offset"].is_valid().to_pylist(), _hashed(rows), strict=True)
            rows = rows.filter(pa.array([placed or line not in known for placed, line in of]))
        yield from rows.to_batches()


def take_in(share: Any, target: Target, read: Read, latest: int) -> Iterator[pa.RecordBatch]:
    """Write the records of one task's share to the lake; yield the task's report.

    `read` yields the share's records as batches of `SOURCE`. `latest` is the latest possible record
    time, by the clock of the machine that scans, in microseconds since 1970.
    """
    writer, commits = PartWriter(target), CommitSums()
    _write_runs("records", _history(read(share), commits, writer, latest), writer)
    parts = commits.parts()
    name_topics(parts, writer)
    writer.write("commit_parts", parts)
    yield from writer.report()


def _history(
    batches: Iterable[pa.RecordBatch], commits: CommitSums, writer: PartWriter, latest: int
) -> Iterator[pa.Table]:
    """Yield the group and member records in the columns of `TIMELINE`, and count all records.

    Offset commits go to `commits`, and broken records become rows of `errors`.
    """
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        writer.task_report.rows += len(rows)
        _note_extent(writer.task_report, rows, latest)
        kinds, is_commit, is_history, is_doubtful = sort_out(batch)
        for kind, amount in zip(*np.unique(kinds[~is_doubtful], return_counts=True), strict=True):
            writer.task_report.records[kind_name(int(kind))] += int(amount)
        commits.add(rows.filter(pa.array(is_commit)))
        explain(writer, rows.filter(pa.array(is_doubtful)))
        history_rows = rows.filter(pa.array(is_history)).combine_chunks()
        history_rows = history_rows.append_column("group_id", _groups(history_rows["key"]))
        yield in_columns(history_rows.append_column("at", history_rows["timestamp"]), TIMELINE)


def take_requests(
    share: Sequence[FilePart], target: Target, zone: Zone, latest: int
) -> Iterator[pa.RecordBatch]:
    """Write the request log lines of one task's share to the lake; yield the task's report.

    `zone` is the time zone of times that name none (None: UTC). `latest` is the latest possible
    time, in microseconds since 1970.
    """
    writer = PartWriter(target)
    _write_runs("requests", _lines(share, zone, writer, latest), writer)
    yield from writer.report()


def _lines(
    share: Sequence[FilePart], zone: Zone, writer: PartWriter, latest: int
) -> Iterator[pa.Table]:
    """Yield the lines that concern a group in the columns of `TIMELINE`.

    Lines that cannot be read become rows of `errors`.
    """
    times: list[pa.Array] = []
    for rows in read_parts(share, zone, writer.task_report.lines):
        times += rows["at"].chunks
        broken = rows.filter(rows["problem"].is_valid()).select(["source", "position", "problem"])
        errors = broken.rename_columns(["source", "offset", "error"])
        errors = errors.append_column("what", pa.repeat("request log line", len(broken)))
        writer.write("broken", in_columns(errors, ERRORS))
        yield rows.filter(rows["problem"].is_null())
    writer.task_report.widen_span(span_of(pa.chunked_array(times, TIME), latest))


def _write_runs(kind: str, found: Iterable[pa.Table], writer: PartWriter) -> None:
    news: list[pa.Table] = []
    for held in gathered(found, _HELD):
        runs = pack(in_order(held))
        writer.write(kind, runs)
        news.append(summed([runs]))
    writer.task_report.news = encoded(summed(news))


def _later(rows: pa.Table, after: Mapping[int, int]) -> pa.Table:
    # Those without a place stay.
    last = pa.array(after.values(), pa.int64()).take(
        pc.index_in(rows["partition"], pa.array(after, rows.schema.field("partition").type))
    )
    return rows.filter(pc.fill_null(pc.greater(rows["offset"], last), True))


def _hashed(rows: pa.Table) -> Iterator[tuple[str, bytes]]:
    for source, text in zip(rows["source"].to_pylist(), rows["value"].to_pylist(), strict=True):
        yield source, blake2b(text or b"", digest_size=16).digest()


def _groups(keys: pa.ChunkedArray) -> pa.Array:
    found = keys.combine_chunks().dictionary_encode()
    keys = found.dictionary.to_pylist()
    return pa.array(
        [key[4 : 4 + int.from_bytes(key[2:4])].decode("utf-8", "replace") for key in keys], TEXT
    ).take(found.indices)


def _note_extent(report: TaskReport, rows: pa.Table, latest: int) -> None:
    """Add the offsets and the first and last record time of `rows` to the task's report.

    An offset that is missing alone counts as read, as does one before the first of `rows`: it is a
    transaction's marker. Times after `latest` are ignored, unless all are (`runs.span_of`).
    """
    places = rows.select(["partition", "offset"]).sort_by(
        [("partition", "ascending"), ("offset", "ascending")]
    )
    after, before = places.slice(1), places.slice(0, max(0, places.num_rows - 1))
    alone = pc.and_(
        pc.equal(pc.subtract(after["offset"], before["offset"]), 2),
        pc.equal(after["partition"], before["partition"]),
    )
    for number in after["partition"].filter(alone).to_pylist():
        report.offsets[number] += 1
    read = rows.group_by("partition", use_threads=False)
    asked = [("offset", what) for what in ("min", "max", "count", "count_distinct")]
    for one in read.aggregate(asked).to_pylist():
        if one["partition"] is not None and one["offset_max"] is not None:
            report.add_offsets(one["partition"], one["offset_min"], one["offset_max"])
            report.offsets[one["partition"]] += one["offset_count"] + 1
            report.twice |= one["offset_count_distinct"] < one["offset_count"]
    report.widen_span(span_of(rows["timestamp"].filter(pc.is_null(rows["problem"])), latest))


def sort_out(rows: pa.RecordBatch) -> tuple[_Ints, _Mask, _Mask, _Mask]:
    """Return the kind of each row, and masks of the commits, the history and the doubtful rows.

    The kind is the key's first 16-bit number, or -1 if the row has a problem or no such number.
    Commits are offset commits that can be reduced: a tombstone, or a value of a known version that
    is long enough. History is records of groups and members with a timestamp. Doubtful are rows of
    these kinds that fit neither mask, and rows of kind -1. All other rows are only counted.
    """
    keys, values, problems = (rows.column(name) for name in ("key", "value", "problem"))
    key_sizes, value_sizes = _sizes(keys), _sizes(values)
    # A key begins with its kind and the length of the group's name, a value with its version.
    (kinds, names), (versions, _) = _first_words(keys), _first_words(values)
    kinds = np.where(np.asarray(problems.is_null()) & (key_sizes >= 2), kinds, _NONE)
    known_version = (versions >= 0) & (versions < len(_SHORTEST))
    long_enough = known_version & (value_sizes >= _SHORTEST.take(versions, mode="clip"))
    commits = np.isin(kinds, OFFSET_COMMITS) & (np.asarray(values.is_null()) | long_enough)
    history = np.isin(kinds, list(HISTORY)) & (names >= 0) & (key_sizes >= 4 + names)
    history &= np.asarray(rows.column("timestamp").is_valid())
    return (
        kinds,
        commits,
        history,
        np.isin(kinds, [_NONE, *OFFSET_COMMITS, *HISTORY]) & ~commits & ~history,
    )


def _first_words(values: pa.Array) -> _Ints:
    """Return the first and the second big-endian 16-bit number of each value.

    A value shorter than four bytes is padded with zeros.
    """
    first = pc.fill_null(pc.binary_slice(values, 0, 4), b"")
    whole = pc.binary_slice(pc.binary_join_element_wise(first, bytes(4), b""), 0, 4)
    words = np.frombuffer(whole.buffers()[2] or b"", ">i2", 2 * len(whole)).reshape(-1, 2)
    return words.T.astype(np.int64)


def _sizes(values: pa.Array) -> _Ints:
    return np.asarray(pc.fill_null(pc.binary_length(values), 0))


def explain(writer: PartWriter, rows: pa.Table) -> None:
    """Count the doubtful `rows` (`sort_out`), and write a row of `errors` for each broken record.

    A row whose problem begins with `SKIPPED` is counted by its problem, and has no row of `errors`.
    Every other row is a broken record.
    """
    skipped = pc.fill_null(pc.starts_with(rows["problem"], SKIPPED), False)
    for problem in rows["problem"].filter(skipped).to_pylist():
        writer.task_report.skipped[problem.removeprefix(SKIPPED)] += 1
    broken = rows.filter(pc.invert(skipped))
    writer.task_report.records[UNREADABLE] += len(broken)
    writer.add("broken", [_explained(row) for row in broken.to_pylist()])


def _explained(row: Mapping[str, Any]) -> dict[str, Any]:
    what, group_id, error = "record", None, row["problem"]
    if error is None:
        try:
            if row["key"] is None:
                raise WireError("The record has no key.")
            key = decode_key(row["key"])
            what, group_id = kind_name(key.version), getattr(key, "group_id", None)
            if key.version in OFFSET_COMMITS:
                decode_offset_commit(row["value"])
            if key.version in HISTORY and row["timestamp"] is None:
                raise WireError("The record has no time.")
            error = f"These bytes are not a record of the kind {what}."
        except WireError as wrong:
            error = str(wrong)
    return error_row(row, what, group_id, error)
