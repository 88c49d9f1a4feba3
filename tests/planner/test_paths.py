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
    Tri,
)
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan, StepKind, Verdict
from tests.planner.builder import group_of
from tests.planner.plans import BOTH, DONE, RANGE, plan
from tests.planner.plans import m as java

WORKERS = {"elected": "default", "protocol_type": "connect"}
KIP_429 = ("rebalance-total", "failed-rebalance-total", "last-rebalance-seconds-ago", "KIP-429")


def texts(made: Plan, step: int = 0) -> dict[str, str]:
    return {setting.format: setting.text for setting in made.steps[step].config}


def rd(name: str, names: list[str]) -> dict[str, Any]:
    return {"id": name, "list": names, "family": "librdkafka", "version": "2.6.0"}


def test_only_librdkafka_members_stop_once_every_other_one_holds_both() -> None:
    begin = plan([java("a", RANGE), java("b", RANGE), rd("c", RANGE)])
    assert (begin.path, begin.next_step, begin.exit_code) == ("mixed_families", 1, 0)
    roll, stop, narrow = begin.steps
    assert (roll.to_do, roll.target_list) == (("a-0f0f", "b-0f0f"), tuple(BOTH))
    assert {setting.family for setting in roll.config} == {"java"}
    assert (stop.kind, stop.to_do, stop.target_list) == (
        StepKind.CUT_OVER, ("c-0f0f",), tuple(DONE),
    )  # fmt: skip
    assert {setting.family for setting in stop.config} == {"librdkafka"}
    assert stop.exit_code == 3
    assert stop.cost is not None
    # Leaving and coming back, each with all 12 partitions.
    assert (stop.cost.rebalances, stop.cost.partitions_stopped) == (2, 2 * 12)
    assert "one rebalance when they stop together" in stop.cost.text
    assert narrow.target_list == tuple(DONE)

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
    end = plan([java("a", DONE), java("b", DONE), rd("c", DONE)], elected=DONE[0])
    assert (end.path, end.exit_code) == ("finished", 0)


def test_the_same_on_the_way_down() -> None:
    made = plan([java("a", DONE), rd("c", DONE)], "eager", elected=DONE[0])
    assert (made.path, made.next_step, made.exit_code) == ("mixed_families", 1, 0)
    assert made.steps[0].target_list == ("range", "cooperative-sticky")
    assert made.steps[1].target_list == ("range",)


def test_a_list_that_librdkafka_refuses_still_blocks() -> None:
    made = plan([java("a", RANGE), {**rd("c", RANGE), "declared": BOTH}])
    assert made.path == "mixed_families"
    assert made.exit_code == 3
    assert "RB104" in made.summary


def test_a_full_cut_over_says_how_long_nothing_is_consumed() -> None:
    made = plan([rd("a", RANGE), rd("b", RANGE)])
    assert (made.path, made.exit_code) == ("cut_over", 3)
    cost = made.steps[0].cost
    assert cost is not None
    assert cost.seconds == pytest.approx(36, abs=0.1)
    assert cost.partition_seconds == pytest.approx(36 * 12, rel=0.01)
    assert "nothing is consumed for the restart (30 s)" in cost.text
    assert set(texts(made)) == {"librdkafka properties", "Python", "JS", "confluent-kafka-go"}


def test_librdkafka_texts_are_what_the_languages_read() -> None:
    said = texts(plan([rd("a", RANGE)]))
    config: dict[str, str] = {}
    exec(said["Python"], {}, {"config": config})
    assert config == {"partition.assignment.strategy": "cooperative-sticky"}
    assert said["librdkafka properties"].endswith(
        "\npartition.assignment.strategy=cooperative-sticky"
    )


