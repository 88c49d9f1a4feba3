"""The ways that are not two bounces of one family: mixed families, Streams, Connect, sinks."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.model import (
    DeclaredAssignors,
    Evidence,
    KubernetesWorkload,
    RebalanceProtocol,
    Source,
)
from rebal.planner.paths import make_plan
from rebal.planner.plan import Action, Plan, Verdict
from tests.planner.builder import group_of
from tests.planner.plans import BOTH, DONE, RANGE, plan
from tests.planner.plans import m as java


def texts(made: Plan, step: int = 0) -> dict[str, str]:
    return {setting.format: setting.text for setting in made.steps[step].config}


def rd(name: str, names: list[str]) -> dict[str, Any]:
    return {"id": name, "list": names, "family": "librdkafka", "version": "2.6.0"}


def test_the_stop_of_librdkafka_members_waits_for_the_lists_of_all_others() -> None:
    half = plan([java("a", BOTH), java("b", RANGE), rd("c", RANGE)])
    assert (half.next_step, half.exit_code) == (1, 0)
    ready = plan([java("a", BOTH), java("b", BOTH), rd("c", RANGE)])
    assert (ready.next_step, ready.exit_code) == (2, 0)
    assert ready.steps[2].exit_code == 3
    unsure = plan([java("a", BOTH), {"id": "b", "at_least": RANGE}, rd("c", RANGE)])
    assert (unsure.next_step, unsure.exit_code) == (1, 0)
    assert unsure.steps[1].exit_code == 4
    stopped = plan([java("a", BOTH), java("b", BOTH)], elected=DONE[0], expect_members=3)
    assert stopped.exit_code == 3
    assert "RB606" in stopped.summary
    back = plan([java("a", BOTH), java("b", BOTH), rd("c", DONE)], elected=DONE[0])
    assert (back.path, back.next_step, back.exit_code) == ("two_bounces", 2, 0)
    assert back.steps[1].to_do == ("a-0f0f", "b-0f0f")


def test_librdkafka_members_stop_on_the_way_down_too() -> None:
    made = plan([java("a", DONE), rd("c", DONE)], "eager", elected=DONE[0])
    assert (made.path, made.next_step, made.exit_code) == ("mixed_families", 1, 0)
    assert made.steps[0].target_list == ("range", "cooperative-sticky")
    assert made.steps[1].target_list == ("range",)


def test_librdkafka_texts_are_what_the_languages_read() -> None:
    said = texts(plan([rd("a", RANGE)]))
    config: dict[str, str] = {}
    exec(said["Python"], {}, {"config": config})
    assert config == {"partition.assignment.strategy": "cooperative-sticky"}
    assert said["librdkafka properties"].endswith(
        "\npartition.assignment.strategy=cooperative-sticky"
    )


def test_sink_connectors_get_connector_level_overrides() -> None:
    members = [{"id": f"t{n}", "list": RANGE, "client": f"connector-consumer-hdfs-{n}"}
               for n in range(2)]  # fmt: skip
    made = plan(members, group_id="connect-hdfs")
    ((form, text),) = texts(made).items()
    assert form == "connector configuration"
    assert "\nconsumer.override.partition.assignment.strategy=org.apache." in text
    assert "configuration of connector hdfs" in text
    other = plan([java("a", RANGE)], group_id="connect-hdfs")
    assert "Java properties" in texts(other)


@pytest.mark.parametrize(
    ("names", "more", "target", "code", "says"),
    [
        (["default"], {"protocol_type": "connect"}, "range", 4, "a group of Connect workers"),
        (["sessioned"], {"protocol_type": "connect"}, "range", 4, "a group of Connect workers"),
        (["stream"], {}, "range", 3, "must not get an assignor list"),
        (RANGE, {}, "RoundRobinAssigner", 4, "of kafkajs, which no member runs"),
    ],
)
def test_an_assignor_that_no_member_can_have_is_no_goal(
    names: list[str], more: dict[str, Any], target: str, code: int, says: str
) -> None:
    made = plan([java("a", names), java("b", names)], target, elected=names[0], **more)
    action = Action.STOP if code == 3 else Action.NONE
    assert (made.path, made.exit_code, made.advice.action) == ("none", code, action)
    assert says in made.summary


def test_connect_workers_that_run_the_wished_protocol_are_done() -> None:
    for elected, goal in (
        ("compatible", "cooperative"),
        ("sessioned", "cooperative"),
        ("default", "eager"),
    ):
        workers = [{"id": "a", "list": [elected], "topics": []}]
        made = plan(workers, goal, protocol_type="connect", elected=elected)
        assert (made.path, made.target, made.exit_code) == ("finished", elected, 0)


def stream(name: str, version: str | None, **more: Any) -> dict[str, Any]:
    family = {"family": "streams"} if version else {"family": None, "left": "java or so"}
    return {"id": name, "list": ["stream"], "version": version, **family, **more}


def test_streams_from_below_2_4_takes_two_bounces_by_upgrade_from() -> None:
    made = plan([stream("a", "2.3.1"), stream("b", "2.3.1")], elected="stream")
    assert texts(made)["Java properties"].endswith("\nupgrade.from=2.3")
    assert "remove upgrade.from" in made.steps[1].config[0].text
    old = plan([stream("a", "0.10.2.1")], elected="stream")
    assert texts(old)["Java properties"].endswith("\nupgrade.from=0.10.2")
    half = plan([stream("a", "3.9.1", ran="EAGER"), stream("b", "2.3.1")], elected="stream")
    assert (half.next_step, half.exit_code) == (1, 0)
    assert half.steps[0].done == ("a-0f0f",)

    def order(**more: Any) -> str:
        return " ".join(plan([stream("a", "2.3.1", **more)], elected="stream").steps[0].order)

    assert "does not set upgrade.from yet" in order(declared=[])
    assert "does not set" not in order(declared=[], upgrade_from="2.3")
    unseen = plan([stream("a", "3.9.1"), stream("b", "2.3.1")], elected="stream")
    assert unseen.exit_code == 4, "without upgrade.from it would run COOPERATIVE beside b"
    assert "RB505" in unseen.summary


def test_streams_from_2_4_on_takes_one_bounce_at_most() -> None:
    made = plan([stream("a", "3.9.1"), stream("b", "3.9.1")], elected="stream")
    assert (made.path, made.next_step, made.exit_code) == ("streams_one_bounce", 1, 0)
    assert any("not set" in line for line in made.steps[0].why)
    proven = [stream("a", "3.9.1", owned=True), stream("b", "3.9.1", owned=True)]
    done = plan(proven, elected="stream")
    assert (done.path, done.exit_code) == ("finished", 0)
    unknown = plan([stream("a", None)], elected="stream")
    assert unknown.exit_code == 4
    assert "versions of a are not known" in unknown.summary
    left = plan([stream("a", "3.9.1", ran="EAGER"), stream("b", "3.9.1", owned=True)],
                elected="stream")  # fmt: skip
    assert (left.steps[0].to_do, left.steps[0].done) == (("a-0f0f",), ("b-0f0f",))
    assert left.runs is RebalanceProtocol.MIXED
    new = plan([stream("a", "4.1.1")], elected="stream")
    assert (new.path, new.verdict) == ("finished", Verdict.DONE)


def test_streams_down() -> None:
    made = plan([stream("a", "3.9.1", owned=True)], "eager", elected="stream")
    assert (made.path, made.next_step, made.exit_code) == ("streams_down", 1, 0)
    assert texts(made)["Java properties"].endswith("\nupgrade.from=2.3")
    assert made.steps[1].exit_code == 3
    done = plan([stream("a", "3.9.1", ran="EAGER"), stream("b", "2.3.1")], "eager",
                elected="stream")  # fmt: skip
    assert (done.path, done.verdict) == ("finished", Verdict.DONE)


def test_streams_down_from_4_goes_over_the_last_version_that_knows_eager() -> None:
    made = plan([stream("a", "4.1.1"), stream("b", "3.9.1", owned=True)], "eager", elected="stream")
    assert (made.path, made.next_step, made.exit_code) == ("streams_down", 1, 0)
    bridge, eager, _ = made.steps
    assert "goes back to 3.9" in bridge.title
    assert (bridge.to_do, bridge.done) == (("a-0f0f",), ("b-0f0f",))
    assert "upgrade.from=2.3" not in bridge.config[0].text
    assert eager.exit_code == 3, "4.1.1 does not start with upgrade.from=2.3"
    guess = {"family": "streams", "guess": True}
    unknown = plan([{**stream("a", None), **guess}], "eager", elected="stream")
    assert (unknown.next_step, unknown.exit_code) == (1, 4)
    assert "4.0 and later do not start" in unknown.summary


@pytest.mark.parametrize(
    ("workload", "surge", "says"),
    [
        (KubernetesWorkload(kind="Deployment", name="orders", namespace="shop"), "25%",
         ["maxSurge 0 and maxUnavailable 1", "kubectl -n shop rollout pause deployment/orders",
          "kubectl -n shop rollout undo deployment/orders"]),
        (KubernetesWorkload(kind="StatefulSet", name="orders"), None,
         ["kubectl patch statefulset/orders -p", '"partition":0', "rollingUpdate.partition to"]),
    ],
)  # fmt: skip
def test_a_workload_in_kubernetes_is_paused_tried_and_undone(
    workload: KubernetesWorkload, surge: str | None, says: list[str]
) -> None:
    snapshot = group_of({"members": [java("a", RANGE)]})
    declared = DeclaredAssignors(
        list=("range",),
        max_surge=surge,
        evidence=Evidence(source=Source.CONFIG_FILE, detail="k.yaml", workload=workload),
    )
    member = replace(snapshot.members[0], declared=declared)
    made = make_plan(replace(snapshot, members=(member,)))
    step = made.steps[0]
    said = " | ".join([*step.order, *(f"{one.use}: {one.line}" for one in step.commands), ""])
    assert f"{workload.kind} {workload.name}: pause autoscaler and GitOps sync" in said
    for text in says:
        assert text in said
    assert ("maxSurge" in said) is (surge == "25%")
    plain = make_plan(snapshot)
    assert len(plain.steps[0].order) == 1


def test_franz_go_stops_nothing_more_once_the_vote_is_for_the_target() -> None:
    go = plan([java(name, BOTH, family="franz-go") for name in "abc"], elected="cooperative-sticky")
    fixed = plan([java(name, BOTH) for name in "abc"], elected="cooperative-sticky")
    assert go.next_step == fixed.next_step == 2
    ours, theirs = go.steps[1], fixed.steps[1]
    assert "only what moves stops" in ours.cost.text
    assert "not restarted yet stop all" in theirs.cost.text
    assert ours.cost.partitions_stopped < theirs.cost.partitions_stopped
    assert any("no vote can turn them back" in line for line in ours.why)
