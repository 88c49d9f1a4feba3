"""What rebal takes of kafka-python: messages made one by one, and no client or `__init__` of it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin import cluster, configs, groups
from kafka.protocol.consumer import fetch, group, offsets

from rebal.inspectors.kafka import describe, messages
from rebal.inspectors.kafka.messages import request_class


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
    made = {one.__name__: one for one in messages._REGISTERED}[f"{name}Response"]
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
