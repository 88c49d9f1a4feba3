"""The guides of the house: ARCHITECTURE.md and CONTRIBUTING.md say what is there."""

import inspect
import re
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from rebal.cli.app import COMMANDS
from rebal.groups.assignors import Spec, SpecMember
from rebal.groups.model import Source
from rebal.planner.rules import registry
from tests.house.modules import ROOMS, ROOT, imports
from tests.planner.builder import context_of

TEXT = (ROOT / "ARCHITECTURE.md").read_text()
NAMED = sorted(set(re.findall(rf"`((?:{'|'.join(ROOMS)})(?:\.\w+)+)`", TEXT)))
WAYS = {
    row[0]: re.findall(r"`([\w.]+)`", row[1])
    for row in re.findall(r"^\| `([a-z -]+)` \| (`cli\.app.*) \|$", TEXT, re.MULTILINE)
}
MODULES = {
    f"{entry.name} {below.name}" if below else entry.name: (below or entry).module
    for entry in COMMANDS
    for below in entry.under or (None,)
}


"""Each command → its module."""
MOST_FILES = 4


def module_of(name: str) -> tuple[ModuleType, list[str]]:
    """Return the module that the name begins with, and the attributes after it."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            return import_module(".".join(["rebal", *parts[:length]])), parts[length:]
        except ModuleNotFoundError:
            continue
    raise AssertionError(f"no module begins {name}")


def found(name: str) -> Any:
    """Return the function, class or module of this name."""
    here, attributes = module_of(name)
    for attribute in attributes:
        here = getattr(here, attribute)
    return here


def file_of(name: str) -> Path:
    path = module_of(name)[0].__file__
    assert path is not None
    return Path(path).resolve()


def uses(path: Path, called: str) -> bool:
    """Return whether the file imports the function or its module, also through a package."""
    module, attributes = module_of(called)
    wanted = getattr(module, attributes[0])
    return any(
        getattr(import_module(name), member, None) in (module, wanted)
        for _, name, members in imports(path)
        if name.startswith("rebal.")
        for member in members
    )


@pytest.mark.parametrize("name", NAMED)
def test_every_name_in_architecture_md_exists_in_the_file_it_names(name: str) -> None:
    made = found(name)
    if inspect.isfunction(made) or inspect.isclass(made):
        assert Path(inspect.getfile(inspect.unwrap(made))).resolve() == file_of(name)


def test_every_command_has_a_row_in_architecture_md() -> None:
    assert set(WAYS) == set(MODULES)


@pytest.mark.parametrize("command", sorted(WAYS))
def test_a_command_reaches_its_main_function_over_at_most_four_files(command: str) -> None:
    way = WAYS[command]
    assert len({file_of(name) for name in way}) <= MOST_FILES
    assert way[0] == "cli.app.run"
    assert way[1] == f"cli.commands.{MODULES[command]}.command"
    for caller, called in pairwise(way[1:]):
        assert uses(file_of(caller), called), f"{caller} → {called}"


GUIDE = (ROOT / "CONTRIBUTING.md").read_text()


def examples(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


def run(defines: str) -> dict[str, Any]:
    """Return the names that the one example with this definition leaves behind."""
    (code,) = [one for one in examples("python") if defines in one]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    return names


def test_the_rule_in_contributing_md_fires_in_its_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: dict[str, registry.Rule] = {}
    monkeypatch.setattr(registry, "_registered", registered)
    run("def lone_member")
    (made,) = registered.values()
    (text,) = examples("yaml")
    cases = yaml.safe_load(text)
    for case in cases["fires"]:
        (finding,) = made.check(context_of(case["group"]))
        assert finding.members == tuple(f"{name}-0f0f" for name in case["members"])
    for case in cases["does_not_fire"]:
        assert made.check(context_of(case["group"])) == ()


def test_the_assignor_in_contributing_md_assigns_every_partition() -> None:
    members = tuple(SpecMember(member_id=name, topics=("orders",)) for name in "ab")
    assigned = run("class FirstTakesAll")["FirstTakesAll"]().assign(
        Spec(members=members, partitions={"orders": 2})
    )
    assert assigned == {"a": [("orders", 0), ("orders", 1)], "b": []}


def test_the_reader_in_contributing_md_returns_joins_with_evidence() -> None:
    (join,) = run("def read_audit")["read_audit"](["checkout web-1 range,sticky"])
    assert join.list == ("range", "sticky")
    assert join.evidence.source is Source.REQUEST_LOG


def test_the_upgrade_path_in_contributing_md_returns_the_last_step() -> None:
    wide = {"list": ["cooperative-sticky", "range"]}
    context = context_of({"members": [{"id": "a", **wide}, {"id": "b", **wide}]})
    (step,) = run("def last_bounce")["last_bounce"](context)
    assert step.target_list == ("cooperative-sticky",)


def test_every_file_named_in_contributing_md_exists() -> None:
    named = set(re.findall(r"`([a-z_./-]+/[A-Za-z_.-]+)`", GUIDE)) | set(
        re.findall(r"\]\(([A-Za-z_./-]+)\)", GUIDE)
    )
    assert "planner/rules/version_faults.yaml" in named
    made = {name for name in named if name.startswith("build/") or "NNN" in name}
    assert {name for name in named - made if not Path(ROOT, name).exists()} == set()


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md"])
def test_every_make_target_named_in_the_guides_exists(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / page).read_text()))
    assert "test" in targets
    assert {target for target in targets if f"\n{target}:" not in makefile} == set()
