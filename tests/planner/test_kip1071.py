"""Kafka Streams to the streams protocol (KIP-1071) and back: plans, refusals, and each look."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.inspectors.kafka.brokers import group_settings
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scene import scene_of
from rebal.planner.rehearsal.scripts import rollout
from tests.planner.builder import group_of
from tests.planner.looks import pods
from tests.planner.plans import plan, rules

AGREED = {"RB413": "night shift"}
NEW = {"family": "streams", "version": "4.3.1"}
CLUSTER = {
    "cluster": {
        "version": "4.3",
        "features": {"streams.version": 1},
        "settings": {"group.max.size": "100"},
    }
}
CLASSIC = {"type": "classic", "elected": "stream", **CLUSTER}
STREAMS = {"type": "streams", "protocol_type": "streams", "elected": "sticky", **CLUSTER}


def classic(*starts: int, **more: Any) -> list[dict[str, Any]]:
    return pods(*starts, list=["stream"], owned=3, **{**NEW, **more})


def new(*starts: int) -> list[dict[str, Any]]:
    """Members of the streams protocol."""
    return pods(*starts, epoch=3, owned=3, **NEW)


def up(**more: Any) -> Plan:
    return plan(classic(1, 1), "streams", **{"ignore": AGREED, **CLASSIC, **more})


@pytest.mark.parametrize(("session", "printed"), [(1500, 45000), (50000, 50000), (120000, 60000)])
def test_the_group_gets_the_session_that_the_brokers_allow(session: int, printed: int) -> None:
    made = plan(classic(1, timeouts=[session, 300000]), "streams", **CLASSIC)
    setting = f"--entity-name checkout --add-config streams.session.timeout.ms={printed}"
    assert any(one.line.endswith(setting) for one in made.steps[0].commands)


@pytest.mark.parametrize(("version", "code"), [("4.1", 3), ("4.2", 4)])
def test_a_word_answers_what_is_not_known_of_the_brokers_and_nothing_else(
    version: str, code: int
) -> None:
    cluster = {**CLUSTER["cluster"], "version": version}
    asked = up(cluster=cluster)
    assert (asked.exit_code, "RB508" in asked.summary) == (code, True)
    answered = up(cluster=cluster, ignore={**AGREED, "RB508": "looked"})
    assert answered.exit_code == (0 if code == 4 else 3)


def test_eager_goes_over_the_classic_protocol_first_and_cooperative_needs_nothing() -> None:
    assert plan(new(1, 1), "eager", **STREAMS).path == "kip1071_back"
    assert plan(new(1, 1), "cooperative", **STREAMS).verdict == "done"
    assert plan(new(1, 1), "streams", **STREAMS).verdict == "done"
    assert plan(classic(1, 1), "classic", **CLASSIC).verdict == "done"


def test_other_groups_have_no_such_goal() -> None:
    for members, goal, more in (
        (pods(1, list=["range"]), "streams", {}),
        (pods(1, list=["default"]), "streams", {"protocol_type": "connect", "elected": "default"}),
        (pods(1, protocol_type="consumer"), "classic", {"type": "consumer", "elected": "uniform"}),
    ):
        made = plan(members, goal, **more)
        assert (made.path, made.exit_code, made.advice.action) == ("none", 4, "none")
        assert "no step can be planned: --to streams needs a Kafka Streams program" in made.summary
        assert "goes back with --to cooperative-sticky or --to range" in made.summary
    restless = plan(
        classic(1), "streams", **{**CLASSIC, "state": "PreparingRebalance", "ignore": AGREED}
    )
    assert (restless.exit_code, rules(restless) & {"RB905"}) == (4, {"RB905"})


def rehearsed(made: Plan) -> Rehearsal:
    scene, assumed = scene_of(made.baseline)
    assert not assumed
    return rehearse(scene, rollout(made))


def test_the_way_there_waits_for_the_sessions_and_for_the_first_assignment() -> None:
    run = rehearsed(up())
    assert (run.unit, run.at_rest, run.assignor) == ("none", True, "sticky")
    assert {one.protocol for one in run.members} == {"STREAMS"}
    last = run.rebalances[-1]
    # Measured on 4.4.0: 5.4 s from the start to RUNNING (a heartbeat's interval, 5 s, which the
    # initial delay of 3 s does not prolong).
    assert (last.began, last.members) == (75.0, 2)
    assert 5 < last.ended - last.began < 6
    made = up()
    read = group_settings({"group.streams.initial.rebalance.delay.ms": "9000"})
    base = replace(made.baseline, cluster=replace(made.baseline.cluster, settings=read))
    slow = rehearsed(replace(made, baseline=base)).rebalances[-1]
    assert slow.ended - slow.began > 9, "the brokers' setting, as rebal reads it"


def test_the_way_back_stops_without_a_wait() -> None:
    group = group_of({"members": new(1, 1), **STREAMS})
    run = rehearsed(make_plan(group, "classic", ignore=AGREED))
    assert (run.unit, run.at_rest, run.assignor) == ("none", True, "stream")
    assert run.assumes[0].startswith("the tasks that Kafka Streams assigns are not modelled")
    assert run.rebalances[0].began < 1, "members of the streams protocol leave"
