"""A static member that ended after the proof: its partitions are unread until its session ends."""

from __future__ import annotations

import time

import pytest

from tests.kafka.service import PARTITIONS, Service

pytestmark = pytest.mark.parametrize("broker", ["kafka41"], indirect=True)
NAMES = ("java-4.1.1-0", "java-4.1.1-1")
EVERY = dict.fromkeys(range(PARTITIONS), 20)


def start(service: Service, name: str, names: list[str]) -> None:
    service.place(name, names, instance_id=name, session_timeout_ms=600_000)


def test_the_end_of_a_plan_waits_for_a_static_member_that_has_ended(service: Service) -> None:
    for name in NAMES:
        start(service, name, ["range"])
    service.settle()
    service.plan("--out", str(service.file))
    for names in (["cooperative-sticky", "range"], ["cooperative-sticky"]):
        for name in NAMES:
            service.running[name].stop()
            start(service, name, names)
            service.settle()
            told = service.verify()
    assert (told["exit_code"], told["finished"]) == (0, True)

    gone = service.running.pop(NAMES[1])
    gone.stop()
    for _ in range(2):
        service.broker.produce(service.topic, EVERY)
        # Who runs has read and committed by then.
        time.sleep(3)
        told = service.verify()
        assert (told["exit_code"], told["finished"], told["gate"]) == (4, False, "yes")
        assert told["present"] == 2, "the coordinator still counts it"
    assert told["advice"]["action"] == "wait"
    assert f"until {NAMES[1]} has committed" in told["next"]
    assert NAMES[0] not in told["next"]
    assert told["dangers"] == []

    start(service, NAMES[1], ["cooperative-sticky"])
    service.running[NAMES[1]].wait_for("assigned")
    for _ in range(20):
        told = service.verify()
        if not told["lag"]:
            break
    assert (told["exit_code"], told["finished"]) == (0, True)
