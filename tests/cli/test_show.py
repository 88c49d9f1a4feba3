"""`rebal show` as it is typed: a kept plan, a step, a configuration to pipe into a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rebal.cli import app
from rebal.cli.journal import journal_path
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import dump_snapshot
from tests.documents import checked
from tests.planner.builder import group_of
from tests.planner.looks import look, pods

KEY = "partition.assignment.strategy"
BOTH = (
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor,"
    "org.apache.kafka.clients.consumer.RangeAssignor"
)
TARGET = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
MIXED = [
    {"id": "j", "list": ["range"]},
    {"id": "k", "list": ["range"], "family": "franz-go", "version": "1.18.0"},
]
Keep = Callable[..., Path]
Said = pytest.CaptureFixture[str]


@pytest.fixture
def keep(here: Path, capsys: Said) -> Keep:
    """Return a function that plans for a group and returns the kept plan's file."""

    def keep(group: GroupSnapshot, *more: str) -> Path:
        Path("group.yaml").write_text(dump_snapshot(group))
        app.run(["plan-upgrade", "--snapshot", "group.yaml", "--out", "a.plan.yaml", *more])
        capsys.readouterr()
        return Path("a.plan.yaml")

    return keep


@pytest.fixture
def plan(keep: Keep) -> Path:
    return keep(look(0, pods(1, 1)))


def shown(capsys: Said, *words: str) -> str:
    assert app.run(["show", *words]) == 0, capsys.readouterr().err
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


