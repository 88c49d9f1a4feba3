"""The words of the rooms, their sizes, and the pictures of the pages."""

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from bench import rule_pages as pages_of_rules
from bench.pictures import pictures
from tests.durations import TABLE, USUAL, above
from tests.house.modules import ROOMS, ROOT, files, rule_pages, texts, tree
from tests.pages import DOCS, PAGES

WORDS = ROOT / "planner" / "advice" / "wording.py"
MAKERS = {ROOT / "groups" / "commands.py", ROOT / "planner" / "commands.py"}


"""The modules that make commands of words."""
# An imperative at the beginning of a clause, with whom or what it concerns.
TELLS = re.compile(
    r"(?:^|[.:;,] |\x00|\bor |\band |\bthen |\bfirst )"
    r"(?:[Rr]estart|[Ss]tart|[Ss]top|[Bb]ring back|[Rr]estore)"
    r"(?: (?:it|them|all|every|each|any|one|the|these|this|that|only|with|again|member)\b| $| \x00)"
)
# What forbids something needs no admission.
FORBIDS = re.compile(r"[Rr]estart nothing|[Ss]top the old process first|will not start")
# What members do by themselves is a fact.
FACTS = re.compile(r"run EAGER (?:from then on )?and stop all")
# What follows shows an argument: an option, a name in capitals, a quoted word, a value.
BEGINS = re.compile(
    r"\brebal (?:inspect|groups|diff|doctor|plan-upgrade|verify|simulate|rehearse|explain|show"
    r"|schema|demo|completion|fleet [a-z]+) +(?:--?[a-z]|[A-Z]{2}|['\"$<./]|\x00)"
    r"|\bkafka-[a-z-]+\.sh +(?:--?[a-z]|[a-z]+ -|\x00)"
    r"|\bkubectl (?:-|[a-z]+ (?:[a-z]+ )?(?:\x00|[a-z]+/))"
)
# A usage that names what is not known: no group, plan or broker was given.
UNKNOWN = re.compile(r"rebal inspect GROUP --save|rebal fleet scan --out\b")


def told(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each text that tells somebody to restart, start or stop a member."""
    for line, text in texts(module):
        if TELLS.search(FACTS.sub("", FORBIDS.sub("", text))):
            yield line, text


def begun(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each text that begins a command; a rule's page is one."""
    for line, text in (*texts(module), *rule_pages(module)):
        if BEGINS.search(UNKNOWN.sub("", text)):
            yield line, text


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize(
    ("found", "but", "do"),
    [
        (told, {WORDS}, "ask planner/advice/actions.py, whose words are in wording.py beside it"),
        (begun, MAKERS, "make it with planner/commands.py (Given) or groups/commands.py (Command)"),
    ],
    ids=["restarts", "commands"],
)
def test_restart_instructions_and_commands_are_worded_only_in_their_modules(
    room: str, found: Callable[[ast.Module], Iterator[tuple[int, str]]], but: set[Path], do: str
) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {text[:90]!r}"
        for path in files(room)
        if path not in but
        for line, text in found(tree(path))
    ]
    assert wrong == [], do


def test_the_module_that_words_advice_decides_no_admission() -> None:
    assert "admitted" not in {
        node.id for node in ast.walk(tree(WORDS)) if isinstance(node, ast.Name)
    }


@pytest.mark.parametrize(
    ("text", "tells", "begins"),
    [
        ("'Restart it with that list.'", True, False),
        ("f'wait, then stop {name}'", True, False),
        ("'Restart nothing before that is known.'", False, False),
        ("'each restart costs a rebalance'", False, False),
        ("f'rebal verify {plan} says when'", False, True),
        ("'kafka-configs.sh --alter'", False, True),
        ("'kubectl rollout undo deployment/x'", False, True),
        ("'with kafka-configs.sh, by an administrator'", False, False),
    ],
)
def test_restart_instructions_and_commands_are_distinguished_from_mentions(
    text: str, tells: bool, begins: bool
) -> None:
    """`told` finds restart instructions, `begun` finds commands."""
    module = ast.parse(f"x = {text}")
    assert (any(told(module)), any(begun(module))) == (tells, begins)


BUDGET: dict[str, int] = yaml.safe_load(Path(__file__).with_name("budget.yaml").read_text())
# How far below its budget a package may fall before the budget is lowered.
SLACK = 20
RULE = re.compile(r"rb\d+\.py")


def statements() -> Counter[str]:
    """Return the statements of each package, docstrings included; a room's own files are its."""
    found: Counter[str] = Counter()
    for path in (path for room in ROOMS for path in files(room)):
        folders = path.relative_to(ROOT).parts[:-1]
        count = sum(isinstance(node, ast.stmt) for node in ast.walk(tree(path)))
        found["/".join(folders[:2])] += count
    return found


FOUND = statements()


def test_each_package_has_a_statement_budget() -> None:
    assert {name for name, count in FOUND.items() if count} == BUDGET.keys()


@pytest.mark.parametrize("package", BUDGET)
def test_a_package_stays_within_its_statement_budget(package: str) -> None:
    count, most = FOUND[package], BUDGET[package]
    assert count <= most, "say less, or raise the budget and write the reason beside it"
    assert count >= most - SLACK, f"lower the budget to {count}"


@pytest.mark.parametrize("folder", [*ROOMS, "tests", "bench", "examples"])
def test_a_module_has_40_to_600_lines(folder: str) -> None:
    lines = {path: len(path.read_text().splitlines()) for path in files(folder)}
    assert lines, f"{folder}/ has no modules"
    assert [path for path, count in lines.items() if count > 600] == []
    short = [path for path, count in lines.items() if count < 40 and folder in ROOMS]
    whole = [one for one in short if one.name != "__init__.py" and not RULE.fullmatch(one.name)]
    assert whole == [], "merge it with the module that has the same idea"


def test_the_table_of_slow_test_files_names_existing_files() -> None:
    seconds: dict[str, int] = json.loads(TABLE.read_text())
    missing = [name for name in seconds if not (ROOT / name).is_file()]
    assert missing == [], "`python -m tests.durations` makes the table anew after a run of .ci/run"
    assert min(seconds.values()) > USUAL


def test_a_test_file_far_above_its_expected_seconds_is_named() -> None:
    took = {"a.py": 71.0, "b.py": 69.0, "c.py": 400.0}
    assert above(took, {"c.py": 100}) == ["a.py (71 s of 10)"]
    assert above(took, {"c.py": 90}) == ["a.py (71 s of 10)", "c.py (400 s of 90)"]


def test_the_pictures_in_docs_show_the_current_screens() -> None:
    made = pictures()
    kept = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.svg")}
    assert sorted(made) == sorted(kept)
    stale = [name for name, svg in made.items() if kept[name] != svg]
    assert stale == [], "`make pictures` makes them anew"


def test_the_pages_show_every_picture() -> None:
    named = re.findall(r'"(?:docs/)?([a-z-]+\.svg)"', "".join(PAGES.values()))
    assert sorted(named) == sorted(path.name for path in DOCS.glob("*.svg"))


def test_each_rule_has_its_page() -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "rules").iterdir()}
    assert kept == pages_of_rules.rule_pages(), "`make pictures` makes them anew"
