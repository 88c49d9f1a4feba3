"""`rebal show`, `rebal diff` and `rebal explain` as they are typed."""

import re
import shlex
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from rebal.cli import app, files
from rebal.cli.journal import Journal, journal_path
from rebal.cli.output import render
from rebal.cli.render.timeline import bars, timeline_html, timeline_view
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.commands import READ_MORE, Given
from rebal.planner.paths import make_plan
from rebal.planner.plan import dump_plan
from rebal.planner.rules import rules
from rebal.planner.verification.timeline import timeline_of
from tests.cli.conftest import Live, Rebal
from tests.planner.builder import context_of, group_of
from tests.planner.looks import look, pods
from tests.planner.rule_cases import cases_of
from tests.planner.test_standings import upgrade

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
PLAN = "a.plan.yaml"
JOURNAL = ["--journal", "a.plan.yaml.journal.jsonl"]
Keep = Callable[..., None]
Show = Callable[..., str]


@pytest.fixture
def keep(here: Path, rebal: Rebal) -> Keep:
    """Plan for a group, and keep the plan in its file."""

    def keep(group: GroupSnapshot, *more: str, code: int = 0) -> None:
        Path("group.yaml").write_text(dump_snapshot(group))
        rebal("plan-upgrade", "--snapshot", "group.yaml", "--out", PLAN, *more, code=code)

    return keep


@pytest.fixture
def plan(keep: Keep) -> None:
    keep(look(0, pods(1, 1)))


@pytest.fixture
def show(rebal: Rebal) -> Show:
    """Show the kept plan, or fail with this exit code; return what is said."""

    def shown(*words: str, code: int = 0) -> str:
        said = rebal("show", PLAN, *words, code=code)
        assert (said.err if code == 0 else said.out) == ""
        return said.err or said.out

    return shown


