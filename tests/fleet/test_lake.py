"""The lake: a scan is in all tables or in none, whatever ended it and whoever else was writing.

Where it can be: what is refused before anything is read, and what a store's errors say.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.lake import table as lake_table
from rebal.inspectors.fleet.lake.place import LakeError, LakePlace, find_place
from rebal.inspectors.fleet.lake.run import LakeScan, find_cluster, new_scan
from rebal.inspectors.fleet.lake.store import open_store
from rebal.inspectors.fleet.lake.table import DataFile, LakeTable
from rebal.inspectors.fleet.lake.writer import STORED, PartWriter
from rebal.inspectors.fleet.manifest import UNNAMED, Manifest
from rebal.inspectors.fleet.sources.source import list_files
from rebal.inspectors.tables.reader import open_tables
from tests.fleet.conftest import failures
from tests.fleet.synthetic import change_document, last_scan, reported

WHEN = datetime(2026, 11, 21, tzinfo=UTC)


class KilledError(Exception):
    """What stands for a process that ends here."""


def finish(run: LakeScan, offset: int, at: datetime = WHEN) -> Manifest:
    """One row of the same number in four tables, as a task writes and reports them."""
    writer = PartWriter(run.target)
    writer.add("open_groups", [{"group_id": f"g{offset}"}])
    writer.add("members", [{"group_id": f"g{offset}", "member_id": str(offset)}])
    writer.add("errors", [{"what": "x", "offset": offset}])
    writer.add("records", [{"offset": offset, "group_id": f"g{offset}"}])
    report = reported(writer.report())
    replaced = report.made.keys() - {"records"}
    report.replaced = {one.path for kind in replaced for one in run.earlier(kind)}
    manifest = Manifest(cluster=run.cluster, run=run.number, finished_at=at, offsets={0: offset})
    return run.finish(manifest, report)


def one_scan(out: Path, offset: int, *, cluster: str = UNNAMED, full: bool = False) -> Manifest:
    run = new_scan(find_place(str(out)), cluster, full=full)
    return finish(run, offset)


def seen(out: Path, cluster: str = UNNAMED, scan: int | None = None) -> dict[str, Any]:
    """What a reader finds in a folder: the offsets in each table."""
    return seen_in(find_place(str(out)), cluster, scan)


def seen_in(place: LakePlace, cluster: str, scan: int | None = None) -> dict[str, Any]:
    tables = open_tables(f"{place}#{cluster}", place.options)
    tables = tables if scan in (None, tables.manifest.run) else tables.of_scan(scan)
    entry = tables.manifest.inputs["records"]
    columns = tables.read("groups", ["group_id"]).schema
    records = LakeTable(place, "records", columns).files(cluster, entry.version)
    there = place.files().get_file_info([f"records/{one.path}" for one in records])
    assert all(info.is_file for info in there)
    return {
        "offsets": tables.manifest.offsets,
        "groups": tables.read("groups", ["group_id"])["group_id"].to_pylist(),
        "members": tables.read("members", ["member_id"])["member_id"].to_pylist(),
        "errors": tables.read("errors", ["offset"])["offset"].to_pylist(),
        "records": sum(one.rows for one in records),
    }


def of(offset: int, records: int = 1) -> dict[str, Any]:
    """What a reader finds of the scan that came to this offset."""
    return {
        "offsets": {0: offset},
        "groups": [f"g{offset}"],
        "members": [str(offset)],
        "errors": [offset],
        "records": records,
    }


def files_of(out: Path) -> set[str]:
    return {str(path.relative_to(out)) for path in out.rglob("*.parquet")}


def test_a_reader_of_a_lake_sees_the_last_finished_scan(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    for offset in (5, 6):
        one_scan(out, offset)
    assert last_scan(out).run == 2
    assert seen(out) == of(6, records=2)
    assert set(last_scan(out).tables) | {"records", "requests", "states", "waiting"} == set(STORED)


@pytest.mark.parametrize(
    "commits",
    [
        number if number in (0, 1, 7, len(STORED)) else pytest.param(number, marks=pytest.mark.full)
        for number in range(len(STORED) + 1)
    ],
)
def test_a_scan_killed_between_two_table_commits_is_visible_in_no_table(
    commits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_scan(tmp_path, 5)
    become = LakeTable.commit_files
    left = commits

    def until_killed(table: LakeTable, *given: Any, **more: Any) -> int | None:
        nonlocal left
        if not left:
            raise KilledError
        left -= 1
        return become(table, *given, **more)

    monkeypatch.setattr(LakeTable, "commit_files", until_killed)
    with pytest.raises(KilledError):
        one_scan(tmp_path, 6)
    monkeypatch.undo()
    assert seen(tmp_path) == of(5)
    one_scan(tmp_path, 7)
    assert seen(tmp_path) == of(7, records=2)
    one_scan(tmp_path, 8)
    one_scan(tmp_path, 9)
    assert seen(tmp_path) == of(9, records=4)
    left_over = Counter(path.split("/")[0] for path in files_of(tmp_path))
    assert (left_over["groups"], left_over["records"], left_over["scans"]) == (2, 4, 1)


@pytest.mark.parametrize("commits", [0, 1, 5, len(STORED)])
def test_of_two_concurrent_scans_of_a_cluster_one_is_complete_and_the_other_fails(
    commits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_scan(tmp_path, 5)
    place = find_place(str(tmp_path))
    become = LakeTable.commit_files
    done = 0

    def interrupted(table: LakeTable, *given: Any, **more: Any) -> int | None:
        nonlocal done
        if done == commits:
            done += 1
            monkeypatch.undo()
            one_scan(tmp_path, 7)
        done += 1
        return become(table, *given, **more)

    run = new_scan(place, UNNAMED, full=False)
    monkeypatch.setattr(LakeTable, "commit_files", interrupted)
    with pytest.raises(LakeError, match="another scan of the cluster unnamed was writing"):
        finish(run, 6)
    assert seen(tmp_path) == of(7, records=2)
    one_scan(tmp_path, 8)
    assert seen(tmp_path) == of(8, records=3)


def test_two_clusters_in_one_lake_do_not_mix(tmp_path: Path) -> None:
    place = find_place(str(tmp_path))
    west, east = (new_scan(place, cluster, full=False) for cluster in ("west", "east"))
    finish(east, 2)
    finish(west, 1)
    one_scan(tmp_path, 3, cluster="west")
    assert (seen(tmp_path, "east"), seen(tmp_path, "west")) == (of(2), of(3, records=2))
    assert last_scan(tmp_path, "west").run == 2


def test_the_cluster_option_must_not_contradict_the_cluster_id(tmp_path: Path) -> None:
    place = find_place(str(tmp_path / "lake"))
    whose = "the files are"
    assert find_cluster(place, None, None, whose=whose) == UNNAMED
    assert find_cluster(place, "east", None, whose=whose) == "east"
    assert find_cluster(place, None, "mK8", whose=whose) == "mK8"
    assert find_cluster(place, "mK8", "mK8", whose=whose) == "mK8"
    with pytest.raises(LakeError, match="--cluster east: kafka-1:9092 is of the cluster mK8"):
        find_cluster(place, "east", "mK8", whose="kafka-1:9092 is")
    one_scan(tmp_path / "lake", 1, cluster="east")
    with pytest.raises(LakeError, match="it has scans of east, and the files are of a cluster"):
        find_cluster(place, None, None, whose=whose)


def test_concurrent_commits_of_several_clusters_to_one_table_all_succeed(tmp_path: Path) -> None:
    check_clusters_at_once(find_place(str(tmp_path)), clusters=4, commits=8)


def check_clusters_at_once(place: LakePlace, *, clusters: int, commits: int) -> None:
    """Each cluster makes and changes the table as if no other were there."""
    columns = pa.schema([("group_id", pa.string()), ("scan_id", pa.int64())])

    def of_cluster(number: int) -> None:
        table, name = LakeTable(place, "groups", columns), f"c{number}"
        table.create("east")
        before: tuple[DataFile, ...] = ()
        for commit in range(1, commits + 1):
            after = (DataFile(f"{name}-{commit}.parquet", 1, 10),)
            made = table.commit_files(name, after, commit, instead_of=before)
            assert made is not None
            before = table.files(name, made)
            assert before == after

    with ThreadPoolExecutor(clusters) as pool:
        list(pool.map(of_cluster, range(clusters)))
    assert LakeTable(place, "groups", columns).clusters() == tuple(
        f"c{number}" for number in range(clusters)
    )


def test_a_failed_commit_names_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError

    table = LakeTable(find_place(str(tmp_path)), "groups", pa.schema([("group_id", pa.string())]))
    table.create("east")

    def refused(*_: Any, **__: Any) -> None:
        raise CommitFailedError("the table takes no more files")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", refused)
    monkeypatch.setattr(lake_table.time, "sleep", lambda _: None)
    with pytest.raises(LakeError, match="the store says: the table takes no more files"):
        table.commit_files("east", [DataFile("a.parquet", 1, 10)], 1)


def test_a_delta_table_of_another_program_is_not_changed(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    place = find_place(str(tmp_path))
    DeltaTable.create(place.table("groups"), pa.schema([("theirs", pa.string())]))
    with pytest.raises(LakeError, match="the table groups there is another than rebal's"):
        LakeTable(place, "groups", pa.schema([("group_id", pa.string())])).create("east")
    (column,) = DeltaTable(place.table("groups")).schema().fields
    assert column.name == "theirs"


def test_rows_of_a_failed_spark_task_are_not_in_the_tables(tmp_path: Path) -> None:
    run = new_scan(find_place(str(tmp_path)), UNNAMED, full=False)
    failed = PartWriter(run.target)
    failed.add("errors", [{"what": "of a task that was tried again"}])
    list(failed.report())
    finish(run, 1)
    assert seen(tmp_path) == of(1)


def test_a_scan_does_not_write_into_a_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    for out, message in ((tmp_path, "holds other files"), (tmp_path / "thesis.tex", "is a file")):
        with pytest.raises(LakeError, match=message):
            one_scan(out, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_scan_rejects_a_lake_whose_last_scan_has_an_unknown_schema(tmp_path: Path) -> None:
    one_scan(tmp_path, 1)
    change_document(tmp_path, {"schema": "rebal.fleet/2"})
    before = files_of(tmp_path)
    with pytest.raises(DocumentError, match="the schema of its last scan is "):
        one_scan(tmp_path, 2)
    assert files_of(tmp_path) == before


def test_opening_a_lake_does_not_change_environment_variables() -> None:
    code = (
        "import os; before = dict(os.environ)\n"
        "from rebal.inspectors.fleet.lake.place import find_place\n"
        "find_place('lake')\n"
        "assert dict(os.environ) == before, os.environ.keys() - before.keys()\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "RUST_LOG"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)


@pytest.mark.parametrize(
    ("text", "message"),
    yaml.safe_load((Path(__file__).parents[1] / "data/wrong_lakes.yaml").read_text()),
)
def test_an_invalid_lake_url_is_rejected_without_showing_secrets(text: str, message: str) -> None:
    with pytest.raises(LakeError, match=message) as error:
        find_place(text)
    assert not re.search("=secret|:sec/?ret", str(error.value))


def test_a_store_endpoint_that_is_no_url_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("store:9000", "store", "http://", "http://store:90x", "ftp://store"):
        with pytest.raises(LakeError, match=r"^s3://b/a: AWS_ENDPOINT_URL is no URL such as "):
            find_place("s3://b/a", {"AWS_ENDPOINT_URL": value})
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "store:9000")
    assert find_place("s3://b/a", {"aws_endpoint": "http://store:9000"}).url == "s3://b/a"
    with pytest.raises(LakeError, match="AZURE_STORAGE_ENDPOINT is no URL"):
        find_place("abfss://box@account.dfs.core.windows.net/a")


def test_a_panic_of_the_object_store_client_becomes_one_sentence() -> None:
    place = find_place("s3://b/a")
    options = {"aws_endpoint": "no url", "aws_access_key_id": "x", "aws_secret_access_key": "y"}
    files = open_store(place.url, options)
    with pytest.raises(LakeError, match=r"^s3://b/a: the store says: "), place.errors():
        files.open_input_stream("x")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://bucket/a b/ü%20", "s3://bucket/a b/ü%20"),
        ("/srv/a#b", "/srv/a#b"),
        ("hdfs:///lakes/day=1/a-b_c.d", "hdfs:///lakes/day=1/a-b_c.d"),
        ("s3a://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket/team@east/a:b", "s3://bucket/team@east/a:b"),
        ("hdfs://name:8020/team@east", "hdfs://name:8020/team@east"),
        ("abfs://box@a.dfs.core.windows.net/a", "abfss://box@a.dfs.core.windows.net/a"),
        ("gcs://bucket/a", "gs://bucket/a"),
        ("file:///srv/lake", "/srv/lake"),
    ],
)
def test_lake_url_schemes_and_their_aliases_are_normalized(text: str, url: str) -> None:
    assert find_place(text).url == url


@pytest.mark.parametrize(("text", "message"), failures("stores"))
def test_a_store_error_is_reported_without_the_http_request(text: str, message: str) -> None:
    with pytest.raises(LakeError) as error, find_place("s3://b/a").errors():
        raise PermissionError(text)
    assert str(error.value) == f"s3://b/a: the store says: {message}."


def test_an_input_file_name_that_is_not_utf_8_is_reported_in_one_sentence(tmp_path):
    (tmp_path / "server.log").touch()
    with open(os.fsencode(tmp_path) + b"/\xff", "w"):
        pass
    with pytest.raises(LakeError, match="the name of a file there is not UTF-8"):
        list_files(tmp_path.as_uri())
