"""How our Python runs in Spark's tasks.

Before each task, a Python worker that is used again collects all garbage and reads anew the
directory of every zip file from which it ever imported something, PySpark's own for each of its
packages: a tenth of a second of CPU a task. What a worker has loaded is there to stay, so each
task spares the next one both.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from zipimport import zipimporter

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def in_tasks(rows: DataFrame, work: Work, schema: StructType | str) -> DataFrame:
    """What `work` makes of the batches of each task's rows."""
    return rows.mapInArrow(partial(_in_worker, work=work), schema)


def _in_worker(batches: Iterable[pa.RecordBatch], work: Work) -> Iterator[pa.RecordBatch]:
    gc.freeze()
    for place, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[place]
    # Rows and members make no cycles, and looking for some among so many takes a tenth of the time.
    gc.disable()
    try:
        yield from work(batches)
    finally:
        gc.enable()
