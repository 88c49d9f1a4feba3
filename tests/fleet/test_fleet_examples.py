"""The files of examples/fleet, and docs/fleet-tables.md.

Queries that find series, schedules whose command lines are real; every column, and finished scans
only.
"""

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import MagicMock

import duckdb
import promql_parser as promql
import pyarrow as pa
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rebal.cli import app
from rebal.cli.metrics import LakeMetrics
from rebal.cli.params import Lake
from rebal.groups.model import Cluster
from rebal.inspectors.fleet.lake.place import find_place
from rebal.inspectors.fleet.lake.run import new_scan
from rebal.inspectors.fleet.lake.scans import SCHEMA as SCANS
from rebal.inspectors.fleet.lake.table import LakeTable
from rebal.inspectors.fleet.lake.writer import columns_of
from rebal.inspectors.fleet.schemas import TABLES
from rebal.inspectors.kafka.brokers import ClusterReading
from tests.fleet.conftest import script
from tests.fleet.synthetic import AT, fleet, write_tables
from tests.kafka import jars

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples" / "fleet"
DASHBOARD: Final = json.loads((EXAMPLES / "grafana-dashboard.json").read_text())
PANELS: Final = [
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


@pytest.mark.parametrize(("title", "expr", "legend"), PANELS, ids=[one[0] for one in PANELS])
def test_each_query_of_the_grafana_dashboard_finds_series(
    title: str, expr: str, legend: str, series: Series
) -> None:
    promql.parse(expr)
    assert set(re.findall(r"{{(\w+)}}", legend)) <= labels_of(expr, series)


def test_the_grafana_dashboard_uses_only_its_own_data_source(series: Series) -> None:
    assert len(PANELS) > 10
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


def test_each_line_of_the_example_crontab_runs_valid_rebal_commands(tmp_path: Path) -> None:
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


def test_the_example_airflow_dag_scans_first_and_runs_valid_rebal_commands(
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


SHIPPED: Final = EXAMPLES / "finished_scans.py"
DOC: Final = (ROOT / "docs" / "fleet-tables.md").read_text()
QUERIES: Final = re.findall(r"```sql\n(.*?);\n```", DOC, re.DOTALL)


def shipped() -> Any:
    """The example's functions."""
    return SimpleNamespace(**runpy.run_path(str(SHIPPED)))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished scans of `west`, one of `east`, and one of `west` that died at its commits."""
    folder = tmp_path_factory.mktemp("lake")
    for cluster, groups in (("west", 8), ("east", 4), ("west", 20)):
        write_tables(folder, fleet(groups), cluster=cluster)
    place = find_place(str(folder))
    run = new_scan(place, "west", full=True)
    for name in ("groups", "rebalances"):
        table = LakeTable(place, name, columns_of(name))
        assert table.commit_files("west", [], run.number) is not None
        assert table.files("west") == (), "a reader of the latest version sees nothing"
    return folder


def groups_of(count: int) -> list[str]:
    return sorted(row["group_id"] for row in fleet(count)["groups"])


def test_arrow_datasets_are_those_of_the_last_finished_scan(lake: Path) -> None:
    made = shipped().arrow_datasets(str(lake), "west")
    assert made.keys() >= TABLES.keys()
    for name, rows in fleet(20).items():
        assert made[name].count_rows() == len(rows), name
    frame = made["groups"].to_table(columns=["group_id", "members"]).to_pandas()
    assert sorted(frame["group_id"]) == groups_of(20)


def test_a_reader_of_a_lake_with_two_clusters_must_name_one(lake: Path, tmp_path: Path) -> None:
    module = shipped()
    with pytest.raises(ValueError, match="name one of the clusters: east, west"):
        module.arrow_datasets(str(lake))
    with pytest.raises(ValueError, match="no finished scan of north"):
        module.arrow_datasets(str(lake), "north")
    one = write_tables(tmp_path, fleet(4))
    assert module.arrow_datasets(str(one))["groups"].count_rows() == 4


def test_the_queries_of_the_documentation_run_in_duckdb(lake: Path) -> None:
    with duckdb.connect() as connection:
        shipped().duckdb_views(connection, str(lake), "west")
        found = connection.sql("select group_id from groups order by 1").fetchall()
        assert [row[0] for row in found] == groups_of(20)
        assert len(QUERIES) == 4
        answers = [connection.sql(query).fetchall() for query in QUERIES]
    assert all(answers), "each finds something in a fleet of every shape"
    assert len(answers[0]) == 10


def type_name(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "time"
    if pa.types.is_list(kind):
        inner = kind.value_type
        return "partitions" if pa.types.is_struct(inner) else f"{type_name(inner)}s"
    if pa.types.is_map(kind):
        return "counts"
    names = {"string": "text", "int32": "int", "int64": "long", "bool": "bool", "binary": "bytes"}
    return names.get(str(kind), str(kind))


def test_every_column_of_the_lake_tables_is_documented() -> None:
    tables: dict[str, list[tuple[str, str]]] = {}
    for part in DOC.split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        if rows := re.findall(r"^\| (\w+) \| (\w+) \| (\S.*) \|$", text, re.MULTILINE):
            tables[title.strip()] = [(column, kind) for column, kind, _ in rows if kind != "type"]
    assert tables == {
        name: [(field.name, type_name(field.type)) for field in schema]
        for name, schema in {"scans": SCANS, **TABLES}.items()
    }


def test_documented_code_reads_last_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, views = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
    write_tables(tmp_path / "fleet", fleet(4))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(SHIPPED.parent)
    found: dict[str, Any] = {}
    exec(code, found)
    exec(views, found)
    assert found["connection"].sql("SELECT count(*) FROM groups").fetchall() == [(4,)]
    assert sorted(found["rows"]["group_id"].to_pylist()) == groups_of(4)


PROGRAM: Final = """
import json, runpy, sys
from pyspark.sql import SparkSession

path, lake, jars, script, *queries = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "512m")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.databricks.delta.snapshotPartitions", "1")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .getOrCreate()
)

def answers():
    return [[list(row) for row in spark.sql(query).collect()] for query in queries]

runpy.run_path(path)["spark_views"](spark, lake, "west")
by_function = answers()
for view in spark.catalog.listTables():
    spark.catalog.dropTempView(view.name)
spark.conf.set("spark.sql.scripting.enabled", "true")
spark.sql(script)
print(json.dumps([by_function, answers()], default=str))
"""


@pytest.mark.live
@pytest.mark.timeout(300)
def test_the_documented_queries_give_the_same_answers_in_spark_sql_and_duckdb(lake: Path) -> None:
    """One session in a process of its own: Delta's classes are configured at its start."""
    import pyspark

    folder = Path(jars.classpath(f"spark-delta-{pyspark.__version__}").removesuffix("/*"))
    found = ",".join(str(jar) for jar in folder.glob("*.jar") if jar.name.startswith("delta-"))
    script = SHIPPED.with_suffix(".sql").read_text()
    for name, value in (("s3a://lakes/kafka", str(lake)), ("production", "west")):
        assert script.count(f"'{name}'") == 1
        script = script.replace(name, value)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, SHIPPED, lake, found, script, *QUERIES],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout)
    with duckdb.connect() as connection:
        shipped().duckdb_views(connection, str(lake), "west")
        by_duckdb = [connection.sql(query).fetchall() for query in QUERIES]
    wanted = [[list(row) for row in rows] for rows in by_duckdb]
    assert answers == [wanted, wanted], "the views of the function, and of the script"
