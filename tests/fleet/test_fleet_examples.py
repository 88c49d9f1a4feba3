"""The files of examples/fleet: queries that find series, schedules whose command lines are real."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import promql_parser as promql
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rebal.cli import app
from rebal.cli.metrics import LakeMetrics
from rebal.cli.params import Lake
from rebal.groups.model import Cluster
from rebal.inspectors.kafka.brokers import ClusterReading
from tests.fleet.synthetic import fleet
from tests.fleet.tablefiles import AT, write_tables

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "fleet"
DASHBOARD: Final = json.loads((EXAMPLES / "grafana-dashboard.json").read_text())
QUERIES: Final = [
    (panel["title"], target["expr"], target["legendFormat"])
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]
Series = dict[str, list[dict[str, str]]]


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Series:
    """Each metric of a made-up fleet, with the labels of its series."""
    rows = fleet(20)
    name = rows["groups"][0]["group_id"]
    rows["commits"] = [
        {"group_id": name, "topic": "orders", "topic_partition": 0, "committed_offset": 7}
    ]
    brokers = ClusterReading(at=AT, cluster=Cluster(), ends={"orders": (9,)})
    lake = write_tables(tmp_path_factory.mktemp("lake"), rows, brokers=brokers)
    text = LakeMetrics(Lake(str(lake))).text("openmetrics")
    found: Series = {}
    for family in text_string_to_metric_families(text):
        suffix = "_total" if family.type == "counter" else ""
        found[f"{family.name}{suffix}"] = [sample.labels for sample in family.samples]
    return found


def labels_of(query: Any, series: Series) -> set[str]:
    """The labels of a query's answer; each selector in it finds series."""
    kind = type(query).__name__
    if kind == "VectorSelector":
        assert query.name in series, query.name
        found = series[query.name]
        for matcher in query.matchers.matchers:
            value = matcher.value
            if value.startswith("$"):
                assert value[1:] in {one["name"] for one in DASHBOARD["templating"]["list"]}
                value = ".*"
            found = [one for one in found if re.fullmatch(value, one.get(matcher.name, "\0"))]
        assert found, query.prettify()
        return {name for one in found for name in one}
    if kind == "MatrixSelector":
        return labels_of(query.vector_selector, series)
    if kind == "Call":
        return {name for one in query.args for name in labels_of(one, series)}
    if kind == "BinaryExpr":
        return labels_of(query.lhs, series) | labels_of(query.rhs, series)
    if kind == "ParenExpr":
        return labels_of(query.expr, series)
    if kind == "AggregateExpr":
        inside = labels_of(query.expr, series)
        if query.modifier is None:
            return inside if query.param is not None else set()
        assert set(query.modifier.labels) <= inside, query.prettify()
        return set(query.modifier.labels)
    assert kind in ("NumberLiteral", "StringLiteral"), kind
    return set()


@pytest.mark.parametrize(("title", "expr", "legend"), QUERIES, ids=[one[0] for one in QUERIES])
def test_each_query_of_the_dashboard_finds_series(
    title: str, expr: str, legend: str, series: Series
) -> None:
    shown = labels_of(promql.parse(expr), series)
    assert set(re.findall(r"{{(\w+)}}", legend)) <= shown


def test_the_dashboard_names_only_its_own_data_source(series: Series) -> None:
    assert len(QUERIES) > 10
    for panel in DASHBOARD["panels"]:
        for one in (panel, *panel["targets"]):
            assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["description"].endswith(".")
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for variable in DASHBOARD["templating"]["list"][1:]:
        (selector, label) = re.findall(r"label_values\((.*), (\w+)\)", variable["definition"])[0]
        assert label == variable["name"]
        assert label in labels_of(promql.parse(selector), series)


