"""Documents for readers: `rebal schema`, SARIF and GitHub's workflow commands."""

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from bench.schemas import EXIT_CODES, incompatible, kinds, main, schema_of, text_of
from rebal.cli import output
from rebal.cli.journal import Journal
from rebal.cli.render.findings import to_github, to_sarif
from rebal.cli.render.inspection.document import inspect_document
from rebal.cli.render.verification import verify_line
from rebal.cli.report import make_report
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.paths import NotPlannedError, make_plan
from rebal.planner.plan import Plan, dump_plan
from rebal.planner.rules import rules
from rebal.planner.verification.verify import entry_of, verify
from tests.cli.conftest import Rebal
from tests.documents import checked, validator
from tests.planner.builder import group_of
from tests.planner.plans import plan
from tests.planner.rule_cases import RULES, cases_of

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "cli" / "data" / "schemas"
DEMO = sorted((ROOT / "cli" / "data" / "demo").glob("*.rebal.yaml"))
GOALS = ("cooperative", "eager", "consumer")
Said = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", kinds())
def test_a_shipped_schema_equals_the_one_generated_from_the_code(name: str) -> None:
    assert text_of(schema_of(kinds()[name])) == (SHIPPED / f"{name}.json").read_text(), (
        "run `make schemas`"
    )


def test_each_document_kind_has_one_shipped_schema() -> None:
    assert {path.stem for path in SHIPPED.iterdir()} == set(kinds())


@pytest.mark.parametrize("name", kinds())
def test_rebal_schema_prints_a_valid_json_schema(name: str, rebal: Rebal) -> None:
    schema = rebal("schema", name).body
    assert rebal("schema", kinds()[name].schema).body == schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"] == kinds()[name].schema


def test_rebal_schema_without_a_name_lists_all_schemas(rebal: Rebal) -> None:
    lines = rebal("schema").out.split("\n\n")[0].splitlines()
    assert [line.split() for line in lines] == [
        [name, kind.schema] for name, kind in sorted(kinds().items())
    ]


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("rule", RULES)
def test_documents_of_rule_cases_fit_their_schemas(rule: str, every: int, tmp_path: Path) -> None:
    for number, case in enumerate(cases_of(rule)[::every]):
        snapshot = group_of(case["group"])
        report = make_report(snapshot)
        body = inspect_document([report], [])
        # A fixture in tests/cli/conftest.py checks each envelope against its schema.
        output.envelope("inspect", body, report.exit_code, "json")
        checked(dump_snapshot(snapshot, "json"))
        try:
            plan = make_plan(snapshot, GOALS[number % len(GOALS)])
        except NotPlannedError:
            continue
        checked(dump_plan(plan, "json"))
        standing = verify(plan, (), snapshot)
        output.envelope("verify", standing, standing.exit_code, "json")
        checked(verify_line(standing, ["a change"]))
        journal = Journal(tmp_path / f"{number}.jsonl", plan)
        journal.append(entry_of(plan, standing, snapshot))
        for line in (tmp_path / f"{number}.jsonl").read_text().splitlines():
            checked(line)


def test_a_document_without_a_key_or_of_a_wrong_type_does_not_fit(rebal: Rebal) -> None:
    whole = rebal("inspect", "--snapshot", str(DEMO[0]), "-o", "json").body
    assert validator("inspect").is_valid(whole)
    for damage in (
        lambda body: body.pop("exit_code"),
        lambda body: body.update(exit_code=2),
        lambda body: body.update(schema="rebal.inspect/2"),
        lambda body: body["groups"][0].pop("notes"),
        lambda body: body["groups"][0].update(generation="7"),
        lambda body: body["groups"][0].update(captured_at="2026-11-20T09:15:00"),
        lambda body: body["groups"][0]["members"][0]["assignors"].update(knowledge="sure"),
    ):
        body = deepcopy(whole)
        damage(body)
        assert not validator("inspect").is_valid(body)
    assert validator("inspect").is_valid(whole | {"new_key": 1}), "further keys are allowed"


def test_every_document_kind_that_the_code_writes_has_a_schema() -> None:
    code = "".join(path.read_text() for path in (ROOT / "cli").rglob("*.py"))
    written = set(re.findall(r'envelope\(\s*"([a-z-]+)"', code))
    assert {"inspect", "verify", "fleet"} < written <= set(kinds())


