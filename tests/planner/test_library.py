"""Another client library in the same group: what bridges two libraries, and the roll-out."""

from __future__ import annotations

from typing import Any

import pytest

from rebal.cli.planning import too_long
from rebal.planner.goals import NotPlannedError, goal_back
from rebal.planner.paths import make_plan
from rebal.planner.plan import Accepted, Action, Plan
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scene import scene_of
from rebal.planner.rehearsal.scripts import rollout
from tests.planner.builder import group_of
from tests.planner.looks import Story, app, back_from, done, id_of, look, pods
from tests.planner.plans import plan, rules
from tests.planner.worker_groups import workers

COOPERATIVE = ["cooperative-sticky"]
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
        ("java", COOPERATIVE, "librdkafka", [("roundrobin", *COOPERATIVE), ("roundrobin",)]),
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
        ("librdkafka", COOPERATIVE, "franz-go", "RB104"),
        ("kafka-python", COOPERATIVE, "java", "RB104"),
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


def test_the_way_to_the_new_librarys_own_default_is_a_plan_of_its_own() -> None:
    line = swap("sarama", ["range"], "kafkajs").steps[-1].commands[-1].line
    assert line.startswith("rebal plan-upgrade checkout --to RoundRobinAssigner")


def test_a_client_that_decides_it_must_be_known() -> None:
    made = swap(None, COOPERATIVE, "franz-go")
    assert (made.path, made.exit_code, rules(made)) == ("none", 4, {"RB123"})
    answers = {one.use.rpartition(" ")[2]: one.line for one in made.findings[0].commands}
    assert {"java", "librdkafka"} <= {*answers}
    # A stop is agreed to when the plan says that there is one.
    assert "--ignore" not in answers["librdkafka"]
    known = {"java": "library", "librdkafka": "library_stop"}
    for family, path in known.items():
        stated = swap(None, COOPERATIVE, "franz-go", families={"*": family})
        assert stated.path == path


def test_unread_bytes_may_be_those_of_kafka_go() -> None:
    paths = {new: swap(None, ["range"], new).path for new in ("java", "aiokafka")}
    assert paths == {"java": "none", "aiokafka": "library"}
    read = pods(1, 1, list=["range"], family=None, bytes=0)
    assert plan(read, "java", reloaded=False).path == "library"


def test_other_groups_are_refused() -> None:
    streams = pods(1, list=["stream"], family="streams")
    kip848 = {"type": "consumer", "elected": "uniform", "members": pods(1)}
    for group in (
        group_of(kip848), group_of({"members": streams, "elected": "stream"}), workers("default"),
    ):  # fmt: skip
        with pytest.raises(NotPlannedError, match="only a classic group of consumers"):
            make_plan(group, "franz-go")


def test_the_tasks_of_a_sink_connector_have_no_library_to_replace() -> None:
    tasks = [{"id": f"connector-consumer-jdbc-{n}", "list": ["range"]} for n in (0, 1)]
    with pytest.raises(NotPlannedError, match="tasks of the sink connector jdbc"):
        plan(tasks, "franz-go", group_id="connect-jdbc")


def replaced(number: int, client: str | None, names: list[str]) -> dict[str, Any]:
    return app(number, 2, family=client, list=names, **({} if client else UNREAD))


def test_a_library_that_does_not_say_its_name_is_confirmed_or_stated() -> None:
    # What the plan states of kafkajs is not said of the members that replace it.
    made = swap(None, ROUND, "aiokafka", families={"*": "kafkajs"})
    bare = [replaced(n, None, ROUND) for n in (0, 1)]
    story = Story(made)
    seen = look(1, [bare[0], app(1, list=ROUND, family=None, **UNREAD)], elected=ROUND[0])
    assert done(story(seen)) == {"app-0": "cannot tell", "app-1": "no"}
    last = look(2, bare, elected=ROUND[0])
    asked = story(last)
    assert (asked.exit_code, asked.advice.action) == (4, Action.CONFIRM)
    story.confirm(last, 1, "looked at both")
    assert story.entries[-1].confirmed.members == (id_of(0, 2), id_of(1, 2))
    end = story(look(3, bare, elected=ROUND[0]))
    assert (end.finished, end.unverified, end.exit_code) == (True, ("app-0", "app-1"), 0)

    stated = Accepted(families={"*": "aiokafka"})
    told = Story(made)(seen, accepted=stated)
    assert done(told) == {"app-0": "yes", "app-1": "no"}
    assert told.members[0].why == "runs aiokafka (--assume-family)"


def test_a_group_that_runs_the_library_is_done_on_any_assignor() -> None:
    for names in (["range"], COOPERATIVE):
        made = swap("franz-go", names, "franz-go")
        assert (made.path, made.verdict, made.exit_code) == ("finished", "done", 0)


def test_the_way_back_is_to_the_library_that_ran_before() -> None:
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


def test_after_a_bridge_the_way_back_leads_to_the_assignor_that_ran_before() -> None:
    made = swap("java", COOPERATIVE, "librdkafka")
    new = [replaced(n, "librdkafka", ROUND) for n in (0, 1)]
    back = way_of(made, new, ROUND[0])
    assert (back.path, back.to, back.target) == ("library", "java", "roundrobin")
    line = back.steps[-1].commands[-1].line
    assert line.startswith("rebal plan-upgrade checkout --probe"), "to cooperative-sticky"
    there = way_of(made, [app(n, 3, list=ROUND, family="java") for n in (0, 1)], ROUND[0])
    assert (there.path, there.target) == ("two_bounces", COOPERATIVE[0])
    end = way_of(made, [app(n, 5, list=COOPERATIVE, family="java") for n in (0, 1)], COOPERATIVE[0])
    assert (end.path, end.verdict) == ("finished", "done")


def test_what_the_plan_states_of_the_old_members_says_nothing_of_the_new_ones() -> None:
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


def test_it_is_rehearsed_with_the_new_librarys_processes() -> None:
    made = swap("kafkajs", OWN, "librdkafka")
    assert made.evidence == ("--probe",), "its gates ask for the lists"
    script = rollout(made)
    assert [event.family for event in script.events] == ["", "", "librdkafka", "librdkafka"]
    scene, _ = scene_of(made.baseline)
    told = rehearse(scene, script)
    assert told.measures.rejected == 0
    assert {one.state for one in told.members} == {"running"}


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
    said = "\n".join(step.order)
    assert not [quiet for quiet in ("no rebalance", "rebalances only") if quiet in said]
    assert step.cost.text.startswith("kafkajs has no static members: each restart rebalances")
    assert too_long(lost, 10.0, 1, 0)[0] == 4, "how long a partition stops is not predicted"
    scene, _ = scene_of(lost.baseline)
    assert rehearse(scene, rollout(lost)).measures.rebalances > 0
    assert rehearse(scene, rollout(kept)).measures.rebalances == 0
