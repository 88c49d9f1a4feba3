"""Records of `__consumer_offsets` from captured files, in the form of `SOURCE`.

JSON lines have the columns of Spark's Kafka source with key and value in base64 (plain, or `.gz`),
Parquet files (`parquet_source`) have them as they are; `timestamp` is a timestamp or a number of
milliseconds. Rows that are no records keep their place with a `problem`, so nothing is lost
without a trace.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rebal.groups.errors import DocumentError
from rebal.inspectors.files import opened
from rebal.inspectors.fleet.sources.parquet import spark_parquet, task_parquet
from rebal.inspectors.fleet.sources.recognition import HEAD, recognize_lines
from rebal.inspectors.fleet.sources.source import (
    SKIPPED,
    TOPIC,
    Source,
    file_name,
    is_remote,
    spark_paths,
    whole_rows,
)
from rebal.inspectors.logs.text_input import cannot_read, files_in

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_LINE: Final = (
    "key string, value string, topic string, partition int, offset bigint, timestamp string"
)
_TEXT: Final = (".jsonl", ".ndjson", ".json")
_PARQUET_MAGIC: Final = b"PAR1"
_GZIP_MAGIC: Final = b"\x1f\x8b"


def find_files(paths: Sequence[str]) -> list[tuple[str, str]]:
    """The captured files at `paths` (files or folders; a path with a scheme is Spark's own).

    Each comes with its form, `text` or `parquet`.

    Raises:
        DocumentError: a path is missing or empty, or no captured file.
    """
    return [file for path in paths for file in _files(path)]


def read_files(spark: SparkSession, files: Sequence[tuple[str, str]]) -> Source:
    """The records in captured files, as `find_files` gives them.

    Raises:
        DocumentError: Parquet without the columns that are needed.
    """
    text = [path for path, form in files if form == "text"]
    remote = [path for path, form in files if form == "parquet" and is_remote(path)]
    local = [path for path, form in files if form == "parquet" and not is_remote(path)]
    parts = [_lines(spark, text)] if text else []
    parts += [spark_parquet(spark, remote)] if remote else []
    parts += [task_parquet(spark, local)] if local else []
    names = tuple(sorted({Path(path).name for path, _ in files}))
    if len(parts) == 1:
        return replace(parts[0], names=names)
    rows = whole_rows(parts[0])
    for part in parts[1:]:
        rows = rows.unionByName(whole_rows(part))
    return Source(rows, names, may_repeat=True)


def _files(path: str) -> list[tuple[str, str]]:
    """Local files in `path`, each with its form; a remote path as it is, told by its name."""
    if is_remote(path):
        stem = path.rstrip("/").removesuffix(".gz")
        return [(path, "text" if stem.endswith(_TEXT) else "parquet")]
    place = Path(path)
    if not os.path.isdir(path):
        return [(str(file), _form(file)) for file in files_in([place])]
    # Spark writes files of its own beside those of records.
    found = [
        (str(file), _form(file))
        for file in files_in([place])
        if not any(part.startswith("_") for part in file.relative_to(place).parts)
        and (file.name.removesuffix(".gz").endswith(_TEXT) or file.suffix == ".parquet")
    ]
    if not found:
        raise DocumentError(f"{path}: no .jsonl, .jsonl.gz or .parquet file is in this folder.")
    return found


def _form(path: Path) -> str:
    try:
        with opened(path) as stream:
            head = stream.read(HEAD)
    except OSError as error:
        raise cannot_read(str(path), error) from None
    if not head:
        raise DocumentError(f"{path}: is empty; capture the records of {TOPIC} again.")
    if head.startswith(_PARQUET_MAGIC):
        return "parquet"
    packed = head.startswith(_GZIP_MAGIC)
    if packed and path.suffix != ".gz":
        raise DocumentError(f"{path}: holds gz data; name it so that it ends in .gz.")
    if not packed and path.suffix == ".gz":
        raise DocumentError(f"{path}: is not gz, whatever its name says; fetch it again.")
    if path.suffix == ".parquet":
        raise DocumentError(f"{path}: is not Parquet, whatever its name says; fetch it again.")
    recognize_lines(path, head)
    return "text"


def _lines(spark: SparkSession, paths: Sequence[str]) -> Source:
    from pyspark.sql import functions as sql

    parsed = (
        spark.read.text(spark_paths(paths))
        .where(sql.trim("value") != "")
        .select(
            sql.col("value").alias("line"),
            file_name().alias("source"),
            sql.from_json("value", _LINE).alias("r"),
        )
    )
    key, value = (sql.try_to_binary(f"r.{name}", sql.lit("base64")) for name in ("key", "value"))
    problem = (
        sql.when(
            sql.col("r.partition").isNull() | sql.col("r.offset").isNull(),
            "the line is no record: not JSON, or without partition and offset",
        )
        .when(sql.col("r.key").isNotNull() & key.isNull(), "the key is not base64")
        .when(sql.col("r.value").isNotNull() & value.isNull(), "the value is not base64")
        .when(sql.col("r.topic") != TOPIC, f"{SKIPPED}records of other topics")
    )
    # What cannot be read is kept as it is written.
    raw = sql.when(problem.isNotNull(), sql.encode("line", "UTF-8")).otherwise(value)
    rows = parsed.select(
        key.alias("key"),
        raw.alias("value"),
        _own("r.partition", problem).cast("int").alias("partition"),
        _own("r.offset", problem).cast("bigint").alias("offset"),
        _time(sql.col("r.timestamp")).alias("timestamp"),
        "source",
        problem.alias("problem"),
    )
    return Source(rows, (), may_repeat=True)


def _own(name: str, problem: Column) -> Column:
    """A record's place; null for a record of another topic, whose place is not in this one."""
    from pyspark.sql import functions as sql

    return sql.when(problem.isNull() | ~problem.startswith(SKIPPED), sql.col(name))


def _time(text: Column) -> Column:
    """Milliseconds (or, being larger, micro- or nanoseconds) since 1970, or a written time."""
    from pyspark.sql import functions as sql

    number = text.cast("bigint")
    micros = (
        sql.when(number >= 10**17, (number / 1000).cast("bigint"))
        .when(number >= 10**14, number)
        .otherwise(number * 1000)
    )
    return sql.when(number.isNotNull(), sql.timestamp_micros(micros)).otherwise(
        text.cast("timestamp")
    )
