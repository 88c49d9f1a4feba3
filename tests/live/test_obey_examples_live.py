"""What obeying stories have found, as fixed tests: each was once a member lost or a story stuck."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.live_support.rollout import PlannedGroup, recommends


@pytest.mark.parametrize("software", ["kafka-python", "confluent-kafka"])
@pytest.mark.parametrize("shown", [(), ("--probe",), ("--probe", "client log")])
def test_a_mixed_list_is_not_advised_to_a_client_that_is_not_known_to_take_it(
    software: str,
    shown: tuple[str, ...],
    kafka41: Broker,
    members: Members,
    group_id: str,
    *,
    topic_name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Such a client fails when it is built: the coordinator is never asked."""
    group = PlannedGroup(
        kafka41, members, group_id, topic_name, software=software, folder=tmp_path, capsys=capsys
    )
    group.begin(["app-0", "app-1"], ["range"])
    words = [word for word in shown if word.startswith("--")]
    if "client log" in shown:
        for member in group.running.values():
            words += ["--client-log", str(member.host.log_path)]
    for body in (group.make(*words), group.verify(*words)):
        assert not (recommends(body) and len(body["advice"]["assignors"]) > 1), body["advice"][
            "text"
        ]


def test_verify_asks_for_the_same_agreement_as_its_plan(
    kafka41: Broker,
    members: Members,
    group_id: str,
    topic_name: str,
    *,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A cut-over interrupts the service: the plan blocks it until somebody agrees."""
    group = PlannedGroup(
        kafka41, members, group_id, topic_name, software="confluent-kafka", folder=tmp_path,
        capsys=capsys,
    )  # fmt: skip
    with group.logged():
        group.begin(["app-0", "app-1"], ["range"])
    log = ("--request-log", str(kafka41.request_log_path))
    assert group.make("--probe", *log)["advice"]["action"] == "stop"
    told = group.verify("--probe", *log)["advice"]
    assert told["action"] == "stop", told["text"]
    agreed = group.make("--probe", *log, "--ignore", "RB104", "--reason", "agreed")
    assert agreed["advice"]["action"] == "cut-over"
