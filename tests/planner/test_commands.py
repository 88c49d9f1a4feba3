"""Every printed command repeats what the user typed, names what is known, and survives bash."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.groups.commands import options
from rebal.groups.snapshot.documents import load_snapshot
from rebal.planner.commands import OFFLINE, Given
from rebal.planner.paths import NotPlannedError, make_plan
from rebal.planner.plan import Advice, Plan, dump_plan, load_plan
from tests.planner.builder import group_of
from tests.planner.plans import m as java
from tests.planner.plans import plan
from tests.planner.rule_cases import RULES, cases_of

pytestmark = pytest.mark.usefixtures("no_costs")

BASH = shutil.which("bash")
DEMO = Path(__file__).parents[2] / "cli" / "data" / "demo"
RANGE = ["range"]
TYPED = Given(
    connection=("-b", "h:1", "-X", "a.b=c d"),
    evidence=("--probe", "--client-log", "my logs/a.log"),
    plan="my plan.yaml",
    brokers="h:1",
    properties="client properties",
)
PLACEHOLDERS = re.compile(
    r"HOST:PORT|\b(?:GROUP|PLAN|TEXT|STEP|NAME|FAMILY|CLIENT_ID|COORDINATOR_ID)\b|FILE\b|…"
)
WORDS = st.text(
    st.one_of(
        st.sampled_from(list("-$`'\"\\ !*#~\n\u202e漢")),
        st.characters(exclude_characters="\0", exclude_categories=("Cs",)),
    ),
    min_size=1,
    max_size=8,
)


def words_of(line: str) -> list[str]:
    """The words that bash makes of the line, for whatever program it begins with."""
    script = f"printf '%s\\0' {line}"
    done = subprocess.run([BASH, "-c", script], capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


@given(WORDS, WORDS, WORDS, WORDS)
@example("-g", "--plan.yaml", "-log", "-x=y")
@example("a b", "it's.yaml", "$HOME/`id`", 'q="\n"')
def test_printed_commands_keep_every_option_and_argument_when_bash_parses_them(
    group: str, file: str, log: str, setting: str
) -> None:
    """No option is lost, and no word is split."""
    typed = Given(
        connection=("-b", "h:1", *options("-X", [setting])),
        evidence=options("--client-log", [log]),
        plan=file,
    )
    own = [*typed.connection, *typed.evidence]
    again = replace(typed, looks=tuple(own))
    for line, name, words in (
        (typed.inspect(group), group, own),
        (typed.plan_upgrade(group), group, own),
        (typed.verify(), file, []),
        (again.verify(), file, own),
    ):
        program, _, *rest = words_of(line)
        assert program == "rebal"
        assert rest == ([*words, "--", name] if name.startswith("-") else [name, *words])
    simulated = words_of(typed.simulate(group, "--assignor", "range"))
    assert group in simulated
    assert simulated.index("-b") > 0


def lines_of(made: Plan) -> Iterator[str]:
    """Every command that a plan carries."""
    for step in made.steps:
        yield step.gate.command
        yield from (one.line for one in step.commands)
    for finding in made.findings:
        yield from (one.line for one in finding.commands)
    for advice in (made.advice, *made.withheld):
        if advice.command:
            yield advice.command


def plans(typed: Given) -> Iterator[Plan]:
    """A plan of each case of the rules, and of the demo's groups, to each goal."""
    for rule in RULES:
        for case in cases_of(rule, "fires"):
            for goal in ("cooperative", "eager", "consumer"):
                try:
                    yield make_plan(group_of(case["group"]), goal, expect_members=9, given=typed)
                except NotPlannedError:
                    continue
    for file in sorted(DEMO.glob("*.rebal.yaml")):
        yield make_plan(load_snapshot(file.read_text(encoding="utf-8"), "yaml"), given=typed)


