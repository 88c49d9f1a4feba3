"""A roll-out on real Java members: after every restart verify's word is held to the truth.

Times differ, too: a request log in local time, and a machine whose clock is an hour ahead.
"""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rebal.cli import app
from rebal.cli.journal import journal_path
from rebal.cli.params import Connection, EvidenceOptions
from rebal.cli.sources import GroupSource
from rebal.inspectors import clock
from tests.kafka import broker as harness
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.rolling import Rolling
from tests.kafka.service import named
from tests.live_support.rollout import GroupOn, Plan, Service

OLD = ["range"]
MIXED = ["cooperative-sticky", "range"]
FINAL = ["cooperative-sticky"]
APPS = ("app-0", "app-1", "app-2")


@pytest.mark.story
def test_two_bounces_with_a_forgotten_member_and_a_refusal(
    kafka41: Broker, group_on: GroupOn
) -> None:
    rollout: Service = group_on(kafka41, Service, "java-2.8.2")
    rollout.begin(APPS, OLD)
    # The plan keeps no log: a look that is given none has none.
    words = ("--expect-members", "3", "--out", str(rollout.file))
    rollout.ask("plan-upgrade", rollout.group, *words)
    with rollout.logged():
        before = rollout.verify_unlogged()
        assert (before["step"], before["exit_code"]) == (1, 4)
        assert named(before, "no") == set(APPS)

        rollout.restart("app-0", MIXED)
        rollout.check(4, {"app-0"})
        # The ids of the two others are still there: named without any log.
        assert named(rollout.verify_unlogged(), "no") == {"app-1", "app-2"}
        rollout.restart("app-1", MIXED)
        rollout.check(4, {"app-0", "app-1"})
        assert named(rollout.verify_unlogged(), "no") == {"app-2"}

        # app-2 is forgotten, and somebody begins the second bounce all the same.
        rollout.stop("app-0")
        rollout.refuses("app-0", FINAL, "InconsistentGroupProtocol")
        told = rollout.verify()
        assert told["exit_code"] == 3
        (danger,) = told["dangers"]
        assert danger["kind"] == "rejected"
        assert "app-0 (127.0.0.1) [cooperative-sticky]" in danger["message"]
        assert danger["members"] == [rollout.running["app-2"].member_id]
        assert [one["name"] for one in told["outsiders"]] == ["app-0"]
        assert rollout.verify_unlogged()["exit_code"] == 4

        rollout.begin(["app-0"], MIXED)
        rollout.restart("app-2", MIXED)
        told = rollout.verify()
        assert named(told, "yes") == set(APPS)
        # The very client that was rejected has joined since, as the log shows.
        assert told["dangers"] == []
        assert told["gate"] == "yes"
    # Without a log the elected target proves the same.
    told = rollout.verify_unlogged()
    assert (told["step"], told["gate"], told["exit_code"]) == (1, "yes", 0)
    assert told["assignor"] == "cooperative-sticky"
    assert told["next"].startswith("begin step 2")

    # The second bounce is done only when every list is seen.
    with rollout.logged():
        for number, name in enumerate(APPS):
            rollout.restart(name, FINAL)
            rollout.check(0 if number == 2 else 4, {*APPS[: number + 1]})
            unlogged = rollout.verify_unlogged()
            assert (unlogged["step"], unlogged["exit_code"]) == (2, 4)
    # The log is gone, its word stays in the journal; without either, a member shows by the
    # partitions that it kept that it runs COOPERATIVE, and the last one to restart shows nothing.
    assert rollout.ask("verify", str(rollout.file))["finished"]
    other = ("--journal", f"{rollout.file}.other", "--step", "2")
    nothing = rollout.ask("verify", str(rollout.file), *other)
    assert nothing["exit_code"] == 4
    assert named(nothing, "yes") <= {*APPS[:-1]}


JAVA = "java-4.1.1"


@pytest.mark.slow
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


def right() -> datetime:
    return datetime.now(UTC)


def test_a_rejection_after_the_plan_is_later_than_the_plan(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan's machine is an hour ahead: by its clock the rejection was long before the plan."""
    monkeypatch.setattr(clock, "now", lambda: right() + timedelta(hours=1))
    service.begin([f"{JAVA}-0", f"{JAVA}-1"], ["range"])
    began = right()
    plan = service.plan("--out", str(service.file))
    assert plan["baseline"]["clock_ahead_ms"] == pytest.approx(3_600_000, abs=2000)
    service.refuses(f"{JAVA}-2", ["sticky"], "Inconsistent")
    words = ["verify", str(service.file), "-b", service.broker.bootstrap, "--probe"]
    words += ["--request-log", str(service.broker.request_log_path), "--log-timezone", "UTC"]
    capsys.readouterr()
    assert app.run(words) == 3
    said = capsys.readouterr().out
    assert f"{JAVA}-2" in said
    assert "this machine's clock is 60 min ahead of the brokers'" in said
    # The next look is taken on a machine whose clock is right.
    monkeypatch.setattr(clock, "now", right)
    assert app.run(words) == 3
    assert "left out" not in capsys.readouterr().out
    lines = journal_path(service.file).read_text().splitlines()
    times = [datetime.fromisoformat(json.loads(line)["at"]) for line in lines]
    assert len(times) == 2
    assert began - timedelta(seconds=2) < times[0] < times[1] < right() + timedelta(seconds=2)
