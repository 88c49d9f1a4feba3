"""Groups that only commit offsets get a row of their own in `groups`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rebal.inspectors.fleet.commit_groups import commit_groups
from rebal.inspectors.fleet.schemas import COMMITS, GROUPS

AT = datetime(2026, 11, 20, 9, tzinfo=UTC)


def commit(group: str, minute: int, **more: Any) -> dict[str, Any]:
    at = AT + timedelta(minutes=minute)
    row = {"group_id": group, "topic": "t", "topic_partition": minute, "partition": 7}
    return row | {"first_at": at, "committed_at": at, "tombstone": False} | more


def test_groups_with_commits_and_no_record_of_their_own(tmp_path: Path) -> None:
    commits = [tmp_path / "commits-0", tmp_path / "commits-1"]
    rows = [commit("loader", 3), commit("known", 4), commit("deleted", 5, tombstone=True)]
    pq.write_table(pa.Table.from_pylist(rows, COMMITS), commits[0])
    pq.write_table(pa.Table.from_pylist([commit("loader", 1), commit("a", 2)], COMMITS), commits[1])
    groups = tmp_path / "groups-0"
    pq.write_table(pa.Table.from_pylist([{"group_id": "known"}], GROUPS), groups)
    made = commit_groups(commits, [groups], (AT, AT + timedelta(hours=1)), log=True)
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
        "observed_from": AT,
        "observed_until": AT + timedelta(hours=1),
        "rebalance_total": 0,
        "failed_rebalance_total": 0,
        "refused_total": 0,
        "sources": ["offsets topic"],
    }


def test_none() -> None:
    assert commit_groups([], [], None, log=False).num_rows == 0
