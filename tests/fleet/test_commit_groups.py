"""Groups that only commit offsets get a row of their own in `groups`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from rebal.inspectors.fleet.commits import commit_groups
from rebal.inspectors.fleet.schemas import COMMITS, GROUPS

AT = datetime(2026, 11, 20, 9, tzinfo=UTC)


def commit(group: str, minute: int, **more: Any) -> dict[str, Any]:
    at = AT + timedelta(minutes=minute)
    row = {"group_id": group, "topic": "t", "topic_partition": minute, "partition": 7}
    return row | {"first_at": at, "committed_at": at, "tombstone": False} | more


def micros(at: datetime) -> int:
    return int(at.timestamp()) * 1_000_000


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