def test_only_documented_exit_codes_stand_in_documents() -> None:
    for name, kind in kinds().items():
        found = schema_of(kind)
        bodies = found.get("oneOf", [found])
        codes = [body["properties"].get("exit_code") for body in bodies]
        assert codes == [{"enum": list(EXIT_CODES)}] * len(bodies) or not kind.code, name


def test_removed_or_changed_schema_keys_are_incompatible_and_new_ones_are_not() -> None:
    before = json.loads((SHIPPED / "plan.json").read_text())
    after = deepcopy(before)
    after["properties"]["more"] = {"type": "string"}
    after["required"].append("more")
    after["$defs"]["Tri"]["enum"].append("maybe")
    assert incompatible(before, after) == []
    for path, damage in {
        "/properties/summary": lambda new: new["properties"].pop("summary"),
        "/properties/summary/type": lambda new: new["properties"]["summary"].update(type="null"),
        "/required/summary": lambda new: new["required"].remove("summary"),
        "/$defs/Tri/enum/no": lambda new: new["$defs"]["Tri"]["enum"].remove("no"),
        "/$defs/Gate": lambda new: new["$defs"].pop("Gate"),
    }.items():
        after = deepcopy(before)
        damage(after)
        assert incompatible(before, after) == [path]
    assert incompatible(before, after | {"title": "rebal.plan/2"}) == []


def test_make_schemas_writes_no_incompatible_schema(tmp_path: Path, capsys: Said) -> None:
    assert main(str(tmp_path)) == 0
    promised = json.loads((tmp_path / "plan.json").read_text())
    promised["properties"]["old_key"] = {"type": "string"}
    (tmp_path / "plan.json").write_text(text_of(promised))
    assert main(str(tmp_path)) == 1
    assert "plan.json: /properties/old_key: raise" in capsys.readouterr().err
    assert json.loads((tmp_path / "plan.json").read_text()) == promised


FORGOTTEN = [
    {"id": "a", "list": ["cooperative-sticky", "range"]},
    {"id": "b", "list": ["range"], "version": "3.1.0"},
    {"id": "c", "at_least": ["range"]},
]


def run_of(text: str) -> dict[str, Any]:
    document = json.loads(text)
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-2.1.0.json")
    (run,) = document["runs"]
    return run


def by_rule(made: Plan) -> dict[str, Any]:
    return {result["ruleId"]: result for result in run_of(to_sarif(made))["results"]}


def test_every_finding_is_a_sarif_result_of_a_described_rule() -> None:
    made = plan(FORGOTTEN)
    run = run_of(to_sarif(made))
    described = run["tool"]["driver"]["rules"]
    assert [r["ruleId"] for r in run["results"]] == [f.rule for f in made.findings]
    for result in run["results"]:
        rule = described[result["ruleIndex"]]
        assert rule["id"] == result["ruleId"]
        assert rules()[rule["id"]].doc in rule["help"]["text"]
        (where,) = result["locations"]
        assert where["logicalLocations"][0]["fullyQualifiedName"] == "consumer-groups/checkout"
        assert "physicalLocation" not in where


def test_sarif_levels_separate_blocking_findings_warnings_and_questions() -> None:
    made = plan(FORGOTTEN)
    results = by_rule(made)
    assert (made.next_step, made.exit_code) == (1, 0)
    assert results["RB102"]["level"] == "warning", "it blocks step 2, and step 1 mends it"
    alone = replace(made, next_step=2, exit_code=3)
    assert by_rule(alone)["RB102"]["level"] == "error"
    assert results["RB901"]["level"] == "warning"
    assert results["RB901"]["properties"]["result"] == "cannot tell"
    assert results["RB204"]["level"] == "warning"
    assert results["RB301"]["level"] == "note"


