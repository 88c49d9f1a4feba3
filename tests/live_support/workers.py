"""A Connect cluster under a test's control, and what its workers logged of each rebalance."""

import re
import time
from collections.abc import Iterator, Mapping

from tests.kafka.broker import Broker
from tests.kafka.connect import ConnectHost, Worker, wait_workers
from tests.kafka.processes import wait_for

_JOINED = re.compile(
    r"clientId=(\S+), groupId=(\S+)\] Joined group at generation (\d+) .*?"
    r"connectorIds=\[(.*?)\], taskIds=\[(.*?)\], revokedConnectorIds=\[(.*?)\]"
    r", revokedTaskIds=\[(.*?)\](?:, delay=(\d+))?"
)


class Workers:
    """Workers in one JVM, restarted one after the other."""

    def __init__(self, broker: Broker, host: ConnectHost, group: str) -> None:
        self.broker = broker
        self.group = group
        self.running: dict[str, Worker] = {}
        self._host = host

    def start(self, name: str, settings: Mapping[str, str]) -> None:
        self.running[name] = self._host.launch(self.broker, name, self.group, settings)

    def restart(self, name: str, settings: Mapping[str, str]) -> None:
        self.running[name].stop()
        self.start(name, settings)
        self.settle()

    def settle(self) -> None:
        for worker in self.running.values():
            worker.wait_for("joined", timeout=60)
        wait_workers(self.broker, list(self.running.values()))

    def wait_quiet(self, seconds: float) -> None:
        """Wait until no worker has joined a new generation for so long."""
        seen, since = 0, time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since
            if (newest := max(self.rebalances())) != seen:
                seen, since = newest, time.monotonic()
            return time.monotonic() - since >= seconds

        wait_for(f"{seconds} s without a rebalance", quiet, timeout=60, every=0.3)

    @property
    def protocols(self) -> set[str | None]:
        return {worker.protocol for worker in self.running.values()}

    def end(self) -> None:
        for worker in self.running.values():
            worker.stop()

    def rebalances(self) -> dict[int, dict[str, set[str]]]:
        """What each worker (by client id) held after each generation, by its own log."""
        seen: dict[int, dict[str, set[str]]] = {}
        for client, generation, connectors, tasks, *_ in self._joins():
            held = {*connectors.split(", "), *tasks.split(", ")} - {""}
            seen.setdefault(int(generation), {})[client] = held
        return seen

    def delays(self) -> dict[int, int]:
        """How long each generation keeps a lost worker's work for it, in ms, by the same log."""
        seen: dict[int, int] = {}
        for _, generation, *_, delay in self._joins():
            seen[int(generation)] = max(int(delay or 0), seen.get(int(generation), 0))
        return seen

    def _joins(self) -> Iterator[tuple[str, ...]]:
        """What workers of this group logged of each join: `_JOINED` without the group."""
        log = self._host.process.log_path.read_text(errors="replace")
        for client, group, *rest in _JOINED.findall(log):
            if group == self.group:
                yield client, *rest


def configure(worker: Worker, connector: str, config: dict[str, str]) -> None:
    """Create the connector, or give it another configuration, which restarts its tasks."""
    wait_for(
        f"{connector} to be configured",
        lambda: worker.ask("PUT", f"/connectors/{connector}/config", config) is not None,
        timeout=30,
        every=0.3,
    )
