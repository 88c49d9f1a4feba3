"""Engines that run a scan's tasks: Spark in this process, or a session behind Spark Connect.

A classic session has a SparkContext, through which the driver's JVM is asked. A Connect session
has neither: its plans and its Python functions go to a server by gRPC.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from rebal.groups.errors import RebalError
from rebal.inspectors.fleet.shipping import build_zip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tasks = Callable[[int, int], None]
"""Called now and then with the tasks that are done and all tasks of the running stages."""
_EVERY: Final = 0.5
_STOP_SECONDS: Final = 20
_MANY: Final = 1 << 16


class SparkError(RebalError):
    """Spark cannot be started, or a job of it failed; one sentence that says why."""


class Engine(Protocol):
    """A running Spark, beside the DataFrames that every session has."""

    @property
    def cores(self) -> int:
        """Tasks that run at once."""

    @property
    def shares_disk(self) -> bool:
        """Return whether tasks run on this machine and see what this process sees."""

    def describe(self) -> str:
        """Return where tasks run, in words."""

    def ship(self, folder: Path) -> None:
        """Let tasks import rebal, by a zip file in the folder; a second time changes nothing."""

    def watch(self, tasks: Tasks) -> contextlib.AbstractContextManager[None]:
        """Report the running stages' tasks while the block runs."""


@lru_cache(maxsize=4)
def engine_of(spark: SparkSession) -> Engine:
    """Return what runs a session's tasks."""
    return _Connect(spark) if is_connect(spark) else _Classic(spark)


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


class _Classic:
    """Spark whose driver's JVM belongs to this process."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext

    @property
    def cores(self) -> int:
        return int(self._context.defaultParallelism)

    @property
    def shares_disk(self) -> bool:
        return str(self._context.master).startswith("local")

    def describe(self) -> str:
        master = self._context.master
        if self.shares_disk:
            return f"{master}, {_counted(self.cores, 'core')} of this machine"
        # Each executor and the driver report their memory.
        amount = max(0, self._context._jsc.sc().getExecutorMemoryStatus().size() - 1)
        return f"{master}, with {_counted(amount, 'executor')}"

    def ship(self, folder: Path) -> None:
        if not self.shares_disk:
            self._context.addPyFile(str(build_zip(folder)))

    @contextmanager
    def watch(self, tasks: Tasks) -> Iterator[None]:
        over = threading.Event()
        tracker = self._context.statusTracker()

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


class _Connect:
    """Spark behind a server of Spark Connect."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark
        self._shipped = False

    @cached_property
    def cores(self) -> int:
        from pyspark.sql import functions as sql

        # Nothing tells how many there are, but rows are dealt out to as many tasks.
        numbers = self._spark.range(_MANY).select(sql.spark_partition_id().alias("task"))
        return int(numbers.distinct().count())

    @property
    def shares_disk(self) -> bool:
        return False

    def describe(self) -> str:
        return f"Spark Connect at {self._spark.client.host}, with {_counted(self.cores, 'core')}"

    def ship(self, folder: Path) -> None:
        if not self._shipped:
            self._spark.addArtifacts(str(build_zip(folder)), pyfile=True)
            self._shipped = True

    @contextmanager
    def watch(self, tasks: Tasks) -> Iterator[None]:
        def look(stages: Any, **_: Any) -> None:
            running = [stage for stage in stages or () if not stage.done]
            if running:
                done = sum(stage.num_completed_tasks for stage in running)
                tasks(done, sum(stage.num_tasks for stage in running))

        self._spark.registerProgressHandler(look)
        try:
            yield
        finally:
            self._spark.removeProgressHandler(look)


def end(*calls: Callable[[], object]) -> None:
    """Make calls that end Spark, whichever fails, from a thread that is left behind after a while.

    This thread's connection may be in the middle of an answer, or lead nowhere.
    """

    def work() -> None:
        for call in calls:
            with contextlib.suppress(Exception):
                call()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(_STOP_SECONDS)


def _counted(amount: int, what: str) -> str:
    return f"{amount} {what if amount == 1 else what + 's'}"
