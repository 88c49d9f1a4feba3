"""A session's tasks: the place where they run, and how many of them are done.

A classic session has a SparkContext, through which the driver's JVM is asked. A Connect session
has neither: its plans and its Python functions go to a server by gRPC.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from rebal.inspectors.fleet.spark.tasks import cores_of, is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tasks = Callable[[int, int], None]
"""Called now and then with the tasks that are done and all tasks of the running stages."""
_EVERY: Final = 0.5


def describe(spark: SparkSession) -> str:
    """Return where tasks run, and how many at a time, in words."""
    session: Any = spark
    server = is_connect(spark)
    place = f"Spark Connect at {session.client.host}" if server else session.sparkContext.master
    tasks = cores_of(spark)
    return f"{place}, {tasks} {'task' if tasks == 1 else 'tasks'} at a time"


def watch(spark: SparkSession, tasks: Tasks) -> contextlib.AbstractContextManager[None]:
    """Report the running stages' tasks while the block runs."""
    return _told_by_server(spark, tasks) if is_connect(spark) else _asked(spark, tasks)


@contextmanager
def _asked(spark: SparkSession, tasks: Tasks) -> Iterator[None]:
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def look() -> None:
        while not over.wait(_EVERY):
            with contextlib.suppress(Exception):
                stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
                seen = [stage for stage in stages if stage is not None]
                if seen:
                    done = sum(stage.numCompletedTasks for stage in seen)
                    tasks(done, sum(stage.numTasks for stage in seen))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(2)


@contextmanager
def _told_by_server(spark: SparkSession, tasks: Tasks) -> Iterator[None]:
    def look(stages: Any, **_: Any) -> None:
        running = [stage for stage in stages or () if not stage.done]
        if running:
            done = sum(stage.num_completed_tasks for stage in running)
            tasks(done, sum(stage.num_tasks for stage in running))

    spark.registerProgressHandler(look)
    try:
        yield
    finally:
        spark.removeProgressHandler(look)
