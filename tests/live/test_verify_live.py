"""Roll-outs on real Java members: after every restart verify's word is held to the truth.

Times differ, too: a request log in local time, and a machine whose clock is an hour ahead. What an
application's own assignor supports is seen in a rebalance alone: on the way up nothing rests on it.
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
from tests.kafka.members import Members, Rolling, named
from tests.live_support.rollout import BOTH_COORDINATORS, GroupOn, Plan, Service, rule, texts

OLD = ["range"]
MIXED = ["cooperative-sticky", "range"]
FINAL = ["cooperative-sticky"]
APPS = ("app-0", "app-1", "app-2")


@pytest.mark.story
def test_verify_follows_two_bounces_with_a_forgotten_member_and_a_rejected_join(
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

        # app-2 is forgotten, and the second bounce is started nevertheless.
        rollout.stop("app-0")
        rollout.refuses("app-0", FINAL, "InconsistentGroupProtocol")
        answer = rollout.verify()
        assert answer["exit_code"] == 3
        (danger,) = answer["dangers"]
        assert danger["kind"] == "rejected"
        assert "app-0 (127.0.0.1) [cooperative-sticky]" in danger["message"]
        assert danger["members"] == [rollout.running["app-2"].member_id]
        assert [one["name"] for one in answer["outsiders"]] == ["app-0"]
        assert rollout.verify_unlogged()["exit_code"] == 4

        rollout.begin(["app-0"], MIXED)
        rollout.restart("app-2", MIXED)
        answer = rollout.verify()
        assert named(answer, "yes") == set(APPS)
        # The very client that was rejected has joined since, as the log shows.
        assert answer["dangers"] == []
        assert answer["gate"] == "yes"
    # Without a log the elected target proves the same.
    answer = rollout.verify_unlogged()
    assert (answer["step"], answer["gate"], answer["exit_code"]) == (1, "yes", 0)
    assert answer["assignor"] == "cooperative-sticky"
    assert answer["next"].startswith("begin step 2")

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
@pytest.mark.parametrize(("zone", "utc"), [("Asia/Tokyo", "+09:00"), ("America/New_York", "-0")])
def test_request_log_times_in_the_local_zone_of_the_broker_are_converted_to_utc(
    zone: str,
    utc: str,
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
        # The file's age gives no zone; the generation dated by the offsets topic does.
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
            assert any(f"UTC{utc}" in note for note in found.notes)
        # It joins with a list that is admitted, and nothing is left to say of it.
        service.begin(["refused"], ["range"], software="java-4.1.1")
        assert plan.verify(*words)["dangers"] == []
        members.end()
        assert found.group.coordinator is not None
        assert found.group.coordinator.leader_epoch == 0
        assert found.group.coordinator.loaded_at is None


def right() -> datetime:
    return datetime.now(UTC)


def test_a_rejection_after_the_plan_counts_despite_a_clock_that_is_an_hour_ahead(
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
    printed = capsys.readouterr().out
    assert f"{JAVA}-2" in printed
    assert "this machine's clock is 60 min ahead of the brokers'" in printed
    # The next look is taken on a machine whose clock is right.
    monkeypatch.setattr(clock, "now", right)
    assert app.run(words) == 3
    assert "left out" not in capsys.readouterr().out
    lines = journal_path(service.file).read_text().splitlines()
    times = [datetime.fromisoformat(json.loads(line)["at"]) for line in lines]
    assert len(times) == 2
    assert began - timedelta(seconds=2) < times[0] < times[1] < right() + timedelta(seconds=2)


OWN = ["shelf"]
BOTH = [*FINAL, *OWN]
EAGER = ("--ignore", "RB112", "--reason", "its supportedProtocols() is EAGER alone")
ON_BOTH = pytest.mark.parametrize("broker", BOTH_COORDINATORS, indirect=True)


def logs(service: Service) -> list[str]:
    """The options that bring what the members themselves printed."""
    paths = dict.fromkeys(str(member.host.log_path) for member in service.running.values())
    return [word for path in paths for word in ("--client-log", path)]


@ON_BOTH
def test_a_custom_eager_assignor_is_left_in_two_bounces(service: Service, tmp_path: Path) -> None:
    names = ["java-2.8.2-0", "java-3.9.1-0"]
    service.begin(names, OWN)
    # The broker's log has the name, and no class.
    unclassed = service.plan()
    assert (unclassed["path"], unclassed["next_step"], unclassed["exit_code"]) == (
        "two_bounces", 1, 0,
    )  # fmt: skip
    assert "CooperativeStickyAssignor,THE-CLASS-OF-shelf" in texts(unclassed["steps"][0], "java")
    first, second = service.plan(*logs(service), "--out", str(service.file))["steps"]
    assert first["target_list"] == BOTH
    assert "THE-CLASS-OF" not in texts(first, "java")
    answer = service.inspect(*logs(service), log=False)
    assert [m["assignors"]["list"] for m in answer["members"]] == [OWN, OWN]
    assert answer["contradictions"] == []

    # What a next start would use is a class, too, and it is the one that runs.
    file = tmp_path / "app.properties"
    file.write_text(
        f"group.id={service.group}\nbootstrap.servers=kafka:9092\n"
        "partition.assignment.strategy=com.example.ShelfAssignor\n"
    )
    blind = service.inspect("--inventory", str(file))
    assert (rule(blind, "RB101"), rule(blind, "RB903")) == ("cannot tell", "cannot tell")
    known = service.inspect("--inventory", str(file), *logs(service))
    assert (rule(known, "RB101"), rule(known, "RB903")) == (None, None)

    service.carry_out(first, names[:1])
    service.refuses("java-3.9.1-9", FINAL, "InconsistentGroupProtocol")
    answer = service.verify()
    assert (answer["exit_code"], answer["dangers"][0]["kind"]) == (3, "rejected")
    service.file = service.file.with_name("again.yaml")
    first, second = service.plan(*logs(service), "--out", str(service.file))["steps"]
    service.carry_out(first, names[1:])
    assert service.inspect()["assignor"] == FINAL[0]
    rollback = service.plan("--to", "eager")
    assert (rollback["target"], rollback["exit_code"], rule(rollback, "RB112")) == (
        "shelf",
        4,
        "cannot tell",
    )
    assert service.plan("--to", "eager", *EAGER)["exit_code"] == 0
    # The members' own logs alone name the same members, on either list.
    service.carry_out(second, names[:1])
    unlogged = service.verify_unlogged(*logs(service))
    assert (named(unlogged, "yes"), named(unlogged, "no")) == ({names[0]}, {names[1]})
    service.carry_out(second, names[1:])
    assert service.verify()["finished"]
    done = service.plan()
    assert (done["verdict"], done["from"]) == ("done", "COOPERATIVE")
    assert all(member.error is None for member in service.running.values())


@ON_BOTH
@pytest.mark.parametrize("version", ["2.8.2", jars.SCALA, jars.EARLY])
def test_any_assignor_may_follow_cooperative_sticky(version: str, service: Service) -> None:
    """Basis of RB112: cooperative-sticky shares a rebalance protocol with every assignor."""
    for own in ("shelf", "shelf-cooperative", "shelf-only"):
        name = f"java-{version}-0"
        service.begin([name], [*FINAL, own])
        service.stop(name)
    lost = service.start(f"java-{version}-9", ["range", "shelf-only"])
    lost.wait_for("error")
    assert "assignors" in str(lost.error), lost.error


@ON_BOTH
def test_an_eager_class_named_cooperative_sticky_is_not_reported_done(service: Service) -> None:
    """Basis of RB111: such a member revokes everything at each rebalance."""
    names = ["java-2.8.2-0", "java-3.9.1-0"]
    service.begin(names, ["eager-cooperative-sticky"])
    for owned, given in service.given_up("java-3.9.1-1", ["eager-cooperative-sticky"]).values():
        assert owned <= given
    # The request log alone: those that rejoined gave up what they had, the newcomer shows nothing.
    shown = service.plan()
    assert {name: service.runs()[name] for name in names} == {
        "java-2.8.2-0": "cannot tell",  # no generation in its bytes before 3.4: it proves nothing
        "java-3.9.1-0": "EAGER",
    }
    assert (shown["verdict"], shown["exit_code"]) == ("blocked", 3)
    (eager,) = (f for f in shown["findings"] if (f["rule"], f["result"]) == ("RB111", "yes"))
    assert eager["members"] == [service.running["java-3.9.1-0"].member_id]
    plan = service.plan(*logs(service), "--out", str(service.file))
    assert (plan["assignor"], plan["from"]) == ("cooperative-sticky", "cannot tell")
    assert (plan["verdict"], plan["exit_code"]) == ("blocked", 3)
    assert "com.example.ShelfAssignor$Eager" in str(plan["findings"])
    answer = service.verify(*logs(service))
    assert (answer["finished"], answer["exit_code"]) == (False, 3)
    last = service.verify(*logs(service), "--step", "2")
    assert (named(last, "yes"), last["exit_code"]) == (set(), 3)
    # The name is held: the coordinator admits by names.
    first = service.verify(*logs(service), "--step", "1")
    assert named(first, "yes") == set(service.running)
