"""Every rule on its cases, what every rule must declare, and the known faults of versions."""

import ast
import re
from typing import Any

import pytest

from rebal.groups.clients import families
from rebal.groups.model import Tri
from rebal.planner.clients import Fault, exact_version, numbers
from rebal.planner.plan import Finding, Risk, Severity
from rebal.planner.rules import Trait, evaluate, rule, rules
from rebal.planner.rules.version_faults import BROKER, table, unchecked_versions
from tests.house.modules import ROOMS, ROOT, files, tree
from tests.planner.builder import context_of, group_of
from tests.planner.rule_cases import RULES, cases_of, document_of

OUTCOMES = {"fires": Tri.YES, "does_not_fire": Tri.NO, "cannot_tell": Tri.CANNOT_TELL}


CASES = [
    pytest.param(rule_id, outcome, case, id=f"{rule_id} {outcome}: {case['case']}")
    for rule_id in RULES
    for outcome in OUTCOMES
    for case in cases_of(rule_id, outcome)
]


@pytest.mark.parametrize(("rule_id", "outcome", "case"), CASES)
def test_rule_returns_its_cases_outcome(rule_id: str, outcome: str, case: dict[str, Any]) -> None:
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
    assert found.title[-1] not in ".!"
    assert found.reference
    assert "Why it matters:" in found.doc
    assert "How to find out" in found.doc
    assert re.search(r"How to (fix|answer) it", found.doc)
    assert len(found.doc.splitlines()) >= 6


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
def test_each_risk_is_accepted_through_exactly_one_rule(risk: Risk) -> None:
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


def fault(fixed: Any, since: str = "2.4.0") -> Fault:
    return Fault(issue="none", since=since, fixed=fixed, effect="it breaks", source="none")


@pytest.mark.parametrize(
    ("there", "versions"),
    [(Tri.YES, "2.4.0 2.7.1 2.8.0 2.9.0"), (Tri.NO, "2.3.1 2.7.2 2.7.9 2.8.1 3.0.0 4.1.1")],
)
def test_fix_of_a_version_fault_counts_in_its_release_line_and_in_all_later_lines(
    there: Tri, versions: str
) -> None:
    known = fault(("2.7.2", "2.8.1", "3.0.0"))
    assert {known.in_version(numbers(each)) for each in versions.split()} == {there}


def test_version_fault_without_a_known_fix_stays_open_or_cannot_be_decided() -> None:
    assert fault("open").in_version((9, 0, 0)) is Tri.YES
    assert fault("open").in_version((2, 3, 0)) is Tri.NO
    assert fault("unknown").in_version((2, 4, 0)) is Tri.YES
    assert fault("unknown").in_version((2, 4, 1)) is Tri.CANNOT_TELL


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.8.2", (2, 8, 2)), ("3.0", (3, 0, 0)), ("v1.21.6", (1, 21, 6)),
        ("2.16.1-rdkafka-2.16.0", (2, 16, 0)), ("7.5.1-ccs", (3, 5)), ("8.1.1-ce", (4, 1)),
        ("3.7.x", (3, 7)), ("3.9.x.kraft", (3, 9)), ("2.8.2.tiered", (2, 8)),
        ("0.45.0-kafka-3.9.0", (3, 9, 0)),
        *((text, None) for text in ("99.0.0-ccs", "3.4.0.redhat-00006", "unknown", "", None)),
    ],
)  # fmt: skip
def test_exact_version_is_parsed(text: str | None, version: tuple[int, ...] | None) -> None:
    assert exact_version(text) == version


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (Tri.YES, ["4.0.1"]),
        (Tri.NO, ["3.9", "4.0.2", "4.2", "4.2 or later", "8.2.0-ce"]),
        (Tri.CANNOT_TELL, ["4.0", "4.1", "3.9 or later", "8.0.1-ce", "99.0.0-ce", None]),
    ],
)
def test_fault_is_undecided_without_a_brokers_patch_level(
    there: Tri, said: list[str | None]
) -> None:
    known = fault(("4.0.2", "4.1.1"), since="4.0.0")
    assert {known.in_broker(each) for each in said} == {there}


def test_the_table_names_rules_and_clients_that_exist() -> None:
    sets = table().sets
    assert {one.id for one in sets} <= set(rules())
    assert len({one.id for one in sets}) == len(sets)
    assert {one.software for one in sets} <= {*families(), BROKER}
    for known in sets:
        assert len({one.issue for one in known.faults}) == len(known.faults) > 0
    for one in (each for known in sets for each in known.faults):
        assert one.source
        assert one.effect
        if isinstance(one.fixed, tuple):
            assert list(one.fixed) == sorted(one.fixed, key=exact_version)
            assert one.in_version(exact_version(one.fixed[-1]) or ()) is Tri.NO
            assert exact_version(one.since) < exact_version(one.fixed[0])


def test_every_old_member_is_in_one_finding_per_rule() -> None:
    members = [{"id": f"m{n:02}", "list": ["range"], "version": "2.8.0"} for n in range(30)]
    found = evaluate(context_of({"planning": True, "members": members}))
    by_rule = [finding for finding in found if finding.rule.startswith("RB2")]
    assert len(by_rule) == len({finding.rule for finding in by_rule}) > 3
    assert all(len(finding.members) == 30 for finding in by_rule)
    assert all("and 24 more" in finding.message for finding in by_rule)


def test_versions_that_cannot_be_checked_for_known_faults_are_named() -> None:
    known = {"cluster": {"version": "3.9"}, "members": [{"id": "a"}]}
    assert unchecked_versions(context_of(known)) == ()
    assert unchecked_versions(context_of({**known, "cluster": {"version": "4.0"}})) == ()
    assert unchecked_versions(context_of({**known, "cluster": {"version": "2.8"}})) == (
        "known faults of the broker's patch release: only 2.8 is known",
    )
    spec = {
        "goal": "consumer",
        "cluster": {"version": "4.0"},
        "members": [
            {"id": "a", "guess": True, "instance": "a"},
            {"id": "k", "family": "kafkajs", "version": "2.2"},
        ],
    }
    unchecked = unchecked_versions(context_of(spec))
    assert unchecked == (
        "known faults of the client version of a: no exact version is known",
        "known faults of kafkajs: rebal has no list of them",
        "known faults of the broker's patch release: only 4.0 is known",
    )
    assert unchecked_versions(context_of({"members": [{"id": "a"}]})) == (
        "known faults of the broker version: the version is unknown",
    )
