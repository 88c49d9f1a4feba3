"""README.md and docs stay true: shell lines, screens, tables and the library example.

tests/live/test_commands_live.py carries the roll-out out on a broker, and scans it. A live cluster
is a stand-in here, which shows the bundled group `checkout`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from rebal.cli import app
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import dump_snapshot, load_snapshot
from rebal.planner.paths import make_plan
from rebal.planner.plan import Action, dump_plan
from rebal.planner.rules.registry import rules
from tests import pages
from tests.pages import PAGES, ROOT, Example, without_times
from tests.planner.builder import group_of

REBAL: Final = Path(sys.executable).with_name("rebal")
DEMO: Final = ROOT / "cli" / "data" / "demo"
VALUES: Final = {
    "GROUP…": "checkout", "GROUP": "checkout", "[GROUP]": "checkout", "[RULE]": "RB102",
    "PLAN": "checkout.plan.yaml", "A": "before.yaml", "[B]": "after.yaml", "[NAME]": "plan",
    "SHELL": "bash", "NAME": "range",
}  # fmt: skip
"""What stands for the placeholders of the prose."""
NEEDED: Final = {"fleet scan": ["--out", "x"], "fleet report": ["x"], "fleet metrics": ["x"]}
"""What a command needs beside the options that the prose names."""
Run = Callable[[str], tuple[int, str]]
README, ROLL_OUT, FLEET = "README.md", "docs/roll-out.md", "docs/fleet.md"
CHECK: Final = "docs/check.md"
OTHER: Final = "docs/other-library.md"
CHECKED: Final = ("Compare", "Ask the live group", "In a pipeline")
STEPS: Final = "Step by step"
"""The section of the roll-out with numbered lines."""


@cache
def command(name: str) -> Any:
    """The real typer command: `fleet scan`."""
    found = app.build()
    for word in name.split():
        found = found.commands[word]
    return found.load()


def command_of(words: Sequence[str]) -> tuple[str, list[str]]:
    """The name of a command, and the words that follow it."""
    count = 2 if words[0] == "fleet" else 1
    return " ".join(words[:count]), list(words[count:])


def options_of(name: str) -> set[str]:
    return {option for param in command(name).params for option in (*param.opts, "--help")}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A shell in a folder with the members' logs: the exit code of a line, and what it prints."""
    live = load_snapshot((DEMO / "checkout.rebal.yaml").read_text(), "yaml")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "tests" / "data" / "client_logs", "logs")

    def read_groups(config: Any, names: Sequence[str], **more: Any) -> list[GroupSnapshot]:
        assert config.bootstrap == pages.BROKER
        assert list(names) == [live.group.group_id]
        return [live]

    def carried(line: str) -> tuple[int, str]:
        capsys.readouterr()
        code = app.run(Example("", "", 0, line).words)
        said = capsys.readouterr()
        assert "fault of rebal" not in said.err
        return code, said.out

    monkeypatch.setattr("rebal.inspectors.kafka.read.read_groups", read_groups)
    return carried


def section(page: str, name: str, *items: int) -> list[Example]:
    found = [one for one in pages.examples(page) if one.section == name]
    return [one for one in found if not items or one.item in items]


def steps(*items: int) -> list[Example]:
    return section(ROLL_OUT, STEPS, *items)


def test_every_example_has_a_test_that_runs_it() -> None:
    """A new section with examples needs a test below, or lines in the live test.

    tests/cli/test_screens.py compares the screen of the rehearsal; the lines of
    docs/fleet-on-spark.md need a cluster.
    """
    sections = {(one.page, one.section) for one in pages.every_example()}
    assert {one for one in sections if one[0] != "docs/fleet-on-spark.md"} == {
        (README, "A roll-out"),
        (README, "One screen"),
        (ROLL_OUT, STEPS),
        (ROLL_OUT, "Offline"),
        (FLEET, ""),
        ("docs/rehearsal.md", ""),
        *((CHECK, name) for name in CHECKED),
        (OTHER, ""),
    }
    assert {one.item for one in steps()} == {1, 2, 3, 4, 5, 6}
    assert sum("| rebal " in one.line for one in pages.every_example()) == 1


def test_the_six_commands_of_the_readme_are_lines_of_the_roll_out() -> None:
    six = [one.line for one in section(README, "A roll-out")]
    assert len(six) == 6
    assert [one.line for one in steps() if one.line in six] == six


@pytest.mark.parametrize("name", CHECKED)
def test_the_commands_in_docs_check_find_the_change(run: Run, name: str) -> None:
    java = "org.apache.kafka.clients.consumer."
    for folder, names in (("old", "Range"), ("new", "Sticky"), (".", "Sticky")):
        Path(folder).mkdir(exist_ok=True)
        text = f"group.id=checkout\npartition.assignment.strategy={java}{names}Assignor\n"
        Path(folder, "consumer.properties").write_text(text)
    identity = ["-c", "user.name=x", "-c", "user.email=x"]
    for words in (["init", "-q"], ["add", "old"], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], check=True)
    subprocess.run(["git", "update-ref", "refs/remotes/origin/main", "HEAD"], check=True)
    for example in section(CHECK, name):
        code, text = run(example.line.partition(" >")[0])
        assert (code, "checkout" in text) == (3, True), example


