"""The ways that are not two bounces of one family: mixed families, Streams, Connect, sinks, another
client library, and the streams protocol (KIP-1071) and back.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.cli.planning import too_long
from rebal.groups.model import (
    DeclaredAssignors,
    Evidence,
    KubernetesWorkload,
    RebalanceProtocol,
    Source,
)
from rebal.inspectors.kafka.brokers import group_settings
from rebal.planner.goals import NotPlannedError, goal_back
from rebal.planner.paths import make_plan
from rebal.planner.plan import Accepted, Action, Plan, Verdict
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scene import scene_of
from rebal.planner.rehearsal.scripts import rollout
from tests.planner.builder import group_of
from tests.planner.looks import Story, app, back_from, done, id_of, look, pods
from tests.planner.plans import BOTH, DONE, RANGE, plan, rules
from tests.planner.plans import m as java
from tests.planner.worker_groups import workers


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
    # The stop leaves nothing to restart of those that it starts again with the target alone.
    then = plan([java("a", BOTH), java("b", BOTH), rd("c", DONE)], elected=DONE[0]).steps[1]
    assert (ready.steps[2].to_do, ready.steps[2].cost) == (then.to_do, then.cost)
    assert {each.family for each in ready.steps[2].config} == {"java"}
    assert "every member (3)" in ready.steps[2].gate.shows
    unsure = plan([java("a", BOTH), {"id": "b", "at_least": RANGE}, rd("c", RANGE)])
    assert (unsure.next_step, unsure.exit_code) == (1, 0)
    assert unsure.steps[1].exit_code == 4
    stopped = plan([java("a", BOTH), java("b", BOTH)], elected=DONE[0], expect_members=3)
    assert stopped.exit_code == 3
    assert "RB606" in stopped.summary
    back = plan([java("a", BOTH), java("b", BOTH), rd("c", DONE)], elected=DONE[0])
    assert (back.path, back.next_step, back.exit_code) == ("two_bounces", 2, 0)
    assert back.steps[1].to_do == ("a-0f0f", "b-0f0f")


@pytest.mark.parametrize(
    ("java_read", "rd_read", "code", "says"),
    [
        ({"topics": ["b", "orders"]}, {"topics": ["b"]}, 0, "the others keep running"),
        ({}, {"topics": ["orders", "b"]}, 3, "nobody consumes b meanwhile"),
        ({"bytes": None}, {"topics": ["b"]}, 4, "other members subscribe to b is not known"),
        ({}, {"bytes": None}, 4, "subscribe to all their topics is not known"),
    ],
)
def test_a_stop_of_all_readers_of_a_topic_is_agreed_first(
    java_read: dict[str, Any], rd_read: dict[str, Any], code: int, says: str
) -> None:
    more = {"id": "d", "list": BOTH, "topics": []}
    members = [java("a", BOTH) | java_read, rd("c", RANGE) | {"idle": True} | rd_read, more]
    made, agreed = plan(members), plan(members, ignore={"RB104": "agreed"})
    assert (made.path, made.next_step, made.exit_code) == ("mixed_families", 2, code)
    assert says in (effect := made.steps[1].why[1])
    assert ("can carry" in made.steps[1].precondition) is effect.startswith("the others")
    assert ("RB104" in made.steps[1].precondition) is bool(code)
    assert agreed.exit_code == 0


@pytest.mark.parametrize(
    ("names", "step", "elects"),
    [(BOTH, 2, True), (RANGE, 1, True), ([*RANGE, DONE[0]], 2, False), (None, 2, False)],
)
def test_a_stop_of_some_promises_the_assignor_that_the_others_elect(
    names: list[str] | None, step: int, elects: bool
) -> None:
    known = {"list": names} if names else {"at_least": BOTH}
    made = plan([{"id": "a", **known}, rd("c", RANGE)])
    assert (made.path, made.next_step) == ("mixed_families", step)
    assert ("Stable with 1 members and cooperative" in made.steps[1].order[0]) is elects
    assert ("look again" in made.steps[1].order[0]) is not elects


def test_librdkafka_members_are_stopped_in_a_downgrade_to_eager_too() -> None:
    made = plan([java("a", DONE), rd("c", DONE)], "eager", elected=DONE[0])
    assert (made.path, made.next_step, made.exit_code) == ("mixed_families", 1, 0)
    assert made.steps[0].target_list == ("range", "cooperative-sticky")
    assert made.steps[1].target_list == ("range",)


def test_librdkafka_settings_are_valid_python_and_valid_properties() -> None:
    settings = texts(plan([rd("a", RANGE)]))
    config: dict[str, str] = {}
    exec(settings["Python"], {}, {"config": config})
    assert config == {"partition.assignment.strategy": "cooperative-sticky"}
    assert settings["librdkafka properties"].endswith(
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
        (RANGE, {}, "RoundRobinAssigner", 3, "java 3.9.1 has no such assignor (RB124)"),
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
    goals = {"compatible": "cooperative", "sessioned": "cooperative", "default": "eager"}
    for elected, goal in goals.items():
        workers = [{"id": "a", "list": [elected], "topics": []}]
        made = plan(workers, goal, protocol_type="connect", elected=elected)
        assert (made.path, made.target, made.exit_code) == ("finished", elected, 0)


@pytest.mark.parametrize(
    ("versions", "value", "note"),
    [
        (["2.3.1", "2.3.1"], "compatible", "(needs 2.3 or later)"),
        (["2.3.1", "2.8.0"], "compatible", "(needs 2.3 or later)"),
        (["2.2.2", "2.3.1"], "compatible", "(needs 2.3 or later; upgrade in this restart: w0)"),
        (["2.2.2", "2.8.0"], "sessioned", "2.3: compatible; upgrade in this restart: w0)"),
    ],
)
def test_workers_get_a_value_of_their_version(versions: list[str], value: str, note: str) -> None:
    names = {"list": ["default"], "family": "connect"}
    group = [{"id": f"w{n}", "version": v, **names} for n, v in enumerate(versions)]
    made = plan(group, protocol_type="connect", elected="default")
    assert (made.path, made.target, made.exit_code) == ("connect", value, 0)
    assert made.steps[0].config[0].text.endswith(f"{note}\nconnect.protocol={value}")


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


def test_streams_downgrade_to_eager_begins_with_upgrade_from_2_3() -> None:
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
def test_kubernetes_plan_prints_how_to_pause_limit_and_undo_the_roll_out(
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
    printed = " | ".join([*step.order, *(f"{one.use}: {one.line}" for one in step.commands), ""])
    assert f"{workload.kind} {workload.name}: pause autoscaler and GitOps sync" in printed
    for text in says:
        assert text in printed
    assert ("maxSurge" in printed) is (surge == "25%")
    plain = make_plan(snapshot)
    assert len(plain.steps[0].order) == 1


def test_franz_go_members_run_cooperative_as_soon_as_the_target_is_elected() -> None:
    go = plan([java(name, BOTH, family="franz-go") for name in "abc"], elected="cooperative-sticky")
    fixed = plan([java(name, BOTH) for name in "abc"], elected="cooperative-sticky")
    assert go.next_step == fixed.next_step == 2
    ours, theirs = go.steps[1], fixed.steps[1]
    assert "only what moves stops" in ours.cost.text
    assert "not restarted yet stop all" in theirs.cost.text
    assert ours.cost.partitions_stopped < theirs.cost.partitions_stopped
    assert any("no vote can turn them back" in line for line in ours.why)


ROUND = ["roundrobin"]
OWN = ["RoundRobinAssigner"]
AGREED = {"RB123": "agreed"}
UNREAD: dict[str, Any] = {"bytes": None}


def swap(family: str | None, names: list[str], client: str, **more: Any) -> Plan:
    members = pods(1, 1, list=names, family=family, **({} if family else UNREAD))
    return plan(members, client, elected=names[0], reloaded=False, **more)


@pytest.mark.parametrize(
    ("old", "names", "new", "lists"),
    [
        ("sarama", ["range"], "franz-go", [("range",)]),
        ("kafkajs", OWN, "librdkafka", [("roundrobin", *OWN), ("roundrobin",)]),
        ("kafkajs", OWN, "sarama", [("range", *OWN), ("range",)]),
        ("kafka-python", ["range", "roundrobin"], "aiokafka", [("range",)]),
        ("java", DONE, "librdkafka", [("roundrobin", *DONE), ("roundrobin",)]),
        ("java", ["sticky", "range"], "aiokafka", [("range",)]),
        ("aiokafka", ROUND, "librdkafka", [("roundrobin",)]),
        ("segmentio", ["range"], "kafkajs", [("range",)]),
    ],
)
def test_a_common_assignor_bridges_two_libraries(
    old: str, names: list[str], new: str, lists: list[tuple[str, ...]]
) -> None:
    made = swap(old, names, new)
    assert (made.path, made.to, made.exit_code) == ("library", new, 0)
    assert [step.target_list for step in made.steps] == lists
    last = made.steps[-1]
    assert {one.family for one in last.config} == {new}
    assert (last.aim, last.to_do) == ("client", (id_of(0), id_of(1)))
    assert (made.advice.action, made.advice.assignors) == (Action.RESTART, lists[0])
    # Only the last step brings the library, and it alone is said to.
    assert (f"{new} in place of" in made.advice.text) is (len(lists) == 1)


@pytest.mark.parametrize(
    ("old", "names", "new", "why"),
    [
        ("librdkafka", DONE, "franz-go", "RB104"),
        ("kafka-python", DONE, "java", "RB104"),
        ("segmentio", ["range"], "java", "RB119"),
        ("sarama", ["range"], "segmentio", "RB119"),
    ],
)
def test_without_a_bridge_the_group_stops_once_or_the_new_library_has_its_own_group(
    old: str, names: list[str], new: str, why: str
) -> None:
    made = swap(old, names, new)
    assert (made.path, made.exit_code) == ("library_stop", 3)
    assert {"RB123"} == rules(made) & {"RB104", "RB119", "RB123"}
    assert why in made.findings[0].message
    agreed = swap(old, names, new, ignore=AGREED)
    assert (agreed.exit_code, agreed.advice.action) == (0, Action.CUT_OVER)
    assert f"{new} in place of the old library" in agreed.advice.text


def test_library_change_ends_with_the_command_to_plan_the_new_librarys_default_assignor() -> None:
    line = swap("sarama", ["range"], "kafkajs").steps[-1].commands[-1].line
    assert line.startswith("rebal plan-upgrade checkout --to RoundRobinAssigner")


def test_library_change_is_not_planned_before_the_current_client_family_is_known() -> None:
    made = swap(None, DONE, "franz-go")
    assert (made.path, made.exit_code, rules(made)) == ("none", 4, {"RB123"})
    answers = {one.use.rpartition(" ")[2]: one.line for one in made.findings[0].commands}
    assert {"java", "librdkafka"} <= {*answers}
    # A stop is agreed to when the plan says that there is one.
    assert "--ignore" not in answers["librdkafka"]
    for family, path in (("java", "library"), ("librdkafka", "library_stop")):
        assert swap(None, DONE, "franz-go", families={"*": family}).path == path


def test_no_change_to_java_is_planned_while_a_client_of_unread_bytes_may_be_kafka_go() -> None:
    paths = {new: swap(None, ["range"], new).path for new in ("java", "aiokafka")}
    assert paths == {"java": "none", "aiokafka": "library"}
    read = pods(1, 1, list=["range"], family=None, bytes=0)
    assert plan(read, "java", reloaded=False).path == "library"


def test_library_change_is_planned_for_classic_consumer_groups_only() -> None:
    streams = pods(1, list=["stream"], family="streams")
    kip848 = {"type": "consumer", "elected": "uniform", "members": pods(1)}
    stream = group_of({"members": streams, "elected": "stream"})
    for group in (group_of(kip848), stream, workers("default")):
        with pytest.raises(NotPlannedError, match="only a classic group of consumers"):
            make_plan(group, "franz-go")


def test_the_tasks_of_a_sink_connector_have_no_library_to_replace() -> None:
    tasks = [{"id": f"connector-consumer-jdbc-{n}", "list": ["range"]} for n in (0, 1)]
    with pytest.raises(NotPlannedError, match="tasks of the sink connector jdbc"):
        plan(tasks, "franz-go", group_id="connect-jdbc")


def replaced(number: int, client: str | None, names: list[str]) -> dict[str, Any]:
    return app(number, 2, family=client, list=names, **({} if client else UNREAD))


def test_new_library_that_sends_no_client_name_is_confirmed_or_assumed_by_the_operator() -> None:
    # What the plan states of kafkajs is not said of the members that replace it.
    made = swap(None, ROUND, "aiokafka", families={"*": "kafkajs"})
    bare = [replaced(n, None, ROUND) for n in (0, 1)]
    check = Story(made)
    seen = look(1, [bare[0], app(1, list=ROUND, family=None, **UNREAD)], elected=ROUND[0])
    assert done(check(seen)) == {"app-0": "cannot tell", "app-1": "no"}
    last = look(2, bare, elected=ROUND[0])
    asked = check(last)
    assert (asked.exit_code, asked.advice.action) == (4, Action.CONFIRM)
    check.confirm(last, 1, "looked at both")
    assert check.entries[-1].confirmed.members == (id_of(0, 2), id_of(1, 2))
    end = check(look(3, bare, elected=ROUND[0]))
    assert (end.finished, end.unverified, end.exit_code) == (True, ("app-0", "app-1"), 0)

    stated = Accepted(families={"*": "aiokafka"})
    standing = Story(made)(seen, accepted=stated)
    assert done(standing) == {"app-0": "yes", "app-1": "no"}
    assert standing.members[0].why == "runs aiokafka (--assume-family)"


def test_a_group_that_runs_the_library_is_done_on_any_assignor() -> None:
    for names in (["range"], DONE):
        made = swap("franz-go", names, "franz-go")
        assert (made.path, made.verdict, made.exit_code) == ("finished", "done", 0)


def test_rollback_of_a_library_change_targets_the_library_that_ran_before() -> None:
    assert goal_back(swap("sarama", ["range"], "franz-go")) == "sarama"
    assert goal_back(swap(None, ROUND, "librdkafka", families={"*": "aiokafka"})) == "aiokafka"
    with pytest.raises(NotPlannedError, match="library to go back to is not known"):
        goal_back(swap(None, ["range"], "franz-go"))


def way_of(made: Plan, members: list[dict[str, Any]], elected: str, **ignore: str) -> Plan:
    return back_from(made, look(3, members, elected=elected), ignore=ignore)


def test_over_a_stop_the_old_library_starts_with_the_list_that_it_ran() -> None:
    lists = [["sticky", "range"], ["sticky"]]
    for names in (lists, [lists[0]] * 2):
        members = [app(n, list=each, family="java") for n, each in enumerate(names)]
        made = plan(members, "segmentio", elected="sticky", reloaded=False, ignore=AGREED)
        half = [replaced(0, "segmentio", ["range"])]
        back = way_of(made, half, "range", **AGREED)
        assert (back.path, back.to, back.target) == ("library_stop", "java", "sticky")
        (step,) = back.steps
        # Where the lists differed, each member's held the elected one.
        assert step.target_list == (("sticky", "range") if names[1] == lists[0] else ("sticky",))


def test_rollback_over_a_bridge_assignor_leads_to_the_assignor_that_ran_before() -> None:
    made = swap("java", DONE, "librdkafka")
    new = [replaced(n, "librdkafka", ROUND) for n in (0, 1)]
    back = way_of(made, new, ROUND[0])
    assert (back.path, back.to, back.target) == ("library", "java", "roundrobin")
    line = back.steps[-1].commands[-1].line
    assert line.startswith("rebal plan-upgrade checkout --probe"), "to cooperative-sticky"
    there = way_of(made, [app(n, 3, list=ROUND, family="java") for n in (0, 1)], ROUND[0])
    assert (there.path, there.target) == ("two_bounces", DONE[0])
    end = way_of(made, [app(n, 5, list=DONE, family="java") for n in (0, 1)], DONE[0])
    assert (end.path, end.verdict) == ("finished", "done")


def test_client_family_assumed_for_old_members_does_not_apply_to_their_replacements() -> None:
    made = swap(None, ROUND, "aiokafka", families={"*": "kafkajs"})

    def back(*starts: int, **wished: str) -> Plan:
        members = [replaced(n, None, ROUND) | app(n, s) for n, s in enumerate(starts)]
        return back_from(made, look(3, members, elected=ROUND[0]), families=wished)

    half = back(2, 1)
    assert (half.path, half.to, half.steps[0].to_do) == ("library", "kafkajs", (id_of(0, 2),))
    assert back(2, 2).steps[0].to_do == (id_of(0, 2), id_of(1, 2))
    assert back(1, 1).path == "finished"
    assert back(2, 1, **{"app-0": "kafkajs"}).path == "finished", "it is said of this one now"


def test_nothing_is_asked_of_lists_that_another_library_replaces() -> None:
    members = [app(n, family="sarama") for n in (0, 1)]
    made = plan(members, "franz-go", elected="range", reloaded=False)
    assert (made.path, made.exit_code, "RB901" in rules(made)) == ("library", 0, False)
    lacking = plan(members, "kafkajs", elected="sticky", reloaded=False)
    assert "may lack roundrobin" in lacking.findings[0].message


def test_library_change_is_rehearsed_with_processes_of_the_new_library() -> None:
    made = swap("kafkajs", OWN, "librdkafka")
    assert made.evidence == ("--probe",), "its gates ask for the lists"
    families = [event.family for event in rollout(made).events]
    assert families == ["", "", "librdkafka", "librdkafka"]
    run = rehearsed(made)
    assert run.measures.rejected == 0
    assert {one.state for one in run.members} == {"running"}


def test_a_library_without_static_members_leaves_their_entries_until_the_session_ends() -> None:
    names = ["range", "roundrobin"]
    members = [app(n, list=names, family="java", instance=f"pod-{n}") for n in (0, 1)]
    cluster = {"version": "4.0", "settings": {"group.max.size": "100"}}

    def made(client: str) -> Plan:
        return plan(members, client, reloaded=False, cluster=cluster)

    lost, kept = made("kafkajs"), made("aiokafka")
    assert (lost.path, kept.path) == ("library", "library")
    assert "RB109" in rules(kept) - rules(lost)
    (step,) = lost.steps
    order = "\n".join(step.order)
    assert not [quiet for quiet in ("no rebalance", "rebalances only") if quiet in order]
    assert step.cost.text.startswith("kafkajs has no static members: each restart rebalances")
    assert too_long(lost, 10.0, 1, 0)[0] == 4, "how long a partition stops is not predicted"
    assert rehearsed(lost).measures.rebalances > 0
    assert rehearsed(kept).measures.rebalances == 0


STOPS = {"RB413": "night shift"}
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
    return plan(classic(1, 1), "streams", **{"ignore": STOPS, **CLASSIC, **more})


@pytest.mark.parametrize(("session", "printed"), [(1500, 45000), (50000, 50000), (120000, 60000)])
def test_move_to_streams_protocol_sets_an_allowed_session_timeout(
    session: int, printed: int
) -> None:
    made = plan(classic(1, timeouts=[session, 300000]), "streams", **CLASSIC)
    setting = f"--entity-name checkout --add-config streams.session.timeout.ms={printed}"
    assert any(one.line.endswith(setting) for one in made.steps[0].commands)


@pytest.mark.parametrize(("version", "code"), [("4.1", 3), ("4.2", 4)])
def test_operator_can_accept_unknown_streams_support_of_brokers_but_no_proven_lack(
    version: str, code: int
) -> None:
    cluster = {**CLUSTER["cluster"], "version": version}
    asked = up(cluster=cluster)
    assert (asked.exit_code, "RB508" in asked.summary) == (code, True)
    answered = up(cluster=cluster, ignore={**STOPS, "RB508": "looked"})
    assert answered.exit_code == (0 if code == 4 else 3)


def test_streams_protocol_group_needs_classic_first_for_eager_and_no_step_for_cooperative() -> None:
    assert plan(new(1, 1), "eager", **STREAMS).path == "kip1071_back"
    assert plan(new(1, 1), "cooperative", **STREAMS).verdict == "done"
    assert plan(new(1, 1), "streams", **STREAMS).verdict == "done"
    assert plan(classic(1, 1), "classic", **CLASSIC).verdict == "done"


def test_streams_protocol_goal_is_for_kafka_streams_programs_only() -> None:
    for members, goal, more in (
        (pods(1, list=["range"]), "streams", {}),
        (pods(1, list=["default"]), "streams", {"protocol_type": "connect", "elected": "default"}),
        (pods(1, protocol_type="consumer"), "classic", {"type": "consumer", "elected": "uniform"}),
    ):
        made = plan(members, goal, **more)
        assert (made.path, made.exit_code, made.advice.action) == ("none", 4, "none")
        assert "no step can be planned: --to streams needs a Kafka Streams program" in made.summary
        assert "goes back with --to cooperative-sticky or --to range" in made.summary
    moving = {**CLASSIC, "state": "PreparingRebalance", "ignore": STOPS}
    restless = plan(classic(1), "streams", **moving)
    assert (restless.exit_code, rules(restless) & {"RB905"}) == (4, {"RB905"})


def rehearsed(made: Plan) -> Rehearsal:
    scene, assumed = scene_of(made.baseline)
    assert not assumed
    return rehearse(scene, rollout(made))


def test_move_to_the_streams_protocol_waits_for_sessions_and_the_first_assignment() -> None:
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


def test_move_back_from_the_streams_protocol_waits_for_no_session() -> None:
    group = group_of({"members": new(1, 1), **STREAMS})
    run = rehearsed(make_plan(group, "classic", ignore=STOPS))
    assert (run.unit, run.at_rest, run.assignor) == ("none", True, "stream")
    assert run.assumes[0].startswith("the tasks that Kafka Streams assigns are not modelled")
    assert run.rebalances[0].began < 1, "members of the streams protocol leave"
