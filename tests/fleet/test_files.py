"""What tasks write into files of the lake and report, and how little of them is read again.

What is packed as runs comes out in order, whatever files and batches it came in.
"""

import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.dataset import ParquetFileFormat

from rebal.inspectors.clock import micros, moment
from rebal.inspectors.fleet import runs
from rebal.inspectors.fleet.increments import NO_GROUPS, Piece, carry, write_timelines
from rebal.inspectors.fleet.intake import only_new, take_in
from rebal.inspectors.fleet.lake import writer
from rebal.inspectors.fleet.lake.table import of_groups, read_rows
from rebal.inspectors.fleet.lake.writer import PartWriter, TaskReport
from rebal.inspectors.fleet.runs import in_order, pack, runs_of, unpack
from rebal.inspectors.fleet.schemas import ERRORS, RUNS, TIMELINE, in_columns
from rebal.inspectors.fleet.sources.source import SOURCE
from rebal.inspectors.fleet.timeline.group import Options
from tests.examples import examples
from tests.fleet import timeline_input
from tests.fleet.synthetic import reported, target_in
from tests.fleet.timeline_input import SECOND, START, Row, record, request_rows

Places = Sequence[tuple[int | None, int | None]]
GROUPS, EACH = 40, 200
LEAVE = b"""Completed request:{"requestHeader":{"requestApiKeyName":"LEAVE_GROUP"},"request":
{"groupId":"g","memberId":"m"},"response":{}}""".replace(b"\n", b"")
ONE_GROUP = of_groups(pa.array(["group-17"]))


def records(target_folder: Path, numbers: range = range(GROUPS * EACH)) -> TaskReport:
    """What a task makes of records of 40 groups that come in turn."""
    names = [b"group-%02d" % (number % GROUPS) for number in numbers]
    given = {
        "key": [b"\0\2" + len(name).to_bytes(2, "big") + name for name in names],
        "value": [b"\0\3" + bytes(50)] * len(names),
        "partition": [number % GROUPS for number in numbers],
        "offset": list(numbers),
        "timestamp": [1_760_000_000_000_000 + number for number in numbers],
        "source": ["s"] * len(names),
    }
    rows = in_columns(pa.table(given), SOURCE)
    batches = rows.to_batches(max_chunksize=1000)
    return reported(take_in(batches, target_in(target_folder), iter, 2**62))


def row_groups_read(folder: Path, path: str, wanted: pc.Expression) -> int:
    """How many row groups may hold what is wanted, by the statistics that were written."""
    file = ParquetFileFormat().make_fragment(path, filesystem=target_in(folder).place.files())
    return len(file.subset(wanted).row_groups)


def test_lake_files_are_sorted_by_group_so_one_group_is_read_from_one_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_FEW", 5)
    made = records(tmp_path).made
    assert set(made) == {"records"}
    (file,) = made["records"]
    assert row_groups_read(tmp_path, file.path, pc.scalar(True)) >= 8
    assert row_groups_read(tmp_path, file.path, ONE_GROUP) == 1
    found = rows_of(tmp_path, file.path)
    assert found["group_id"].to_pylist() == ["group-17"] * EACH
    assert found["offset"].to_pylist() == list(range(17, GROUPS * EACH, GROUPS))


