"""Python functions that run in Spark's tasks, and the progress of the tasks.

A classic session has a SparkContext, through which the driver asks its JVM. A Connect session has
neither; its plans and Python functions go to a server by gRPC.

Spark puts a zip copy of PySpark first on the path of its Python processes, and each session
compiles it anew. Arrow imports pandas where it is installed. `python -m` this module is PySpark's
daemon without both costs (a second each). This machine's workers are forked from the daemon.

A reused worker is spared two more costs, a tenth of a second of CPU a task. By default, it collects
all garbage before each task. It also reads again the directory of every zip file from which it ever
imported something; PySpark's own zip is read once for each package. What a worker has loaded stays
loaded, so each task spares the next task both costs.

Executors without rebal get its code as one zip file. It is made from the running rebal, so that an
editable install, a wheel and a checkout send the same code. The executors themselves need the
third-party packages of the extra `fleet`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from zipimport import zipimporter

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_T = TypeVar("_T")
_MANY: Final = 1 << 16


def shares_of(parts: Sequence[tuple[_T, int]], tasks: int) -> list[list[_T]]:
    """Split `parts`, given as (part, size), into at most `tasks` shares of about equal size."""
    total, held = sum(size for _, size in parts), 0
    shares: list[list[_T]] = []
    for part, size in parts:
        if held * tasks >= total * len(shares):
            shares.append([])
        shares[-1].append(part)
        held += size
    return shares


def in_shares(
    spark: SparkSession,
    shares: Sequence[_T],
    work: Callable[[_T], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Return a data frame of what `work` yields for each share, each share in its own task."""
    return in_tasks(
        spark.range(0, len(shares), 1, max(1, len(shares))),
        partial(_of_numbers, shares=shares, work=work),
        schema,
    )


def in_tasks(rows: DataFrame, work: Work, schema: StructType | str) -> DataFrame:
    """Return a data frame of what `work` yields for the batches of each task's rows."""
    return rows.mapInArrow(partial(_in_worker, work=work), schema)


def _of_numbers(
    batches: Iterable[pa.RecordBatch],
    shares: Sequence[_T],
    work: Callable[[_T], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from work(shares[number])


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


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@lru_cache(maxsize=4)
def cores_of(spark: SparkSession) -> int:
    """Return how many tasks run at once."""
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    from pyspark.sql import functions as sql

    # Nothing tells how many there are, but rows are dealt out to as many tasks.
    return spark.range(_MANY).select(sql.spark_partition_id().alias("task")).distinct().count()


ROOMS: Final = ("groups", "inspectors")


def ship(spark: SparkSession) -> None:
    """Add rebal's code to the session, so that its tasks can import it.

    A second call changes nothing. Local Spark needs no copy.
    """
    if is_connect(spark) or not str(spark.sparkContext.master).startswith("local"):
        spark.addArtifacts(str(_zip()), pyfile=True)


@cache
def _zip() -> Path:
    # It lasts as long as the process, for executors that start later.
    folder = Path(tempfile.mkdtemp(prefix="rebal-shipped-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build_zip(folder)


def build_zip(folder: Path) -> Path:
    """Return `folder/rebal.zip`: the packages `groups` and `inspectors`, with their data files."""
    made = folder / "rebal.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        # Python finds a package without __init__.py in a zip by the folder's own entry only.
        archive.mkdir("rebal")
        for room in ROOMS:
            source = Path(import_module(f"rebal.{room}").__path__[0])
            for path in sorted([source, *source.rglob("*")]):
                place = Path("rebal", room, path.relative_to(source))
                if not any(part.startswith((".", "__pycache__")) for part in place.parts):
                    archive.write(path, place)
    return made


Say = Callable[[str], None]
"""A callback for a sentence about the scan's next step."""
Tasks = Callable[[int, int], None]
"""A progress callback; its arguments are the finished tasks and all tasks of the running stages."""
_EVERY: Final = 0.5


def describe(spark: SparkSession) -> str:
    """Return where tasks run, and how many at a time, in words."""
    session: Any = spark
    at = f"Spark Connect at {session.client.host}" if is_connect(spark) else None
    place, tasks = at or session.sparkContext.master, cores_of(spark)
    return f"{place}, {tasks} {'task' if tasks == 1 else 'tasks'} at a time"


def watch(spark: SparkSession, tasks: Tasks) -> contextlib.AbstractContextManager[None]:
    """Call `tasks` now and then, while the block runs, with the progress of the running stages.

    Its arguments are the number of tasks that are done and of all tasks.
    """
    return _server_progress(spark, tasks) if is_connect(spark) else _poll_progress(spark, tasks)


def _add_up(stages: Sequence[tuple[int, int]], tasks: Tasks) -> None:
    if stages:
        tasks(*map(sum, zip(*stages, strict=True)))


@contextmanager
def _poll_progress(spark: SparkSession, tasks: Tasks) -> Iterator[None]:
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def look() -> None:
        while not over.wait(_EVERY):
            with contextlib.suppress(Exception):
                stages = filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds()))
                _add_up([(stage.numCompletedTasks, stage.numTasks) for stage in stages], tasks)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(2)


@contextmanager
def _server_progress(spark: SparkSession, tasks: Tasks) -> Iterator[None]:
    def look(stages: Any, **_: Any) -> None:
        running = (stage for stage in stages or () if not stage.done)
        _add_up([(stage.num_completed_tasks, stage.num_tasks) for stage in running], tasks)

    spark.registerProgressHandler(look)
    try:
        yield
    finally:
        spark.removeProgressHandler(look)


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("rebal's tasks do without pandas", name=fullname)


def run_daemon() -> None:
    """Run PySpark's daemon until Spark ends it."""
    sys.path.sort(key=lambda place: place.endswith("pyspark.zip"))
    sys.meta_path.insert(0, _WithoutPandas())
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    run_daemon()
