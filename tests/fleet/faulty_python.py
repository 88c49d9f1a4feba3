"""The Python of executors, in which a task stops at a place: `python faulty_python.py FOLDER …`.

A place is an empty file in FOLDER, named for a kind of the lake's files and how far the task has
come: `records-half` (its file is written in part) or `records-whole` (its file is complete, and
the driver has no report of it). The first task to come there renames the file to
`PLACE.PROCESS`, and goes no further until somebody kills it. What follows FOLDER are the words
that Spark gives to a Python.
"""

import contextlib
import importlib
import os
import runpy
import sys
import time
from collections.abc import Iterator
from typing import Any

LONGEST = 100.0


def stop_at_places(module: Any, folder: str) -> None:
    """Let `module.PartWriter` stop at the places that `folder` names."""
    write, report = module._write_rows, module.PartWriter.report

    def is_stopped_at(place: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{folder}/{place}", f"{folder}/{place}.{os.getpid()}")
            return True
        return False

    def stopping_write(rows: Any, kind: str, out: Any) -> None:
        if is_stopped_at(f"{kind}-half"):
            out.write(b"PAR1")
            out.flush()
            time.sleep(LONGEST)
            os._exit(1)
        write(rows, kind, out)

    def stopping_report(self: Any) -> Iterator[Any]:
        batches = list(report(self))
        for kind in self.task_report.made:
            if is_stopped_at(f"{kind}-whole"):
                time.sleep(LONGEST)
        yield from batches

    module._write_rows, module.PartWriter.report = stopping_write, stopping_report


if __name__ == "__main__":
    # python faulty_python.py FOLDER -m MODULE …
    del sys.path[0]
    _, place, _, name, *rest = sys.argv
    # Tasks are forks of this process.
    stop_at_places(importlib.import_module("rebal.inspectors.fleet.lake.writer"), place)
    sys.argv = [name, *rest]
    runpy.run_module(name, run_name="__main__", alter_sys=True)