def test_merged_lake_files_of_many_scans_are_sorted_by_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each scan has a few records of every group; merging makes one run for each group."""
    scans, each = 9, 5
    numbers = range(scans * each * GROUPS)
    files = [
        file
        for scan in range(scans)
        for file in records(tmp_path, numbers[scan * each * GROUPS :][: each * GROUPS]).files(
            "records"
        )
    ]
    monkeypatch.setattr(writer, "_FEW", 5)
    target = target_in(tmp_path, scans + 1)
    every = ~of_groups(NO_GROUPS)
    pieces = [Piece("records", one.path, one.size, every, anew=True) for one in files]
    (file,) = reported(carry(pieces, target)).files("records")
    assert file.rows == GROUPS
    assert row_groups_read(tmp_path, file.path, ONE_GROUP) == 1
    found = rows_of(tmp_path, file.path)
    assert found["offset"].to_pylist() == list(range(17, len(numbers), GROUPS))


def rows_of(folder: Path, path: str) -> pa.Table:
    """The records of `ONE_GROUP` in a file."""
    (rows,) = read_rows(target_in(folder).place, path, RUNS, ONE_GROUP)
    return pa.concat_tables([run.rows() for run in runs_of(rows)])


def written(folder: Path, kind: str, rows: pa.Table) -> str:
    """The path of the file of the first scan that has these rows."""
    writer = PartWriter(target_in(folder))
    writer.write(kind, rows)
    (file,) = reported(writer.report()).files(kind)
    return file.path


def test_reading_requests_without_a_time_reads_only_one_row_group(tmp_path: Path) -> None:
    rows = [
        {"group_id": f"group-{n:05d}", "at": 1_760_000_000_000_000 + n, "value": b"request"}
        for n in range(9000)
    ]
    runs = pack(pa.Table.from_pylist([*rows, {"group_id": "z"}], TIMELINE))
    path, timeless = written(tmp_path, "requests", runs), pc.field("at").is_null()
    assert row_groups_read(tmp_path, path, timeless) == 1
    (found,) = read_rows(target_in(tmp_path).place, path, RUNS, timeless)
    assert len(found) == 1


def test_a_request_log_line_without_a_time_is_not_kept_for_the_next_scan(tmp_path: Path) -> None:
    made = reported(
        write_timelines(request_of("g", None).to_batches(), target_in(tmp_path), Options())
    ).made
    assert "states" in made
    assert "waiting" not in made


def request_of(group_id: str, at: datetime | None) -> pa.Table:
    (said,) = (one["value"] for one in request_rows([(LEAVE, "log", 7)]).to_pylist())
    row = {"group_id": group_id, "value": said, "source": "log", "position": 7, "at": at}
    return pack(pa.Table.from_pylist([row], TIMELINE))


def test_a_request_with_an_implausible_time_is_kept_for_later_scans(tmp_path: Path) -> None:
    ahead = datetime(2036, 1, 1, tzinfo=UTC)
    target, options = target_in(tmp_path), Options(span=(0, 1_000_000))
    packed = request_of("g", ahead)
    for _ in range(2):
        # By the scan that read it, then by the next one.
        (record,) = unpack(packed.to_batches(), options.span)
        assert (record.at, record.told_at) == (None, micros(ahead))
        made = reported(write_timelines(packed.to_batches(), target, options)).made
        (packed,) = read_rows(target.place, made["waiting"][0].path, RUNS)
    (record,) = unpack(packed.to_batches(), (0, 2**62))
    assert (record.at, record.told_at) == (micros(ahead), None)


def test_an_unreadable_line_of_a_file_is_reported_by_one_scan_only(tmp_path: Path) -> None:
    lines = [{"source": "a", "value": b"broken"}, {"source": "b", "value": b"x", "offset": 3}]
    path = written(tmp_path, "broken", pa.Table.from_pylist(lines, ERRORS))
    place = target_in(tmp_path).place
    given = [
        {"source": "a", "value": b"broken"},
        {"source": "b", "value": b"broken"},
        {"source": "a", "value": b"broken", "partition": 0, "offset": 9},
        {"source": "a", "value": b"broken", "partition": 0, "offset": 10},
    ]
    rows = pa.Table.from_pylist(given, SOURCE).to_batches()
    batches = only_new(rows, iter, {0: 9}, place, [path])
    found = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["source"], row["offset"]) for row in found] == [("b", None), ("a", 10)]


def batches_of(places: Places, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(places), rows):
        part = [
            {"partition": partition, "offset": offset, "problem": "broken"}
            for partition, offset in places[start : start + rows]
        ]
        yield pa.RecordBatch.from_pylist(part, SOURCE)


@pytest.mark.parametrize("rows", [1, 2, 1 << 17])
@pytest.mark.parametrize(
    ("tasks", "may_repeat"),
    [
        ([[(0, 5), (1, 5), (0, 6), (1, 7), (0, 9)]], False),
        ([[(0, 7), (0, 8)], [(0, 5), (0, 6)]], False),
        ([[(0, 7), (0, 8), (0, 5), (0, 6)]], False),
        ([[(0, 5), (1, 90)], [(0, 6), (1, 80)], [(2, 5)]], False),
        ([[(0, 5), (None, None), (None, 5), (0, None), (0, 6)], [(None, None)]], False),
        ([[(0, 5), (0, 6), (1, 1), (0, 5), (0, 6)]], True),
        ([[(0, 5), (0, 9)], [(0, 6), (0, 7)]], True),
        ([[(0, 5), (0, 6)], [(1, 5)], [(0, 5), (0, 6)]], True),
    ],
    ids=str,
)
def test_overlapping_offset_ranges_of_a_partition_are_reported_as_possible_duplicates(
    tmp_path: Path, tasks: Sequence[Places], rows: int, may_repeat: bool
) -> None:
    """A source may hold a record twice; tasks report the offset ranges they read."""
    found = reported(
        report
        for places in tasks
        for report in take_in(batches_of(places, rows), target_in(tmp_path), iter, 0)
    )
    assert found.may_repeat is may_repeat
    read = [place for places in tasks for place in places if None not in place]
    assert found.last == {
        partition: max(offset or 0 for number, offset in read if number == partition)
        for partition, _ in read
    }


@pytest.mark.parametrize(("step", "whole"), [(1, True), (2, True), (3, False)])
def test_offsets_that_are_missing_alone_are_markers_of_transactions_not_lost_records(
    tmp_path: Path, step: int, whole: bool
) -> None:
    places = [(number, offset) for offset in range(0, 60, step) for number in (1, 2)]
    found = reported(take_in(batches_of(places, 1000), target_in(tmp_path), iter, 0))
    assert [found.offsets[number] > found.last[number] for number in (1, 2)] == [whole] * 2


def row(group: int, at: int | None, offset: int | None, size: int = 10) -> Row:
    time = None if at is None else START + at * SECOND
    if offset is not None:
        return record(f"g{group}", time, offset, b"k", b"v" * size)
    found = {"group_id": f"g{group}", "at": time, "source": "s", "value": b"q", "position": at or 0}
    return dict.fromkeys(TIMELINE.names) | found


def packed_of(rows: list[Row]) -> list[pa.Table]:
    return [pack(in_order([pa.Table.from_pylist(rows, TIMELINE)]))] if rows else []


def through(files: list[list[Row]]) -> list[Row]:
    """What comes out of files that several tasks packed, sorted as Spark sorts: by group."""
    packed = [run for rows in files for batch in packed_of(rows) for run in batch.to_pylist()]
    packed.sort(key=lambda run: run["group_id"])
    return list(unpacked(packed))


def unpacked(packed: list[Row]) -> Iterator[Row]:
    batches = pa.Table.from_pylist(packed, RUNS).to_batches(max_chunksize=3)
    for one in unpack(batches, None):
        yield dict.fromkeys(TIMELINE.names) | one._asdict()


times = st.one_of(st.none(), st.integers(0, 40))


def test_a_packed_run_of_rows_records_its_offset_range_and_time_range() -> None:
    (packed,) = packed_of([row(0, 5, 9), row(0, 7, 8), row(0, 6, None), row(0, None, None)])
    found = [[run[name] for name in ("kind", "offset", "last_offset", "at", "until", "ordered")]
             for run in packed.to_pylist()]  # fmt: skip
    at = [moment(START + n * SECOND) for n in range(10)]
    assert found == [
        ["records", 9, 9, at[5], at[5], True],
        ["requests", None, None, at[6], at[6], True],
        ["records", 8, 8, at[7], at[7], True],
        ["requests", None, None, None, None, True],
    ]
    (packed,) = packed_of([row(0, 5, 9), row(0, 7, 8)])
    (run,) = packed.to_pylist()
    assert (run["offset"], run["last_offset"], run["ordered"]) == (8, 9, False)


@settings(examples(60))
@given(
    st.lists(
        st.lists(
            st.builds(row, st.integers(0, 3), times, st.one_of(st.none(), st.integers(0, 99))),
            max_size=30,
        ),
        max_size=4,
    ),
    st.integers(1, 8),
)
def test_unpacked_rows_follow_their_effective_times(files: list[list[Row]], run_rows: int) -> None:
    files = [[one for one in rows if one["at"] or one["key"] is None] for rows in files]
    numbers = itertools.count()
    for one in itertools.chain.from_iterable(files):
        if one["offset"] is not None:
            # a place has one record, and times follow the offsets or do not
            one["offset"] = one["offset"] * 1000 + next(numbers)
    before, runs._RUN_ROWS = runs._RUN_ROWS, run_rows
    try:
        made = through(files)
    finally:
        runs._RUN_ROWS = before
    ordered = timeline_input.in_order([one for rows in files for one in rows])
    assert made == ordered


def test_the_saved_state_of_a_group_is_unpacked_before_its_rows() -> None:
    state = dict.fromkeys(TIMELINE.names) | {"group_id": "g1", "state": b"x"}
    made = through([[row(1, 3, 3), row(0, 1, 1)], [row(1, 2, 2), row(2, 0, 0)], [state]])
    assert [(one["group_id"], one["state"], one["offset"]) for one in made] == [
        ("g0", None, 1),
        ("g1", b"x", None),
        ("g1", None, 2),
        ("g1", None, 3),
        ("g2", None, 0),
    ]


def test_a_large_run_of_rows_is_split_and_repeated_values_are_compressed() -> None:
    rows = [row(1, n, n, size=400_000) for n in range(10)]
    (batch,) = packed_of(rows)
    assert len(batch) == 4
    assert batch.nbytes < 0.01 * sum(batch["size"].to_pylist())
