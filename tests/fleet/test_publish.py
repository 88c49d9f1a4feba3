"""`rebal fleet scan --publish`: what is published is one finished scan, whatever ended the last."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from rebal.cli import app
from rebal.inspectors.fleet import job
from rebal.inspectors.fleet.engine import SparkError
from rebal.inspectors.fleet.job import ScanOrder
from rebal.inspectors.fleet.lake.place import find_place
from rebal.inspectors.fleet.lake.run import new_run
from rebal.inspectors.fleet.lake.table import DataFile
from rebal.inspectors.fleet.manifest import Manifest
from rebal.inspectors.fleet.schemas import TABLES
from rebal.inspectors.fleet.sink import Counts, publish
from rebal.inspectors.fleet.tables.reader import open_tables
from tests.fleet.conftest import OFFSETS
from tests.fleet.test_lake import WHEN, KilledError, fill
from tests.kafka import jars

ROOT: Final = Path(__file__).parents[2]
Rows = dict[str, list[str]]


class Memory:
    """A sink that keeps the rows by cluster, table and file, and dies before its write `left`."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self.rows: dict[tuple[str, str], Rows] = {}
        self.announced: dict[str, tuple[int, Sequence[str]]] = {}
        self.left = 1000
        self.made: list[str] = []

    def require(self, cluster: str) -> None:
        raise AssertionError(cluster)

    def count(self, cluster: str) -> Counts:
        return {
            table: {path: len(rows) for path, rows in files.items()}
            for (name, table), files in self.rows.items()
            if name == cluster
        }

    def write(self, cluster: str, table: str, files: Sequence[DataFile]) -> None:
        self._live(f"write {table}")
        for one in files:
            rows = pq.ParquetFile(self._lake / table / one.path).read()
            self.rows.setdefault((cluster, table), {})[one.path] = as_text(table, rows.to_pylist())

    def announce(self, scan: Manifest, files: Sequence[str]) -> None:
        self._live("announce")
        self.announced[scan.cluster] = (scan.run, files)

    def remove(self, cluster: str, table: str, files: Collection[str]) -> None:
        self._live(f"remove {table}")
        for path in files:
            del self.rows[cluster, table][path]

    def joined(self, cluster: str) -> dict[str, list[str]]:
        """The rows of the files that are announced."""
        files = self.announced[cluster][1]
        return {
            name: sorted(
                row
                for path, rows in self.rows.get((cluster, name), {}).items()
                for row in rows
                if path in files
            )
            for name in TABLES
        }

    def all(self, cluster: str) -> dict[str, list[str]]:
        return {
            name: sorted(
                row for rows in self.rows.get((cluster, name), {}).values() for row in rows
            )
            for name in TABLES
        }

    def _live(self, what: str) -> None:
        if not self.left:
            raise KilledError
        self.left -= 1
        self.made.append(what)


def as_text(table: str, rows: Sequence[dict[str, object]]) -> list[str]:
    return [repr({name: row[name] for name in TABLES[table].names}) for row in rows]


def in_lake(lake: Path, cluster: str) -> dict[str, list[str]]:
    tables = open_tables(f"{lake}#{cluster}")
    return {
        name: sorted(as_text(name, tables.read(name, columns.names).to_pylist()))
        for name, columns in TABLES.items()
    }


def scan_of(lake: Path, cluster: str) -> Manifest:
    """A scan that replaces its groups and errors, and adds a member to those of the scan before."""
    with new_run(find_place(str(lake)), cluster, full=False) as run:
        made = fill(run, run.number)
        kept = run.earlier("members")
        made["members"] += [one._replace(path=one.path.removeprefix("members/")) for one in kept]
        return run.finish(
            Manifest(
                cluster=cluster,
                run=run.number,
                finished_at=WHEN,
                observed_from=WHEN,
                observed_until=WHEN,
            ),
            made,
        )


def test_a_publication_is_in_proportion_to_what_is_new(tmp_path: Path) -> None:
    place, sink = find_place(str(tmp_path)), Memory(tmp_path)
    assert publish(sink, place, scan_of(tmp_path, "west")) == (3, 0)
    assert publish(sink, place, scan_of(tmp_path, "west")) == (3, 2)
    assert sink.all("west") == in_lake(tmp_path, "west")
    assert len(sink.all("west")["members"]) == 2
    sink.made.clear()
    assert publish(sink, place, open_tables(str(tmp_path)).manifest) == (0, 0)
    assert sink.made == ["announce"]


