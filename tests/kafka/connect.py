"""Kafka Connect workers (distributed mode) as members: `ConnectHost(version)` is a JVM with them.

A worker's events are those of members.py: `started` has its REST address, `joined` its member id
and the version of the protocol it follows (`PROTOCOLS`), both as the worker itself holds them.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from kafka.admin import KafkaAdminClient
from tests.kafka import brokerconf, jars
from tests.kafka.broker import Administration
from tests.kafka.members import JavaHost, Member

PROTOCOLS = ("eager", "compatible", "sessioned")


class Worker(Member):
    """One Connect worker."""

    @property
    def url(self) -> str:
        """Its REST address."""
        return str(self.wait_for("started", timeout=60).data["url"]).rstrip("/")

    @property
    def protocol(self) -> str | None:
        """The protocol that it follows now, by its own account."""
        joined = self.said("joined")
        return PROTOCOLS[joined[-1].data["protocol"]] if joined else None

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One REST request; None where the worker answers 404, 409 (rebalancing) or 5xx."""
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            if error.code in (404, 409) or error.code >= 500:
                return None
            raise
        return json.loads(text) if text else {}


class ConnectHost(JavaHost):
    """A JVM with Connect workers of one version."""

    program: ClassVar[str] = "ConnectWorker"
    library: ClassVar[str] = "connect"
    oldest: ClassVar[str] = jars.CONNECT_VERSIONS[0]

    def __init__(self, version: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(version, folder, (brokerconf.logging_option(version, folder),))

    def launch(
        self,
        broker: Administration,
        name: str,
        group: str,
        settings: Mapping[str, str] | None = None,
    ) -> Worker:
        """Start one worker; `settings` (connect.protocol, …) win. Returns before it has joined."""
        converter = "org.apache.kafka.connect.storage.StringConverter"
        made = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": name,
            "key.converter": converter,
            "value.converter": converter,
            "plugin.discovery": "service_load",
            "listeners": "http://127.0.0.1:0",
            "offset.flush.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            **(settings or {}),
        }
        for topic in ("config", "offset", "status"):
            made[f"{topic}.storage.topic"] = f"{group}-{topic}"
            made[f"{topic}.storage.replication.factor"] = "1"
        worker = self.fresh(name)
        self.begin(worker, made)
        return Worker(self, worker, name, group, made, None)


def wait_workers(broker: Administration, workers: Sequence[Worker], timeout: float = 40) -> None:
    """Wait until the workers follow one generation and the broker says that it is Stable."""
    group = workers[0].group
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap, client_id="harness")

    def stable() -> bool:
        state = {one["group_id"]: one["group_state"] for one in admin.list_groups()}.get(group)
        return state == "Stable" and len({worker.generation for worker in workers} - {None}) == 1

    names = [worker.id for worker in workers]
    try:
        workers[0].host.wait(f"{group} to be Stable with {names}", stable, timeout, every=0.1)
    finally:
        admin.close()


def wait_running(worker: Worker, connector: str, tasks: int, timeout: float = 40) -> None:
    """Wait until the connector and its tasks are RUNNING, by any worker's account."""

    def running() -> bool:
        seen = worker.ask("GET", f"/connectors/{connector}/status")
        states = [] if seen is None else [seen["connector"], *seen["tasks"]]
        return len(states) == tasks + 1 and all(one["state"] == "RUNNING" for one in states)

    worker.host.wait(f"{connector} to run {tasks} tasks", running, timeout, every=0.2)
