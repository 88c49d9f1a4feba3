"""Kafka Connect on real brokers: worker groups by connect.protocol, sink groups by an override.

What a restart costs is held to what was foretold. The truth is each worker's own log: what it held
after each generation.
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
from tests.kafka.broker import Broker, wait_for
from tests.kafka.connect import ConnectHost, wait_running
from tests.kafka.members import Members, inspect, named
from tests.live_support.rollout import LISTS, Plan, Workers, configure

NAMES = ("w0", "w1")
EAGER = {"connect.protocol": "eager"}
AGREED = ("--ignore", "RB413", "--reason", "agreed")
OVERRIDE = f"consumer.override.{LISTS}"
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
STICKY = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
Said = pytest.CaptureFixture[str]


@pytest.mark.story
def test_connect_workers_move_to_sessioned_and_back_and_their_sink_group_to_cooperative(
    workers: Workers,
    host: ConnectHost,
    members: Members,
    topic_name: str,
    *,
    tmp_path: Path,
    capsys: Said,
) -> None:
    broker, group = workers.broker, workers.group
    broker.create_topic(topic_name, 4)
    log = ("--request-log", str(broker.request_log_path))
    printed = ("--client-log", str(host.log_path))
    for name in NAMES:
        workers.start(name, EAGER)
    workers.settle()
    sink = f"sink-{group[-6:]}"
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "2",
        "topics": topic_name,
        "file": str(tmp_path / "sink.txt"),
        OVERRIDE: RANGE,
    }
    configure(workers.running["w0"], sink, config)
    wait_running(workers.running["w1"], sink, 2)

    seen = inspect(broker, group)
    assert (seen["protocol_type"], seen["assignor"]) == ("connect", "default")
    assert seen["rebalance_protocol"]["value"] == "EAGER"
    for member in seen["members"]:
        assert member["software"]["family"] == "connect"
        assert member["worker"]["url"].rstrip("/") == workers.running[member["client_id"]].url

    up = Plan(broker, group, tmp_path, capsys, name="up")
    body = up.make("--expect-members", "2")
    assert (body["path"], body["exit_code"]) == ("connect", 0)
    assert up.settings(1) == {"connect.protocol": "sessioned"}
    assert LISTS not in up.texts()
    workers.restart("w0", up.settings(1))
    assert workers.protocols == {"eager"}, "one eager worker keeps all eager"
    blind = up.verify("--journal", str(tmp_path / "blind.jsonl"))
    assert (named(blind, "yes"), blind["exit_code"]) == (set(), 4)
    # The protocols of w1 were unknown when the plan was made: its id alone proves nothing.
    assert "w0" in named(blind, "cannot tell")
    for evidence in (log, printed):
        answer = up.verify(*evidence)
        assert (named(answer, "yes"), named(answer, "no")) == ({"w0"}, {"w1"})
        assert answer["exit_code"] == 4
    assert up.look(*log)["steps"][0]["done"] != []
    workers.restart("w1", up.settings(1))
    assert workers.protocols == {"sessioned"}
    # A second rebalance may still be on: it gives each worker its share.
    wait_for("both to be proven done", lambda: up.verify()["finished"], timeout=30)
    answer = up.verify()
    assert (named(answer, "yes"), answer["exit_code"], answer["finished"]) == (set(NAMES), 0, True)
    assert up.look()["verdict"] == "done"
    assert inspect(broker, group)["rebalance_protocol"]["value"] == "COOPERATIVE"

    wait_running(workers.running["w0"], sink, 2)
    broker.wait_stable(f"connect-{sink}", 2)
    tasks = Plan(broker, f"connect-{sink}", tmp_path, capsys, name="sink", evidence=log)
    body = tasks.make("--expect-members", "2")
    assert (body["path"], body["next_step"], body["exit_code"]) == ("two_bounces", 1, 0)
    assert body["steps"][0]["config"][0]["format"] == "connector configuration"
    for member in inspect(broker, f"connect-{sink}", *log)["members"]:
        assert (member["software"]["family"], member["software"]["version"]) == (
            "java", host.version,
        )  # fmt: skip
    for step, classes in ((1, f"{STICKY},{RANGE}"), (2, STICKY)):
        assert tasks.settings(step) == {OVERRIDE: classes}
        configure(workers.running["w1"], sink, config | tasks.settings(step))
        broker.wait_stable(f"connect-{sink}", 2)
        wait_running(workers.running["w0"], sink, 2)
        look = ("--step", str(step))
        wait_for(
            f"step {step} to be proven done",
            lambda look=look: tasks.verify(*look)["exit_code"] == 0,
            timeout=20,
        )
    assert tasks.verify()["finished"]
    assert tasks.look()["verdict"] == "done"

    down = Plan(broker, group, tmp_path, capsys, name="down")
    body = down.make("--to", "eager", "--expect-members", "2", *AGREED)
    assert (body["path"], body["exit_code"]) == ("connect_down", 0)
    assert down.settings(1) == EAGER
    assert body["steps"][0]["kind"] == "cut-over", "one by one, tasks would run twice"
    workers.end()
    answer = down.verify(*log, "--journal", str(tmp_path / "stopped.jsonl"))
    assert answer["exit_code"] == 4
    for name in NAMES:
        workers.start(name, down.settings(1))
    workers.settle()
    assert workers.protocols == {"eager"}
    # That default is elected is true with the first eager worker, and proves nothing.
    blind = down.verify("--journal", str(tmp_path / "blind-down.jsonl"))
    assert (named(blind, "yes"), blind["exit_code"]) == (set(), 4)
    for evidence in (log, printed):
        answer = down.verify(*evidence, "--journal", str(tmp_path / f"{evidence[0]}.jsonl"))
        assert (named(answer, "yes"), named(answer, "no")) == (set(NAMES), set())
        assert answer["exit_code"] == 0
    assert answer["finished"]
    assert down.look("--to", "eager", *log)["verdict"] == "done"
    wait_running(workers.running["w1"], sink, 2)
    assert all(worker.error is None for worker in workers.running.values())

    # A consumer that was given the workers' group id can never join.
    lost = members.start("java-3.9.1", broker, "lost", group, topics=[topic_name])
    lost.wait_for("error")
    answer = down.look("--to", "eager", *log)
    assert answer["verdict"] != "done"
    assert any("lost" in one["message"] for one in answer["findings"] if one["rule"] == "RB904")


ON_EARLY = pytest.mark.parametrize("host", [jars.EARLY], indirect=True)
WORKERS = ("w0", "w1", "w2")
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
    for name in WORKERS:
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


@ON_EARLY
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "protocol", ["eager", pytest.param("compatible", marks=pytest.mark.full), "sessioned"]
)
def test_a_restart_of_a_connect_worker_costs_what_was_predicted(
    workers: Workers, host: ConnectHost, topic_name: str, tmp_path: Path, protocol: str
) -> None:
    begin(workers, topic_name, tmp_path, protocol)

    leader = leader_of(look(workers, host.log_path, tmp_path / "before.yaml"))
    other = next(name for name in WORKERS if name != leader)
    for name in (other, leader):
        snapshot = look(workers, host.log_path, tmp_path / f"{name}.yaml")
        ids = {member.client_id: member.member_id for member in snapshot.members}
        cost = foretold(snapshot, ids[name])
        assert leader_of(snapshot) == leader
        before = stop(workers, name)
        assert snapshot.group.generation in (None, before)
        workers.start(name, words(protocol))
        wait_for(
            f"{cost.rebalances} rebalances after generation {before}",
            lambda before=before, cost=cost: max(workers.rebalances()) >= before + cost.rebalances,
            timeout=DELAY_S + 30,
        )
        running(workers)
        rounds = workers.rebalances()
        assert max(rounds) - before == cost.rebalances
        after = {number: held for number, held in rounds.items() if number >= before}
        assert changes(rounds, before) == cost.partitions_moved, after
        # Nobody takes over what a worker ran that does not lead, and it does not get it back early.
        waits = protocol != "eager" and name == other
        assert ("scheduled.rebalance.max.delay.ms is over (10 s)" in cost.text) is waits
        delays = [delay for generation, delay in workers.delays().items() if generation > before]
        assert max(delays) == (1000 * DELAY_S if waits else 0)
        if waits:
            assert cost.partitions_moved == 0


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


@ON_EARLY
@pytest.mark.full
@pytest.mark.timeout(240)
def test_connect_workers_moved_to_eager_one_by_one_run_tasks_twice_but_not_if_moved_at_once(
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
    for name in WORKERS:
        workers.start(name, words("eager"))
    running(workers)
    once = dict.fromkeys((f"together {connector}" for connector in CONNECTORS), 1)
    assert lines_read(workers.broker, topic_name, tmp_path, "together") == once