def test_who_joins_on_the_announced_files_sees_one_scan_whenever_a_publication_dies(
    tmp_path: Path,
) -> None:
    place, sink = find_place(str(tmp_path)), Memory(tmp_path)
    left = 0
    publish(sink, place, scan_of(tmp_path, "west"))
    while True:
        before = sink.joined("west")
        scan = scan_of(tmp_path, "west")
        sink.left = left
        try:
            publish(sink, place, scan)
            break
        except KilledError:
            after = in_lake(tmp_path, "west")
            assert sink.joined("west") == (
                after if sink.announced["west"][0] == scan.run else before
            )
        sink.left = 1000
        publish(sink, place, scan_of(tmp_path, "west"))
        assert sink.all("west") == sink.joined("west") == in_lake(tmp_path, "west")
        left += 1
    assert left == len(["groups", "members", "errors", "announce", "groups", "errors"])


def test_rows_that_were_lost_or_doubled_are_written_again(tmp_path: Path) -> None:
    place, sink = find_place(str(tmp_path)), Memory(tmp_path)
    scan = scan_of(tmp_path, "west")
    publish(sink, place, scan)
    for name, change in (("groups", 0), ("members", 2)):
        files = sink.rows["west", name]
        files.update({path: rows * change for path, rows in files.items()})
    assert sink.all("west") != in_lake(tmp_path, "west")
    assert publish(sink, place, scan) == (2, 0)
    assert sink.all("west") == in_lake(tmp_path, "west")


def test_clusters_of_one_schema_keep_apart(tmp_path: Path) -> None:
    place, sink = find_place(str(tmp_path)), Memory(tmp_path)
    for cluster in ("west", "east", "west"):
        publish(sink, place, scan_of(tmp_path, cluster))
    for cluster in ("west", "east"):
        assert sink.all(cluster) == sink.joined(cluster) == in_lake(tmp_path, cluster)


def test_a_publication_that_fails_says_where_the_scan_is(tmp_path: Path) -> None:
    class Failing(Memory):
        def announce(self, scan: Manifest, files: Sequence[str]) -> None:
            raise SparkError("--publish main.kafka: no.")

    scan = scan_of(tmp_path, "west")
    order = ScanOrder(out=find_place(str(tmp_path)), publish=("main", "kafka"))
    with pytest.raises(SparkError) as caught:
        job._publish(Failing(tmp_path), order, scan, print)
    assert str(caught.value) == (
        f"--publish main.kafka: no. Scan 1 is finished in {tmp_path}; the next scan with --publish "
        "main.kafka goes on from there."
    )


@pytest.mark.parametrize("name", ["kafka", "main.", "main..kafka", ""])
def test_a_schema_without_a_catalog_is_a_usage_error(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--offsets", str(OFFSETS), "--out", str(tmp_path / "lake"), "--publish", name]
    assert app.run(["fleet", "scan", *words]) == 2
    assert (
        f"--publish {name}: expected CATALOG.SCHEMA, such as main.kafka" in capsys.readouterr().err
    )
    assert not (tmp_path / "lake").exists()


PROGRAM: Final = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from rebal.cli import app
from rebal.inspectors.fleet.catalog import FILE, SparkCatalog
from rebal.inspectors.fleet.engine import SparkError
from rebal.inspectors.fleet.lake.place import find_place
from rebal.inspectors.fleet.schemas import TABLES
from rebal.inspectors.fleet.sink import publish
from tests.fleet.test_finished_scans import shipped
from tests.fleet.test_increments import parts
from tests.fleet.test_publish import scan_of

jars, folder = sys.argv[1], Path(sys.argv[2])
lake = folder / "lake"
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.driver.memory", "700m")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.databricks.delta.snapshotPartitions", "1")
    .config("spark.databricks.delta.stats.collect", "false")
    .config("spark.sql.codegen.wholeStage", "false")
    .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    .config("spark.sql.sources.default", "delta")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
for name in ("kafka", "plain", "theirs"):
    spark.sql(f"CREATE SCHEMA {name}")
spark.sql("CREATE TABLE theirs.groups (group_id INT)")

