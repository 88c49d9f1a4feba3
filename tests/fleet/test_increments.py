"""Scans that go on from the one before, and how long they are kept."""

import gzip
import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.cli import app
from rebal.inspectors.fleet import scan as scanning
from rebal.inspectors.fleet.increments import (
    ABOUT,
    NEWS,
    GroupChoice,
    choose,
    decoded,
    encoded,
    final_until,
    summed,
)
from rebal.inspectors.fleet.lake import run as lake_run
from rebal.inspectors.fleet.lake import table
from rebal.inspectors.fleet.lake import table as lake_table
from rebal.inspectors.fleet.lake.place import LakeError, LakePlace, find_place
from rebal.inspectors.fleet.lake.run import Compacted, Freed, compact, new_scan
from rebal.inspectors.fleet.lake.scans import Scans
from rebal.inspectors.fleet.lake.table import LakeTable
from rebal.inspectors.fleet.lake.writer import columns_of
from rebal.inspectors.fleet.manifest import UNNAMED, Manifest
from rebal.inspectors.fleet.schemas import TABLES
from rebal.inspectors.fleet.timeline.facts import DISORDER
from rebal.inspectors.fleet.timeline.group import FORM
from rebal.inspectors.tables.reader import Tables, TablesError, open_tables
from tests.documents import checked
from tests.examples import examples
from tests.fleet.conftest import OFFSETS, REQUEST_LOG, lines_in, read_tables, without_sources
from tests.fleet.synthetic import last_scan
from tests.fleet.test_lake import WHEN, KilledError, files_of, finish, of, seen
from tests.fleet.timeline_input import M, Story, record, text, write_records

Scan = Callable[..., str]


def captured() -> list[str]:
    """The captured records in the order of their times."""
    lines = (line.decode().rstrip() for line in lines_in(OFFSETS))
    return sorted(lines, key=lambda line: json.loads(line)["timestamp"])