def refused(capsys: Said, *words: str) -> str:
    assert app.run(["show", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def properties(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_a_kept_plan_is_shown_whole_and_its_advice_is_not(plan: Path, capsys: Said) -> None:
    text = shown(capsys, str(plan))
    assert "look at the group before you act" in text
    assert "now:" in text
    assert not any(line.startswith("now:") and "restart" in line for line in text.splitlines())
    assert text.rstrip().splitlines()[-1].split(maxsplit=1)[1].startswith("rebal verify a.plan")


def test_a_step_is_shown_alone(plan: Path, capsys: Said) -> None:
    text = shown(capsys, str(plan), "--step", "2")
    assert text.startswith("2  Every member drops range")
    assert "before range" not in text


@pytest.mark.parametrize(("step", "value"), [((), BOTH), (("--step", "2"), TARGET)])
def test_set_prints_configuration_and_nothing_else(
    plan: Path, step: tuple[str, ...], value: str, capsys: Said
) -> None:
    assert app.run(["show", str(plan), *step, "--set"]) == (4 if step else 0)
    said = capsys.readouterr()
    assert properties(said.out) == {KEY: value}
    early = (
        "do not deploy it yet: step 2 waits for the gate of step 1, which no look has seen to "
        "hold. Check with:\n  rebal verify a."
    )
    assert (early in said.err) is bool(step)


def test_set_of_a_step_that_had_to_wait_is_given_once_a_look_has_advised_it(
    keep: Keep, capsys: Said
) -> None:
    settings = {"group.consumer.migration.policy": "bidirectional", "group.max.size": "99"}
    moving, stable = (
        look(
            1, pods(1, 1, list=[]), type="consumer", state=state, assignor="range",
            cluster={"settings": settings},
        )
        for state in ("Reconciling", "Stable")
    )  # fmt: skip
    keep(moving, "--to", "eager")
    Path("stable.yaml").write_text(dump_snapshot(stable))
    assert app.run(["show", "a.plan.yaml", "--set"]) == 4
    assert "step 1 could not start when the plan was made, nor since" in capsys.readouterr().err
    words = ["--journal", "a.plan.yaml.journal.jsonl", "--snapshot", "stable.yaml"]
    app.run(["verify", "a.plan.yaml", *words])
    capsys.readouterr()
    assert KEY in shown(capsys, "a.plan.yaml", "--set")


def test_set_of_step_2_is_given_once_a_look_has_shown_the_gate(plan: Path, capsys: Said) -> None:
    members = pods(2, 2, list=["cooperative-sticky", "range"])
    for name, seen in (("half", [pods(1, 1)[0], members[1]]), ("ready", members)):
        Path(f"{name}.yaml").write_text(dump_snapshot(look(1, seen)))
        words = ["verify", str(plan), "--snapshot", f"{name}.yaml"]
        code = app.run([*words, "--journal", str(journal_path(plan))])
        capsys.readouterr()
        assert app.run(["show", str(plan), "--step", "2", "--set"]) == code
        assert code == (0 if name == "ready" else 4)
        assert ("do not deploy it yet" in capsys.readouterr().err) is (code == 4)


def test_each_format_holds_the_same_list(plan: Path, capsys: Said) -> None:
    def text(form: str) -> str:
        return shown(capsys, str(plan), "--set", "--as", form)

    variable = "SPRING_KAFKA_CONSUMER_PROPERTIES_PARTITION_ASSIGNMENT_STRATEGY"
    assert properties(text("java-properties")) == {KEY: BOTH}
    assert properties(text("spring-environment")) == {variable: BOTH}
    assert properties(text("quarkus-properties")) == {f"kafka.{KEY}": BOTH}
    assert yaml.safe_load(text("kubernetes-configmap")) == {"data": {variable: BOTH}}
    spring = yaml.safe_load(text("spring-yaml"))
    assert spring["spring"]["kafka"]["consumer"]["properties"] == {KEY: BOTH}
    assert f'props.put("{KEY}", "{BOTH}");' in text("Java-Code")


def test_a_family_must_be_chosen_where_there_are_several(keep: Keep, capsys: Said) -> None:
    plan = keep(group_of({"members": MIXED}))
    assert "add --family franz-go|java." in refused(capsys, str(plan), "--set")
    assert "kgo.Balancers(" in shown(capsys, str(plan), "--set", "--family", "franz-go")
    assert properties(shown(capsys, str(plan), "--set", "--family", "java")) == {KEY: BOTH}
    said = refused(capsys, str(plan), "--set", "--family", "sarama")
    assert "has no configuration for sarama: there is franz-go, java." in said


def test_documents_and_the_runbook_are_those_of_plan_upgrade(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    checked(shown(capsys, str(plan), "-o", "json"))
    assert shown(capsys, str(plan), "-o", "yaml") == plan.read_text()
    assert shown(capsys, str(plan), "-o", "markdown").startswith("# checkout: EAGER")


def test_a_finished_plan_has_nothing_to_configure(keep: Keep, capsys: Said) -> None:
    final = pods(1, 1, list=["cooperative-sticky"])
    plan = keep(look(0, final, elected="cooperative-sticky"))
    assert "no step is left" in refused(capsys, str(plan), "--set")
    assert "there is no step 1; it has no steps." in refused(capsys, str(plan), "--step", "1")
    assert app.run(["rehearse", str(plan)]) == 2
    assert "no step of the plan is left" in capsys.readouterr().err


def test_an_edited_plan_is_refused_by_every_command(plan: Path, capsys: Said) -> None:
    text = plan.read_text()
    plan.write_text(text.replace("CooperativeStickyAssignor,org", "StickyAssignor,org"))
    for words in (["show", str(plan)], ["verify", str(plan), "--snapshot", "group.yaml"]):
        assert app.run(words) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("rebal: a.plan.yaml: `steps[0].config` has changed since")


def test_no_step_that_is_over_is_said_to_be_too_early(keep: Keep, capsys: Said) -> None:
    both = pods(1, 1, list=["cooperative-sticky", "range"])
    plan = keep(look(0, both, elected="cooperative-sticky"))
    body = json.loads(shown(capsys, str(plan), "-o", "json"))
    assert body["next_step"] == 2
    app.run(["show", str(plan), "--step", "1", "--set"])
    assert "could not start" not in capsys.readouterr().err
