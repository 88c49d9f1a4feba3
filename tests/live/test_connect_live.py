"""Kafka Connect on real brokers: worker groups by connect.protocol, sink groups by an override."""

from pathlib import Path

import pytest

from tests.kafka.connect import ConnectHost, wait_running
from tests.kafka.members import Members
from tests.kafka.processes import wait_for
from tests.kafka.service import inspect, named
from tests.live_support.rollout import LISTS, Plan
from tests.live_support.workers import Workers, configure

NAMES = ("w0", "w1")
EAGER = {"connect.protocol": "eager"}
AGREED = ("--ignore", "RB413", "--reason", "agreed")
OVERRIDE = f"consumer.override.{LISTS}"
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
STICKY = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
Said = pytest.CaptureFixture[str]


@pytest.mark.story
def test_workers_to_sessioned_and_back_and_the_sink_group_of_their_connector(
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
    # Which protocols w1 offers was not known when the plan was made: no id alone speaks of it.
    assert "w0" in named(blind, "cannot tell")
    for evidence in (log, printed):
        told = up.verify(*evidence)
        assert (named(told, "yes"), named(told, "no")) == ({"w0"}, {"w1"})
        assert told["exit_code"] == 4
    assert up.look(*log)["steps"][0]["done"] != []
    workers.restart("w1", up.settings(1))
    assert workers.protocols == {"sessioned"}
    # A second rebalance may still be on: it gives each worker its share.
    wait_for("both to be proven done", lambda: up.verify()["finished"], timeout=30)
    told = up.verify()
    assert (named(told, "yes"), told["exit_code"], told["finished"]) == (set(NAMES), 0, True)
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
    told = down.verify(*log, "--journal", str(tmp_path / "stopped.jsonl"))
    assert told["exit_code"] == 4
    for name in NAMES:
        workers.start(name, down.settings(1))
    workers.settle()
    assert workers.protocols == {"eager"}
    # That default is elected is true with the first eager worker, and proves nothing.
    blind = down.verify("--journal", str(tmp_path / "blind-down.jsonl"))
    assert (named(blind, "yes"), blind["exit_code"]) == (set(), 4)
    for evidence in (log, printed):
        told = down.verify(*evidence, "--journal", str(tmp_path / f"{evidence[0]}.jsonl"))
        assert (named(told, "yes"), named(told, "no")) == (set(NAMES), set())
        assert told["exit_code"] == 0
    assert told["finished"]
    assert down.look("--to", "eager", *log)["verdict"] == "done"
    wait_running(workers.running["w1"], sink, 2)
    assert all(worker.error is None for worker in workers.running.values())

    # A consumer that was given the workers' group id can never join.
    lost = members.start("java-3.9.1", broker, "lost", group, topics=[topic_name])
    lost.wait_for("error")
    told = down.look("--to", "eager", *log)
    assert told["verdict"] != "done"
    assert any("lost" in one["message"] for one in told["findings"] if one["rule"] == "RB904")