def test_the_downgrade_names_its_trap_and_when_to_deploy_a_version() -> None:
    up, down = plan([java("a", RANGE)]), plan([java("a", DONE)], "eager", elected=DONE[0])
    assert any("client version" in line and "this bounce" in line for line in up.steps[0].why)
    assert not any("client version" in line for line in up.steps[1].why)
    assert any("eager-only member" in line and "rejected" in line for line in down.steps[0].why)
    assert any("keep the client version" in line for line in down.steps[0].why)
    assert any("client version" in line and "may be deployed" in line for line in down.steps[1].why)
    assert any("leader with old code" in line for line in up.steps[0].why)


def test_a_custom_eager_assignor_stays_behind_the_target() -> None:
    made = plan([java("a", ["acme"]), java("b", ["acme"])], elected="acme")
    assert (made.path, made.next_step, made.exit_code) == ("two_bounces", 1, 0)
    assert made.steps[0].target_list == ("cooperative-sticky", "acme")
    said = texts(made)["Java properties"]
    assert "CooperativeStickyAssignor,THE-CLASS-OF-acme" in said
    assert "put the class you use today for acme" in said


def test_from_one_eager_assignor_to_another() -> None:
    made = plan([java("a", RANGE), java("b", RANGE)], "sticky")
    assert (made.path, made.next_step, made.exit_code) == ("two_bounces", 1, 0)
    assert [step.target_list for step in made.steps] == [("sticky", "range"), ("sticky",)]
    assert "--to sticky" in made.steps[0].gate.command
    half = plan([java("a", ["sticky", "range"]), java("b", ["sticky", "range"])], "sticky",
                elected="sticky")  # fmt: skip
    assert (half.next_step, half.exit_code) == (2, 0)
    end = plan([java("a", ["sticky"])], "sticky", elected="sticky")
    assert (end.path, end.exit_code) == ("finished", 0)


def test_static_members_are_told_what_a_restart_does_not_do() -> None:
    said = " ".join(plan([java("a", RANGE, instance="pod-0")]).steps[0].order)
    assert "rebalances only if another assignor is elected" in said
    assert "never two processes with one id" in said


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


def worker(name: str, names: list[str] | None = None) -> dict[str, Any]:
    return {"id": name, **({"list": names} if names else {}), "topics": []}


def test_connect_workers_take_one_bounce_of_connect_protocol() -> None:
    up = plan([worker("a"), worker("b")], protocol_type="connect", elected="default")
    assert (up.path, up.next_step, up.exit_code) == ("connect", 1, 0)
    assert texts(up)["Java properties"].endswith("\nconnect.protocol=sessioned")
    assert "RB905" not in {finding.rule for finding in up.findings}
    done = plan([worker("a")], protocol_type="connect", elected="sessioned")
    assert (done.path, done.exit_code) == ("finished", 0)
    down = plan([worker("a")], "eager", protocol_type="connect", elected="sessioned")
    assert (down.path, down.exit_code) == ("connect_down", 0)
    assert texts(down)["Java properties"].endswith("\nconnect.protocol=eager")
    eager = plan([worker("a", ["default"])], "eager", protocol_type="connect", elected="default")
    assert (eager.path, eager.exit_code) == ("finished", 0)


def stream(name: str, version: str | None, **more: Any) -> dict[str, Any]:
    family = {"family": "streams"} if version else {"family": None, "left": "java or so"}
    return {"id": name, "list": ["stream"], "version": version, **family, **more}


