"""docs/fleet-tables.md and examples/fleet/finished_scans: every column, and finished scans only."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest

from rebal.inspectors.fleet.lake.place import find_place
from rebal.inspectors.fleet.lake.run import new_run
from rebal.inspectors.fleet.lake.scans import SCHEMA as SCANS
from rebal.inspectors.fleet.lake.table import LakeTable
from rebal.inspectors.fleet.schemas import TABLES
from rebal.inspectors.fleet.writer import columns_of
from tests.fleet.synthetic import fleet
from tests.fleet.tablefiles import write_tables
from tests.kafka import jars

ROOT: Final = Path(__file__).parents[2]
SHIPPED: Final = ROOT / "examples" / "fleet" / "finished_scans.py"
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
    run = new_run(place, "west", full=True)
    for name in ("groups", "rebalances"):
        table = LakeTable(place, name, columns_of(name))
        assert table.become("west", [], run.number) is not None
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


def test_a_cluster_of_several_is_named(lake: Path, tmp_path: Path) -> None:
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


def test_every_column_is_documented() -> None:
    tables: dict[str, list[tuple[str, str]]] = {}
    for part in DOC.split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        if rows := re.findall(r"^\| (\w+) \| (\w+) \| (\S.*) \|$", text, re.MULTILINE):
            tables[title.strip()] = [(column, kind) for column, kind, _ in rows if kind != "type"]
    assert tables == {
        name: [(field.name, type_name(field.type)) for field in schema]
        for name, schema in {"scans": SCANS, **TABLES}.items()
    }


def test_the_example_reads_the_last_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_spark_sql_gives_the_same_answers(lake: Path) -> None:
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
        told = [connection.sql(query).fetchall() for query in QUERIES]
    wanted = [[list(row) for row in rows] for rows in told]
    assert answers == [wanted, wanted], "the views of the function, and of the script"