class Shell:
    """Runs command lines in which `rebal` only notes its words."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "calls"
        (folder / "bin").mkdir()
        stub = folder / "bin" / "rebal"
        stub.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" "" >> {shlex.quote(str(self.log))}\n')
        stub.chmod(0o755)
        self.path = f"{folder / 'bin'}:{os.environ['PATH']}"

    def run(self, line: str, **variables: str) -> list[list[str]]:
        """The words of each call of `rebal` that a line makes."""
        self.log.unlink(missing_ok=True)
        env = {**variables, "PATH": self.path}
        subprocess.run(["/bin/sh", "-c", line], env=env, check=True, timeout=20)
        return [call.split("\n") for call in self.log.read_text().rstrip("\n").split("\n\n")]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def parsed(words: list[str]) -> dict[str, Any]:
    """A call's parameters, as the real command takes them."""
    command: Any = app.build()
    for word in words[:2]:
        command = command.commands[word]
    real = command.load()
    return dict(real.make_context(words[1], words[2:]).params)


def test_each_line_of_the_cron_file_runs_real_commands(shell: Shell) -> None:
    lines = (EXAMPLES / "rebal.cron").read_text().splitlines()
    variables, calls = {}, []
    for line in lines:
        if line.startswith("#"):
            continue
        if found := re.fullmatch(r"([A-Z]+)=(\S+)", line):
            variables[found[1]] = found[2]
            continue
        *when, user, command = line.split(maxsplit=6)
        assert user == "rebal"
        for field, (low, high) in zip(
            when, ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7)), strict=True
        ):
            assert field == "*" or low <= int(field) <= high
        assert "%" not in command, "cron makes a new line of it"
        if shutil.which("flock") is None:
            command = re.sub(r"flock -n \S+ ", "", command)
        calls += shell.run(command, LAKE=variables["LAKE"])
    assert [call[:2] for call in calls] == [
        ["fleet", "scan"],
        ["fleet", "metrics"],
        ["fleet", "report"],
    ]
    lakes = {parsed(call).get("folder") or parsed(call).get("lake") for call in calls[1:]}
    assert lakes == {parsed(calls[0])["out"]} == {"/srv/kafka-lake"}
    assert parsed(calls[1])["out"].endswith(".prom")


class Recorded:
    """Airflow's DAG and BashOperator, as far as the example uses them."""

    def __init__(self) -> None:
        self.dags: list[dict[str, Any]] = []
        self.tasks: dict[str, str] = {}
        self.edges: list[tuple[str, str]] = []

    def modules(self) -> Iterator[tuple[str, ModuleType]]:
        recorded = self

        class Dag(SimpleNamespace):
            def __enter__(self) -> Dag:
                recorded.dags.append(vars(self))
                return self

            def __exit__(self, *_: object) -> None: ...

        class BashOperator:
            def __init__(self, *, task_id: str, bash_command: str, **more: Any) -> None:
                assert more.keys() <= {"execution_timeout"}
                self.name = task_id
                recorded.tasks[task_id] = bash_command

            def __rshift__(self, others: list[BashOperator]) -> None:
                recorded.edges += [(self.name, other.name) for other in others]

        for name in ("airflow", "airflow.providers", "airflow.providers.standard"):
            yield name, ModuleType(name)
        yield "airflow.providers.standard.operators", ModuleType("operators")
        for name, member in (
            ("airflow.sdk", {"DAG": Dag}),
            ("airflow.providers.standard.operators.bash", {"BashOperator": BashOperator}),
        ):
            module = ModuleType(name)
            vars(module).update(member)
            yield name, module


def test_the_dag_scans_first_and_its_command_lines_are_real(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Recorded()
    for name, module in recorded.modules():
        monkeypatch.setitem(sys.modules, name, module)
    path = EXAMPLES / "airflow_dag.py"
    exec(compile(path.read_text(), str(path), "exec"), {"__name__": "rebal_dag"})
    (dag,) = recorded.dags
    assert dag["max_active_runs"] == 1
    assert dag["catchup"] is False
    assert recorded.edges == [("scan", "report"), ("scan", "metrics")]
    lakes = set()
    for name, command in recorded.tasks.items():
        assert "{{" not in command, "Airflow fills in templates"
        (call,) = shell.run(command)
        assert call[:2] == ["fleet", name]
        given = parsed(call)
        lakes.add(given["out"] if name == "scan" else given.get("folder") or given["lake"])
    assert lakes == {"s3://lakes/kafka"}