def test_streams_from_below_2_4_takes_two_bounces_by_upgrade_from() -> None:
    made = plan([stream("a", "2.3.1"), stream("b", "2.3.1")], elected="stream")
    assert (made.path, made.next_step, made.exit_code) == ("streams_two_bounces", 1, 0)
    first, second = made.steps
    assert texts(made)["Java properties"].endswith("\nupgrade.from=2.3")
    assert "remove upgrade.from" in second.config[0].text
    assert second.exit_code == 4
    assert any("KIP-1124" in line and "3.9" in line for line in first.why)
    assert not any(
        "partition.assignment.strategy" in s.text for step in made.steps for s in step.config
    )
    old = plan([stream("a", "0.10.2.1")], elected="stream")
    assert texts(old)["Java properties"].endswith("\nupgrade.from=0.10.2")
    half = plan([stream("a", "3.9.1", ran="EAGER"), stream("b", "2.3.1")], elected="stream")
    assert (half.next_step, half.exit_code) == (1, 0)
    assert half.steps[0].done == ("a-0f0f",)
    declared = stream("a", "2.3.1", declared=[])
    assert any("does not set upgrade.from yet" in line
               for line in plan([declared], elected="stream").steps[0].order)  # fmt: skip
    declared["upgrade_from"] = "2.3"
    assert not any("does not set" in line
                   for line in plan([declared], elected="stream").steps[0].order)  # fmt: skip
    unseen = plan([stream("a", "3.9.1"), stream("b", "2.3.1")], elected="stream")
    assert unseen.exit_code == 4, "without upgrade.from it would run COOPERATIVE beside b"
    assert "RB505" in unseen.summary


def test_streams_that_is_cooperative_beside_an_old_instance_blocks() -> None:
    made = plan([stream("a", "3.9.1", owned=True), stream("b", "2.3.1")], elected="stream")
    assert made.exit_code == 3
    assert "RB505" in made.summary


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
    assert made.steps[1].precondition_holds is Tri.NO
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


def test_streams_and_connect_have_no_way_to_kip_848() -> None:
    for more in ({"elected": "stream"}, {"protocol_type": "connect", "elected": "sessioned"}):
        made = plan([stream("a", "4.1.1")], "consumer", **more)
        assert (made.path, made.exit_code) == ("none", 3)
        assert "RB404" in made.summary


@pytest.mark.parametrize(
    ("workload", "surge", "says"),
    [
        (KubernetesWorkload(kind="Deployment", name="orders", namespace="shop"), "25%",
         ["maxSurge 0 and maxUnavailable 1", "kubectl -n shop rollout pause deployment/orders",
          "kubectl -n shop rollout undo deployment/orders"]),
        (KubernetesWorkload(kind="Deployment", name="orders"), "0",
         ["kubectl rollout pause deployment/orders |"]),
        (KubernetesWorkload(kind="StatefulSet", name="orders"), None,
         ["kubectl patch statefulset/orders -p", '"partition":0', "rollingUpdate.partition to"]),
        (KubernetesWorkload(kind="Deployment", name="a b; rm x", namespace="$y"), "0",
         ["kubectl -n '$y' rollout pause 'deployment/a b; rm x' |"]),
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


@pytest.mark.parametrize(
    ("members", "target", "more", "names"),
    [
        ([{"id": "a", "list": ["range"]}], "cooperative", {}, KIP_429),
        ([{"id": "a", "list": ["cooperative-sticky"]}], "eager", {"elected": DONE[0]}, KIP_429),
        ([{"id": "a", "list": ["range"], "version": "4.1.1"}], "consumer", {}, KIP_429),
        (
            [{"id": "a", "family": "streams", "version": "3.9.1"}],
            "cooperative",
            {"elected": "stream"},
            KIP_429,
        ),
        (
            [{"id": "a", "family": "connect"}],
            "cooperative",
            WORKERS,
            (*KIP_429, "connect-protocol"),
        ),
        ([{"id": "a", "family": "librdkafka"}], "cooperative", {}, ("rebalance_cnt", "KIP-429")),
        ([{"id": "a", "list": ["range"], "family": "franz-go"}], "cooperative", {}, KIP_429),
        (
            [{"id": "a", "list": ["range"]}, {"id": "b", "family": "librdkafka"}],
            "cooperative",
            {},
            (*KIP_429, "rebalance_cnt"),
        ),
    ],
)
def test_each_gate_names_the_metrics_to_look_at(
    members: list[dict[str, Any]], target: str, more: dict[str, Any], names: tuple[str, ...]
) -> None:
    made = make_plan(group_of({"members": members, **more}), target)
    assert made.steps
    for step in made.steps:
        said = "\n".join(step.gate.needs)
        assert all(name in said for name in names), (step.title, said)
