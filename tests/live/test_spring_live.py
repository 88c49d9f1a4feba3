"""Who sets a running Java member's list: its configuration file, or the code that wins over it.

The members here are started by code, with a list of their own, as a Spring ConsumerFactory with a
map of its own is; what they print is what any Java consumer prints.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.service import Service

pytestmark = pytest.mark.parametrize("broker", ["kafka41"], indirect=True)
OLD = ["range"]
YAML = """\
spring:
  kafka:
    bootstrap-servers: kafka:9092
    consumer:
      group-id: {group}
      properties:
        partition.assignment.strategy: >-
          org.apache.kafka.clients.consumer.CooperativeStickyAssignor,{class_of_range}
"""
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"


def rb903(body: dict[str, Any]) -> dict[str, Any]:
    (finding,) = (one for one in body["findings"] if one["rule"] == "RB903")
    return dict(finding)


def test_a_list_that_code_sets_is_told_from_a_file_that_waits_for_a_restart(
    service: Service, tmp_path: Path
) -> None:
    name = "java-3.9.1-0"
    service.begin([name], OLD)
    file = tmp_path / "application.yml"
    file.write_text(YAML.format(group=service.group, class_of_range=RANGE))
    log = str(service.running[name].host.log_path)
    evidence = ["--inventory", str(file), "--client-log", log]

    # Written after the start: the restart is still to come.
    later = rb903(service.inspect(*evidence, log=False))
    assert "changed, not restarted" in later["message"]
    # Written long before it: this start had the file, and another list.
    before = time.time() - 600
    os.utime(file, (before, before))
    found = rb903(service.inspect(*evidence, log=False))
    assert f"{name} was started at " in found["message"]
    assert f"{file}, which is older, says [cooperative-sticky, range]" in found["message"]
    assert "ConsumerFactory" in found["fix"]
    # The broker's log has the list, and no start.
    assert "changed, not restarted" in rb903(service.inspect("--inventory", str(file)))["message"]
