"""`Cluster`: three real Kafka brokers (KRaft, each broker and controller) on 127.0.0.1.

What one broker cannot show: a coordinator that moves while every broker lives, one that is killed
and has a successor, a rolling restart, and request logs of which one is missing.
"""

from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import PartitionMetadata

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from rebal.inspectors.kafka.reload import offsets_partition
from tests.kafka.broker import Administration, Broker, ChildProcess, free_ports

NODES = (1, 2, 3)
OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 5
_PREFERRED = 0
_SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "min.insync.replicas": "1",
    # The test alone says when leaders move.
    "auto.leader.rebalance.enable": "false",
    # How soon a broker that is gone is fenced, and a slow one leaves the ISR.
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "5000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
}


class Cluster(Administration):
    """Three brokers without TLS, with their request logs on from the first moment.

    A stopped or killed broker keeps its data and ports until `restart`. Two of the three are
    needed for the quorum of controllers, so at most one may be down.
    """

    replicas = 3

    def __init__(self, version: str) -> None:
        self.version = version
        ports = free_ports(2 * len(NODES))
        clients, controllers = (
            dict(zip(NODES, some, strict=True)) for some in (ports[:3], ports[3:])
        )
        self.brokers = {
            node: Broker(
                version, secure=False, request_log=True, settings=_SETTINGS,
                node_id=node, controller_ports=controllers, heap_mb=320,
                ports={"PLAINTEXT": clients[node], "CONTROLLER": controllers[node]},
            )
            for node in NODES
        }  # fmt: skip

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def processes(self) -> list[ChildProcess]:
        return [process for broker in self.brokers.values() for process in broker.processes]

    @property
    def request_logs(self) -> dict[int, Path]:
        """The request log of each broker by node id."""
        return {node: broker.request_log_path for node, broker in self.brokers.items()}

    @property
    def alive(self) -> list[int]:
        """The node ids of the brokers that run."""
        return [node for node, broker in self.brokers.items() if broker.process.alive]

    # --- life ---------------------------------------------------------------------------------

    def start(self, timeout: float = 90) -> None:
        """Start all brokers and wait until they serve, with every offsets partition in sync."""
        for broker in self.brokers.values():
            broker.launch()
        for broker in self.brokers.values():
            broker.wait_started(timeout)
        # The first question about a group makes the brokers create the offsets topic.
        self.wait_coordinator("rebal-harness-first-group")
        self.wait_in_sync()

    def kill(self, node: int) -> None:
        """SIGKILL of one broker; returns when its offsets partitions have other leaders."""
        self.brokers[node].kill()
        self._without(node)

    def stop(self, node: int) -> None:
        """A clean shutdown of one broker: it hands its leaderships over first."""
        self.brokers[node].stop()
        self._without(node)

    def restart(self, node: int) -> None:
        """Start one broker (cleanly stopped first, where it runs) and wait until it is in sync."""
        if self.brokers[node].process.alive:
            self.stop(node)
        self.brokers[node].start()
        self._forget()
        self.wait_in_sync()

    def rolling_restart(self) -> Iterator[int]:
        """Restart broker after broker, in the order of node ids; yields each one when it is back.

        The caller must run the iterator to its end: `list(cluster.rolling_restart())`.
        """
        for node in NODES:
            self.restart(node)
            yield node

    def close(self) -> None:
        """End all brokers without ceremony and remove their files."""
        self._forget()
        for broker in self.brokers.values():
            broker.close()

    # --- groups ---------------------------------------------------------------------------------

    def standing(self, group: str) -> tuple[str, int]:
        """A classic group's state and its number of members, by `described`."""
        state, names = self.described(group)
        return state.upper(), len(names)

    # --- the coordinator ------------------------------------------------------------------------

    def coordinator_of(self, group: str) -> int:
        """The node id of the leader of the group's offsets partition; -1 while there is none."""
        return self._partitions()[offsets_partition(group, OFFSETS_PARTITIONS)].leader

    def move_coordinator(self, group: str, to: int | None = None) -> int:
        """Make another broker the group's coordinator by a preferred leader election.

        `to` is its node id, by default the next one that runs. The replicas stay the same, only
        their order changes, so no data moves. Returns the node id when the new leader answers.
        """
        number = offsets_partition(group, OFFSETS_PARTITIONS)
        before = self.coordinator_of(group)
        if to is None:
            others = [node for node in self.alive if node != before]
            to = next((node for node in others if node > before), others[0])
        replicas = [to, *(node for node in NODES if node != to)]
        place = TopicPartition(OFFSETS_TOPIC, number)
        admin = KafkaAdminClient(bootstrap_servers=self._alive_bootstrap(), client_id="harness")
        try:
            answer = admin.alter_partition_reassignments({place: replicas})
            assert answer[place] is None, answer
            self._wait(
                f"replicas {replicas} of {place}",
                lambda: not admin.list_partition_reassignments([place]),
            )
            admin.elect_leaders(_PREFERRED, {OFFSETS_TOPIC: [number]})
        finally:
            admin.close()
        self._wait(f"node {to} to lead {place}", lambda: self.coordinator_of(group) == to)
        self._forget()
        self.wait_coordinator(group)
        return to

    def wait_in_sync(self, timeout: float = 60) -> None:
        """Wait until every running broker is in sync in every offsets partition."""

        def in_sync() -> bool:
            partitions = self._partitions()
            wanted = set(self.alive)
            return len(partitions) == OFFSETS_PARTITIONS and all(
                each.leader in wanted and wanted <= set(each.isrs) for each in partitions.values()
            )

        self._wait("the offsets partitions to be in sync", in_sync, timeout=timeout, every=0.2)

    def _alive_bootstrap(self) -> str:
        return ",".join(self.brokers[node].bootstrap for node in self.alive)

    def _without(self, node: int) -> None:
        self._forget()
        self._wait(
            f"other leaders than node {node}",
            lambda: node not in {each.leader for each in self._partitions().values()},
            timeout=30,
            every=0.2,
        )

    def _partitions(self) -> dict[int, PartitionMetadata]:
        found = self.admin().list_topics(OFFSETS_TOPIC, timeout=10).topics
        return dict(found[OFFSETS_TOPIC].partitions)
