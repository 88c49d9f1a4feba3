"""What obeying stories have found, as fixed tests: each was once a member lost or a story stuck."""

from __future__ import annotations

import pytest

from tests.kafka.broker import Broker
from tests.live_support.rollout import GroupOn, PlannedGroup, recommends


@pytest.mark.parametrize("software", ["kafka-python", "confluent-kafka"])
def test_a_mixed_list_is_not_advised_to_a_client_that_is_not_known_to_take_it(
    software: str, kafka41: Broker, group_on: GroupOn
) -> None:
    """Such a client fails when it is built: the coordinator is never asked."""
    group: PlannedGroup = group_on(kafka41, software=software)
    group.begin(["app-0", "app-1"], ["range"])
    logs = [str(member.host.log_path) for member in group.running.values()]
    printed = [word for log in logs for word in ("--client-log", log)]
    for words in ([], ["--probe"], ["--probe", *printed]):
        for body in (group.make(*words), group.verify(*words)):
            mixed = len(body["advice"]["assignors"]) > 1
            assert not (recommends(body) and mixed), body["advice"]["text"]
