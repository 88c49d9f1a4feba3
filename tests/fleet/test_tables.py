"""A scan's tables read back, and those of commits."""

import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.compact import Partitions
from rebal.groups.errors import RebalError
from rebal.groups.model import Broker, Cluster, GroupSnapshot
from rebal.inspectors.clock import micros
from rebal.inspectors.fleet import commits as commit_sums
from rebal.inspectors.fleet.commits import (
    CommitSums,
    as_parts,
    commit_groups,
    merge_commits,
    write_commits,
)
from rebal.inspectors.fleet.lake.place import find_place
from rebal.inspectors.fleet.lake.run import new_scan
from rebal.inspectors.fleet.lake.writer import PartWriter
from rebal.inspectors.fleet.schemas import COMMIT_PARTS, COMMITS, GROUPS, TABLES
from rebal.inspectors.fleet.sources.source import SOURCE
from rebal.inspectors.kafka.brokers import ClusterReading
from rebal.inspectors.tables.groups import read_snapshots
from rebal.inspectors.tables.reader import open_tables, read_history, rows_of
from tests.examples import examples
from tests.fleet.synthetic import (
    AT,
    change_document,
    files_in,
    fleet,
    group_named,
    reported,
    target_in,
    write_tables,
)
from tests.fleet.timeline_input import text


def half_written(folder: Path) -> Path:
    new_scan(find_place(str(folder)), "east", full=False)
    return folder


def two_clusters(folder: Path) -> Path:
    for cluster in ("west", "east"):
        write_tables(folder, fleet(4), cluster=cluster)
    return folder


def snapshot_of(small_scan: Path, shape: str) -> GroupSnapshot:
    (found,) = read_snapshots(open_tables(str(small_scan)), group_named(shape))
    return found


