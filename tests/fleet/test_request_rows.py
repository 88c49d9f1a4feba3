"""Request log lines as rows: the same joins as the reader of one group finds, and bad lines."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rebal.groups.evidence.observations import Joined, Left, Refused
from rebal.inspectors.fleet.schemas import REQUESTS
from rebal.inspectors.logs.requests.reader import read_request_log
from tests.fleet.timeline_input import request_rows

LOG = (
    Path(os.environ.get("REBAL_CAPTURES") or Path(__file__).parents[1] / "data/captures")
    / "kafka-request.log.gz"
)


def rows_of(*lines: str, tz_offset: timedelta = timedelta(0)) -> list[dict[str, Any]]:
    made = request_rows(((line.encode(), "log", n) for n, line in enumerate(lines)), tz_offset)
    assert made.schema == REQUESTS
    return made.to_pylist()


def line(api: str, request: dict[str, Any], response: dict[str, Any], **more: Any) -> str:
    body = {
        "requestHeader": {
            "requestApiVersion": more.pop("version", 9),
            "clientId": "c-1",
            "requestApiKeyName": api,
        },
        "request": {"groupId": "g", **request},
        "response": response,
        "connection": "10.0.0.1:9092-10.0.0.7:48174-0-38",
        "totalTimeMs": 12.5,
        **more,
    }
    return f"[2026-11-21 02:06:10,290] DEBUG Completed request:{json.dumps(body)} (x)"


@pytest.fixture(scope="module")
def captured() -> pa.RecordBatch:
    with gzip.open(LOG, "rb") as lines:
        return request_rows((raw, LOG.name, n) for n, raw in enumerate(lines))


def test_the_same_joins_refusals_and_leaves_as_for_one_group(captured):
    seen = read_request_log([LOG]).observations
    expected = Counter(
        (type(one).__name__, one.group_id, one.at, one.member_id)
        for one in seen
        if isinstance(one, Joined | Left)
    )
    expected += Counter(
        ("Refused", one.group_id, one.at, one.client_id, one.list)
        for one in seen
        if isinstance(one, Refused)
    )
    made: Counter[Any] = Counter()
    for row in captured.to_pylist():
        assert row["problem"] is None
        if row["api"] == "LEAVE_GROUP":
            for left in row["left"]:
                made["Left", row["group_id"], row["at"], left["member_id"]] += 1
        elif row["api"] == "JOIN_GROUP" and row["error"] in (0, 79) and not row["probe"]:
            made["Joined", row["group_id"], row["at"], row["member_id"]] += 1
        elif row["api"] == "JOIN_GROUP" and row["error"] == 23 and not row["probe"]:
            names = tuple(protocol["name"] for protocol in row["protocols"])
            made["Refused", row["group_id"], row["at"], row["client_id"], names] += 1
    assert sum(made.values()) > 100
    assert made == expected


def test_rows_keep_the_lines_order_and_where_they_stand(captured):
    positions = captured.column("position").to_pylist()
    assert positions == sorted(set(positions))
    assert set(captured.column("source").to_pylist()) == {LOG.name}


def test_a_leaders_join_says_who_is_in_the_generation():
    (row,) = rows_of(
        line(
            "JOIN_GROUP",
            {
                "sessionTimeoutMs": 6000,
                "rebalanceTimeoutMs": 20000,
                "memberId": "",
                "groupInstanceId": "i-1",
                "protocolType": "consumer",
                "protocols": [
                    {"name": "cooperative-sticky", "metadata": "AAE="},
                    {"name": "range", "metadata": "AAI="},
                ],
                "reason": "because",
            },
            {
                "errorCode": 0,
                "generationId": 7,
                "protocolName": "range",
                "leader": "m-1",
                "skipAssignment": True,
                "memberId": "m-1",
                "members": [{"memberId": "m-1", "groupInstanceId": "i-1", "metadata": "AAI="}],
            },
            clientInformation={"softwareName": "apache-kafka-java", "softwareVersion": "4.1.1"},
        )
    )
    assert {name: value for name, value in row.items() if value is not None} == {
        "group_id": "g",
        "at": datetime(2026, 11, 21, 2, 6, 10, 290000, tzinfo=UTC),
        "total_ms": 12.5,
        "api": "JOIN_GROUP",
        "api_version": 9,
        "error": 0,
        "client_id": "c-1",
        "host": "10.0.0.7",
        "connection": "10.0.0.1:9092-10.0.0.7:48174-0-38",
        "software_name": "apache-kafka-java",
        "software_version": "4.1.1",
        "member_id": "m-1",
        "instance_id": "i-1",
        "generation": 7,
        "protocol_type": "consumer",
        "protocol": "range",
        "protocols": [
            {"name": "cooperative-sticky", "metadata": b"\0\1"},
            {"name": "range", "metadata": b"\0\2"},
        ],
        "probe": False,
        "reason": "because",
        "session_timeout_ms": 6000,
        "rebalance_timeout_ms": 20000,
        "leader": "m-1",
        "skip_assignment": True,
        "members": [{"member_id": "m-1", "instance_id": "i-1", "metadata": b"\0\2"}],
        "source": "log",
        "position": 0,
    }


def test_leaves_of_old_and_new_versions():
    rows = rows_of(
        line("LEAVE_GROUP", {"memberId": "m-1"}, {"errorCode": 0}, version=1),
        line(
            "LEAVE_GROUP",
            {"members": [{"memberId": "m-2", "groupInstanceId": None, "reason": "closed"}]},
            {"errorCode": 0, "members": []},
            version=5,
        ),
    )
    assert [row["left"] for row in rows] == [
        [{"member_id": "m-1", "instance_id": None, "reason": None}],
        [{"member_id": "m-2", "instance_id": None, "reason": "closed"}],
    ]


def test_a_sync_holds_what_the_leader_sent():
    request = {
        "generationId": 3,
        "memberId": "m-1",
        "protocolName": "range",
        "assignments": [{"memberId": "m-1", "assignment": "AAE="}],
    }
    (row,) = rows_of(line("SYNC_GROUP", request, {"errorCode": 0}))
    assert row["generation"] == 3
    assert row["protocol"] == "range"
    assert row["assignments"] == [{"member_id": "m-1", "assignment": b"\0\1"}]


def test_heartbeats_are_kept_where_they_say_something():
    beat = {"memberId": "m-1", "generationId": 4}
    kept = rows_of(
        line("HEARTBEAT", beat, {"errorCode": 0}), line("HEARTBEAT", beat, {"errorCode": 27})
    )
    assert [(row["error"], row["generation"], row["position"]) for row in kept] == [(27, 4, 1)]


def test_only_commits_of_fenced_members_are_kept():
    request = {"memberId": "m-1", "groupInstanceId": "i", "generationIdOrMemberEpoch": 4}

    def answer(error: int) -> dict[str, object]:
        partitions = [{"partitionIndex": 0, "errorCode": error}]
        return {"topics": [{"name": "orders", "partitions": partitions}]}

    kept = rows_of(*(line("OFFSET_COMMIT", request, answer(error)) for error in (0, 82, 25)))
    said = [(row["api"], row["error"], row["member_id"], row["instance_id"]) for row in kept]
    assert said == [("OFFSET_COMMIT", 82, "m-1", "i")]


def consumer_heartbeat(epoch: int, answered: int, topics: list[str] | None = None) -> str:
    request = {"memberId": "m-1", "memberEpoch": epoch, "subscribedTopicNames": topics}
    return line(
        "CONSUMER_GROUP_HEARTBEAT",
        request,
        {"errorCode": 0, "memberId": "m-1", "memberEpoch": answered},
    )


def test_kip_848_heartbeats_that_change_nothing_are_kept_once():
    rows = rows_of(
        consumer_heartbeat(0, 5, ["orders"]),
        consumer_heartbeat(5, 5),
        consumer_heartbeat(5, 5),
        consumer_heartbeat(5, 6),
        consumer_heartbeat(6, 6),
        consumer_heartbeat(6, 6, ["orders", "clicks"]),
        consumer_heartbeat(-1, -1),
    )
    assert [(row["position"], row["generation"], row["member_epoch"]) for row in rows] == [
        (0, 0, 5),
        (1, 5, 5),
        (3, 5, 6),
        (5, 6, 6),
        (6, -1, -1),
    ]
    assert rows[0]["subscribed_topics"] == ["orders"]


def test_lines_that_cannot_be_read_are_rows_that_say_so():
    whole = line("JOIN_GROUP", {"protocols": []}, {"errorCode": 0})
    no_base64 = line("SYNC_GROUP", {"assignments": [{"assignment": "%%"}]}, {"errorCode": 0})
    before_2_8 = "[t] Completed request:RequestHeader(apiKey=JOIN_GROUP, apiVersion=5) -- {"
    rows = rows_of(whole[: len(whole) // 2], no_base64, before_2_8, "no request at all")
    assert [(row["position"], row["problem"]) for row in rows] == [
        (0, "the line is cut off, or is no valid JSON"),
        (1, "SYNC_GROUP: bytes that are no base64"),
        (2, "a broker before 2.8 wrote this line: it holds no JSON (KIP-673)"),
    ]
    assert all(row["group_id"] is None for row in rows)


def test_a_line_in_a_json_wrapper_and_a_clock_ahead_of_utc():
    leave = line("LEAVE_GROUP", {"memberId": "m-1"}, {"errorCode": 0}, version=1)
    wrapped = json.dumps({"@timestamp": "2026-11-21T02:06:10.290Z", "message": leave[26:]})
    ahead = timedelta(hours=2)
    (plain,) = rows_of(leave, tz_offset=ahead)
    (inside,) = rows_of(wrapped, tz_offset=ahead)
    assert plain["at"] == datetime(2026, 11, 21, 0, 6, 10, 290000, tzinfo=UTC)
    assert inside["at"] == datetime(2026, 11, 21, 2, 6, 10, 290000, tzinfo=UTC)
