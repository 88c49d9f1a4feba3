"""A process that hosts clients under the test's control, and says what happens to them."""

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kafka.processes import ChildProcess


@dataclass(frozen=True)
class Event:
    """One thing that a client said: `kind` is started, joined, assigned, revoked, lost, error or
    closed; `data` holds its fields (partitions, member_id, generation, message, records)."""

    t_ms: int
    member: str
    kind: str
    data: Mapping[str, Any]

    @property
    def partitions(self) -> set[tuple[str, int]]:
        by_topic = self.data.get("partitions", {})
        return {(topic, number) for topic, numbers in by_topic.items() for number in numbers}


class Host:
    """A process that prints members' events; `events` grows as they come."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log_path = folder / f"{name}-{time.monotonic_ns()}.log"
        self.process = ChildProcess(
            name, command, self.log_path, events=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        self.events: list[Event] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.popen.stdout is not None
        for line in self.process.popen.stdout:
            record = json.loads(line)
            t_ms, member, kind = (record.pop(key) for key in ("t_ms", "id", "event"))
            self.events.append(Event(t_ms, member, kind, record))

    def read_to_end(self) -> None:
        """After the process has ended: wait until its last events are in `events`."""
        self._reader.join(5)

    def begin(self, member: str, settings: Mapping[str, str]) -> None:
        """Tell the process to start a client."""
        for text in (member, *settings.values()):
            assert not {"\t", "\n"} & set(text), f"tab or newline in {text!r}"
        self.process.say("\t".join(["start", member, *(f"{k}={v}" for k, v in settings.items())]))

    def log(self) -> str:
        """The client's own log, what `kubectl logs` would give of this process."""
        return self.process.log()

    def kill(self) -> None:
        """SIGKILL: every member of this process is gone without a word."""
        self.process.kill()

    def close(self, timeout: float = 20) -> None:
        """Close every member cleanly and end the process (SIGKILL when that takes too long)."""
        if self.process.alive:
            self.process.say("exit")
            self.process.wait(timeout)
