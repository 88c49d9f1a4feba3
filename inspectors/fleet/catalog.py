"""Spark's writer of published tables: a schema of a catalog that the Spark session knows.

Spark creates and writes the tables, as the user and with the credentials of its session: Unity
Catalog, an Iceberg catalog, Delta tables in a Hive metastore with Kerberos. Rows come from the
lake's files by Arrow, as in every stage of a scan, so Spark needs no way to the lake's store.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from rebal.groups.errors import RebalError
from rebal.inspectors.fleet.engine import SparkError, engine_of
from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.lake.scans import SCANS, row_of
from rebal.inspectors.fleet.lake.scans import SCHEMA as SCAN_ROWS
from rebal.inspectors.fleet.lake.table import CLUSTER, DataFile
from rebal.inspectors.fleet.manifest import Manifest
from rebal.inspectors.fleet.parts import columns_of
from rebal.inspectors.fleet.schemas import TABLES, TEXT, TEXTS
from rebal.inspectors.fleet.sink import Counts
from rebal.inspectors.fleet.stages import shared_out
from rebal.inspectors.fleet.tasks import in_tasks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

FILE: Final = "file"
_ROWS: Final = 4096
_OF_THE_LAKE: Final = ("versions", "folders", "document")
_ANNOUNCED: Final = pa.schema(
    [
        (CLUSTER, TEXT),
        *(one for one in SCAN_ROWS if one.name not in _OF_THE_LAKE),
        ("files", TEXTS),
    ]
)
_NO_SCAN: Final = -1
_KNOWN: Final = (
    # A V1 table takes rows or gives all of them up, nothing between.
    (
        ("Cannot write into v1 table", "does not support overwrite by filter", "TABLE_OPERATION"),
        "tables of Spark's default format cannot replace rows by a condition there: name one that "
        "can and that the catalog knows, such as --spark-conf spark.sql.sources.default=delta.",
    ),
    (
        ("DATA_SOURCE_NOT_FOUND", "Failed to find the data source"),
        "this Spark lacks the format of spark.sql.sources.default: give it the format's jars, such "
        "as --spark-conf spark.jars.packages=io.delta:delta-spark_2.13:4.0.0.",
    ),
    (
        ("CATALOG_NOT_FOUND", "Nested databases are not supported", "REQUIRES_SINGLE_PART"),
        "this Spark has no such catalog: name one that it has (its own is spark_catalog), or give "
        "it the catalog with --spark-conf spark.sql.catalog.NAME=CLASS.",
    ),
    (
        ("SCHEMA_NOT_FOUND", "NoSuchNamespaceException", "NoSuchDatabaseException"),
        "the catalog has no such schema: create it, or check the name.",
    ),
    (
        (
            "PERMISSION_DENIED", "INSUFFICIENT_PERMISSIONS", "AccessControlException",
            "Permission denied", "AccessDenied", "not authorized",
        ),
        "Spark's user may not create and write tables there: in Unity Catalog it needs USE "
        "CATALOG, USE SCHEMA, CREATE TABLE, SELECT and MODIFY.",
    ),
)  # fmt: skip
_LONGEST: Final = 300


class _Copy(NamedTuple):
    """An order to read files of a table, for tasks: each one's `shares` are paths."""

    place: Place
    table: str
    cluster: str
    columns: pa.Schema
    shares: Sequence[Sequence[str]]


