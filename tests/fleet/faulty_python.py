"""The Python of executors, in which a task stops at a place: `python faulty_python.py FOLDER …`.

A place is an empty file in FOLDER, named for a kind of the lake's files and how far the task has
come: `records-half` (its file is written in part) or `records-whole` (its file is complete, and
the driver has no report of it). The first task to come there renames the file to
`PLACE.PROCESS`, and goes no further until somebody kills it. What follows FOLDER are the words
that Spark gives to a Python.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

PARTS = "rebal.inspectors.fleet.writer"
LONGEST = 100.0


class StoppingLoader(Loader):
    """Loads the module as `loader` does, and makes its writer stop at the places."""

    def __init__(self, loader: Loader, folder: str) -> None:
        self._loader, self._folder = loader, folder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        stop_at_places(module, self._folder)


class StoppingFinder(MetaPathFinder):
    """Finds the module of `PartWriter` alone."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == PARTS else None
        if spec is not None and spec.loader is not None:
            spec.loader = StoppingLoader(spec.loader, self._folder)
        return spec


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
        for kind in self.said.made:
            if is_stopped_at(f"{kind}-whole"):
                time.sleep(LONGEST)
        yield from batches

    module._write_rows, module.PartWriter.report = stopping_write, stopping_report


if __name__ == "__main__":
    # python faulty_python.py FOLDER -m MODULE …
    del sys.path[0]
    _, place, _, name, *rest = sys.argv
    sys.meta_path.insert(0, StoppingFinder(place))
    sys.argv = [name, *rest]
    runpy.run_module(name, run_name="__main__", alter_sys=True)
