"""Moments at which an operator once lost a member who did what `rebal` said, on real brokers.

Each test makes the moment, holds `rebal` to not advising that restart, and then carries it out all
the same: the coordinator rejects it, so the caution was right.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.broker import Broker
from tests.kafka.service import inspect
from tests.live_support.rollout import GroupOn, PlannedGroup, recommends

OLD = ["range"]
BOTH = ["range", "cooperative-sticky"]
MIXED = ["cooperative-sticky", "range"]
FINAL = ["cooperative-sticky"]
APPS = ("app-0", "app-1", "app-2")


@pytest.fixture
def group(kafka41: Broker, group_on: GroupOn) -> Iterator[PlannedGroup]:
    """A group on the shared broker, whose request log is on."""
    made: PlannedGroup = group_on(kafka41)
    with made.logged():
        yield made


def no_log_of(group: PlannedGroup) -> tuple[str, str]:
    """An empty log in the place of the one that the plan keeps."""
    empty = group.file.with_suffix(".empty.log")
    empty.write_text("")
    return ("--request-log", str(empty))


def test_a_member_that_went_back_to_its_old_list_unseen(group: PlannedGroup) -> None:
    """RB901 is open: the plan knew every list, and of the new process it knows none."""
    group.begin(APPS, BOTH)
    body = group.make("--expect-members", "3", "--probe", *group.logs())
    assert recommends(body, FINAL), body["advice"]
    group.restart("app-2", OLD)
    # The plan keeps its probe, whose no is enough; only app-2 itself may take the target alone.
    journal = ("--journal", str(group.file.with_suffix(".blind.jsonl")))
    for words in ((*journal, *no_log_of(group)), group.logs()):
        told = group.verify(*words)
        assert told["exit_code"] == 3
        alone = told["advice"]["names"] == ["app-2"]
        assert alone or not recommends(told, FINAL), told["advice"]
    group.dies("app-0", FINAL)


def test_another_deployment_changed_the_elected_assignor(group: PlannedGroup) -> None:
    group.begin(APPS, MIXED)
    body = group.make("--expect-members", "3", *group.logs())
    assert (body["steps"][-1]["target_list"], body["assignor"]) == (FINAL, FINAL[0])
    group.begin(["other-0"], OLD)
    counted = ("--expect-members", "4")
    for words, code in (((*counted, *no_log_of(group)), 4), ((*counted, *group.logs()), 3)):
        told = group.verify(*words)
        assert told["exit_code"] == code
        assert [change["what"] for change in told["drift"]] == ["assignor"]
        assert "[cooperative-sticky] does not hold it" in told["drift"][0]["text"]
        assert not recommends(told, FINAL), told["advice"]
    group.dies("app-0", FINAL)


@pytest.mark.parametrize("version", ["41", pytest.param("39", marks=pytest.mark.full)])
def test_a_load_keeps_the_bytes_of_a_static_members_new_process(
    version: str, request: pytest.FixtureRequest, group_on: GroupOn
) -> None:
    """The record of a static restart holds the subscription of the process that came.

    So after a load no byte of the old process, which kept its partitions, speaks against the list
    of the new one.
    """
    cluster = request.getfixturevalue(f"cluster{version}")
    group: PlannedGroup = group_on(cluster)
    for name in APPS[:2]:
        # One after the other: the first one joins again and names the partitions that it keeps.
        group.place(name, FINAL, instance_id=name, session_timeout_ms=45_000)
        group.settle()
    group.make("--to", "eager", "--expect-members", "2", *group.logs())
    group.restart("app-0", BOTH)
    cluster.move_coordinator(group.group)
    group.settle()
    body = group.verify("--probe", *group.logs())
    seen = inspect(cluster, group.group, "--probe")
    assert seen["coordinator"]["rebalanced_since_load"] == "no"
    assert seen["members"][0]["subscription"]["generation_id"] == -1
    assert seen["members"][0]["subscription"]["owned_partitions"] == []
    (shown,) = [one for one in body["members"] if one["name"] == "app-0"]
    assert shown["done"] == "yes", shown
    assert "RB902" not in {one["rule"] for one in body["findings"]}
    assert recommends(body, BOTH), body["advice"]
