"""The configuration files of a simulated service, written to disk and read with `--inventory`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from rebal.groups.evidence.observations import Declared
from rebal.inspectors.inventory.reader import read_inventory
from rebal.planner.rehearsal.engine.member import Process
from tests.search.sources import CLASSES, GROUP, Book


class Inventory:
    """The files with which the service's processes start next; each keeps its own date."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._folder = TemporaryDirectory(prefix="rebal-search-")
        self._texts: dict[str, str] = {}
        self._declared: tuple[Declared, ...] = ()

    def read(self, processes: Iterable[Process]) -> tuple[Declared, ...]:
        """Return what rebal reads of the files that these processes have now."""
        texts = dict(map(_file, processes))
        if texts == self._texts:
            return self._declared
        folder = Path(self._folder.name)
        for name in self._texts.keys() - texts.keys():
            (folder / name).unlink()
        written = self._book.moment().timestamp()
        for name, text in texts.items():
            if self._texts.get(name) != text:
                (folder / name).write_text(text)
                os.utime(folder / name, (written, written))
        self._texts = texts
        self._declared = read_inventory(folder).declared
        return self._declared


def _file(process: Process) -> tuple[str, str]:
    """Return the name and the text of a process's file."""
    settings = {
        "group.id": GROUP,
        "client.id": process.client_id,
        "session.timeout.ms": f"{process.session * 1000:.0f}",
        "max.poll.interval.ms": f"{process.rebalance * 1000:.0f}",
    }
    if process.client_id.startswith(f"consumer-{GROUP}-"):
        # Java makes this client id itself.
        del settings["client.id"]
    if process.instance_id:
        settings["group.instance.id"] = process.instance_id
    names = process.assignors
    if process.family != "java":
        settings["partition.assignment.strategy"] = ",".join(names)
        return f"{process.name}.json", json.dumps(settings)
    if process.protocol == "consumer":
        settings["group.protocol"] = "consumer"
        # KIP-848: a client that sets it does not start.
        del settings["session.timeout.ms"]
    else:
        classes = [f"org.apache.kafka.clients.consumer.{CLASSES[name]}" for name in names]
        settings["partition.assignment.strategy"] = ",".join(classes)
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    return f"{process.name}.properties", text