def properties(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.usefixtures("plan")
def test_show_prints_the_whole_plan_without_its_advice_to_restart(show: Show) -> None:
    text = show()
    assert "look at the group before you act" in text
    assert "now:" in text
    assert not any(line.startswith("now:") and "restart" in line for line in text.splitlines())
    assert text.rstrip().splitlines()[-1].split(maxsplit=1)[1].startswith("rebal verify a.plan")


@pytest.mark.usefixtures("plan")
def test_show_prints_one_step_of_the_plan_alone(show: Show) -> None:
    text = show("--step", "2")
    assert text.startswith("2  Every member drops range")
    assert "before range" not in text


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize(("step", "value"), [((), BOTH), (("--step", "2"), TARGET)])
def test_show_set_prints_only_the_configuration_of_the_step(
    step: tuple[str, ...], value: str, rebal: Rebal
) -> None:
    said = rebal("show", PLAN, *step, "--set", code=4 if step else 0)
    assert properties(said.out) == {KEY: value}
    early = (
        "do not deploy it yet: step 2 waits for the gate of step 1, which no look has seen to "
        "hold. Check with:\n  rebal verify a."
    )
    assert (early in said.err) is bool(step)


def test_show_set_of_a_step_that_waits_exits_4_until_verify_advises_the_step(
    keep: Keep, show: Show, rebal: Rebal
) -> None:
    settings = {"group.consumer.migration.policy": "bidirectional", "group.max.size": "99"}
    moving, stable = (
        look(
            1, pods(1, 1, list=[]), type="consumer", state=state, assignor="range",
            cluster={"settings": settings},
        )
        for state in ("Reconciling", "Stable")
    )  # fmt: skip
    keep(moving, "--to", "eager", code=4)
    Path("stable.yaml").write_text(dump_snapshot(stable))
    said = rebal("show", PLAN, "--set", code=4)
    assert "step 1 could not start when the plan was made, nor since" in said.err
    rebal("verify", PLAN, *JOURNAL, "--snapshot", "stable.yaml", code=4)
    assert KEY in show("--set")


@pytest.mark.usefixtures("plan")
def test_show_set_of_step_2_exits_4_until_the_gate_of_step_1_holds(rebal: Rebal) -> None:
    members = pods(2, 2, list=["cooperative-sticky", "range"])
    for seen, code in (([pods(1, 1)[0], members[1]], 4), (members, 0)):
        Path("seen.yaml").write_text(dump_snapshot(look(1, seen)))
        rebal("verify", PLAN, *JOURNAL, "--snapshot", "seen.yaml", code=code)
        said = rebal("show", PLAN, "--step", "2", "--set", code=code)
        assert ("do not deploy it yet" in said.err) is (code == 4)


@pytest.mark.usefixtures("plan")
def test_each_configuration_format_holds_the_same_assignor_list(show: Show) -> None:
    def text(form: str) -> str:
        return show("--set", "--as", form)

    variable = "SPRING_KAFKA_CONSUMER_PROPERTIES_PARTITION_ASSIGNMENT_STRATEGY"
    assert properties(text("java-properties")) == {KEY: BOTH}
    assert properties(text("spring-environment")) == {variable: BOTH}
    assert properties(text("quarkus-properties")) == {f"kafka.{KEY}": BOTH}
    assert yaml.safe_load(text("kubernetes-configmap")) == {"data": {variable: BOTH}}
    spring = yaml.safe_load(text("spring-yaml"))
    assert spring["spring"]["kafka"]["consumer"]["properties"] == {KEY: BOTH}
    assert f'props.put("{KEY}", "{BOTH}");' in text("Java-Code")


def test_show_set_needs_a_client_family_if_the_plan_has_several(keep: Keep, show: Show) -> None:
    keep(group_of({"members": MIXED}))
    assert "add --family franz-go|java." in show("--set", code=2)
    assert "kgo.Balancers(" in show("--set", "--family", "franz-go")
    assert properties(show("--set", "--family", "java")) == {KEY: BOTH}
    said = show("--set", "--family", "sarama", code=2)
    assert "has no configuration for sarama: there is franz-go, java." in said


@pytest.mark.usefixtures("plan")
def test_show_prints_the_plan_document_and_runbook_of_plan_upgrade(show: Show) -> None:
    assert show("-o", "yaml") == Path(PLAN).read_text()
    assert show("-o", "markdown").startswith("# checkout: EAGER")


def test_a_finished_plan_has_nothing_to_configure(keep: Keep, show: Show, rebal: Rebal) -> None:
    final = pods(1, 1, list=["cooperative-sticky"])
    keep(look(0, final, elected="cooperative-sticky"))
    assert "no step is left" in show("--set", code=2)
    assert "there is no step 1; it has no steps." in show("--step", "1", code=2)
    assert "no step of the plan is left" in rebal("rehearse", PLAN, code=2).err


@pytest.mark.usefixtures("plan")
def test_an_edited_plan_file_is_rejected_by_show_and_verify(rebal: Rebal) -> None:
    text = Path(PLAN).read_text()
    Path(PLAN).write_text(text.replace("CooperativeStickyAssignor,org", "StickyAssignor,org"))
    for words in (["show", PLAN], ["verify", PLAN, "--snapshot", "group.yaml"]):
        out, err = rebal(*words, code=1)
        assert out == ""
        assert err.startswith("rebal: a.plan.yaml: `steps[0].config` has changed since")


def test_show_set_of_a_completed_step_gives_no_warning(keep: Keep, show: Show) -> None:
    both = pods(1, 1, list=["cooperative-sticky", "range"])
    keep(look(0, both, elected="cooperative-sticky"))
    assert '"next_step": 2' in show("-o", "json")
    assert KEY in show("--step", "1", "--set")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A plan with the journal of its whole roll-out."""
    story = upgrade()
    path = tmp_path / "shop.plan.yaml"
    path.write_text(dump_plan(story.plan, "yaml"))
    book = Journal(journal_path(path), story.plan)
    for entry in story.entries:
        book.append(entry)
    return path


def test_the_timeline_fits_80_columns_and_shows_each_restart(kept: Path, rebal: Rebal) -> None:
    story = upgrade()
    text = render(timeline_view(timeline_of(story.plan, story.entries)), width=80)
    assert max(map(len, text.split("\n"))) <= 80
    assert "roll-out finished" in text
    assert "rebalances  8\n" in text
    rows = [line.split() for line in text.split("\n") if line.startswith("app-")]
    assert [row[:3] for row in rows] == [["app-0", "2", "09:02:00Z"], ["app-1", "2", "09:04:00Z"]]
    words = ["show", str(kept), "--timeline"]
    assert "roll-out finished" in rebal(*words).out
    assert rebal(*words, "-o", "json").body["rebalances"] == 8


def test_a_members_timeline_bar_runs_from_the_first_look_to_the_last() -> None:
    story = upgrade()
    made = timeline_of(story.plan, story.entries)
    parts = list(bars(made, made.members[0]))
    assert parts[0].left == 0
    assert round(parts[-1].left + parts[-1].width) == 100
    assert [part.step for part in parts] == [0, 1, 2]


def test_a_hostile_member_name_is_escaped_text_on_the_timeline_page() -> None:
    story = upgrade()
    evil = "<script>alert(1)</script>\x1b[31m"
    entries = [
        replace(entry, members=tuple(replace(one, name=evil, host=evil) for one in entry.members))
        for entry in story.entries
    ]
    page = timeline_html(timeline_of(story.plan, entries))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page
    assert "default-src 'none'" in page


def test_a_timeline_without_a_journal_reports_no_look(tmp_path: Path, rebal: Rebal) -> None:
    path = tmp_path / "a.plan.json"
    path.write_text(dump_plan(upgrade().plan, "json"))
    words = ["show", str(path), "--timeline"]
    (line,) = rebal(*words).out.splitlines()
    assert "no look is in the journal yet" in line
    assert rebal(*words, "-o", "json").body["members"] == []


Make = Callable[..., GroupSnapshot]


@pytest.fixture
def before(group: Make, tmp_path: Path) -> Path:
    return files.save_snapshot(group(), tmp_path / "before.yaml")


@pytest.fixture
def kept_plan(group: Make, tmp_path: Path) -> Path:
    made = tmp_path / "checkout.plan.yaml"
    made.write_text(dump_plan(make_plan(group())))
    return made


def test_diff_shows_a_member_that_left(
    group: Make, before: Path, tmp_path: Path, rebal: Rebal
) -> None:
    after = files.save_snapshot(group(members=group().members[:2]), tmp_path / "after.json")
    body = rebal("diff", str(before), str(after), "-o", "json", "--exit-code", code=3).body
    assert (body["schema"], body["exit_code"], body["found"]) == ("rebal.diff/1", 3, True)
    assert [(one["name"], one["event"]) for one in body["members"]] == [("checkout-3", "left")]
    assert (body["before"]["source"], body["after"]["source"]) == ("snapshot", "snapshot")


@pytest.mark.parametrize("words", [[], ["--exit-code"]])
def test_diff_without_a_difference_exits_0(words: list[str], before: Path, rebal: Rebal) -> None:
    said = rebal("diff", str(before), str(before), *words)
    assert "no difference: 3 members unchanged" in said.out


def test_diff_compares_a_plan_with_its_live_group_and_reports_drift(
    group: Make, kept_plan: Path, live: Live, rebal: Rebal
) -> None:
    """What verify calls drift: the plan's lists do not hold the elected assignor."""
    live.show(group(assignor="roundrobin"))
    body = rebal("diff", str(kept_plan), "-b", "k:1", "-o", "json").body
    assert [names for names, _ in live.asked] == [["checkout"]]
    assert (body["before"]["source"], body["after"]["source"]) == ("plan", "live")
    changed = {"what": "assignor", "subject": None, "before": "range", "after": "roundrobin"}
    assert changed in body["group"]
    assert [change["what"] for change in body["drift"]] == ["assignor"]
    said = "\noutdated    the elected assignor was range when the plan was made"
    assert said in rebal("diff", str(kept_plan), "checkout", "-b", "k:1").out
    live.show(group())
    assert said not in rebal("diff", str(kept_plan), "-b", "k:1").out


DEMO = Path(str(resources.files("rebal.cli") / "data" / "demo"))
TYPED = Given(connection=("-b", "h:1"), evidence=("--probe",), plan="p.yaml", brokers="h:1")
FILLED_IN = re.compile(r"CLIENT_ID|FAMILY|\b[A-Z_]{3,}=|=[A-Z_]{3,}\b(?<!=DEBUG)|HOST:PORT")


@pytest.mark.parametrize("rule", sorted(rules()))
def test_the_commands_of_a_rule_have_no_placeholder_and_are_parsed(rule: str) -> None:
    groups = [case["group"] for case in cases_of(rule, "fires", "cannot_tell")]
    for finding in (
        each for group in groups for each in rules()[rule].check(context_of(group, given=TYPED))
    ):
        for text in (finding.fix, *(one.line for one in finding.commands)):
            assert FILLED_IN.search(text) is None, text
        for one in finding.commands:
            program, name, *words = shlex.split(one.line)
            if program == "rebal":
                command: Any = app.build().commands[name]
                command.load().make_context(name, words)


def test_a_member_of_unproven_client_family_gets_a_command_for_each_possible_family() -> None:
    members = [
        {"id": "a", "family": None, "left": "java >= 3.4 or franz-go"},
        {"id": "b b", "guess": True, "bytes": None},
        {"id": "c", "family": None, "bytes": None},
    ]
    context = context_of({"planning": True, "members": members}, given=TYPED)
    unknown, guessed = rules()["RB906"].check(context)
    assert "sarama, segmentio can stand in it too)" in unknown.fix
    assert "if c runs java" in {each.use for each in unknown.commands}
    (one,) = [each for each in guessed.commands if each.use != READ_MORE]
    assert one.use == "if b b runs java"
    assert shlex.split(one.line)[-2:] == ["--assume-family", "b b=java"]

    (named,) = rules()["RB907"].check(context)
    lines = {one.use: one.line for one in named.commands}
    assert list(lines) == ["if a, b b run java", "if a runs franz-go"]
    assert lines["if a runs franz-go"].endswith(" --assume-family a=franz-go")


def test_explain_prints_the_documentation_of_a_rule_and_lists_all_rules(rebal: Rebal) -> None:
    for rule_id, rule in rules().items():
        text = rebal("explain", rule_id.lower()).out
        assert text.startswith(f"{rule_id}  {rule.severity.value}  ")
        assert rule.doc in text
        assert rule.reference in text
    text = rebal("explain").out
    assert all(f"{one.id}  " in text and one.title in text for one in rules().values())
    assert [one["rule"] for one in rebal("explain", "-o", "json").body["rules"]] == list(rules())


@pytest.mark.parametrize("prefix", ["org.apache.kafka.clients.consumer.", ""])
def test_a_java_class_name_is_accepted_for_an_assignor(prefix: str, rebal: Rebal) -> None:
    snapshot = ["--snapshot", str(DEMO / "shipping.rebal.yaml"), "-o", "json"]
    for words, name in (
        (["simulate", "--assignor"], "range"),
        (["plan-upgrade", "--to"], "cooperative-sticky"),
    ):
        class_name = "".join(part.capitalize() for part in name.split("-")) + "Assignor"
        assert rebal(*words, f"{prefix}{class_name}", *snapshot) == rebal(*words, name, *snapshot)