@pytest.mark.slow
def test_no_command_of_a_plan_has_a_placeholder_or_loses_the_connection() -> None:
    seen = set()
    for made in plans(TYPED):
        for line in lines_of(made):
            program, first, *rest = shlex.split(line)
            seen.add((program, first))
            assert "\n" not in line
            assert not PLACEHOLDERS.search(line), line
            if program == "kubectl" or first == "explain":
                continue
            if first == "verify":
                assert "h:1" not in rest, "the plan's file keeps it"
                continue
            assert "h:1" in rest or "h:1" in first, line
            if program == "rebal":
                assert "a.b=c d" in rest, line
            else:
                assert "client properties" in rest, line
    assert {p for p, _ in seen} >= {"rebal", "kafka-configs.sh", "kafka-features.sh"}
    assert {w for p, w in seen if p == "rebal"} >= {"verify", "plan-upgrade", "inspect", "explain"}


def test_a_plan_keeps_its_evidence_and_adds_the_probe_where_there_is_none() -> None:
    def kept(**typed: object) -> tuple[str, ...]:
        one = Given(plan="p.yaml", **typed)  # type: ignore[arg-type]
        made = make_plan(plan([java("a", RANGE)]).baseline, given=one)
        assert made.steps[0].gate.command == "rebal verify p.yaml"
        return made.evidence

    assert kept() == ("--probe",)
    assert kept(evidence=("--client-log", "a.log")) == ("--client-log", "a.log")
    assert kept(connection=("-b", "h:1")) == ("--probe",)


def test_commands_of_an_offline_plan_read_the_file_again_where_a_file_is_enough() -> None:
    snapshot = load_snapshot((DEMO / "checkout.rebal.yaml").read_text(encoding="utf-8"), "yaml")
    offline = Given(variables=(OFFLINE,), snapshot="checkout.rebal.yaml")
    made = make_plan(snapshot, given=offline)
    file = "--snapshot checkout.rebal.yaml"
    assert made.steps[0].gate.command == f"rebal plan-upgrade {file} --expect-members 4"
    assert "-b 127" not in " ".join(lines_of(made))
    assert offline.look("checkout") == f"rebal inspect {file}"
    assert offline.inspect("checkout", "--probe") == "rebal inspect checkout --probe"
    named = make_plan(snapshot, given=Given(snapshot="checkout.rebal.yaml", plan="p.yaml"))
    assert named.steps[0].gate.command == "rebal verify p.yaml"
    assert "--snapshot" not in " ".join(lines_of(named))
    # Looks at a saved group are in no journal by themselves, and a confirmation needs one.
    kept = replace(offline, plan="p.yaml")
    journal = "--journal p.yaml.journal.jsonl"
    assert kept.confirm("--confirm", "1") == f"rebal verify p.yaml --confirm 1 {journal}"
    own = replace(kept, looks=("--journal", "own.jsonl")).confirm("--confirm", "1")
    assert own == "rebal verify p.yaml --confirm 1 --journal own.jsonl"


def test_commands_of_a_plan_kept_under_another_name_use_that_file_name() -> None:
    for made in islice(plans(TYPED), 0, None, 7):
        again = load_plan(dump_plan(made), "yaml").kept_as("old plan.1.yaml")
        kept = replace(again, advice=Advice(), withheld=())
        assert all("my plan.yaml" not in line for line in lines_of(kept))
        assert all("'old plan.1.yaml'" in step.gate.command for step in again.steps)


def test_note_names_the_secret_environment_variables_and_asks_to_pipe_the_log_again() -> None:
    assert Given().note == ""
    typed = Given(variables=("REBAL_X_SASL_PASSWORD",), evidence=("--client-log", "-"))
    assert "set REBAL_X_SASL_PASSWORD" in typed.note
    assert "pipe the log into it again" in typed.note
    assert Given(variables=(OFFLINE,)).note == ""


def test_simulations_repeat_the_evidence_without_the_assignors_to_probe_for() -> None:
    words = ("--probe", "--assignor", "own", "--assignor=other", "--client-log", "a.log")
    given = Given(connection=("-b", "x:1"), evidence=words)
    kept = "-b x:1 --probe --client-log a.log"
    simulated = given.simulate("g", "--assignor", "sticky")
    assert simulated == f"rebal simulate g --assignor sticky {kept}"
    crash = given.rehearse("g", "--script", "crash")
    assert crash == f"rebal rehearse --group g --script crash {kept}"
    alone = replace(given, plan="plan.yaml").rehearse(None)
    assert alone == "rebal rehearse plan.yaml --probe --client-log a.log"
