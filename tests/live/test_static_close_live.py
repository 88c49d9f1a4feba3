"""What removes the entry of a static member that is down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rebal.groups.evidence.bounds import apply_assumptions
from rebal.inspectors.connection.translate import words_of
from rebal.planner.commands import Given
from rebal.planner.paths import make_plan
from tests.live_support import config_of, read_group
from tests.live_support.rollout import GroupOn, PlannedGroup

pytestmark = pytest.mark.full


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("broker", "security"),
    [("kafka39", None), ("kafka41", None), ("kafka41", "SCRAM-SHA-512"),
     ("kafka41", "SSL")],
)  # fmt: skip
def test_entry_of_a_static_member_that_is_down_is_removed_by_the_printed_command(
    broker: str, security: str | None, request: pytest.FixtureRequest, group_on: GroupOn
) -> None:
    kafka = request.getfixturevalue(broker)
    service: PlannedGroup = group_on(kafka, software="java-4.1.1")
    options = {"session_timeout_ms": 1_800_000, "settings": {"heartbeat.interval.ms": "1000"}}
    service.begin(["app-0"], ["cooperative-sticky", "range"], instance_id="app-0", **options)
    service.begin(["app-1"], ["range"], instance_id="app-1", **options)
    service.running.pop("app-1").crash()
    seen = read_group(kafka, service.group, probe=True)
    assert len(seen.members) == 2, "the coordinator counts the member that is down"
    config = config_of(kafka, security)
    given = Given(brokers=config.bootstrap, client=words_of(config), plan="p.yaml")
    lists = ["instance-id=app-0:cooperative-sticky,range", "instance-id=app-1:range"]
    known, _ = apply_assumptions(seen, lists)
    findings = make_plan(known, given=given).findings
    (forgotten,) = [one for one in findings if one.rule == "RB102"]
    (command,) = [one.line for one in forgotten.commands if "remove" in one.use]
    assert command.startswith("python -m kafka.admin ")
    login = {"REBAL_X_SASL_USERNAME": config.username, "REBAL_X_SASL_PASSWORD": config.password}
    done = subprocess.run(
        ["bash", "-c", command],
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
             **{name: value for name, value in login.items() if value}},
        check=True, timeout=60, capture_output=True, text=True,
    )  # fmt: skip
    assert "NoError" in done.stdout
    service.settle()
    seen = read_group(kafka, service.group)
    assert [one.instance_id for one in seen.members] == ["app-0"]
    assert seen.group.assignor == "cooperative-sticky"
