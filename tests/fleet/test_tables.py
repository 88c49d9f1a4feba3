"""A scan's tables read back: what is not a finished scan, snapshots, evidence, history."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rebal.groups.errors import RebalError
from rebal.groups.model import (
    Broker,
    Cluster,
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Source,
)
from rebal.inspectors.clock import moment
from rebal.inspectors.fleet.lake.place import find_place
from rebal.inspectors.fleet.lake.run import new_run
from rebal.inspectors.fleet.schemas import TABLES
from rebal.inspectors.kafka.brokers import ClusterReading
from rebal.inspectors.tables.columns import rows_of
from rebal.inspectors.tables.groups import read_snapshots
from rebal.inspectors.tables.history import read_history
from rebal.inspectors.tables.reader import open_tables
from tests.fleet.synthetic import fleet, group_named
from tests.fleet.tablefiles import AT, change_document, files_in, write_tables


def half_written(folder: Path) -> Path:
    with new_run(find_place(str(folder)), "east", full=False):
        return folder


def two_clusters(folder: Path) -> Path:
    for cluster in ("west", "east"):
        write_tables(folder, fleet(4), cluster=cluster)
    return folder


def snapshot_of(small_scan: Path, shape: str) -> GroupSnapshot:
    (found,) = read_snapshots(open_tables(str(small_scan)), group_named(shape))
    return found


def broken(folder: Path, change: Mapping[str, Any]) -> Path:
    change_document(folder, change)
    return folder


NO_SCANS = (
    "missing", "file", "empty", "half-written", "one table", "several clusters", "another cluster",
    "newer", "odd", "no schema",
)  # fmt: skip


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda at: at / "nothing", "there is no such folder; name the folder that a scan wrote"),
        (lambda at: (at / "f").write_text("x") and at / "f", "is a file, not a folder"),
        (lambda at: at, "no scan wrote it"),
        (half_written, "no scan in it was finished"),
        (lambda at: write_tables(at, {}) / "groups", "no scan wrote it"),
        (two_clusters, "scans of 2 clusters (east, west): name one, as in"),
        (lambda at: f"{two_clusters(at)}#north", "of the cluster north is there; it has scans of"),
        (lambda at: broken(write_tables(at, {}), {"schema": "rebal.fleet-scan/9"}), "rebal reads"),
        (lambda at: broken(write_tables(at, {}), {"tables": 3}), "last scan cannot be read"),
        (lambda at: broken(write_tables(at, {}), {"schema": None}), "last scan cannot be read"),
    ],
    ids=NO_SCANS,
)
def test_what_is_no_finished_scan_is_said_in_one_sentence(
    make: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(RebalError) as error:
        open_tables(str(make(tmp_path)))
    assert said in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("harm", ["missing", "cut off", "no parquet", "other rows"])
def test_a_damaged_file_is_named(harm: str, tmp_path: Path) -> None:
    folder = write_tables(tmp_path, fleet(4))
    file = folder / files_in(folder, "groups")[0]
    if harm == "missing":
        file.unlink()
    elif harm == "cut off":
        file.write_bytes(file.read_bytes()[:-200])
    elif harm == "no parquet":
        file.write_text("not Parquet at all")
    else:
        file.write_bytes((folder / files_in(folder, "members")[0]).read_bytes())
    with pytest.raises(RebalError, match=r"groups/.*groups-00000\.parquet .*scan again") as error:
        read_history(open_tables(str(folder)))
    assert "\n" not in str(error.value)


def test_columns_of_a_newer_rebal_are_left_alone_and_missing_ones_are_null(tmp_path: Path) -> None:
    folder = write_tables(tmp_path, fleet(6), more={"added_later": pa.int64()})
    tables = open_tables(str(folder))
    assert len(read_snapshots(tables)) == 6
    members = tables.read("members", ["group_id"]).num_rows
    import pyarrow.parquet as pq

    file = folder / files_in(folder, "members")[0]
    pq.write_table(pq.read_table(file).drop_columns(["rack_id", "user_data"]), file)
    read = tables.read("members", ["group_id", "rack_id", "user_data"])
    assert read.num_rows == members
    assert read["rack_id"].null_count == read["user_data"].null_count == members
    assert len(read_snapshots(tables)) == 6


@pytest.mark.parametrize("name", list(TABLES))
def test_every_column_reads_as_pyarrow_itself_reads_it(name: str, tmp_path: Path) -> None:
    rows = [dict.fromkeys(TABLES[name].names), dict.fromkeys(TABLES[name].names)]
    for field in TABLES[name]:
        rows[1][field.name] = some(field.type)
    made = pa.Table.from_pylist([*rows, *rows], TABLES[name])
    read = [dict(zip(TABLES[name].names, row, strict=True)) for row in rows_of(made)]
    assert len(read) == 4
    for row, wanted in zip(read, made.to_pylist(), strict=True):
        for field in TABLES[name]:
            assert plain(row[field.name], field.type) == wanted[field.name], field.name
    assert [plain(row[0], made.schema[0].type) for row in rows_of(made.slice(1, 2))] == [
        row[made.schema.names[0]] for row in made.slice(1, 2).to_pylist()
    ]


def some(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        if pa.types.is_struct(kind.value_type):
            return [{"topic": "a", "partitions": [0, 1, 5]}, {"topic": "b", "partitions": []}]
        return ["x", "y"]
    if pa.types.is_timestamp(kind):
        return AT + timedelta(microseconds=7)
    if pa.types.is_boolean(kind):
        return True
    if pa.types.is_floating(kind):
        return 2.5
    if pa.types.is_integer(kind):
        return 7
    return b"\x00\xff" if pa.types.is_binary(kind) else "text"


def plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return moment(value)
    if isinstance(value, dict):
        return [{"topic": name, "partitions": list(numbers)} for name, numbers in value.items()]
    return list(value) if isinstance(value, tuple) else value


def test_a_snapshot_has_what_the_tables_show_and_where_it_was_seen(small_scan: Path) -> None:
    seen = snapshot_of(small_scan, "half-way")
    wanted = next(r for r in fleet(20)["groups"] if r["group_id"] == seen.group.group_id)
    assert seen.group.state is GroupState.STABLE
    assert seen.group.type is GroupType.CLASSIC
    assert (seen.group.assignor, seen.group.generation) == ("range", wanted["generation"])
    assert seen.captured_at == AT
    assert len(seen.members) == wanted["members"]
    lists = [member.assignors.list for member in seen.members]
    assert set(lists) == {("cooperative-sticky", "range"), ("range",)}
    for member in seen.members:
        assert member.assignors.knowledge is Knowledge.EXACT
        (evidence,) = member.assignors.evidence
        assert evidence.source is Source.REQUEST_LOG
        assert evidence.detail == "kafka-request.log.gz"
        assert evidence.at is not None
        assert AT - timedelta(hours=3) < evidence.at < AT
        assert member.software is not None
        assert (member.software.family, member.software.version) == ("java", "3.9.1")
        assert member.timeouts is not None
        assert (member.timeouts.session_ms, member.timeouts.rebalance_ms) == (45_000, 300_000)
        assert member.subscription is not None
        assert member.subscription.topics == member.subscribed_topics == tuple(member.assignment)
    (refusal,) = seen.refusals
    assert refusal.list == ("cooperative-sticky",)
    assert sum(len(p) for m in seen.members for p in m.assignment.values()) == sum(
        topic.partitions for topic in seen.topics
    )
    # The members that the roll-out replaced are evidence about nobody who is there.
    (left_over,) = seen.unmatched
    assert "no longer in the group" in left_over.why


def test_what_no_source_shows_stays_unknown(small_scan: Path) -> None:
    seen = snapshot_of(small_scan, "unknown")
    assert {member.assignors.knowledge for member in seen.members} == {Knowledge.BOUNDED}
    for member in seen.members:
        assert member.assignors.list == ()
        assert member.assignors.at_least == ("range",)
        assert {e.source for e in member.assignors.evidence} == {Source.OFFSETS_TOPIC}
    assert not seen.lag
    assert not seen.cluster.settings
    assert any("a scan's tables have none" in note for note in seen.notes)


def test_what_the_brokers_said_is_known(small_scan: Path, tmp_path: Path) -> None:
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
        told = write_tables(tmp_path / str(notes), fleet(20), brokers=brokers)
        seen = snapshot_of(told, "unknown")
        assert seen.cluster == cluster
        assert [(one.name, one.partitions) for one in seen.topics] == [(topic.name, partitions)]
        assert len(seen.notes) == notes
        assert seen.notes[0] == "log end offsets: a scan's tables have none"


def test_topics_known_by_id_only_get_the_names_that_brokers_said(tmp_path: Path) -> None:
    rows = fleet(20)
    group = group_named("kip-848")
    by_id = [
        {
            **row,
            "assignment": [
                {**one, "topic": f"id-of-{one['topic']}"} for one in row["assignment"] or ()
            ],
        }
        if row["group_id"] == group
        else row
        for row in rows["members"]
    ]
    before = write_tables(tmp_path / "before", {**rows, "members": by_id})
    (blind,) = read_snapshots(open_tables(str(before)), group)
    ids = {topic for member in blind.members for topic in member.assignment}
    assert ids
    assert all(topic.startswith("id-of-") for topic in ids)
    brokers = ClusterReading(
        at=AT, cluster=Cluster(), topic_names={one: one.removeprefix("id-of-") for one in ids}
    )
    told = write_tables(tmp_path / "told", {**rows, "members": by_id}, brokers=brokers)
    plain = write_tables(tmp_path / "plain", rows)
    (named,), (expected,) = (read_snapshots(open_tables(str(at)), group) for at in (told, plain))
    assert [one.assignment for one in named.members] == [one.assignment for one in expected.members]
    assert [(one.name, one.partitions, one.topic_id) for one in named.topics] == [
        (one.name, one.partitions, f"id-of-{one.name}") for one in expected.topics
    ]


def test_kip_848_empty_and_deleted_groups(small_scan: Path) -> None:
    consumer = snapshot_of(small_scan, "kip-848")
    assert consumer.group.type is GroupType.CONSUMER
    assert consumer.group.group_epoch is not None
    assert consumer.group.generation is None
    assert {member.protocol_type for member in consumer.members} == {"consumer"}
    assert snapshot_of(small_scan, "empty").group.state is GroupState.EMPTY
    gone = snapshot_of(small_scan, "deleted")
    assert (gone.group.state, gone.members) == (GroupState.DEAD, ())
    assert read_history(open_tables(str(small_scan)))[gone.group.group_id].is_gone


def test_one_group_is_found_in_any_file_and_row_group(small_scan: Path) -> None:
    every = {one.group.group_id: one for one in read_snapshots(open_tables(str(small_scan)))}
    assert len(every) == 20
    for name, whole in every.items():
        assert read_snapshots(open_tables(str(small_scan)), name) == (whole,)
    assert read_snapshots(open_tables(str(small_scan)), "nobody") == ()


def test_history_has_the_metrics_by_kafkas_names(small_scan: Path) -> None:
    rows = {row["group_id"]: row for row in fleet(20)["groups"]}
    history = read_history(open_tables(str(small_scan)))
    assert list(history) == sorted(rows)
    for name, one in history.items():
        row = rows[name]
        assert dict(one.metrics) == pytest.approx(
            {
                "rebalance-total": row["rebalance_total"],
                "rebalance-rate-per-hour": row["rebalance_total"] / 24,
                "rebalance-latency-avg": row["rebalance_latency_avg_ms"],
                "rebalance-latency-max": row["rebalance_latency_max_ms"],
                "rebalance-latency-total": row["rebalance_latency_total_ms"],
                "failed-rebalance-total": row["failed_rebalance_total"],
                "failed-rebalance-rate-per-hour": row["failed_rebalance_total"] / 24,
                "last-rebalance-seconds-ago": (AT - row["last_rebalance_at"]).total_seconds(),
            }
        )
        done = [r for r in fleet(20)["rebalances"] if r["group_id"] == name and not r["failed"]]
        assert one.stopped == pytest.approx(sum(r["stopped"] for r in done) / len(done))
        ended = [rebalance.at or 0 for rebalance in one.rebalances]
        assert ended == sorted(ended)


def test_reading_starts_no_jvm_and_imports_no_spark(small_scan: Path) -> None:
    code = (
        "import sys\nfrom rebal.cli.app import run\n"
        f"code = run(['fleet', 'report', {str(small_scan)!r}, '--exit-zero'])\n"
        # A deferred package has not been imported: its `__init__` has not run.
        "ran = {n for n, m in sys.modules.items() if type(m).__name__ != '_Deferred'}\n"
        "print(code, sorted({name.split('.')[0] for name in ran}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.startswith("0 ")
    assert "'pyarrow'" in done.stderr
    for heavy in ("pyspark", "py4j", "pandas", "confluent_kafka", "kafka"):
        assert f"'{heavy}'" not in done.stderr


def test_without_pyarrow_it_says_what_to_install(
    small_scan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of the reader's modules needs it to be imported: the sentence is reached."""
    code = "import sys, rebal.cli.fleet; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    monkeypatch.setattr("rebal.inspectors.tables.reader.find_spec", lambda name: None)
    with pytest.raises(RebalError, match=r"pip install 'rebal\[lake\]'"):
        open_tables(str(small_scan))
