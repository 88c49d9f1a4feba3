"""What the members' clients make of a plan: each one's text, versions, and what it cannot do."""

from __future__ import annotations

import pytest

from tests.planner.plans import DONE, RANGE, m, plan, rules


def test_texts_for_java() -> None:
    made = plan([m("a", RANGE, version="2.8.2")], group_id="check\nout")
    properties, *_, code = made.steps[0].config
    assert "name range explicitly" in properties.text
    assert "group check\\nout" in properties.text
    assert code.text.startswith("// name range explicitly")


@pytest.mark.parametrize(
    ("left", "known"), [("java >= 3.4 or franz-go", True), ("java < 2.4 or franz-go", False)]
)
def test_a_range_of_versions_is_enough(left: str, known: bool) -> None:
    made = plan([m("a", family=None, left=left)])
    assert made.exit_code == 0
    java = next(s.text for s in made.steps[0].config if s.family == "java")
    assert ("name range explicitly" in java) is not known
    assert ("upgrade in this restart" in java) is not known
    assert "not every version" not in java


def test_clients_that_stay_eager_get_their_text_from_one_assignor_to_another() -> None:
    families = ("aiokafka", "segmentio", "kafkajs")
    made = plan([m(key, RANGE, family=key) for key in families], "roundrobin")
    texts = {setting.family: setting.text for setting in made.steps[0].config}
    assert (
        "from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor\n"
        in texts["aiokafka"]
    )
    assert "=[RoundRobinPartitionAssignor, RangePartitionAssignor])" in texts["aiokafka"]
    assert (
        "[]kafka.GroupBalancer{kafka.RoundRobinGroupBalancer{}, kafka.RangeGroupBalancer{}}"
        in texts["segmentio"]
    )
    assert 'kafkajs has no roundrobin: assigners["roundrobin"] stands for' in texts["kafkajs"]
    assert '[assigners["roundrobin"], assigners["range"]] });' in texts["kafkajs"]
    own = plan([m("kafkajs", ["RoundRobinAssigner"], family="kafkajs")], "range",
               elected="RoundRobinAssigner")  # fmt: skip
    (text,) = (setting.text for setting in own.steps[0].config)
    assert text.endswith('[assigners["range"], PartitionAssigners.roundRobin] });')
    assert "RB101" in made.steps[0].why[2]
    assert not any("RB108" in line for line in made.steps[0].why)


@pytest.mark.parametrize("family", ["librdkafka", "kafka-python"])
def test_clients_that_refuse_mixed_lists_get_a_cut_over_and_no_bounces(family: str) -> None:
    made = plan([m("a", RANGE, family=family), m("b", RANGE, family=family)])
    assert (made.path, made.exit_code) == ("cut_over", 3)
    online = family == "librdkafka"
    assert any("KIP-848" in one.use for one in made.steps[0].commands) is online
    assert any("KIP-848" in (finding.fix or "") for finding in made.findings) is online
    assert "RB104" in rules(made)
    assert not any("range" in setting.text.lower() for setting in made.steps[0].config)
    done = plan([{"id": "a", "at_least": DONE, "family": family}], elected="cooperative-sticky")
    assert (done.path, done.exit_code) == ("finished", 0)


@pytest.mark.parametrize("family", ["kafkajs", "aiokafka", "segmentio"])
def test_eager_only_clients_block(family: str) -> None:
    members = [m("a", RANGE), m("b", RANGE, family=family)]
    made = plan(members)
    assert (made.path, made.steps, made.exit_code) == ("none", (), 3)
    why = f"the group cannot leave EAGER while b is in it: no cooperative assignor in {family}"
    assert made.summary.startswith(f"no step can be planned: {why}")
    assert "(RB105)" in made.summary
    assert not [f.rule for f in made.findings if f.severity == "ask" or f.before_step]
    # What the client cannot do is not done by looking away.
    ignored = plan(members, ignore={"RB105": "we know"})
    assert (ignored.steps, ignored.verdict, ignored.exit_code) == ((), "unproven", 4)
    assert "(RB105, ignored)" in ignored.summary
    assert plan(members, "eager").path == "finished"


@pytest.mark.parametrize(
    ("family", "version", "first"),
    [("librdkafka", "1.5.0", "1.6"), ("kafka-python", "2.3.3", "3.0")],
)
def test_a_client_that_is_stopped_is_upgraded_in_the_stop(
    family: str, version: str, first: str
) -> None:
    old = [m("b", RANGE, family=family, version=version)]
    alone, mixed = plan(old), plan([m("a", RANGE), *old])
    assert (alone.path, alone.exit_code) == ("cut_over", 3)
    assert (mixed.path, mixed.exit_code) == ("mixed_families", 0)
    for step in (alone.steps[0], mixed.steps[1]):
        (said,) = {s.text.splitlines()[0].lstrip("#/ ") for s in step.config}
        assert said.startswith("needs ")
        assert f" {first} or later: upgrade in this restart (b: {version})" in said


@pytest.mark.parametrize("family", ["librdkafka", "kafka-python"])
def test_from_one_eager_assignor_to_another_nobody_has_to_stop(family: str) -> None:
    made = plan([m("a", RANGE, family=family), m("b", RANGE, family=family)], "roundrobin")
    assert (made.path, made.exit_code) == ("two_bounces", 0)
    assert made.steps[0].target_list == ("roundrobin", "range")
    assert "accepts two assignors" in made.steps[0].precondition
    assert len(made.steps[1].why) == 1, "all members stay EAGER"
    half = plan([m("a", ["roundrobin", "range"], family=family)], "roundrobin",
                elected="roundrobin")  # fmt: skip
    assert (half.path, half.next_step, half.exit_code) == ("two_bounces", 2, 0)