def scan(part, schema, code=0):
    records, log = part
    words = ["--offsets", records, "--request-log", log, "--out", lake, "--cluster", "west"]
    assert app.run(["fleet", "scan", *map(str, words), "--publish", schema]) == code

ALL = "SELECT t.* FROM spark_catalog.kafka.{name} t"
JOINED = ALL + (" JOIN spark_catalog.kafka.scans s ON t.cluster_id = s.cluster_id AND "
    "array_contains(s.files, t.file)")

def published(query):
    found = {name: spark.sql(query.format(name=name)) for name in TABLES}
    rows = {name: one.drop(FILE).toArrow().to_pylist() for name, one in found.items()}
    return {name: sorted(one, key=repr) for name, one in rows.items()}

def in_lake():
    made = {name: [] for name in TABLES}
    for cluster in ("west", "east"):
        found = shipped().arrow_datasets(str(lake), cluster)
        for name in TABLES:
            columns = ["cluster_id", *TABLES[name].names, "scan_id"]
            made[name] += found[name].to_table(columns=columns).to_pylist()
    return {name: sorted(rows, key=repr) for name, rows in made.items()}

given = parts(folder, 3)
scan(given[0], "nope.kafka", 1)
scan(given[0], "spark_catalog.nope", 1)
scan(given[0], "spark_catalog.theirs", 1)
create = SparkCatalog._create
def plain(self, name, columns):
    create(self, name, columns)
    spark.sql(f"DROP TABLE {self._name(name)}")
    spark.sql(f"CREATE TABLE {self._name(name)} (cluster_id STRING, scan_id BIGINT) USING parquet")
SparkCatalog._create = plain
scan(given[0], "spark_catalog.plain", 1)
SparkCatalog._create = create
assert spark.sql("SHOW TABLES IN plain").collect() == []
assert [row.tableName for row in spark.sql("SHOW TABLES IN theirs").collect()] == ["groups"]

print("reading begins", file=sys.stderr)
scan(given[0], "spark_catalog.kafka")
place = find_place(str(lake))
sink = SparkCatalog(spark, ("spark_catalog", "kafka"), place)
publish(sink, place, scan_of(lake, "east"))
first = in_lake()
assert sum(map(len, first.values())) > 50

class Dying(SparkCatalog):
    def announce(self, *given):
        with self._errors():
            raise ConnectionError("[NET] the metastore went away.\\nmore")

second = scan_of(lake, "east")
try:
    publish(Dying(spark, ("spark_catalog", "kafka"), place), place, second)
    raise AssertionError("it lives")
except SparkError as error:
    print(error, file=sys.stderr)
assert published(JOINED) == first != in_lake()
assert publish(sink, place, second) == (0, 2)
assert published(ALL) == in_lake()
scans = {row["cluster_id"]: row["rows"] for row in spark.table("kafka.scans").collect()}
assert sorted(scans) == ["east", "west"]
for name, rows in in_lake().items():
    assert len(rows) == sum(one[name] for one in scans.values()), name
"""


REFUSED: Final = (
    "nope.kafka: this Spark has no such catalog",
    "spark_catalog.nope: the catalog has no such schema",
    "spark_catalog.theirs: the table groups there is another than rebal's",
    "spark_catalog.plain: tables of Spark's default format cannot replace rows by a condition",
)


@pytest.mark.live
@pytest.mark.timeout(400)
def test_spark_publishes_to_its_catalog_what_the_lake_has(tmp_path: Path) -> None:
    """One session in a process of its own: Delta's classes are configured at its start."""
    import pyspark

    folder = Path(jars.classpath(f"spark-delta-{pyspark.__version__}").removesuffix("/*"))
    found = ",".join(str(jar) for jar in folder.glob("*.jar") if jar.name.startswith("delta-"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, found, tmp_path],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = [line for line in done.stderr.splitlines() if line.startswith(("rebal: ", "reading b"))]
    begins = said.index("reading begins")
    for line, words in zip(said[:begins], REFUSED, strict=True):
        assert line.startswith(f"rebal: --publish {words}"), line
    assert (
        "--publish spark_catalog.kafka: Spark says: the metastore went away; "
        "REBAL_DEBUG=1 shows all that it said."
    ) in done.stderr.splitlines()
