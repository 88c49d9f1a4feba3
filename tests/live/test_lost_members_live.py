"""Moments at which an operator once lost a member who did what `rebal` said, on real brokers.

Each test makes the moment, holds `rebal` to not advising that restart, and then carries it out all
the same: the coordinator rejects it, so the caution was right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.cluster import Cluster
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


def blind(group: PlannedGroup, *more: str) -> dict[str, Any]:
    """What verify says to somebody who has no log and has never seen one."""
    journal = ("--journal", str(group.file.with_suffix(".blind.jsonl")))
    return group.verify(*journal, *no_log_of(group), *more)


def test_a_coordinator_that_forgot_the_lists(cluster41: Cluster, group_on: GroupOn) -> None:
    """RB113 is open: a static member's restart after the load is no rebalance."""
    group: PlannedGroup = group_on(cluster41)
    for name in APPS:
        group.place(name, BOTH, instance_id=name, session_timeout_ms=45_000)
    group.settle()
    body = group.make("--expect-members", "3", *group.logs())
    assert body["steps"][-1]["target_list"] == FINAL
    cluster41.move_coordinator(group.group)
    group.settle()
    group.restart("app-1", BOTH)
    for told in (group.verify(), blind(group), group.verify("--probe", *group.logs())):
        assert told["exit_code"] in (3, 4)
        assert not recommends(told, FINAL), told["advice"]
    group.dies("app-0", FINAL)


def test_a_member_that_went_back_to_its_old_list_unseen(group: PlannedGroup) -> None:
    """RB901 is open: the plan knew every list, and of the new process it knows none."""
    group.begin(APPS, BOTH)
    body = group.make("--expect-members", "3", "--probe", *group.logs())
    assert recommends(body, FINAL), body["advice"]
    group.restart("app-2", OLD)
    # The plan keeps its probe, whose no is enough; only app-2 itself may take the target alone.
    for told in (blind(group), group.verify(*group.logs())):
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


@pytest.mark.parametrize("prefixed", [False, True], ids=["merged", "with --prefix"])
def test_logs_of_pods_with_one_client_id(
    prefixed: bool, group: PlannedGroup, tmp_path: Path
) -> None:
    """Java's own client id is the same in every pod, and the start of one pod's log is cut off."""
    client_id = {"client.id": f"consumer-{group.group}-1"}
    group.begin(APPS[:2], MIXED, own=True, settings=client_id)
    group.make("--expect-members", "2", *group.logs())
    group.restart("app-0", FINAL)
    pods = group.running
    lines = {name: member.log().splitlines() for name, member in pods.items()}
    start = max(n for n, line in enumerate(lines["app-1"]) if "ConsumerConfig values" in line)
    lines["app-1"] = lines["app-1"][start + 40 :]
    assert any("Successfully joined group" in line for line in lines["app-1"])
    merged = tmp_path / "merged.log"
    text = [
        f"[pod/{name}/service] {line}" if prefixed else line
        for name, some in lines.items()
        for line in some
    ]
    merged.write_text("\n".join(text) + "\n")
    told = blind(group, "--client-log", str(merged))
    done = {one["member_id"]: one["done"] for one in told["members"]}
    assert done[str(pods["app-1"].member_id)] != "yes"
    assert done[str(pods["app-0"].member_id)] == (
        "yes" if prefixed else done[str(pods["app-0"].member_id)]
    )
    assert not told["finished"]
    assert told["exit_code"] == 4


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
    _, text = group.rebal("inspect", group.group, "--probe", "-o", "json")
    (seen,) = json.loads(text)["groups"]
    assert seen["coordinator"]["rebalanced_since_load"] == "no"
    assert seen["members"][0]["subscription"]["generation_id"] == -1
    assert seen["members"][0]["subscription"]["owned_partitions"] == []
    (shown,) = [one for one in body["members"] if one["name"] == "app-0"]
    assert shown["done"] == "yes", shown
    assert "RB902" not in {one["rule"] for one in body["findings"]}
    assert recommends(body, BOTH), body["advice"]


def test_a_member_that_left_before_the_plan(group: PlannedGroup) -> None:
    """RB121: nobody but the log knows it, and it comes back with its old list."""
    group.begin(["app-0", "app-1", "a2"], OLD)
    group.stop("a2")
    group.settle()
    body = group.make(*group.logs())
    assert (body["exit_code"], len(body["steps"][0]["to_do"])) == (0, 2)
    (said,) = (one for one in body["findings"] if one["rule"] == "RB121")
    assert (said["result"], said["before_step"]) == ("cannot tell", 2)
    assert said["message"].startswith("a2 left 0 min ago with [range]")
    for name in ("app-0", "app-1"):
        group.restart(name, MIXED)
    for words in (group.logs(), ("--probe",), (*group.logs(), "--probe")):
        told = group.verify(*words)
        assert (told["exit_code"], told["advice"]["action"]) == (4, "evidence"), told["advice"]
        assert "RB121" in {one["rule"] for one in told["findings"]}
    _, screen = group.rebal("verify", str(group.file), *group.logs())
    assert "--departed a2 if it left for good" in screen
    # It is back with its old list: the group of now admits it, and step 2 waits for its restart.
    group.begin(["a2"], OLD)
    told = group.verify(*group.logs(), "--expect-members", "3")
    assert (told["exit_code"], told["step"]) == (4, 1), told["why"]
    group.restart("a2", MIXED)
    told = group.verify(*group.logs())
    assert (told["expected"], told["counted"]) == (3, True)
    assert recommends(told, FINAL), told["advice"]
    for name in ("app-0", "app-1", "a2"):
        group.restart(name, FINAL)
    assert group.verify(*group.logs())["finished"]
    assert not group.errors()
