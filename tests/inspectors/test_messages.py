"""What rebal takes of kafka-python: messages made one by one, errors, versions, and no client."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import kafka.errors
import pytest
from kafka.protocol.admin import cluster, configs, groups
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS
from kafka.protocol.consumer import fetch, group, offsets

from rebal.inspectors.errors import JOIN_REJECTIONS, error_code, error_name
from rebal.inspectors.kafka import describe, wire
from rebal.inspectors.kafka.brokers import release_of
from rebal.inspectors.kafka.cluster import broker_version
from rebal.inspectors.kafka.wire import request_class


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (group, "JoinGroup"), (group, "OffsetFetch"), (fetch, "Fetch"), (groups, "ListGroups"),
        (offsets, "ListOffsets"), (offsets, "OffsetForLeaderEpoch"), (configs, "DescribeConfigs"),
        (cluster, "DescribeQuorum"),
    ],
)  # fmt: skip
def test_messages_are_those_of_kafka_python(module: Any, name: str) -> None:
    ours, theirs = request_class(name), getattr(module, f"{name}Request")
    assert ours is not theirs
    assert (ours.API_KEY, ours.max_version) == (theirs.API_KEY, theirs.max_version)
    # Its own clients in this process read responses by the class that was made last.
    made = {one.__name__: one for one in wire._REGISTERED}[f"{name}Response"]
    assert made.json == getattr(module, f"{name}Response").json


def test_kafka_python_reads_the_rights_on_a_group_as_before() -> None:
    """It patches this response, so rebal makes none of its own."""
    connection: Any = SimpleNamespace(version=lambda _: 5)
    request = describe._classic_request(connection, ["g"], operations=True)
    request.with_header()
    assert request.header.get_response_class()[None] is groups.DescribeGroupsResponse


def test_reading_a_group_loads_no_client_of_kafka_python_and_leaves_them_to_others() -> None:
    code = """
import sys
import rebal.inspectors.kafka.read
clients = {"kafka.admin", "kafka.consumer", "kafka.producer", "kafka.net.manager",
           "kafka.protocol.admin.acl", "kafka.protocol.broker_version_data",
           "asyncio.base_events", "urllib.request"}
print(sorted(clients & sys.modules.keys()))
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.net import KafkaConnection
from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.admin.groups import ListGroupsRequest as same
import asyncio, kafka, urllib.request
from asyncio import events, Queue
asyncio.run(asyncio.sleep(0))
print(ListGroupsRequest is same, kafka.__version__, type(kafka).__name__, hasattr(kafka, "no"))
print(sorted(clients - sys.modules.keys()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    version = importlib.metadata.version("kafka-python")
    assert done.stdout.splitlines() == ["[]", f"True {version} module False", "[]"]


# kafka-python keeps names that Kafka has changed since.
RENAMED = {6: "NOT_LEADER_OR_FOLLOWER", 10: "MESSAGE_TOO_LARGE", 17: "INVALID_TOPIC_EXCEPTION"}


def test_every_code_of_kafka_python_has_its_name() -> None:
    known = {
        kind.errno: kind.message
        for kind in vars(kafka.errors).values()
        if isinstance(kind, type) and issubclass(kind, kafka.errors.BrokerResponseError)
        if isinstance(getattr(kind, "errno", None), int) and kind.errno > 0
    }
    assert len(known) > 100
    for code, name in known.items():
        assert error_name(code) == RENAMED.get(code, name)


@pytest.mark.parametrize(("code", "name"), [(0, "NONE"), (-1, "UNKNOWN_SERVER_ERROR")])
def test_codes_outside_the_table_have_names(code: int, name: str) -> None:
    assert error_name(code) == name
    assert error_name(9999) == "ERROR_9999"


def test_a_name_gives_its_code_back() -> None:
    assert [error_code(name) for name in JOIN_REJECTIONS] == [23, 26, 81, 82]
    assert error_name(error_code("MEMBER_ID_REQUIRED")) == "MEMBER_ID_REQUIRED"


def connection(release: tuple[int, int], metadata_version: int | None = None) -> Any:
    features = {} if metadata_version is None else {"metadata.version": metadata_version}
    versions = BROKER_API_VERSIONS[release]
    return SimpleNamespace(versions=versions, supported_features=features)


@pytest.mark.parametrize(
    ("requests", "metadata_version", "version", "release"),
    [
        ((3, 9), 21, "3.9", (3, 9)),
        ((4, 0), 25, "4.0", (4, 0)),
        ((4, 1), 33, "4.4", (4, 4)),
        # The metadata.version decides, whatever the requests say.
        ((3, 9), 27, "4.1", (4, 1)),
        # One that is not known, and a broker of ZooKeeper's time, which has none.
        ((4, 0), 9999, "4.0 or later", (4, 0)),
        ((2, 8), None, "2.8 or later", (2, 8)),
    ],
)
def test_the_release_is_read_off_the_protocol(
    requests: tuple[int, int], metadata_version: int | None, version: str, release: tuple[int, ...]
) -> None:
    broker = connection(requests, metadata_version)
    assert broker_version(broker) == version
    assert release_of(version) == release
