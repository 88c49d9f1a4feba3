"""Commits reduced in tasks and put together: the same as one after the other, however split."""

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.inspectors.fleet import commits as commit_sums
from rebal.inspectors.fleet.commits import (
    CommitSums,
    as_parts,
    commit_groups,
    merge_commits,
    write_commits,
)
from rebal.inspectors.fleet.lake.writer import PartWriter
from rebal.inspectors.fleet.schemas import COMMIT_PARTS, COMMITS, GROUPS
from rebal.inspectors.fleet.sources.source import SOURCE
from tests.examples import examples
from tests.fleet.tablefiles import AT, files_in, reported, target_in
from tests.fleet.timeline_story import text

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
def test_any_split_gives_what_one_after_the_other_gives(
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


def test_an_earlier_scan_s_commits_come_before_all_that_is_read_now(tmp_path: Path) -> None:
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


def test_a_broken_key_is_one_error_for_all_its_records(tmp_path: Path) -> None:
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


def test_groups_with_commits_and_no_record_of_their_own() -> None:
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
