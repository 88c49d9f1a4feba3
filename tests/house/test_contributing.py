"""CONTRIBUTING.md stays true: its examples run, its files and the targets of make exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebal.groups.assignors import Spec, SpecMember
from rebal.groups.model import Source
from rebal.planner.rules import registry
from tests.house.modules import ROOT
from tests.planner.builder import context_of

TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def examples(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def run(defines: str) -> dict[str, Any]:
    """Return the names that the one example with this definition leaves behind."""
    (code,) = [one for one in examples("python") if defines in one]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    return names


def test_the_rule_fires_as_its_cases_say(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_assignor_assigns_every_partition() -> None:
    members = tuple(SpecMember(member_id=name, topics=("orders",)) for name in "ab")
    assigned = run("class FirstTakesAll")["FirstTakesAll"]().assign(
        Spec(members=members, partitions={"orders": 2})
    )
    assert assigned == {"a": [("orders", 0), ("orders", 1)], "b": []}


def test_the_reader_returns_joins_with_their_evidence() -> None:
    (join,) = run("def read_audit")["read_audit"](["checkout web-1 range,sticky"])
    assert join.list == ("range", "sticky")
    assert join.evidence.source is Source.REQUEST_LOG


def test_the_path_returns_the_last_step() -> None:
    wide = {"list": ["cooperative-sticky", "range"]}
    context = context_of({"members": [{"id": "a", **wide}, {"id": "b", **wide}]})
    (step,) = run("def last_bounce")["last_bounce"](context)
    assert step.target_list == ("cooperative-sticky",)


def test_every_file_named_exists() -> None:
    named = set(re.findall(r"`([a-z_./-]+/[A-Za-z_.-]+)`", TEXT)) | set(
        re.findall(r"\]\(([A-Za-z_./-]+)\)", TEXT)
    )
    assert "planner/rules/version_faults.yaml" in named
    made = {name for name in named if name.startswith("build/") or "NNN" in name}
    assert {name for name in named - made if not Path(ROOT, name).exists()} == set()


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md"])
def test_every_target_named_exists(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / page).read_text()))
    assert "test" in targets
    assert {target for target in targets if f"\n{target}:" not in makefile} == set()
