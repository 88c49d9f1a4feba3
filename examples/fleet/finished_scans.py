"""Views of a lake that show finished scans only, for pandas, DuckDB and Spark SQL.

A scan writes its row in `scans` last, with the version of every table that holds it. Each function
reads that row and then the tables at these versions, so all of them belong to one scan, and what a
scan under way has written is not seen. Call it again to see a newer scan.

This file needs no rebal. A `lake` is what `rebal fleet scan --out` was given; `cluster` is needed
where the lake has several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb
    import pyarrow.dataset
    from pyspark.sql import SparkSession

CLUSTER = "cluster_id"


def arrow_datasets(
    lake: str, cluster: str | None = None, options: dict[str, str] | None = None
) -> dict[str, pyarrow.dataset.Dataset]:
    """Return each table of the last finished scan as an Arrow dataset; needs deltalake, pyarrow.

    `last_scan` has one row: the time that its sources cover, by which rates and ages go.
    `options` are those of the store, such as AWS_ENDPOINT_URL. A dataset reads nothing until it is
    asked: `datasets["groups"].to_table().to_pandas()`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    rows = DeltaTable(f"{lake}/scans", storage_options=options).to_pyarrow_table().to_pylist()
    last = _last([(row[CLUSTER], row["scan_id"], dict(row["versions"])) for row in rows], cluster)
    (told,) = (row for row in rows if (row[CLUSTER], row["scan_id"]) == last[:2])
    tables = {
        name: DeltaTable(f"{lake}/{name}", version=version, storage_options=options)
        .to_pyarrow_dataset()
        .filter(pc.field(CLUSTER) == last[0])
        for name, version in last[2].items()
    }
    return tables | {"last_scan": ds.dataset(pa.Table.from_pylist([_covered(told)]))}


def duckdb_views(
    connection: duckdb.DuckDBPyConnection,
    lake: str,
    cluster: str | None = None,
    options: dict[str, str] | None = None,
) -> None:
    """Make a view of each table of the last finished scan; DuckDB's delta extension is not used."""
    for name, dataset in arrow_datasets(lake, cluster, options).items():
        connection.register(name, dataset)


def spark_views(spark: SparkSession, lake: str, cluster: str | None = None) -> None:
    """Make a temporary view of each table of the last finished scan; Spark needs Delta's jars."""
    rows = spark.read.format("delta").load(f"{lake}/scans").collect()
    last = _last([(row[CLUSTER], row["scan_id"], row["versions"]) for row in rows], cluster)
    (told,) = (row for row in rows if (row[CLUSTER], row["scan_id"]) == last[:2])
    spark.createDataFrame([_covered(told.asDict())]).createOrReplaceTempView("last_scan")
    for name, version in last[2].items():
        table = spark.read.format("delta").option("versionAsOf", version).load(f"{lake}/{name}")
        table.where(table[CLUSTER] == last[0]).createOrReplaceTempView(name)


def _covered(scan: dict[str, Any]) -> dict[str, Any]:
    covered = {name: scan[name] for name in ("finished_at", "observed_from", "observed_until")}
    hours = (scan["observed_until"] - scan["observed_from"]).total_seconds() / 3600
    return covered | {"observed_hours": hours}


def _last(
    scans: list[tuple[str, int, dict[str, Any]]], cluster: str | None
) -> tuple[str, int, dict[str, Any]]:
    clusters = sorted({scan[0] for scan in scans})
    if cluster is None and len(clusters) > 1:
        raise ValueError(f"name one of the clusters: {', '.join(clusters)}")
    wanted = [scan for scan in scans if cluster in (None, scan[0])]
    if not wanted:
        raise ValueError(f"no finished scan of {cluster or 'any cluster'}")
    return max(wanted, key=lambda scan: scan[1])
