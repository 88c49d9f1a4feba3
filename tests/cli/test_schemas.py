"""`rebal schema`, and what readers of the documents can rely on."""

import json
import re
from copy import deepcopy
from pathlib import Path

import jsonschema
import pytest

from bench.schemas import EXIT_CODES, incompatible, kinds, main, schema_of, text_of
from rebal.cli import output
from rebal.cli.journal import Journal
from rebal.cli.render.inspection.document import inspect_document
from rebal.cli.render.verification import verify_line
from rebal.cli.report import make_report
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.paths import NotPlannedError, make_plan
from rebal.planner.plan import dump_plan
from rebal.planner.verification.verify import entry_of, verify
from tests.cli.conftest import Rebal
from tests.documents import checked, validator
from tests.planner.builder import group_of
from tests.planner.rule_cases import RULES, cases_of

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "cli" / "data" / "schemas"
DEMO = sorted((ROOT / "cli" / "data" / "demo").glob("*.rebal.yaml"))
GOALS = ("cooperative", "eager", "consumer")
Said = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", kinds())
def test_shipped_schema_is_generated_from_the_records(name: str) -> None:
    assert text_of(schema_of(kinds()[name])) == (SHIPPED / f"{name}.json").read_text(), (
        "run `make schemas`"
    )


def test_each_document_ships_one_schema() -> None:
    assert {path.stem for path in SHIPPED.iterdir()} == set(kinds())


@pytest.mark.parametrize("name", kinds())
def test_schema_is_printed(name: str, rebal: Rebal) -> None:
    schema = rebal("schema", name).body
    assert rebal("schema", kinds()[name].schema).body == schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"] == kinds()[name].schema


def test_names_are_listed(rebal: Rebal) -> None:
    lines = rebal("schema").out.split("\n\n")[0].splitlines()
    assert [line.split() for line in lines] == [
        [name, kind.schema] for name, kind in sorted(kinds().items())
    ]


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("rule", RULES)
def test_documents_of_rule_cases_fit(rule: str, every: int, tmp_path: Path) -> None:
    for number, case in enumerate(cases_of(rule)[::every]):
        snapshot = group_of(case["group"])
        report = make_report(snapshot)
        body = inspect_document([report], [])
        # What these return has been checked: tests/cli/conftest.py.
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


def test_a_document_that_lacks_a_key_or_has_another_type_does_not_fit(rebal: Rebal) -> None:
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


def test_every_envelope_has_a_schema() -> None:
    code = "".join(path.read_text() for path in (ROOT / "cli").rglob("*.py"))
    written = set(re.findall(r'envelope\(\s*"([a-z-]+)"', code))
    assert {"inspect", "verify", "fleet"} < written <= set(kinds())


def test_only_documented_exit_codes_stand_in_documents() -> None:
    for name, kind in kinds().items():
        found = schema_of(kind)
        bodies = found.get("oneOf", [found])
        codes = [body["properties"].get("exit_code") for body in bodies]
        assert codes == [{"enum": list(EXIT_CODES)}] * len(bodies) or not kind.code, name


def test_removed_or_changed_keys_are_incompatible_and_new_ones_are_not() -> None:
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


def test_schemas_that_break_a_reader_are_not_written(tmp_path: Path, capsys: Said) -> None:
    assert main(str(tmp_path)) == 0
    promised = json.loads((tmp_path / "plan.json").read_text())
    promised["properties"]["old_key"] = {"type": "string"}
    (tmp_path / "plan.json").write_text(text_of(promised))
    assert main(str(tmp_path)) == 1
    assert "plan.json: /properties/old_key: raise" in capsys.readouterr().err
    assert json.loads((tmp_path / "plan.json").read_text()) == promised
