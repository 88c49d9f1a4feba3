"""The zone of a broker's request log, on brokers that write local time."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rebal.cli.params import Connection, EvidenceOptions
from rebal.cli.sources import GroupSource
from tests.kafka import broker as harness
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.rolling import Rolling
from tests.live_support.rollout import Plan

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("zone", "said"), [("Asia/Tokyo", "+09:00"), ("America/New_York", "-0")])
def test_a_broker_s_local_times_are_placed(
    zone: str,
    said: str,
    members: Members,
    monkeypatch: pytest.MonkeyPatch,
    *,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    java = [each for each in harness._JVM if "user.timezone" not in each]
    monkeypatch.setattr(harness, "_JVM", (*java, f"-Duser.timezone={zone}"))
    with Broker(jars.EARLY, secure=False, request_log=True) as broker:
        names = ("zoned", "orders")
        service = Rolling(broker, members, *names, partitions=4, software="kafka-python")
        service.begin(["c0", "c1"], ["range"])
        plan = Plan(broker, "zoned", tmp_path, capsys)
        words = ("--expect-members", "2", "--request-log", str(broker.request_log_path))
        plan.make(*words)
        service.refuses("refused", ["roundrobin"], "Inconsistent", software="java-4.1.1")
        # Read as UTC, it would have been hours before the plan, or hours ahead of the clock.
        dangers = plan.verify(*words)["dangers"]
        assert [danger["kind"] for danger in dangers] == ["rejected"]
        connection = Connection(bootstrap=broker.bootstrap)
        log = tmp_path / "copy.log"
        log.write_bytes(broker.request_log_path.read_bytes())
        # Its age says nothing: the generation that the offsets topic dates does.
        os.utime(log, (0, 0))
        now = datetime.now(UTC)
        for path, probe in ((broker.request_log_path, False), (log, True)):
            evidence = EvidenceOptions(probe=probe, request_log=[path])
            found = GroupSource("zoned", None, connection, evidence).read()
            times = [member.joined_at for member in found.members]
            times += [one.at for one in found.refusals]
            assert len(times) == 3
            for at in times:
                assert at is not None
                assert timedelta(0) <= now - at < timedelta(minutes=5)
            assert any(f"UTC{said}" in note for note in found.notes)
        # It joins with a list that is admitted, and nothing is left to say of it.
        service.begin(["refused"], ["range"], software="java-4.1.1")
        assert plan.verify(*words)["dangers"] == []
        members.end()
        assert found.group.coordinator is not None
        assert found.group.coordinator.leader_epoch == 0
        assert found.group.coordinator.loaded_at is None