class SparkCatalog:
    """The tables of one schema (`names`: its catalog, then the schema), for a lake at `place`."""

    def __init__(self, spark: SparkSession, names: Sequence[str], place: Place) -> None:
        self._spark = spark
        self._names = names
        self._place = place

    def require(self, cluster: str) -> None:
        """Make the tables that are missing, and replace no row by none."""
        with self._errors():
            shown = self._spark.sql(f"SHOW TABLES IN {_quoted(self._names)}").collect()
            there = {row["tableName"] for row in shown if not row["isTemporary"]}
            every = {SCANS: _ANNOUNCED, **_published()}
            for name in every.keys() & there:
                self._complete(name, every[name])
            if SCANS not in there:
                self._create(SCANS, _ANNOUNCED)
            try:
                self._replace(SCANS, self._no_rows(_ANNOUNCED), self._of(cluster, _nothing()))
            except Exception:
                if SCANS not in there:
                    self._spark.sql(f"DROP TABLE {self._name(SCANS)}")
                raise
            for name in every.keys() - there - {SCANS}:
                self._create(name, every[name])

    def count(self, cluster: str) -> Counts:
        """Return the rows by table and file."""
        found: dict[str, dict[str, int]] = {}
        with self._errors():
            parts = [
                self._spark.table(self._name(name))
                .where(sql.col(CLUSTER) == cluster)
                .groupBy(FILE)
                .agg(sql.count("*").alias("rows"))
                .select(sql.lit(name).alias("name"), FILE, "rows")
                for name in TABLES
            ]
            for row in reduce(_union, parts).collect():
                found.setdefault(row["name"], {})[row[FILE]] = row["rows"]
        return found

    def write(self, cluster: str, table: str, files: Sequence[DataFile]) -> None:
        """Replace the files' rows, as many tasks at once as there are cores."""
        columns = _published()[table]
        with self._errors():
            shares = shared_out(files, engine_of(self._spark).cores)
            paths = [[files[number].path for number in share] for share in shares]
            order = _Copy(self._place, table, cluster, columns, paths)
            numbers = self._spark.range(0, len(paths), 1, len(paths))
            rows = in_tasks(numbers, partial(_copy, order=order), _spark_schema(columns))
            self._replace(table, rows, self._of(cluster, _of_files(one.path for one in files)))

    def announce(self, scan: Manifest, files: Sequence[str]) -> None:
        """Replace the cluster's row of `scans`."""
        row = {CLUSTER: scan.cluster, **row_of(scan, ()), "files": list(files)}
        with self._errors():
            rows = self._spark.createDataFrame(pa.Table.from_pylist([row], _ANNOUNCED))
            self._replace(SCANS, rows, sql.col(CLUSTER) == scan.cluster)

    def remove(self, cluster: str, table: str, files: Collection[str]) -> None:
        """Replace the files' rows by none."""
        with self._errors():
            rows = self._no_rows(_published()[table])
            self._replace(table, rows, self._of(cluster, _of_files(files)))

    def _create(self, name: str, columns: pa.Schema) -> None:
        by = [one for one in (CLUSTER, FILE) if one in columns.names]
        self._spark.sql(
            f"CREATE TABLE {self._name(name)} ({_ddl(columns)}) PARTITIONED BY ({', '.join(by)})"
        )

    def _complete(self, name: str, columns: pa.Schema) -> None:
        """Add the columns that an earlier rebal did not publish.

        Raises:
            SparkError: the table is another one.
        """
        fields = {one.name: one.dataType for one in self._spark.table(self._name(name)).schema}
        wanted = _spark_schema(columns)
        key = "files" if name == SCANS else FILE
        if not {CLUSTER, key} <= fields.keys() or any(
            fields.get(one.name, one.dataType).simpleString() != one.dataType.simpleString()
            for one in wanted
        ):
            raise SparkError(
                f"{self._said}: the table {name} there is another than rebal's: publish to a "
                "schema of its own."
            )
        fresh = pa.schema([one for one in columns if one.name not in fields])
        if len(fresh):
            self._spark.sql(f"ALTER TABLE {self._name(name)} ADD COLUMNS ({_ddl(fresh)})")

    def _replace(self, name: str, rows: DataFrame, condition: Column) -> None:
        rows.writeTo(self._name(name)).overwrite(condition)

    def _no_rows(self, columns: pa.Schema) -> DataFrame:
        return self._spark.createDataFrame([], _spark_schema(columns))

    def _of(self, cluster: str, condition: Column) -> Column:
        return (sql.col(CLUSTER) == cluster) & condition

    def _name(self, table: str) -> str:
        return _quoted((*self._names, table))

    @property
    def _said(self) -> str:
        return f"--publish {'.'.join(self._names)}"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Tell in one sentence why Spark or its catalog fails.

        Raises:
            SparkError: instead of their own errors.
        """
        try:
            yield
        except RebalError:
            raise
        except Exception as error:
            if os.environ.get("REBAL_DEBUG"):
                raise
            raise SparkError(f"{self._said}: {_reason(error)}") from None


def _published() -> Mapping[str, pa.Schema]:
    """Columns of the tables for readers: those of the lake's, and the file."""
    cluster, file = pa.field(CLUSTER, TEXT), pa.field(FILE, TEXT)
    return {name: pa.schema([cluster, *columns_of(name), file]) for name in TABLES}


def _copy(batches: Iterable[pa.RecordBatch], order: _Copy) -> Iterator[pa.RecordBatch]:
    """The shares whose numbers the batches hold → the rows of their files."""
    for batch in batches:
        for share in batch.column(0).to_pylist():
            for path in order.shares[share]:
                yield from _rows(path, order)


def _rows(path: str, order: _Copy) -> Iterator[pa.RecordBatch]:
    files, columns = order.place.files(), order.columns
    with order.place.errors(), files.open_input_file(f"{order.table}/{path}") as opened:
        file = pq.ParquetFile(opened)
        known = [name for name in columns.names if name in file.schema_arrow.names]
        for rows in file.iter_batches(_ROWS, columns=known):
            given = {name: rows[name] for name in known}
            given |= {CLUSTER: _same(order.cluster, rows), FILE: _same(path, rows)}
            made = [
                given[one.name].cast(one.type)
                if one.name in given
                else pa.nulls(len(rows), one.type)
                for one in columns
            ]
            yield pa.RecordBatch.from_arrays(made, schema=columns)


def _same(text: str, rows: pa.RecordBatch) -> pa.Array:
    return pa.repeat(pa.scalar(text, TEXT), len(rows))


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionAll(other)


def _of_files(paths: Iterable[str]) -> Column:
    return sql.col(FILE).isin(*sorted(paths))


def _nothing() -> Column:
    return sql.col("scan_id") == _NO_SCAN


def _spark_schema(columns: pa.Schema) -> StructType:
    return from_arrow_schema(columns, prefer_timestamp_ntz=False)


def _ddl(columns: pa.Schema) -> str:
    return ", ".join(
        f"{_quoted([one.name])} {one.dataType.simpleString()}" for one in _spark_schema(columns)
    )


def _quoted(names: Sequence[str]) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def _reason(error: Exception) -> str:
    said = str(getattr(error, "java_exception", None) or error)
    for signs, words in _KNOWN:
        if any(sign in said for sign in signs):
            return words
    for line in said.splitlines():
        # A task's own sentence.
        if line.startswith("rebal.groups.errors."):
            return line.split(": ", 1)[-1]
    line = re.sub(r"^([\w.$]+: )?(\[[\w.]+\] )?", "", said.splitlines()[0])
    line = re.sub(r" SQLSTATE: \w+$", "", line).rstrip(".")
    short = line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"
    return f"Spark says: {short}; REBAL_DEBUG=1 shows all that it said."
