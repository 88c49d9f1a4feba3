"""Groups whose assignor is an application's own class, and the plans' word on real Java members.

What such a class supports cannot be seen from outside, but in a rebalance: on the way up nothing
rests on it. Its class is in the members' own logs, its name on the wire in the broker's.
"""

from pathlib import Path

import pytest

from tests.kafka import jars
from tests.kafka.service import named
from tests.live_support.rollout import BOTH_COORDINATORS, Service, rule, texts

OWN = ["shelf"]
FINAL = ["cooperative-sticky"]
BOTH = [*FINAL, *OWN]
EAGER = ("--ignore", "RB112", "--reason", "its supportedProtocols() is EAGER alone")
pytestmark = pytest.mark.parametrize("broker", BOTH_COORDINATORS, indirect=True)


def logs(service: Service) -> list[str]:
    """The options that bring what the members themselves printed."""
    paths = dict.fromkeys(str(member.host.log_path) for member in service.running.values())
    return [word for path in paths for word in ("--client-log", path)]


def test_an_own_eager_assignor_is_left_in_two_bounces(service: Service, tmp_path: Path) -> None:
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
    told = service.inspect(*logs(service), log=False)
    assert [m["assignors"]["list"] for m in told["members"]] == [OWN, OWN]
    assert told["contradictions"] == []

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
    told = service.verify()
    assert (told["exit_code"], told["dangers"][0]["kind"]) == (3, "rejected")
    service.file = service.file.with_name("again.yaml")
    first, second = service.plan(*logs(service), "--out", str(service.file))["steps"]
    service.carry_out(first, names[1:])
    assert service.inspect()["assignor"] == FINAL[0]
    back = service.plan("--to", "eager")
    assert (back["target"], back["exit_code"], rule(back, "RB112")) == ("shelf", 4, "cannot tell")
    assert service.plan("--to", "eager", *EAGER)["exit_code"] == 0
    # The members' own logs alone name the same members, on either list.
    service.carry_out(second, names[:1])
    said = service.verify_unlogged(*logs(service))
    assert (named(said, "yes"), named(said, "no")) == ({names[0]}, {names[1]})
    service.carry_out(second, names[1:])
    assert service.verify()["finished"]
    done = service.plan()
    assert (done["verdict"], done["from"]) == ("done", "COOPERATIVE")
    assert all(member.error is None for member in service.running.values())


@pytest.mark.parametrize("version", ["2.8.2", jars.SCALA, jars.EARLY])
def test_any_own_assignor_starts_behind_cooperative_sticky(version: str, service: Service) -> None:
    """What RB112 rests on: cooperative-sticky has a protocol in common with every other one."""
    for own in ("shelf", "shelf-cooperative", "shelf-only"):
        name = f"java-{version}-0"
        service.begin([name], [*FINAL, own])
        service.stop(name)
    lost = service.start(f"java-{version}-9", ["range", "shelf-only"])
    lost.wait_for("error")
    assert "assignors" in str(lost.error), lost.error


def test_an_eager_class_named_cooperative_sticky_is_not_called_done(service: Service) -> None:
    """What RB111 rests on: such a member gives up everything at each rebalance."""
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
    told = service.plan(*logs(service), "--out", str(service.file))
    assert (told["assignor"], told["from"]) == ("cooperative-sticky", "cannot tell")
    assert (told["verdict"], told["exit_code"]) == ("blocked", 3)
    assert "com.example.ShelfAssignor$Eager" in str(told["findings"])
    said = service.verify(*logs(service))
    assert (said["finished"], said["exit_code"]) == (False, 3)
    last = service.verify(*logs(service), "--step", "2")
    assert (named(last, "yes"), last["exit_code"]) == (set(), 3)
    # The name is held: the coordinator admits by names.
    first = service.verify(*logs(service), "--step", "1")
    assert named(first, "yes") == set(service.running)
