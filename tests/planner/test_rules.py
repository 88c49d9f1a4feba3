"""Every rule on its cases, and the documentation and declarations that every rule must have."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

from rebal.groups.model import Tri
from rebal.planner.plan import Finding, Risk, Severity
from rebal.planner.rules import Trait, evaluate, rule, rules
from tests.house.modules import ROOMS, ROOT, files, tree
from tests.planner.builder import context_of, group_of
from tests.planner.rule_cases import RULES, cases_of, document_of

OUTCOMES = {"fires": Tri.YES, "does_not_fire": Tri.NO, "cannot_tell": Tri.CANNOT_TELL}


def cases() -> list[Any]:
    found = []
    for rule_id in RULES:
        for outcome in OUTCOMES:
            for case in cases_of(rule_id, outcome):
                name = f"{rule_id} {outcome}: {case['case']}"
                found.append(pytest.param(rule_id, outcome, case, id=name))
    return found


@pytest.mark.parametrize(("rule_id", "outcome", "case"), cases())
def test_case(rule_id: str, outcome: str, case: dict[str, Any]) -> None:
    found = rules()[rule_id].check(context_of(case["group"]))
    assert {finding.result for finding in found} == (
        set() if outcome == "does_not_fire" else {OUTCOMES[outcome]}
    ), found
    for finding in found:
        assert finding.rule == rule_id
        assert finding.severity is rules()[rule_id].severity
        assert finding.message.endswith((".", "?")), finding.message
        assert finding.fix.endswith((".", ".)")) or not finding.fix, finding.fix
    if "members" in case:
        named = {member for finding in found for member in finding.members}
        assert named == {f"{name}-0f0f" for name in case["members"]}
    for text in case.get("says", ()):
        assert any(text in f.message or text in f.fix for f in found), (text, found)
    for text in case.get("says_not", ()):
        assert not any(text in f.message or text in f.fix for f in found), (text, found)


@pytest.mark.parametrize("rule_id", sorted(rules()))
def test_every_rule_has_its_cases(rule_id: str) -> None:
    assert rule_id in RULES, f"{rule_id} has no cases"
    document = document_of(rule_id)
    assert document["fires"]
    assert document["does_not_fire"]
    # A rule that can always decide says why, in words.
    assert document["cannot_tell"]
    assert set(document) == set(OUTCOMES)


def test_no_cases_without_a_rule() -> None:
    assert set(RULES) == set(rules())


@pytest.mark.parametrize("rule_id", sorted(rules()))
def test_every_rule_is_documented(rule_id: str) -> None:
    found = rules()[rule_id]
    assert found.id == rule_id
    assert found.title
    assert found.title[-1] not in ".!"
    assert found.reference
    doc = found.doc
    assert "Why it matters:" in doc
    assert "How to find out" in doc
    assert re.search(r"How to (fix|answer) it", doc)
    assert len(doc.splitlines()) >= 6


def test_no_other_module_names_a_rule_to_treat_it_in_its_own_way() -> None:
    named = [
        str(node.value)
        for room in ROOMS
        for path in files(room)
        if ROOT / "planner" / "rules" not in path.parents
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and re.fullmatch(r"RB\d{3}", str(node.value))
    ]
    once = sorted(Risk)
    assert sorted(named) == once, "declare a trait, a risk or a path of the rule, and ask for that"


@pytest.mark.parametrize("risk", Risk)
def test_one_rule_asks_for_each_risk(risk: Risk) -> None:
    assert [known.id for known in rules().values() if known.accepts is risk] == [risk]


@pytest.mark.parametrize("trait", Trait)
def test_every_trait_is_declared_by_a_rule(trait: Trait) -> None:
    assert any(trait in known.traits for known in rules().values())


def condition(context: object) -> tuple[Finding, ...]:
    """Documented."""
    return ()


@pytest.mark.parametrize(
    ("id_", "body", "said"),
    [
        ("RB102", condition, "RB102"),
        *((id_, condition, "needs an id") for id_ in ("RB1", "XX101", "RB1011")),
        ("RB999", lambda _: (), "docstring"),
    ],
)
def test_a_rule_needs_an_id_of_its_own_and_a_docstring(id_: str, body: Any, said: str) -> None:
    rules()
    with pytest.raises(ValueError, match=said):
        rule(id_, Severity.WARN, "Another", reference="none")(body)


def test_blocks_come_first_and_ignored_findings_last() -> None:
    group = group_of(
        {
            "members": [
                {"id": "a", "list": ["cooperative-sticky", "range"]},
                {"id": "b", "list": ["range"]},
                {"id": "c", "at_least": ["range"]},
            ]
        }
    )
    found = evaluate(group)
    assert [f.rule for f in found[:2]] == ["RB102", "RB901"]
    ignoring = evaluate(group, ignore={"RB102": "c is being removed"})
    assert ignoring[-1].rule == "RB102"
    assert ignoring[-1].ignored == "c is being removed"


def test_a_healthy_eager_group_of_known_lists_has_no_findings() -> None:
    group = group_of({"members": [{"id": "a", "list": ["range"]}, {"id": "b", "list": ["range"]}]})
    assert evaluate(group) == ()