def test_the_screen_in_the_readme_is_what_rebal_prints() -> None:
    example, shown = pages.screen_of(README)
    done = subprocess.run(
        [REBAL, *example.words], cwd=DEMO, capture_output=True, text=True, check=False,
        env=os.environ | {"COLUMNS": "130"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert without_times("\n".join(shown)) == without_times(done.stdout)


def test_the_next_command_on_the_readmes_screen_runs(run: Run) -> None:
    _, shown = pages.screen_of(README)
    following = shown[-1].removeprefix("next:").strip()
    file = following.rpartition(" ")[2]
    shutil.copy(DEMO / file, file)
    assert run(following)[0] == 0


def test_docs_advice_shows_the_screen_for_static_members_after_a_reload(run: Run) -> None:
    (block,) = pages.blocks("docs/advice.md")
    names = ["range", "cooperative-sticky"]
    members = [{"id": name, "list": names, "instance": name} for name in "abc"]
    probe = {"cooperative-sticky": False, "range": True}
    group = group_of({"members": members, "reloaded": True, "probe": probe})
    Path("checkout.rebal.yaml").write_text(dump_snapshot(group))
    _, text = run("rebal plan-upgrade --snapshot checkout.rebal.yaml")
    assert [line for line in block.lines if line not in text.splitlines()] == []


def test_the_commands_in_docs_other_library_plan_and_verify(run: Run) -> None:
    plan, verify = section(OTHER, "")
    code, text = run(plan.line)
    assert code == 0
    assert "with [range] and franz-go in place of the old library" in text
    code, text = run(verify.line)
    assert (code, "restart checkout-" in text) == (4, True)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the plan that the lines name, which `verify` and `diff` read first."""
    monkeypatch.chdir(tmp_path)
    snapshot = load_snapshot((DEMO / "checkout.rebal.yaml").read_text(), "yaml")
    for name in ("checkout.plan.yaml", "before.yaml"):
        Path(name).write_text(dump_plan(make_plan(snapshot)))


@pytest.mark.parametrize("example", dict.fromkeys(pages.every_example()), ids=str)
def test_every_example_command_line_in_docs_is_parsed(example: Example, kept: None) -> None:
    """Wrong options, values and missing arguments fail here, those for a broker too."""
    name, words = command_of(example.words)
    command(name).make_context(name, words)


@pytest.mark.parametrize("span", pages.spans())
def test_every_command_in_the_text_of_docs_is_parsed(span: str, kept: None) -> None:
    (text,) = re.findall(r"rebal ([^|)]+)", span) or ["--help"]
    if text.startswith("-"):
        app.build().make_context("rebal", [text], resilient_parsing=True)
        return
    name, words = command_of(text.split())
    bare = not words or words[0].startswith("-")
    needed = NEEDED.get(name, []) if bare else []
    command(name).make_context(name, [*(VALUES.get(word, word) for word in words), *needed])


@pytest.mark.parametrize(("name", "says"), list(pages.rows()))
def test_the_command_table_in_docs_names_only_existing_options(name: str, says: str) -> None:
    named = set(
        re.findall(r"(?<![\w-])(--?[a-z][a-z-]*|-X)", " ".join(re.findall(r"`(.*?)`", says)))
    )
    assert named - options_of(name) == set()


def test_every_option_in_the_text_of_docs_exists() -> None:
    commands = [name for name, _ in pages.rows()]
    known = set().union(*map(options_of, commands))
    code = [one for page in PAGES for one in pages.code(page)]
    ours = [one for one in code if one.startswith(("-", "rebal ", *commands))]
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(ours)))
    assert len(named) > 50
    assert named - known == set()


def test_every_rule_in_the_text_of_docs_exists() -> None:
    named = {rule for text in PAGES.values() for rule in re.findall(r"\bRB\d+\b", text)}
    assert named - rules().keys() == set()


def anchors(page: str) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", PAGES[page], re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", PAGES[page]):
        path, _, anchor = link.partition("#")
        found = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        assert found.exists(), link
        assert not anchor or anchor in anchors(str(found.relative_to(ROOT))), link


def test_every_page_is_in_the_index() -> None:
    def is_listed(page: Path) -> bool:
        index = page.parent.parent if page.name == "README.md" else page.parent
        link = page.relative_to(index).as_posix()
        return f"({link})" in PAGES[f"{index}/README.md"]

    below = (Path(page) for page in PAGES if page.startswith("docs/"))
    assert [page for page in below if page != Path("docs/README.md") and not is_listed(page)] == []


def test_the_readme_is_short() -> None:
    assert len(PAGES[README].split()) <= 1200


def test_docs_roll_out_names_the_configuration_formats_of_show(run: Run) -> None:
    assert run(steps(2)[0].line)[0] == 0
    (says,) = re.findall(r"`--as` a format:([^.]*)\.", PAGES[ROLL_OUT])
    named = re.findall(r"`([a-z-]+)`", says)
    assert len(named) == 6
    for form in named:
        code, text = run(f"rebal show checkout.plan.yaml --set --as {form}")
        assert (code, "CooperativeStickyAssignor" in text) == (0, True), form


def test_docs_advice_names_the_fields_of_advice_in_documents(run: Run) -> None:
    assert run(steps(2)[0].line)[0] == 0
    made = json.loads(run(f"{steps(4)[0].line} -o json")[1])
    row = re.compile(r"^\| (`(?:advice\.|withheld).*?) \| (.*) \|$", re.MULTILINE)
    cells = row.findall(PAGES["docs/advice.md"])
    fields = [name for cell, _ in cells for name in re.findall(r"`(?:advice\.)?([a-z_]+)`", cell)]
    assert len(fields) > 10
    assert set(fields) <= {*made["advice"], "withheld"}
    assert "withheld" in made
    actions = set(re.findall(r"`([a-z-]+)`", dict(cells)["`advice.action`"]))
    assert actions == set(Action)


def test_the_library_example_runs() -> None:
    (block,) = pages.blocks("docs/library.md")
    exec(compile("\n".join(block.lines), block.page, "exec"), {})