def broken(folder: Path, change: Mapping[str, Any]) -> Path:
    change_document(write_tables(folder, {}), change)
    return folder


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda at: at / "nothing", "there is no such folder; name the folder that a scan wrote"),
        (lambda at: (at / "f").write_text("x") and at / "f", "is a file, not a folder"),
        (lambda at: at, "no scan wrote it"),
        (half_written, "no scan in it was finished"),
        (lambda at: write_tables(at, {}) / "groups", "(it has no table `scans`)"),
        (two_clusters, "scans of 2 clusters (east, west): name one, as in"),
        (lambda at: f"{two_clusters(at)}#north", "of the cluster north is there; it has scans of"),
        (lambda at: broken(at, {"schema": "rebal.fleet-scan/9"}), "rebal reads"),
        (lambda at: broken(at, {"tables": 3}), "last scan cannot be read (Expected"),
        (lambda at: broken(at, {"schema": None}), "the schema of its last scan is None"),
    ],
)
def test_a_lake_without_a_readable_finished_scan_is_reported_in_one_sentence(
    make: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(RebalError) as error:
        open_tables(str(make(tmp_path)))
    assert message in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("harm", ["missing", "cut off", "no parquet", "other rows"])
def test_a_damaged_table_file_is_named(harm: str, tmp_path: Path) -> None:
    folder = write_tables(tmp_path, fleet(4))
    file = folder / files_in(folder, "open_groups")[0]
    if harm == "missing":
        file.unlink()
    elif harm == "cut off":
        file.write_bytes(file.read_bytes()[:-200])
    elif harm == "no parquet":
        file.write_text("not Parquet at all")
    else:
        file.write_bytes((folder / files_in(folder, "members")[0]).read_bytes())
    with pytest.raises(RebalError, match=r"groups/.*groups-.*parquet .*scan again") as error:
        read_history(open_tables(str(folder)))
    assert "\n" not in str(error.value)


def test_unknown_table_columns_are_ignored_and_missing_columns_are_null(tmp_path: Path) -> None:
    folder = write_tables(tmp_path, fleet(6))
    tables = open_tables(str(folder))
    members = tables.read("members", ["group_id"]).num_rows
    file = folder / files_in(folder, "members")[0]
    kept = pq.read_table(file).drop_columns(["rack_id", "user_data"])
    pq.write_table(kept.append_column("added_later", pa.nulls(members, pa.int64())), file)
    read = tables.read("members", ["group_id", "rack_id", "user_data"])
    assert read.num_rows == members
    assert read["rack_id"].null_count == read["user_data"].null_count == members
    assert len(read_snapshots(tables)) == 6


def test_table_columns_are_read_as_python_values_of_each_type() -> None:
    given = [{"topic": "a", "partitions": [0, 1, 5]}, {"topic": "b", "partitions": []}]
    row = {"topics": ["x", "y"], "owned": given, "first_at": AT, "current": True, "error": "text"}
    schema = pa.schema([TABLES["members"].field(name) for name in row])
    made = pa.Table.from_pylist([row, {}, row, {}], schema)
    owned = {"a": Partitions((0, 1, 5)), "b": Partitions()}
    wanted = [(("x", "y"), owned, micros(AT), True, "text"), (None,) * 5]
    assert list(rows_of(made)) == wanted * 2
    assert list(rows_of(made.slice(1, 2))) == wanted[::-1]


def test_a_lake_snapshot_contains_the_data_of_the_brokers(small_scan: Path, tmp_path: Path) -> None:
    (topic,) = snapshot_of(small_scan, "unknown").topics
    cluster = Cluster(
        cluster_id="c1",
        brokers=(Broker(broker_id=3, rack="b"),),
        version="4.1",
        features={"group.version": 1},
        settings={"group.consumer.max.size": "100"},
    )
    counts = {topic.name: topic.partitions + 2, "of nobody": 7}
    for brokers, partitions, notes in (
        (ClusterReading(at=AT, cluster=cluster, topics=counts), topic.partitions + 2, 1),
        (ClusterReading(at=AT, cluster=cluster, notes=("no rights",)), topic.partitions, 3),
    ):
        lake = write_tables(tmp_path / str(notes), fleet(20), brokers=brokers)
        seen = snapshot_of(lake, "unknown")
        assert seen.cluster == cluster
        assert [(one.name, one.partitions) for one in seen.topics] == [(topic.name, partitions)]
        assert len(seen.notes) == notes
        assert seen.notes[0] == "log end offsets: a scan's tables have none"


def test_topics_known_by_id_only_get_their_names_from_the_brokers(tmp_path: Path) -> None:
    group = group_named("kip-848")
    plain, rows = write_tables(tmp_path / "plain", fleet(20)), fleet(20)
    names = {}
    for row in rows["members"]:
        for one in row["assignment"] if row["group_id"] == group else ():
            name = one["topic"]
            one["topic"] = f"id-of-{name}"
            names[f"id-of-{name}"] = name
    (blind,) = read_snapshots(open_tables(str(write_tables(tmp_path / "before", rows))), group)
    assert {topic for member in blind.members for topic in member.assignment} == set(names)
    brokers = ClusterReading(at=AT, cluster=Cluster(), topic_names=names)
    lake = write_tables(tmp_path / "told", rows, brokers=brokers)
    (named,), (expected,) = (read_snapshots(open_tables(str(at)), group) for at in (lake, plain))
    assert [one.assignment for one in named.members] == [one.assignment for one in expected.members]
    assert [(one.name, one.partitions, one.topic_id) for one in named.topics] == [
        (one.name, one.partitions, f"id-of-{one.name}") for one in expected.topics
    ]


def test_one_group_read_from_a_lake_equals_it_read_with_all_others(small_scan: Path) -> None:
    every = {one.group.group_id: one for one in read_snapshots(open_tables(str(small_scan)))}
    assert len(every) == 20
    for name, whole in every.items():
        assert read_snapshots(open_tables(str(small_scan)), name) == (whole,)
    assert read_snapshots(open_tables(str(small_scan)), "nobody") == ()


def test_reading_a_lake_starts_no_jvm_and_imports_no_spark(small_scan: Path) -> None:
    lake = str(small_scan)
    code = (
        "import sys\nfrom rebal.cli.app import run\n"
        f"code = run(['fleet', 'report', {lake!r}, '--exit-zero'])\n"
        f"code += run(['fleet', 'compact', {lake!r}, '--dry-run'])\n"
        # A deferred package has not been imported: its `__init__` has not run.
        "ran = {n for n, m in sys.modules.items() if type(m).__name__ != '_Deferred'}\n"
        "print(code, sorted({name.split('.')[0] for name in ran}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "\n0 [" in done.stderr
    assert "'pyarrow'" in done.stderr
    for heavy in ("pyspark", "py4j", "pandas", "confluent_kafka", "kafka"):
        assert f"'{heavy}'" not in done.stderr


def test_reading_a_lake_without_pyarrow_names_the_pip_extra(
    small_scan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader's modules import without pyarrow, so the error message can be shown."""
    code = "import sys, rebal.cli.fleet; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    monkeypatch.setattr("rebal.inspectors.tables.reader.find_spec", lambda name: None)
    with pytest.raises(RebalError, match=r"pip install 'rebal\[lake\]'"):
        open_tables(str(small_scan))


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


START = 1_790_000_000_000


@dataclass(frozen=True)
class Commit:
    group: str
    topic: str
    partition: int
    legacy: bool
    committed: int | None
    """None is a tombstone, below 0 a value that is broken."""

    @property
    def key(self) -> bytes:
        kind, number = struct.pack(">h", not self.legacy), struct.pack(">i", self.partition)
        return kind + text(self.group) + text(self.topic) + number

    def value(self, at: int) -> bytes | None:
        if self.committed is None:
            return None
        if self.committed < 0:
            return struct.pack(">hqih", 3, 1, -1, 500) + bytes(10)
        return struct.pack(">hqih", 3, self.committed, -1, 0) + struct.pack(">q", at)


commits = st.builds(
    Commit,
    st.sampled_from(["a", "b", "käse"]),
    st.sampled_from(["t", "u"]),
    st.sampled_from([0, 1, -7]),
    st.booleans(),
    st.none() | st.integers(-1, 1000),
)


def rows(history: list[tuple[int, Commit]]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "key": one.key,
                "value": one.value(START + offset),
                "partition": 3,
                "offset": offset,
                "timestamp": EPOCH + timedelta(milliseconds=START + offset),
                "source": "file",
            }
            for offset, one in history
        ],
        SOURCE,
    )


def reference(history: list[tuple[int, Commit]]) -> dict[tuple[str, str, int], dict[str, Any]]:
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for offset, one in sorted(history, key=lambda pair: pair[0]):
        about = (one.group, one.topic, one.partition)
        row = found.setdefault(about, {"commits": 0, "first_offset": None})
        said = None if one.committed is None or one.committed < 0 else one.committed
        row |= {"offset": offset, "tombstone": one.committed is None, "committed_offset": said}
        if one.committed is not None:
            row["first_offset"] = row["first_offset"] if row["commits"] else said
            row["commits"] += 1
    return found


def told(table: pa.Table) -> dict[tuple[str, str, int], dict[str, Any]]:
    names = ("commits", "first_offset", "offset", "tombstone", "committed_offset")
    return {
        (row["group_id"], row["topic"], row["topic_partition"]): {name: row[name] for name in names}
        for row in table.to_pylist()
    }


@examples(60)
@given(st.lists(commits, min_size=1, max_size=60), st.randoms(), st.integers(1, 4))
def test_commits_summed_over_any_split_of_records_equal_the_sequential_result(
    drawn: list[Commit], random: Any, tasks: int
) -> None:
    history = list(enumerate(drawn))
    split: list[list[tuple[int, Commit]]] = [[] for _ in range(tasks)]
    for pair in history:
        random.choice(split).append(pair)
    parts = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_sums, "_AT_ONCE", 5)
        for part in split:
            sums = CommitSums()
            random.shuffle(part)
            for at in range(0, len(part), 4):
                sums.add(rows(part[at : at + 4]))
            parts.append(sums.parts())
    merged = merge_commits(parts)
    assert merged.schema == COMMIT_PARTS
    expected = reference(history)
    assert told(merged) == expected
    errors = {row["group_id"] for row in merged.to_pylist() if row["error"]}
    assert errors == {
        group
        for (group, *_), row in expected.items()
        if not row["tombstone"] and row["committed_offset"] is None
    }
    assert sum(merged["records"].to_pylist()) == len(history)


def test_commits_of_an_earlier_scan_are_merged_before_newly_read_ones(tmp_path: Path) -> None:
    def scanned(*pairs: tuple[int, int | None]) -> pa.Table:
        sums = CommitSums()
        sums.add(rows([(offset, Commit("g", "t", 0, False, value)) for offset, value in pairs]))
        return sums.parts()

    before = write_commits(
        merge_commits([scanned((4, 10), (9, 20))]), PartWriter(target_in(tmp_path))
    )
    parts = as_parts(before)
    merged = merge_commits([scanned((12, 30), (15, 70)), parts])
    (row,) = write_commits(merged, PartWriter(target_in(tmp_path))).to_pylist()
    assert (row["first_offset"], row["committed_offset"], row["commits"]) == (10, 70, 4)


def test_records_with_the_same_broken_commit_key_become_one_error(tmp_path: Path) -> None:
    sums = CommitSums()
    broken = rows([(n, Commit("g", "t", 0, False, 1)) for n in range(3)])
    cut = pa.array([bytes.fromhex("00010004")] * 3, pa.binary())
    sums.add(broken.set_column(0, "key", cut))
    writer = PartWriter(target_in(tmp_path))
    assert len(write_commits(merge_commits([sums.parts()]), writer)) == 0
    counts = reported(writer.report()).records
    assert counts == {"UNREADABLE": 3, "OFFSET_COMMIT": -3}
    (file,) = files_in(tmp_path, "broken")
    (error,) = pq.read_table(tmp_path / file).to_pylist()
    assert error["group_id"] is None
    assert error["error"].endswith("3 records have this key.")


def commit(group: str, minute: int, **more: Any) -> dict[str, Any]:
    at = AT + timedelta(minutes=minute)
    row = {"group_id": group, "topic": "t", "topic_partition": minute, "partition": 7}
    return row | {"first_at": at, "committed_at": at, "tombstone": False} | more


def test_a_group_with_commits_but_no_metadata_record_is_listed_as_empty() -> None:
    rows = [
        commit("loader", 3),
        commit("known", 4),
        commit("deleted", 5, tombstone=True),
        commit("loader", 1),
        commit("a", 2),
    ]
    known = pa.array(["known", "other"])
    made = commit_groups(pa.Table.from_pylist(rows, COMMITS), known, log=True)
    assert made.schema == GROUPS
    a, loader = made.to_pylist()
    assert a["group_id"] == "a"
    assert {name: value for name, value in loader.items() if value is not None} == {
        "group_id": "loader",
        "type": "classic",
        "state": "Empty",
        "partition": 7,
        "members": 0,
        "incarnation": 1,
        "first_seen": AT + timedelta(minutes=1),
        "last_seen": AT + timedelta(minutes=3),
        "rebalance_total": 0,
        "failed_rebalance_total": 0,
        "refused_total": 0,
        "sources": ["offsets topic"],
    }
