"""The files of examples/fleet: queries that find series, schedules whose command lines are real."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from unittest.mock import MagicMock

import promql_parser as promql
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rebal.cli import app
from rebal.cli.metrics import LakeMetrics
from rebal.cli.params import Lake
from rebal.groups.model import Cluster
from rebal.inspectors.kafka.brokers import ClusterReading
from tests.fleet.conftest import script
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


def labels_of(query: str, series: Series) -> set[str]:
    """The labels of a query's answer; each selector in it finds series."""
    inside: set[str] = set()
    for name, matchers in re.findall(r"(rebal_\w+)(?:{(.*?)})?", query):
        found = series[name]
        for label, value in re.findall(r'(\w+)=~?"(.*?)"', matchers):
            names = {one["name"] for one in DASHBOARD["templating"]["list"]}
            assert not value.startswith("$") or value[1:] in names
            pattern = ".*" if value.startswith("$") else value
            found = [one for one in found if re.fullmatch(pattern, one.get(label, "\0"))]
        assert found, query
        inside |= {label for one in found for label in one}
    by = re.findall(r"\bby ?\(([^)]*)\)", query)
    assert {label for names in by for label in re.findall(r"\w+", names)} <= inside
    if re.match(r"(sum|max|min|count|avg)\b", query):
        return set(re.findall(r"\w+", by[0])) if by else set()
    return inside


@pytest.mark.parametrize(("title", "expr", "legend"), QUERIES, ids=[one[0] for one in QUERIES])
def test_each_query_of_the_dashboard_finds_series(
    title: str, expr: str, legend: str, series: Series
) -> None:
    promql.parse(expr)
    assert set(re.findall(r"{{(\w+)}}", legend)) <= labels_of(expr, series)


def test_the_dashboard_names_only_its_own_data_source(series: Series) -> None:
    assert len(QUERIES) > 10
    for panel in DASHBOARD["panels"]:
        for one in (panel, *panel["targets"]):
            assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for variable in DASHBOARD["templating"]["list"][1:]:
        (selector, label) = re.findall(r"label_values\((.*), (\w+)\)", variable["definition"])[0]
        assert label == variable["name"]
        assert label in labels_of(selector, series)


def calls_of(line: str, folder: Path, **variables: str) -> list[list[str]]:
    """The words of each call of `rebal` that a line of a shell makes; they are only noted."""
    log, programs = folder / "calls", folder / "bin"
    log.unlink(missing_ok=True)
    programs.mkdir(exist_ok=True)
    script(programs / "rebal", f'printf "%s\\n" "$@" "" >> {shlex.quote(str(log))}')
    env = {**variables, "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(["/bin/sh", "-c", line], env=env, check=True, timeout=20)
    return [call.split("\n") for call in log.read_text().rstrip("\n").split("\n\n")]


def parsed(words: list[str]) -> dict[str, Any]:
    """A call's parameters, as the real command takes them."""
    command: Any = app.build()
    for word in words[:2]:
        command = command.commands[word]
    real = command.load()
    return dict(real.make_context(words[1], words[2:]).params)


def lake_of(words: list[str]) -> str:
    """The lake that a call is about."""
    given = parsed(words)
    return str(given["out"] if words[1] == "scan" else given.get("folder") or given["lake"])


def test_each_line_of_the_cron_file_runs_real_commands(tmp_path: Path) -> None:
    lines = (EXAMPLES / "rebal.cron").read_text().splitlines()
    variables, calls = {}, []
    for line in lines:
        if line.startswith("#"):
            continue
        if found := re.fullmatch(r"([A-Z]+)=(\S+)", line):
            variables[found[1]] = found[2]
            continue
        *_, user, command = line.split(maxsplit=6)
        assert user == "rebal"
        assert "%" not in command, "cron makes a new line of it"
        if shutil.which("flock") is None:
            command = re.sub(r"flock -n \S+ ", "", command)
        calls += calls_of(command, tmp_path, LAKE=variables["LAKE"])
    assert [call[:2] for call in calls] == [["fleet", n] for n in ("scan", "metrics", "report")]
    assert {lake_of(call) for call in calls} == {"/srv/kafka-lake"}
    assert parsed(calls[1])["out"].endswith(".prom")


def test_the_dag_scans_first_and_its_command_lines_are_real(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sdk, bash, (scan, *others) = MagicMock(), MagicMock(), [MagicMock() for _ in range(3)]
    bash.BashOperator.side_effect = [scan, *others]
    monkeypatch.setitem(sys.modules, "airflow.sdk", sdk)
    monkeypatch.setitem(sys.modules, "airflow.providers.standard.operators.bash", bash)
    runpy.run_path(str(EXAMPLES / "airflow_dag.py"))
    dag = sdk.DAG.call_args.kwargs
    assert (dag["max_active_runs"], dag["catchup"]) == (1, False)
    scan.__rshift__.assert_called_once_with(others)
    made = [one.kwargs for one in bash.BashOperator.call_args_list]
    assert [one["task_id"] for one in made] == ["scan", "report", "metrics"]
    for one in made:
        assert "{{" not in one["bash_command"], "Airflow fills in templates"
        _, *call = shlex.split(one["bash_command"])
        assert call[:2] == ["fleet", one["task_id"]]
        assert lake_of(call) == "s3://lakes/kafka"