def parts(folder: Path, number: int) -> list[tuple[Path, Path]]:
    """The captures as so many files of records, and a request log that grows with them."""
    lines, said = captured(), lines_in(REQUEST_LOG)
    made = []
    for n in range(number):
        records, requests = folder / f"records-{n}.jsonl", folder / f"{n}" / "kafka-request.log"
        mine = lines[len(lines) * n // number : len(lines) * (n + 1) // number]
        records.write_text("\n".join(mine) + "\n", encoding="utf-8")
        requests.parent.mkdir()
        requests.write_bytes(b"".join(said[: len(said) * (n + 1) // number]))
        made.append((records, requests))
    return made


def told(out: Path) -> dict[str, list[dict[str, Any]]]:
    return without_sources(read_tables(out))


def inputs(out: Path, table: str) -> list[tuple[int, str]]:
    """The scan that wrote each row that the last one has in a table of its own, and its group."""
    stored = LakeTable(find_place(str(out)), table, columns_of(table))
    files = stored.files(UNNAMED, last_scan(out).inputs[table].version)
    rows = [row for one in files for row in pq.read_table(out / table / one.path).to_pylist()]
    return sorted((row["scan_id"], row["group_id"]) for row in rows)


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> list[GroupChoice]:
    """What the scans of the test choose to tell, one after the other."""
    found: list[GroupChoice] = []

    def noted(*words: Any) -> GroupChoice:
        found.append(choose(*words))
        return found[-1]

    monkeypatch.setattr(scanning, "choose", noted)
    return found


def test_an_unreadable_record_stays_reported_after_its_group_is_recomputed(
    scan: Scan, tmp_path: Path
) -> None:
    out, log = tmp_path / "out", tmp_path / "kafka-request.log"
    lines = [line for line in captured() if "AB2JpbGxpbmc" in line]
    rows = [json.loads(line) for line in lines]
    row = next(one for one in rows if "AAEAB2JpbGxpbmc" in one["key"])
    broken = {**row, "value": "AAMA", "offset": max(one["offset"] for one in rows) + 1}
    file = tmp_path / "broken.jsonl"
    file.write_text("\n".join([*lines, json.dumps(broken)]) + "\n", encoding="utf-8")
    scan("--offsets", file, "--out", out)
    before = told(out)["errors"]
    assert [row["group_id"] for row in before] == ["billing"]
    log.write_bytes(b"".join(line for line in lines_in(REQUEST_LOG) if b"billing" in line))
    scan("--request-log", log, "--out", out)
    assert last_scan(out).requests["parsed"] > 100
    assert told(out)["errors"] == before


@pytest.mark.parametrize(("scans", "with_log"), [(6, False), (4, True)])
def test_incremental_scans_after_a_wrong_clock_equal_one_full_scan(
    scan: Scan, tmp_path: Path, choices: list[GroupChoice], *, scans: int, with_log: bool
) -> None:
    """Record timestamps of the first part and of some in the third part are ahead."""
    whole, out = tmp_path / "whole", tmp_path / "out"
    given = parts(tmp_path, scans)
    for n, seconds, every in ((0, 2, 3), (2, 5, 5)):
        rows = [json.loads(line) for line in given[n][0].read_text().splitlines()]
        for row in rows[::every]:
            row["timestamp"] += 1000 * seconds
        given[n][0].write_text("".join(json.dumps(row) + "\n" for row in rows))
    every_one = tmp_path / "all.jsonl"
    every_one.write_text("".join(records.read_text() for records, _ in given))
    log = ["--request-log", given[-1][1]] if with_log else []
    scan("--offsets", every_one, *log, "--out", whole)
    choices.clear()
    for records, log_file in given:
        log = ["--request-log", log_file] if with_log else []
        scan("--offsets", records, *log, "--out", out)
    assert told(out) == told(whole)
    steps, once = last_scan(out), last_scan(whole)
    assert (steps.read, steps.records, steps.offsets) == (once.read, once.records, once.offsets)
    assert (steps.observed_from, steps.observed_until) == (once.observed_from, once.observed_until)
    assert all(choices[n].anew for n in (0, 2))
    if not with_log:
        assert not choices[1].anew
        assert not choices[-1].anew
        assert choices[-1].go_on


def test_a_scan_recomputes_only_groups_with_new_records(scan: Scan, tmp_path: Path) -> None:
    (first, _), (second, _) = parts(tmp_path, 2)
    out, news = tmp_path / "out", tmp_path / "news.jsonl"
    scan("--offsets", first, "--out", out)
    before = inputs(out, "states")
    quiet = [line for line in second.read_text().splitlines() if "AAIAB2JpbGxpbmc" in line]
    assert quiet, "no record of the group billing"
    news.write_text("\n".join(quiet) + "\n", encoding="utf-8")
    scan("--offsets", news, "--out", out)
    after = [(1, group) for _, group in before if group != "billing"]
    assert inputs(out, "states") == [*after, (2, "billing")]
    members = read_tables(out)["members"]
    assert len({row["group_id"] for row in members}) > 5


def test_a_line_in_several_copies_of_a_log_is_counted_once(scan: Scan, tmp_path: Path) -> None:
    """Copies: beside the log, in a later scan, and compressed."""
    log_lines = lines_in(REQUEST_LOG)[-1500:]
    log, copy = tmp_path / "kafka-request.log", tmp_path / "copy.log"
    out, whole = tmp_path / "out", tmp_path / "whole"
    log.write_bytes(b"".join(log_lines))
    scan("--request-log", log, "--out", whole)
    log.write_bytes(b"".join(log_lines[:1000]))
    copy.write_bytes(b"".join(log_lines[700:1000]))
    scan("--request-log", log, "--request-log", copy, "--out", out)
    copy.write_bytes(b"".join(log_lines[300:]))
    scan("--request-log", copy, "--out", out)
    assert told(out) == told(whole)
    before = last_scan(out).inputs["requests"].rows
    packed = tmp_path / "copy.log.gz"
    packed.write_bytes(gzip.compress(copy.read_bytes()))
    scan("--request-log", packed, "--out", out)
    assert last_scan(out).inputs["requests"].rows == before


def test_deleted_groups_are_dropped_after_the_retention_and_stay_in_kept_scans(
    scan: Scan, tmp_path: Path
) -> None:
    def given(name: str, *stories: Story) -> Path:
        rows = [row for story in stories for row in story.rows]
        return write_records(tmp_path / f"{name}.jsonl", rows)

    def groups_of(tables: Tables) -> set[str]:
        names = [name for name in TABLES if name not in ("errors", "log_ends")]
        columns = [tables.read(name, ["group_id"])["group_id"] for name in names]
        return {group_id for column in columns for group_id in column.to_pylist()}

    day, out, a, b = 86_400, tmp_path / "out", [M("a", (0,))], [M("b", (1,))]
    deleted, stays = Story(group="gone"), Story(group="stays", offset=10)
    deleted.generation(0, 1, a)
    deleted.tombstone(60)
    stays.generation(0, 1, b)
    commit = struct.pack(">hqi", 3, 7, 0) + text("") + struct.pack(">q", 1_790_000_000_000)
    key = struct.pack(">h", 1) + text("gone") + text("orders") + struct.pack(">i", 0)
    stays.rows.append(record("gone", stays.rows[0]["at"], 11, key, commit))
    scan("--offsets", given("first", deleted, stays), "--out", out)

    later = Story(group="stays", offset=20)
    later.generation(3 * day, 2, a)
    scan("--offsets", given("second", later), "--out", out, "--retain", "4d")
    assert groups_of(open_tables(str(out))) == {"gone", "stays"}
    later = Story(group="stays", offset=30)
    later.generation(4 * day, 3, b)
    scan("--offsets", given("third", later), "--out", out, "--retain", "2d")
    last = open_tables(str(out))
    assert groups_of(last) == {"stays"}
    assert groups_of(last.of_scan(2)) == {"gone", "stays"}
    assert {group_id for _, group_id in inputs(out, "records")} == {"stays"}

    again = Story(group="gone", offset=40)
    again.generation(5 * day, 1, a)
    scan("--offsets", given("fourth", again), "--out", out)
    columns = ["group_id", "incarnation", "deleted_at"]
    found = open_tables(str(out)).read("groups", columns, "gone").to_pylist()
    assert found == [{"group_id": "gone", "incarnation": 1, "deleted_at": None}]


def test_a_scan_merges_lake_files_when_a_table_has_too_many(
    scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MOST", 2)
    out, records, counts = tmp_path / "out", tmp_path / "records.jsonl", []
    for n in range(6):
        records.write_text("\n".join(captured()[40 * n : 40 * n + 40]) + "\n", encoding="utf-8")
        scan("--offsets", records, "--out", out)
        counts.append(sum(1 for _ in out.rglob("*.parquet")))
    assert counts[5] < counts[4]


def kept(offset: int | None, until: int = 100, latest: int = 100, **more: Any) -> pa.Table:
    row = {"group_id": "g", "form": FORM, "partition": 3, "offset": offset, "told_until": until}
    row |= {"latest": latest, "recorded": True, "unnamed": [], **more}
    return pa.Table.from_pylist([row], ABOUT)


def records(first: int, last: int, since: int = 100, until: int | None = None) -> dict[str, Any]:
    until = since + 10 if until is None else until
    row = {"group_id": "g", "kind": "records", "partition": 3, "offset": first}
    return row | {"last_offset": last, "at": since, "until": until, "ordered": True}


def requests(at: int | None) -> dict[str, Any]:
    return {"group_id": "g", "kind": "requests", "at": at, "until": at, "ordered": True}


def news(*rows: dict[str, Any]) -> pa.Table:
    return summed([pa.Table.from_pylist(list(rows), NEWS)])


def chosen(one: dict[str, Any], states: pa.Table, *words: Any) -> GroupChoice:
    return choose(news(one), states, *words or (None, ()))


def goes_on(choice: GroupChoice) -> bool:
    assert choice.groups.to_pylist() == ["g"]
    going = choice.go_on.to_pylist()
    assert going in ([], ["g"])
    assert choice.anew.to_pylist() == ([] if going else ["g"])
    return bool(going)


@pytest.mark.parametrize(
    ("one", "state", "words", "on"),
    [
        pytest.param(records(42, 43), kept(41), (), True, id="records that follow"),
        pytest.param(records(1, 1), kept(0), (), True, id="the second record"),
        pytest.param(records(0, 0), kept(None), (), True, id="the first one"),
        pytest.param(records(41, 42), kept(41), (), False, id="told already"),
        pytest.param(records(42, 43), kept(41, form="another"), (), False, id="another form"),
        pytest.param(records(42, 43), kept(41, form=None), (), False, id="no state"),
        pytest.param(records(42, 43), kept(41, recorded=False), (), False, id="lines alone"),
        pytest.param(records(42, 43), kept(41, partition=4), (), False, id="another partition"),
        pytest.param(records(42, 43, since=99), kept(41), (), False, id="an earlier time"),
        pytest.param(records(42, 43, 150), kept(41, latest=160), (), False, id="a clock was ahead"),
        pytest.param(records(42, 43, 160), kept(41, latest=160), (), True, id="it no longer is"),
        pytest.param(records(42, 43), kept(41), ((100, 105), ()), False, id="time not believed"),
        pytest.param(records(42, 43), kept(41), ((100, 110), ()), True, id="time believed"),
        pytest.param(requests(None), kept(41), (), True, id="a line without a time"),
        pytest.param(requests(101 + DISORDER), kept(41), (), True, id="later lines"),
        pytest.param(requests(100 + DISORDER), kept(41), (), False, id="earlier lines"),
    ],
)
def test_a_group_continues_from_its_saved_state_only_if_its_new_rows_follow_that_state(
    one: dict[str, Any], state: pa.Table, words: tuple[Any, ...], on: bool
) -> None:
    """Otherwise it is recomputed from all rows. `words` holds the believed time span."""
    assert goes_on(chosen(one, state, *words)) is on


def test_a_group_is_recomputed_when_the_name_of_one_of_its_topic_ids_becomes_known() -> None:
    choice = choose(news(), kept(41, unnamed=["x", "y"]), None, ["y"])
    assert not goes_on(choice)
    assert choice.recorded.to_pylist() == ["g"]
    assert not choose(news(), kept(41, unnamed=["x"]), None, ["y"]).groups


def test_a_new_group_without_saved_state_is_computed_from_its_new_rows() -> None:
    choice = chosen(records(5, 9), ABOUT.empty_table())
    assert choice.groups.to_pylist() == ["g"]
    assert not choice.go_on
    assert not choice.anew


def test_history_is_complete_up_to_the_end_of_the_source_that_ends_first() -> None:
    assert final_until(news(records(1, 2, 0, 90), requests(70))) == 70 - 2 * DISORDER
    assert final_until(news(records(1, 2, 0, 90))) is None


@examples(100)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.data())
def test_summaries_of_runs_merge_to_the_same_result_in_any_order_and_split(
    times: list[int], data: st.DataObject
) -> None:
    """A partition's runs are ordered exactly if its times increase with its offsets."""
    rows = [records(n, n, at, at) for n, at in enumerate(times)]
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    parts = [one for part in (shuffled[:cut], shuffled[cut:]) for one in encoded(news(*part))]
    (found,) = decoded(parts).to_pylist()
    assert (found["offset"], found["last_offset"]) == (0, len(times) - 1)
    assert not found["ordered"] or times == sorted(times)
    (whole,) = news(*shuffled).to_pylist()
    assert whole == {**found, "ordered": times == sorted(times)}


DAY = 86_400.0


Said = pytest.CaptureFixture[str]


def scan_at(out: Path, day: float, retain: float | None = None) -> Manifest:
    run = new_scan(find_place(str(out)), UNNAMED, full=False, retain=retain)
    return finish(run, run.number, WHEN + timedelta(days=day))


def check(out: Path, *scans: int) -> None:
    """These scans can be read, each as it was written."""
    assert open_tables(str(out)).scans == scans
    for number in scans:
        assert seen(out, scan=number) == of(number, records=number)


def members(out: Path) -> list[str]:
    return [one for one in files_of(out) if one.startswith("members/") and "_delta_log" not in one]


@pytest.fixture(scope="module")
def thirteen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that keeps thirteen scans of a year ago; `records` has a file of each."""
    out = tmp_path_factory.mktemp("thirteen") / "lake"
    for number in range(1, 14):
        scan_at(out, number - 400, 3650 * DAY)
    return out


@pytest.fixture
def lake(thirteen: Path, tmp_path: Path) -> Path:
    return Path(copytree(thirteen, tmp_path / "lake"))


def test_retention_removes_files_of_old_scans_and_leaves_kept_scans_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One scan a day; the first has --retain 3d, and later scans keep that setting."""
    monkeypatch.setattr(lake_run, "CHECKPOINT", 5)
    monkeypatch.setattr(lake_table, "CHECKPOINT", 5)
    counts = []
    for number in range(1, 11):
        scan_at(tmp_path, number, 3 * DAY if number == 1 else None)
        log = list((tmp_path / "groups" / "_delta_log").glob("0*"))
        counts.append((len(members(tmp_path)), len(log)))
    assert max(members for members, _ in counts) <= 8
    assert max(log for _, log in counts) <= 13
    assert counts[-1][0] <= 5, "the tenth scan removes files"
    assert counts[-1][1] <= 8, "and log entries"
    check(tmp_path, 7, 8, 9, 10)
    left = {path.split("/")[1].split("-")[1] for path in members(tmp_path)}
    tables = open_tables(str(tmp_path))
    assert left == {f"{number:08d}" for number in tables.scans}
    for number in (6, 11):
        message = rf"scan {number} was removed or never finished; scans 7 to 10 can be read\."
        with pytest.raises(TablesError, match=message):
            tables.of_scan(number)


def test_a_scan_reads_the_row_of_each_earlier_scan_once_and_few_documents_at_a_time(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    held: list[int] = []

    class Watched(pq.ParquetFile):  # type: ignore[misc]
        def iter_batches(self, rows: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
            for found in super().iter_batches(rows, columns=columns):
                (held if "document" in columns else read).append(len(found))
                yield found

    monkeypatch.setattr(lake_table, "_FEW", 4)
    monkeypatch.setattr(lake_table.pq, "ParquetFile", Watched)
    scan_at(lake, -386)
    assert sum(read) == 13
    scan_at(lake, -380, 10 * DAY)
    assert sum(read) == 13 + 14
    assert max(held) <= 4
    check(lake, *range(10, 16))


def test_scans_dropped_during_a_concurrent_scan_do_not_reappear(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan that commits its row at the same moment is either kept or fails."""
    place = find_place(str(lake))
    become = LakeTable.commit_files

    def beside(table: LakeTable, *given: Any, **more: Any) -> int | None:
        if more:
            monkeypatch.undo()
            found = Scans(place).of(UNNAMED)
            assert Scans(place).drop(found, [1, 2], "00000000-00000001-x")
        return become(table, *given, **more)

    monkeypatch.setattr(LakeTable, "commit_files", beside)
    with pytest.raises(LakeError, match="came first"):
        scan_at(lake, 11)
    assert open_tables(str(lake)).scans == tuple(range(3, 14))
    scan_at(lake, 12)
    for number in open_tables(str(lake)).scans:
        assert seen(lake, scan=number)["groups"] == [f"g{number}"]


def compacted(lake: Path, *, dry: bool = False) -> Compacted:
    return compact(find_place(str(lake)), [UNNAMED], retain=1.0, dry=dry)


def test_compact_removes_expired_scans_with_their_files_and_delta_log_entries(lake: Path) -> None:
    cut_off = lake / "groups" / "_delta_log" / f".{3:020}.json.tmp.1"
    cut_off.touch()
    planned = compacted(lake, dry=True)
    assert planned.dropped == {UNNAMED: tuple(range(1, 12))}
    assert len(members(lake)) == 13
    done = compacted(lake)
    assert (done.dropped, done.lost) == (planned.dropped, ())
    assert set(planned.files) <= set(done.files)
    assert len(planned.log) > 100
    check(lake, 12, 13)
    assert {path.split("-")[1] for path in members(lake)} == {"00000012", "00000013"}
    for one in (*done.files, *done.log):
        assert not (lake / one.path).exists()
    assert len(list((lake / "groups" / "_delta_log").glob("0*"))) < 12
    assert not cut_off.exists(), "a commit that was cut off on HDFS"


def test_a_compaction_killed_halfway_leaves_kept_scans_readable_and_the_next_one_finishes(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = lake_run.remove

    def half(place: LakePlace, freed: Sequence[Freed]) -> None:
        remove(place, freed[: len(freed) // 2])
        raise KilledError

    monkeypatch.setattr(lake_run, "remove", half)
    with pytest.raises(KilledError):
        compacted(lake)
    monkeypatch.undo()
    check(lake, 12, 13)
    assert compacted(lake).files, "the rest goes with the next one"
    assert compacted(lake).files == ()
    check(lake, 12, 13)


@pytest.mark.parametrize("ends", ["after the compaction", "within it"])
def test_a_compaction_does_not_disturb_a_running_scan(
    lake: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    run, find = new_scan(find_place(str(lake)), UNNAMED, full=False), lake_run.find_files

    def end_first(*given: Any, **more: Any) -> Any:
        finish(run, 9)
        return find(*given, **more)

    if ends == "within it":
        monkeypatch.setattr(lake_run, "find_files", end_first)
    assert len(compacted(lake).dropped[UNNAMED]) == 11
    monkeypatch.undo()
    if ends == "after the compaction":
        finish(run, 9)
    assert open_tables(str(lake)).manifest.offsets == {0: 9}
    assert seen(lake).keys() == seen(lake, scan=13).keys()


def test_a_compaction_gives_way_to_a_scan_that_finishes_during_it(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    drop = Scans.drop

    def scan_meanwhile(*given: Any) -> Any:
        monkeypatch.undo()
        scan_at(lake, 7)
        return drop(*given)

    monkeypatch.setattr(Scans, "drop", scan_meanwhile)
    assert app.run(["fleet", "compact", str(lake), "--retain", "365d", "-o", "json"]) == 1
    body = checked(capsys.readouterr().out, "json")
    assert "ended meanwhile and came first: compact again" in body["not_done"][0]
    assert body["exit_code"] == 1
    check(lake, *range(1, 15))


def test_compact_reports_the_removed_scans_and_the_freed_bytes(lake: Path, capsys: Said) -> None:
    def run_compact(*words: str) -> tuple[str, str]:
        assert app.run(["fleet", "compact", str(lake), "--retain", "1d", *words]) == 0
        return capsys.readouterr()

    sizes = {path: path.stat().st_size for path in lake.rglob("*") if path.is_file()}
    planned_lines = run_compact("--dry-run").err.splitlines()
    assert planned_lines[0] == "rebal: would remove scans 1 to 11 of unnamed"
    assert re.match(r"rebal: would free 0\.\d MB: ", planned_lines[1])
    planned = checked(run_compact("--dry-run", "-o", "json").out)
    assert not sizes.keys() - set(lake.rglob("*"))
    done = checked(run_compact("-o", "json").out)
    removed = sizes.keys() - set(lake.rglob("*"))
    assert done["clusters"] == [{"cluster": UNNAMED, "removed_scans": [*range(1, 12)]}]
    assert done["removed_files"] + done["removed_log_entries"] == len(removed) > 0
    assert done["freed_bytes"] == sum(sizes[path] for path in removed)
    assert planned["clusters"] == done["clusters"]
    assert (planned["dry_run"], done["dry_run"], done["not_done"]) == (True, False, [])