def test_a_sarif_fingerprint_stays_when_evidence_changes_or_members_restart() -> None:
    def fingerprint(made: Plan) -> Any:
        return by_rule(made)["RB102"]["partialFingerprints"]

    known = [*FORGOTTEN[:2], {"id": "c", "list": ["cooperative-sticky", "range"]}]
    assert fingerprint(plan(FORGOTTEN)) == fingerprint(plan(known))
    assert fingerprint(plan(FORGOTTEN)) != fingerprint(plan(FORGOTTEN, group_id="other"))

    def fingerprints(ids: str) -> list[Any]:
        found = [{"id": id_, "client": "svc", "list": ["range"], "version": "3.1.0"} for id_ in ids]
        results = run_of(to_sarif(plan(found)))["results"]
        return [(r["ruleId"], r["partialFingerprints"]) for r in results]

    assert fingerprints("ab") == fingerprints("cd"), "they share a client id"


def test_an_ignored_finding_is_suppressed_in_sarif_with_its_reason() -> None:
    made = plan(FORGOTTEN, ignore={"RB102": "b is being removed"})
    results = by_rule(made)
    suppressed = [{"kind": "external", "justification": "b is being removed"}]
    assert results["RB102"]["suppressions"] == suppressed
    assert "suppressions" not in results["RB901"]
    assert "RB102" not in to_github(made)


@pytest.mark.parametrize(
    ("family", "level"), [("java", "notice"), ("kafkajs", "error"), (None, "warning")]
)
def test_sarif_and_github_output_show_the_verdict_of_a_plan(family: str | None, level: str) -> None:
    made = plan([{"id": "a", "list": ["range"], "family": family}])
    (said,) = run_of(to_sarif(made))["invocations"]
    assert said["exitCode"] == made.exit_code
    assert made.summary in said["exitCodeDescription"]
    assert to_github(made).startswith(f"::{level} title=rebal checkout {made.verdict.value}::")


def test_findings_of_an_inspected_group_are_exported_without_a_verdict() -> None:
    found = make_report(group_of({"members": FORGOTTEN}))
    run = run_of(to_sarif(found))
    assert [r["ruleId"] for r in run["results"]] == ["RB102", "RB901"]
    assert "invocations" not in run
    lines = to_github(found).splitlines()
    assert lines[0].startswith("::error title=RB102 checkout::a, c will be rejected and stop")
    assert lines[1].startswith("::warning title=RB901 checkout::c may lack ")
    assert to_github() == ""


def test_several_groups_share_one_sarif_run_that_names_unread_groups() -> None:
    reports = [make_report(group_of({"members": FORGOTTEN, "group_id": id_})) for id_ in "xy"]
    failures = {"z": "z: no such group."}
    run = run_of(to_sarif(*reports, failures=failures))
    where = [[one["name"] for one in r["locations"][0]["logicalLocations"]] for r in run["results"]]
    assert [group for group, *_ in where] == ["x", "x", "y", "y"]
    assert where[0][1:] == ["b"], "the member that is in the way"

    assert len({r["partialFingerprints"]["ruleAndGroup/v1"] for r in run["results"]}) == 4
    assert "0f0f" not in json.dumps(run)
    (failed,) = run["invocations"]
    assert not failed["executionSuccessful"]
    assert failed["toolExecutionNotifications"][0]["message"]["text"] == "z: no such group."
    lines = to_github(*reports, failures=failures).splitlines()
    assert [line.split("::")[1] for line in lines] == [
        "error title=RB102 x", "warning title=RB901 x",
        "error title=RB102 y", "warning title=RB901 y", "error title=rebal z",
    ]  # fmt: skip


def test_a_hostile_name_starts_no_github_workflow_command() -> None:
    name = "x\n::error title=fake::\x1b[31m100% owned"
    made = plan([{"id": "a", "list": ["range"], "client": name, "instance": name}], group_id=name)
    for line in to_github(made).splitlines():
        assert re.match(r"::(error|warning|notice) title=[^:,]*::", line)
        assert "\x1b" not in line
        assert not re.search(r"%(?!25|0A|0D|3A|2C)", line)
    assert len(to_github(made).splitlines()) == 1 + len(made.findings)


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("checkout.rebal.yaml", "checkout.rebal.yaml"),
        ("of prod/50% [a].json", "of%20prod/50%25%20%5Ba%5D.json"),
        ("/srv/x y.yaml", "file:///srv/x%20y.yaml"),
    ],
)
def test_a_sarif_result_is_located_in_the_snapshot_file_that_was_read(file: str, uri: str) -> None:
    results = run_of(to_sarif(plan(FORGOTTEN), file=Path(file)))["results"]
    where = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results}
    assert where == {uri}
