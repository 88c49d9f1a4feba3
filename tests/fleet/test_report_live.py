"""Scan a real broker, then look at one of its groups with what the scan saw, by member id."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rebal.cli.app import run
from rebal.groups.model import GroupSnapshot
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.kafka.read import read_groups
from rebal.inspectors.tables.groups import read_snapshots
from rebal.inspectors.tables.reader import open_tables
from tests.fleet.conftest import read_tables
from tests.kafka.members import wait_assigned

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]
LISTS = {"kafka-python": ["range", "roundrobin"], "confluent-kafka": ["roundrobin", "range"]}


def members_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["inspect", *words, "-o", "json", "--exit-zero"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    return {member["client_id"]: member for member in group["members"]}


def test_assignor_lists_of_a_scan_bind_to_live_members_by_member_id(  # noqa: PLR0917 - fixtures
    kafka41: Any,
    members: Any,
    group_id: str,
    topic_name: str,
    scan: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kafka41.log_requests(True)
    topic = kafka41.create_topic(topic_name, 4)
    running = []
    for software, names in LISTS.items():
        running.append(
            members.start(software, kafka41, software, group_id, topics=[topic], assignors=names)
        )
        wait_assigned(running, 4)
    kafka41.wait_stable(group_id, 2)
    kafka41.log_requests(False)
    out = tmp_path / "scan"
    scan("-b", kafka41.bootstrap, "--request-log", kafka41.request_log_path, "--out", out)

    words = [group_id, "-b", kafka41.bootstrap]
    blank = members_of(capsys, *words)
    assert {one["assignors"]["knowledge"] for one in blank.values()} == {"bounded"}
    with_scan = members_of(capsys, *words, "--evidence", str(out))
    assert {name: one["assignors"]["list"] for name, one in with_scan.items()} == LISTS
    assert {one["assignors"]["knowledge"] for one in with_scan.values()} == {"exact"}

    # The tables alone say the same group, member by member.
    offline = members_of(capsys, group_id, "--evidence", str(out))
    for name, one in offline.items():
        assert one["member_id"] == with_scan[name]["member_id"]
        assert one["assignment"] == with_scan[name]["assignment"]
        assert one["assignors"]["list"] == LISTS[name]

    (now,) = read_groups(ClusterConfig(bootstrap=kafka41.bootstrap), [group_id])
    assert isinstance(now, GroupSnapshot)
    assert now.cluster.settings["group.consumer.max.size"]
    (then,) = read_snapshots(open_tables(str(out)), group_id)
    assert then.cluster == now.cluster
    assert [one.partitions for one in then.topics] == [4]
    columns = ["topic", "topic_partition", "log_end_offset"]
    ends = open_tables(str(out)).read("log_ends", columns).to_pylist()
    of_topic = [tuple(row.values()) for row in ends if row["topic"] == topic]
    assert of_topic == [(topic, number, 0) for number in range(4)]
    assert "__consumer_offsets" not in {row["topic"] for row in ends}


def test_topic_ids_in_kip_848_records_are_resolved_to_topic_names(  # noqa: PLR0917 - fixtures
    kafka41: Any,
    members: Any,
    group_id: str,
    topic_name: str,
    scan: Callable[..., str],
    tmp_path: Path,
) -> None:
    topics = [kafka41.create_topic(f"{topic_name}-{n}", 2) for n in range(2)]
    member = members.start(
        "confluent-kafka", kafka41, "m", group_id, topics=topics, protocol="consumer"
    )
    wait_assigned([member], 4)
    kafka41.wait_stable(group_id, 1)
    out = tmp_path / "scan"
    scan("-b", kafka41.bootstrap, "--out", out)
    (now,) = read_groups(ClusterConfig(bootstrap=kafka41.bootstrap), [group_id])
    (then,) = read_snapshots(open_tables(str(out)), group_id)
    assert isinstance(now, GroupSnapshot)
    assert sorted(now.members[0].assignment) == sorted(topics)
    assert then.members[0].assignment == now.members[0].assignment
    assert then.members[0].target_assignment == now.members[0].target_assignment
    # The tables are the same whatever the records came from: they keep what those say.
    (row,) = (row for row in read_tables(out)["members"] if row["group_id"] == group_id)
    assert not {one["topic"] for one in row["assignment"]} & set(topics)
