"""A roll-out on real Java members: after every restart verify's word is held to the truth."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.processes import wait_for
from tests.kafka.service import named
from tests.live_support.rollout import GroupOn, PlannedGroup

PARTITIONS = 6
OLD = ["range"]
MIXED = ["cooperative-sticky", "range"]
FINAL = ["cooperative-sticky"]
APPS = ("app-0", "app-1", "app-2")


class Rollout(PlannedGroup):
    """A plan of Java members, and what verify says with and without a request log."""

    def __init__(self, broker: Broker, *more: Any, **options: Any) -> None:
        super().__init__(broker, *more, **options)
        self.log = ["--request-log", str(broker.request_log_path)]
        self.blind = ["--journal", str(self.file.with_name("blind.jsonl"))]

    def write(self, *more: str) -> None:
        """Make the plan of the group as it is now."""
        self.rebal("plan-upgrade", self.group, "--out", str(self.file), *more)

    @contextmanager
    def watched(
        self, heard: Path, *more: str, by: Sequence[str] = ("--watch",)
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A watch in a process of its own, from its first "not yet" on; `heard` gets its words."""
        words = [
            str(Path(sys.executable).with_name("rebal")), "verify", str(self.file),
            "-b", self.broker.bootstrap, "--timeout", "2", *by, "--every", "0.5",
            "--for", "180s", *more,
        ]  # fmt: skip
        with heard.open("w") as out, subprocess.Popen(words, stdout=out) as watching:
            try:
                wait_for("not yet", lambda: "not yet" in heard.read_text(), timeout=60)
                yield watching
            finally:
                watching.kill()

    def journal(self) -> list[dict[str, Any]]:
        lines = self.file.with_suffix(".journal.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def check(self, gate: int | None, done: set[str], *more: str) -> dict[str, Any]:
        """With the log the answer is the truth; without it, never more than the truth."""
        told = self.verify(*self.log, *more)
        assert named(told, "yes") == done
        assert named(told, "no") == set(self.running) - done
        assert told["exit_code"] == gate, told
        unlogged = self.verify(*self.blind, *more)
        assert named(unlogged, "yes") <= done
        assert not named(unlogged, "no") & done
        assert unlogged["exit_code"] == gate or unlogged["exit_code"] == 4, unlogged
        return unlogged


@pytest.fixture
def empty(kafka41: Broker, group_on: GroupOn) -> Rollout:
    """A group that nobody has joined, and no plan of it."""
    made: Rollout = group_on(kafka41, Rollout, "java-2.8.2")
    return made


@pytest.fixture
def rollout(empty: Rollout) -> Rollout:
    """Three Java members on range, and a plan of them."""
    empty.begin(APPS, OLD)
    empty.write("--expect-members", "3")
    return empty


@pytest.mark.story
def test_two_bounces_with_a_forgotten_member_and_a_refusal(rollout: Rollout) -> None:
    with rollout.logged():
        before = rollout.verify()
        assert (before["step"], before["exit_code"]) == (1, 4)
        assert named(before, "no") == set(APPS)

        rollout.restart("app-0", MIXED)
        unlogged = rollout.check(4, {"app-0"})
        # The ids of the two others are still there: named without any log.
        assert named(unlogged, "no") == {"app-1", "app-2"}
        rollout.restart("app-1", MIXED)
        unlogged = rollout.check(4, {"app-0", "app-1"})
        assert named(unlogged, "no") == {"app-2"}

        # app-2 is forgotten, and somebody begins the second bounce all the same.
        rollout.dies("app-0", FINAL)
        rollout.settle()
        told = rollout.verify(*rollout.log)
        assert told["exit_code"] == 3
        (danger,) = told["dangers"]
        assert danger["kind"] == "rejected"
        assert "app-0 (127.0.0.1) [cooperative-sticky]" in danger["message"]
        assert danger["members"] == [rollout.running["app-2"].member_id]
        assert [one["name"] for one in told["outsiders"]] == ["app-0"]
        assert rollout.verify(*rollout.blind)["exit_code"] == 4

        rollout.begin(["app-0"], MIXED)
        rollout.restart("app-2", MIXED)
        told = rollout.verify(*rollout.log, "--probe")
        assert named(told, "yes") == set(APPS)
        # The very client that was rejected has joined since, as the log shows.
        assert told["dangers"] == []
        assert told["gate"] == "yes"
    # Without a log the elected target proves the same.
    told = rollout.verify(*rollout.blind)
    assert (told["step"], told["gate"], told["exit_code"]) == (1, "yes", 0)
    assert told["assignor"] == "cooperative-sticky"
    assert told["next"].startswith("begin step 2")


def test_the_second_bounce_is_done_only_when_every_list_is_seen(rollout: Rollout) -> None:
    with rollout.logged():
        for name in APPS:
            rollout.restart(name, MIXED)
        rollout.check(0, set(APPS), "--probe")
        for number, name in enumerate(APPS):
            rollout.restart(name, FINAL)
            unlogged = rollout.check(0 if number == 2 else 4, {*APPS[: number + 1]})
            assert unlogged["step"] == 2
            assert unlogged["exit_code"] == 4
    # The log is gone, its word stays in the journal; without either, a member shows by the
    # partitions that it kept that it runs COOPERATIVE, and the last one to restart shows nothing.
    assert rollout.verify()["finished"]
    nothing = rollout.verify("--journal", str(rollout.file) + ".other", "--step", "2")
    assert nothing["exit_code"] == 4
    assert named(nothing, "yes") <= {*APPS[:-1]}


def test_java_and_librdkafka_in_one_group_step_by_step(empty: Rollout) -> None:
    """Two Java members roll, the librdkafka one stops alone: each gate looks at those it is of."""
    with empty.logged():
        empty.place("rd-0", OLD, software="confluent-kafka")
        empty.begin(APPS[:2], OLD)
        # The members are known to the plan, and its baseline brings that to each later look.
        empty.write("--expect-members", "3", *empty.log)
        empty.restart("app-0", MIXED)
        told = empty.verify(*empty.log)
        assert (told["step"], told["exit_code"], told["why"]) == (1, 4, ["not done: app-1"])
        empty.restart("app-1", MIXED)
        told = empty.verify(*empty.log, "--probe")
        # librdkafka cannot hold both: the first step is not its own, and its gate holds.
        assert (told["step"], told["exit_code"]) == (1, 0)
        assert [one["name"] for one in told["members"] if not one["concerned"]] == ["rd-0"]
        assert told["next"].startswith("begin step 2: stop rd-0, check that the group is Stable")

        empty.stop("rd-0")
        empty.settle()
        told = empty.verify(*empty.log)
        assert (told["step"], told["exit_code"]) == (2, 4)
        assert [one["name"] for one in told["outsiders"]] == ["rd-0"]
        empty.begin(["rd-0"], FINAL, software="confluent-kafka")
        told = empty.verify(*empty.log)
        assert (told["step"], told["exit_code"], told["assignor"]) == (2, 0, FINAL[0])

        for number, code in ((0, 4), (1, 0)):
            empty.restart(APPS[number], FINAL)
            told = empty.verify(*empty.log)
            assert (told["step"], told["exit_code"]) == (3, code)
            assert named(told, "yes") == {"rd-0", *APPS[: number + 1]}
        assert told["finished"]
    assert empty.errors() == {}


def test_a_watch_goes_blind_with_its_broker_and_sees_the_gate_hold(
    group_on: GroupOn, group_id: str, tmp_path: Path
) -> None:
    with Broker(jars.EARLY, secure=False) as broker:
        broker.wait_coordinator(group_id)
        rollout: Rollout = group_on(broker, Rollout, "java-2.8.2")
        rollout.begin(["app-0"], OLD)
        try:
            rollout.write()
            heard = tmp_path / "watch.txt"
            with rollout.watched(heard) as watching:
                broker.kill()
                wait_for("blindness", lambda: "blind since" in heard.read_text(), timeout=30)
                broker.start()
                wait_for("sight", lambda: "sees again" in heard.read_text(), timeout=30)
                # The watch itself says when the group is Stable again.
                rollout.stop("app-0")
                rollout.place("app-0", MIXED)
                code = watching.wait(60)
            said = heard.read_text()
            assert code == 0, said
            assert "gate holds" in said.split("sees again")[1]
            assert "gate holds" not in said.split("sees again")[0]

            # The next watch waits for the next step, and ends when somebody is refused.
            broker.log_requests(True)
            by = ("--until", "done")
            with rollout.watched(heard, *rollout.log, "-o", "jsonl", by=by) as watching:
                wrong = rollout.start("app-9", ["roundrobin"])
                wrong.wait_for("error")
                code = watching.wait(60)
            lines = [json.loads(line) for line in heard.read_text().splitlines()]
            assert (code, [line["exit_code"] for line in lines]) == (3, [4, 3])
            assert [line["step"] for line in lines] == [2, 2]
            assert [danger["kind"] for danger in lines[-1]["dangers"]] == ["rejected"]
        finally:
            rollout.stop("app-0")
    assert any(look.get("blind") for look in rollout.journal())


class Greedy(RangePartitionAssignor):  # type: ignore[misc]
    """range as a faulty leader deals it: everything to itself."""

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> Any:
        made = RangePartitionAssignor.assign.__func__(RangePartitionAssignor, cluster, members)
        topics = {topic for member in members for topic in member.metadata.topics}
        every = [
            (topic, sorted(cluster.partitions_for_topic(topic) or ())) for topic in sorted(topics)
        ]
        for member_id, assignment in made.items():
            mine = every if member_id.startswith("greedy") else []
            made[member_id] = type(assignment)(cls.version, mine, b"")
        return made


@pytest.mark.full
def test_a_member_that_stays_empty_is_a_danger_and_its_first_seconds_are_none(
    empty: Rollout,
) -> None:
    ending, owns_all = threading.Event(), threading.Event()

    def poll() -> None:
        consumer = KafkaConsumer(
            empty.topic, bootstrap_servers=empty.broker.bootstrap, group_id=empty.group,
            client_id="greedy", partition_assignment_strategy=[Greedy],
        )  # fmt: skip
        while not ending.is_set():
            consumer.poll(timeout_ms=100)
            if len(consumer.assignment()) == PARTITIONS:
                owns_all.set()
        consumer.close()

    polling = threading.Thread(target=poll)
    polling.start()
    try:
        assert owns_all.wait(30)
        empty.broker.wait_stable(empty.group, 1)
        empty.write("--expect-members", "2")
        late = empty.start("app-0", OLD)
        late.wait_for("assigned")
        empty.broker.wait_stable(empty.group, 2)
        began = time.monotonic()
        codes: list[int] = []
        while 3 not in codes and time.monotonic() - began < 60:
            told = empty.verify()
            codes.append(told["exit_code"])
            time.sleep(2)
        assert set(codes) == {4, 3}, codes
        assert time.monotonic() - began > 30
        assert [danger["kind"] for danger in told["dangers"]] == ["idle"]
        assert told["dangers"][0]["members"] == [late.member_id]
    finally:
        ending.set()
        polling.join(20)
