"""Paths as the user names them, for Spark's readers, and files' names as Spark tells them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_GLOB: Final = re.compile(r"([\\{}\[\]*?])")


def is_remote(path: str) -> bool:
    """Whether only Spark can look there (`hdfs://…`, `s3a://…`)."""
    return _SCHEME.match(path) is not None


def spark_paths(paths: Sequence[str]) -> list[str]:
    """`paths` for Spark's readers: a local one as it is, whatever characters its name holds."""
    return [
        path if is_remote(path) else "file:" + _GLOB.sub(r"\\\1", str(Path(path).absolute()))
        for path in paths
    ]


def file_name() -> Column:
    """The name of the file that a row was read from, as its folder lists it."""
    from pyspark.sql import functions as sql

    # Spark tells it as a part of a URI, in which a plus is a plus.
    return sql.url_decode(sql.regexp_replace("_metadata.file_name", r"\+", "%2B"))
