"""What a restart of a Connect worker is foretold to cost, and what it then costs.

The truth is each worker's own log: what it held after each generation.
"""

from collections import Counter
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from rebal.cli import app
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import load_snapshot
from rebal.planner.plan import Cost
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import by_workers
from rebal.planner.timeouts import Speed
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.connect import ConnectHost, wait_running
from tests.kafka.processes import wait_for
from tests.live_support.workers import Workers, configure

pytestmark = pytest.mark.parametrize("host", [jars.EARLY], indirect=True)
NAMES = ("w0", "w1", "w2")
# Source tasks, one each: what they wait for at a stop is not the test's matter, as sinks' would be.
CONNECTORS = ("a", "b", "c", "d", "e", "f")
DELAY_S = 10
# A worker may publish a new connector's tasks twice: the second one, a second later, rebalances.
QUIET_S = 3


def words(protocol: str) -> dict[str, str]:
    return {"connect.protocol": protocol, "scheduled.rebalance.max.delay.ms": str(1000 * DELAY_S)}


def begin(workers: Workers, topic: str, folder: Path, protocol: str) -> None:
    """Three workers with six connectors, each of which reads lines of its own file."""
    workers.broker.create_topic(topic, 1)
    for name in NAMES:
        workers.start(name, words(protocol))
        # The first one makes the cluster's topics: one that loses the race for it waits for long.
        workers.running[name].wait_for("started", timeout=60)
    workers.settle()
    for connector in CONNECTORS:
        (folder / f"{connector}.txt").touch()
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "topic": topic,
            "file": str(folder / f"{connector}.txt"),
        }
        configure(workers.running["w0"], connector, config)
    running(workers)


def running(workers: Workers) -> None:
    """Wait until all of it runs and a rebalance that a late configuration asks for is over, too."""
    for connector in CONNECTORS:
        wait_running(workers.running["w1"], connector, 1)
    workers.settle()
    workers.wait_quiet(QUIET_S)


def stop(workers: Workers, name: str) -> int:
    """Stop a worker, and wait until the others go on; the generation before that."""
    before = max(workers.rebalances())
    workers.running.pop(name).stop()
    wait_for(
        f"the others to go on without {name}",
        lambda: max(workers.rebalances()) > before,
        timeout=30,
    )
    return before


def look(workers: Workers, log: Path, file: Path) -> GroupSnapshot:
    words = ["inspect", workers.group, "-b", workers.broker.bootstrap]
    assert app.run([*words, "--client-log", str(log), "--save-to", str(file)]) in (0, 4)
    return load_snapshot(file.read_text(), "yaml")


def leader_of(snapshot: GroupSnapshot) -> str:
    """The client id of the worker that leads."""
    (leader,) = (m.client_id for m in snapshot.members if m.worker is not None and m.worker.leader)
    return leader


def foretold(snapshot: GroupSnapshot, *ids: str) -> Cost:
    return by_workers(
        Roll(
            eager_after=snapshot.group.assignor == "default",
            snapshot=snapshot,
            order=ids,
            speed=Speed(restart=5, rebalance=1),
        )
    )


def changes(rounds: dict[int, dict[str, set[str]]], last: int) -> int:
    """How often something ran on another worker than before, after the generation `last`."""
    owner = {item: worker for worker, held in rounds[last].items() for item in held}
    count = 0
    for generation in sorted(rounds):
        if generation > last:
            for worker, held in rounds[generation].items():
                count += sum(owner[item] != worker for item in held)
                owner |= dict.fromkeys(held, worker)
    return count


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "protocol", ["eager", pytest.param("compatible", marks=pytest.mark.full), "sessioned"]
)
def test_a_restart_costs_what_was_foretold(
    workers: Workers, host: ConnectHost, topic_name: str, tmp_path: Path, protocol: str
) -> None:
    begin(workers, topic_name, tmp_path, protocol)

    leader = leader_of(look(workers, host.log_path, tmp_path / "before.yaml"))
    other = next(name for name in NAMES if name != leader)
    for name in (other, leader):
        snapshot = look(workers, host.log_path, tmp_path / f"{name}.yaml")
        ids = {member.client_id: member.member_id for member in snapshot.members}
        told = foretold(snapshot, ids[name])
        assert leader_of(snapshot) == leader
        before = stop(workers, name)
        assert snapshot.group.generation in (None, before)
        workers.start(name, words(protocol))
        wait_for(
            f"{told.rebalances} rebalances after generation {before}",
            lambda before=before, told=told: max(workers.rebalances()) >= before + told.rebalances,
            timeout=DELAY_S + 30,
        )
        running(workers)
        rounds = workers.rebalances()
        assert max(rounds) - before == told.rebalances
        after = {number: held for number, held in rounds.items() if number >= before}
        assert changes(rounds, before) == told.partitions_moved, after
        # Nobody takes over what a worker ran that does not lead, and it does not get it back early.
        waits = protocol != "eager" and name == other
        assert ("scheduled.rebalance.max.delay.ms is over (10 s)" in told.text) is waits
        delays = [delay for generation, delay in workers.delays().items() if generation > before]
        assert max(delays) == (1000 * DELAY_S if waits else 0)
        if waits:
            assert told.partitions_moved == 0


def lines_read(broker: Broker, topic: str, folder: Path, text: str) -> Counter[str]:
    """Write a line to each connector's file; how often each of them gets to the topic."""
    for connector in CONNECTORS:
        with (folder / f"{connector}.txt").open("a") as file:
            file.write(f"{text} {connector}\n")
    seen: Counter[str] = Counter()
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=5000
    )
    consumer.assign([TopicPartition(topic, 0)])
    for record in consumer:
        line = record.value.decode()
        seen[line] += line.startswith(text)
    consumer.close()
    return +seen


@pytest.mark.full
@pytest.mark.timeout(240)
def test_workers_that_turn_eager_one_by_one_run_tasks_twice_and_together_they_do_not(
    workers: Workers, host: ConnectHost, topic_name: str, tmp_path: Path
) -> None:
    begin(workers, topic_name, tmp_path, "sessioned")
    once = dict.fromkeys((f"before {connector}" for connector in CONNECTORS), 1)
    assert lines_read(workers.broker, topic_name, tmp_path, "before") == once
    # What the leader ran is given out at once: the others go on with it when the leader is back.
    leader = leader_of(look(workers, host.log_path, tmp_path / "before.yaml"))
    stop(workers, leader)
    workers.start(leader, words("eager"))
    running(workers)
    assert workers.protocols == {"eager"}
    twice = lines_read(workers.broker, topic_name, tmp_path, "one by one")
    assert set(twice.values()) == {1, 2}, twice
    workers.end()
    for name in NAMES:
        workers.start(name, words("eager"))
    running(workers)
    once = dict.fromkeys((f"together {connector}" for connector in CONNECTORS), 1)
    assert lines_read(workers.broker, topic_name, tmp_path, "together") == once
