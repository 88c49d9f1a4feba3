"""What a capture's truth.json (and its coordinator's own log) says, to hold tables against.

Nothing here knows a group's or a client's name: any directory of the form of tests/data/captures
will do.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REFUSED = "InconsistentGroupProtocol"
COOPERATIVE = {"cooperative-sticky", "stream"}
FAMILY = {
    "kafka-clients": "java",
    "kafka-streams": "streams",
    "confluent-kafka": "librdkafka",
    "franz-go": "franz-go",
    "kafka-python": "kafka-python",
    "kafkajs": "kafkajs",
}
SILENT = {"kafkajs"}
"""Families that do not say who they are (kafka-facts: unknown/unknown in the request log)."""
NO_LEAVE = {"streams"}
"""Families that stop without a LEAVE_GROUP; static members do so too."""
_STABILIZED = re.compile(r"Stabilized group (\S+) generation (\d+) with (\d+) members")
_ASSIGNED = re.compile(r"for group (\S+) for generation (\d+)\. The group has (\d+) members")


@dataclass
class Run:
    """One process, from its start to its end (milliseconds); `seen` is what it printed."""

    group: str
    client: str
    start: int
    assignors: tuple[str, ...]
    family: str
    version: str
    instance: str | None
    speaks: str
    end: int | None = None
    how: str | None = None
    error: str = ""
    gone: int | None = None
    next_start: int = 10**15
    seen: list[dict[str, Any]] = field(default_factory=list)

    @property
    def joined(self) -> bool:
        """Did it ever take part: it was assigned something, or Streams said it was running."""
        return any(
            event["event"] in ("ASSIGNED", "REVOKED")
            or (event["event"] == "STATE" and "RUNNING" in event["detail"])
            for event in self.seen
        )

    def alive(self, at: int, after: int = 0) -> bool:
        return self.start <= at and (self.end is None or at <= (self.gone or self.end) + after)

    def is_client(self, client_id: str | None) -> bool:
        """Streams gives its consumers' client ids an ending of their own."""
        return client_id == self.client or (
            self.family == "streams" and (client_id or "").startswith(f"{self.client}-StreamThread")
        )


class Truth:
    """A capture's groups: their runs, and the coordinator's own word on generations."""

    def __init__(self, folder: Path) -> None:
        read = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
        self.begin: int = read["t_begin_ms"]
        self.end: int = read["t_end_ms"]
        self.groups: dict[str, list[Run]] = {}
        self.deleted: dict[str, int] = {}
        for name, group in read["groups"].items():
            self.groups[name] = _runs(name, group)
            for event in group["timeline"]:
                if event["action"] == "group deleted":
                    self.deleted[name] = event["t_ms"]
        self.stabilized: dict[tuple[str, int], int] = {}
        self.completed: dict[tuple[str, int], int] = {}
        log = folder / "broker-group-coordinator.log.gz"
        if log.exists():
            with gzip.open(log, "rt", encoding="utf-8") as lines:
                for line in lines:
                    if found := _STABILIZED.search(line):
                        self.stabilized[found[1], int(found[2])] = int(found[3])
                    elif found := _ASSIGNED.search(line):
                        self.completed[found[1], int(found[2])] = int(found[3])

    def runs(self) -> list[Run]:
        return [run for runs in self.groups.values() for run in runs]

    def refused(self, run: Run) -> bool:
        """Died of a refusal, or never took part beside members with other assignors alone."""
        if REFUSED in run.error:
            return True
        if run.joined or run.error or run.speaks != "classic":
            return False
        others = [
            other
            for other in self.groups[run.group]
            if other is not run and other.joined and other.alive(run.start)
        ]
        common = set(run.assignors).intersection(*(other.assignors for other in others))
        return bool(others) and not common


def _runs(name: str, group: dict[str, Any]) -> list[Run]:
    runs: list[Run] = []
    numbers: Counter[str] = Counter()
    by_number: dict[tuple[str, int], Run] = {}
    open_runs: dict[str, Run] = {}
    for event in sorted(group["timeline"], key=lambda e: e["t_ms"]):
        client = event.get("client_id")
        if event["action"] == "start":
            numbers[client] += 1
            run = Run(
                name,
                client,
                event["t_ms"],
                tuple(event["assignors"]),
                FAMILY.get(event["software"].split()[0], event["software"].split()[0]),
                event["version"],
                event["instance_id"],
                event["group_protocol"],
            )
            for other in runs:
                if other.client == client:
                    other.next_start = min(other.next_start, run.start)
            runs.append(run)
            by_number[client, numbers[client]] = open_runs[client] = run
        elif event["action"] in ("stop", "kill", "died"):
            run = open_runs.pop(client)
            run.end, run.how = event["t_ms"], event["action"]
            run.gone, run.error = event.get("gone_ms"), event.get("error", "")
    for event in group["seen_by_clients"]:
        run = by_number[event["client_id"], event["run"]]
        run.seen.append(event)
    return runs


def partitions(detail: str) -> frozenset[tuple[str, int]]:
    """The partitions that a client printed, in any of their ways."""
    if detail.startswith("{"):
        read = json.loads(detail)["assignment"]
        return frozenset((topic, n) for topic, numbers in read.items() for n in numbers)
    if detail.startswith("map["):
        found = re.findall(r"([^\s\[\]:]+):\[([\d ]*)\]", detail[4:-1])
        return frozenset((topic, int(n)) for topic, numbers in found for n in numbers.split())
    return frozenset((topic, int(n)) for topic, n in re.findall(r"([\w.-]+)-(\d+)", detail))


def protocol(run: Run, elected: str | None) -> str:
    """EAGER or COOPERATIVE, as this client decides it (KIP-429; franz-go follows the vote)."""
    if run.speaks == "consumer":
        return "COOPERATIVE"
    names = (elected,) if run.family == "franz-go" and elected else run.assignors
    return "COOPERATIVE" if set(names) <= COOPERATIVE else "EAGER"
