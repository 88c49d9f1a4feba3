"""Plans for groups with kafka-python members, carried out on real ones by the plans' own texts.

kafka-python 3 has cooperative-sticky and refuses to be built with an eager assignor beside it;
kafka-python 2 has eager assignors alone. After every start and stop the plan's and verify's word is
held to the truth.
"""

from __future__ import annotations

import pytest

from tests.kafka.service import named
from tests.live_support.services import BOTH_COORDINATORS, Service, texts

pytestmark = [
    pytest.mark.usefixtures("other_clients"),
    pytest.mark.parametrize("broker", BOTH_COORDINATORS, indirect=True),
]
OLD = ["range"]
FINAL = ["cooperative-sticky"]


def test_a_cut_over_of_kafka_python_alone(service: Service) -> None:
    service.begin(["kafka-python-2-0", "kafka-python-2-1"], OLD)
    # kafka-python 2 does not say its name where it joins: nobody is told to stop a group for a
    # client id.
    said = ("--assume-family", "kafka-python")
    unproven = service.plan()
    assert (unproven["path"], unproven["exit_code"]) == ("none", 4)
    assert "--assume-family kafka-python --ignore RB104" in str(unproven["findings"])
    plan = service.plan(*said, "--out", str(service.file))
    (step,) = plan["steps"]
    assert (plan["path"], plan["verdict"], plan["exit_code"]) == ("cut_over", "blocked", 3)
    assert "RB104" in plan["summary"]
    agreed = service.plan(*said, "--ignore", "RB104", "--reason", "the night of the change")
    assert (agreed["verdict"], agreed["next_step"], agreed["exit_code"]) == ("ready", 1, 0)
    needs = "needs kafka-python 3.0 or later; not every version is known"
    assert needs in texts(step, "kafka-python")
    # Neither the list of the documentation for Java nor the last one lives in this group.
    service.refuses("kafka-python-9", [*FINAL, *OLD], "common RebalanceProtocol")
    service.refuses("kafka-python-9", FINAL, "InconsistentGroupProtocol")
    service.plan(*said, "--out", str(service.file))

    for name in list(service.running):
        service.stop(name)
        if service.running:
            service.settle()
        told = service.verify()
        assert (told["exit_code"], told["dangers"]) == (4, []), told
        assert (named(told, "yes"), named(told, "no")) == (set(), set(service.running))
    assert service.inspect()["state"] == "Empty"
    for name, gate in (("kafka-python-0", 4), ("kafka-python-1", 0)):
        service.start_as(name, step)
        service.settle()
        told = service.check(gate, set(service.running))
        assert told["dangers"] == []
    service.is_over()
    assert set(service.runs().values()) == {"COOPERATIVE"}
    # The truth of it: one more member comes, and those that are there keep what they keep.
    for owned, given in service.given_up("kafka-python-2", FINAL).values():
        assert given < owned
