"""Packages whose `__init__` waits: what is not loaded, and that others miss nothing."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys


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
