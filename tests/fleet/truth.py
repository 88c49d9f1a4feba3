"""What a capture's truth.json (and its coordinator's own log) says, to hold tables against.

Nothing here knows a group's or a client's name: any directory of the form of tests/data/captures
will do.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.software import family, names_itself

REFUSED = re.compile("InconsistentGroupProtocol|INCONSISTENT_GROUP_PROTOCOL")
COOPERATIVE = {"cooperative-sticky", "stream", "sessioned", "compatible"}
"""Assignors that keep partitions (the last two are Connect's protocols)."""
EAGER = {"range", "roundrobin", "sticky", "default", "RoundRobinAssigner"}
NO_LEAVE = {"streams"}
"""Families that stop without a LEAVE_GROUP; static members do so too."""
_STABILIZED = re.compile(
    r"Stabilized group (?P<group>.+) generation (?P<number>\d+)(?: \(\S+\))? with (?P<members>\d+) "
)
_FAILED = re.compile(r"Member (?P<member>\S+) in group \S+ has failed")
_BUMPED = re.compile(r"\[GroupId (?P<group>.+)\] Bumped group epoch to (?P<number>\d+)")
_ASSIGNED = re.compile(
    r" for group (?P<group>.+) for generation (?P<number>\d+)\. "
    r"The group has (?P<members>\d+) members"
)


Number = tuple[str, int, int]
"""A generation: its group, the group's incarnation, and its number."""


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
    seen: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def joined(self) -> bool:
        """Did it ever take part: it was assigned something, or Streams said it was running.

        Some clients say that they gave up nothing before their first join, too.
        """
        return any(
            event["event"] == "ASSIGNED"
            or (event["event"] == "REVOKED" and partitions(event["detail"]))
            or (event["event"] == "STATE" and "RUNNING" in event["detail"])
            for event in self.seen
        )

    @property
    def says_software(self) -> bool:
        return names_itself(self.family, self.version)

    def alive(self, at: int, after: int = 0) -> bool:
        return self.start <= at and (self.end is None or at <= (self.gone or self.end) + after)

    def is_client(self, client_id: str | None) -> bool:
        """Streams gives its consumers' client ids an ending of their own."""
        return client_id == self.client or (
            self.family == "streams" and (client_id or "").startswith(f"{self.client}-StreamThread")
        )

    def is_instance(self, instance_id: str | None) -> bool:
        return instance_id is not None and instance_id == self.instance


class Truth:
    """A capture's groups: their runs, and the coordinator's own word on generations."""

    def __init__(self, folder: Path) -> None:
        read = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
        self.end: int = read["t_end_ms"]
        self.groups: dict[str, list[Run]] = {}
        self.deleted: list[tuple[str, int]] = []
        for name, group in read["groups"].items():
            self.groups[name] = _runs(name, group)
            for event in group["timeline"]:
                if event["action"] == "group deleted":
                    self.deleted.append((name, event["t_ms"]))
        self.stabilized: dict[Number, int] = {}
        self.completed: dict[Number, int] = {}
        self.removed: set[str] = set()
        log = folder / "broker-group-coordinator.log.gz"
        if log.exists():
            with gzip.open(log, "rt", encoding="utf-8") as lines:
                self._read_log(lines)

    def _read_log(self, lines: Iterable[str]) -> None:
        """Members by generation; a group's first generation after others is one made again."""
        incarnations: Counter[str] = Counter()
        begun: set[str] = set()
        deleted = sorted(self.deleted, key=lambda one: one[1])
        for line in lines:
            if silent := _FAILED.search(line):
                self.removed.add(silent["member"])
            found = _STABILIZED.search(line) or _BUMPED.search(line)
            if found:
                at = datetime.strptime(line[1:24], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
                while deleted and deleted[0][1] < at.timestamp() * 1000:
                    begun.discard(deleted.pop(0)[0])
                name = found["group"]
                if name not in begun or found["number"] == "1":
                    incarnations[name] += 1
                begun.add(name)
            if found and found.re is _STABILIZED:
                number = (name, incarnations[name], int(found["number"]))
                self.stabilized[number] = int(found["members"])
            elif found := _ASSIGNED.search(line):
                name = found["group"]
                number = (name, incarnations[name], int(found["number"]))
                self.completed[number] = int(found["members"])

    def runs(self) -> list[Run]:
        return [run for runs in self.groups.values() for run in runs]

    def refused(self, run: Run) -> bool:
        """It said so, or never took part beside members with other assignors alone."""
        errors = [event["detail"] for event in run.seen if event["event"] == "ERROR"]
        if any(REFUSED.search(text) for text in [run.error, *errors]):
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
    running: dict[str, list[Run]] = {}
    printed = group["seen_by_clients"]
    for event in sorted(group["timeline"], key=lambda e: e["t_ms"]):
        client = event.get("client_id")
        if event["action"] == "start":
            numbers[client] += 1
            run = Run(
                name,
                client,
                event["t_ms"],
                tuple(event["assignors"] or ()),
                family(event["software"]),
                event["version"],
                event["instance_id"],
                event["group_protocol"],
            )
            for other in runs:
                if other.client == client or other.is_instance(run.instance):
                    other.next_start = min(other.next_start, run.start)
            mine = (client, numbers[client])
            run.seen += [one for one in printed if (one["client_id"], one["run"]) == mine]
            runs.append(run)
            running.setdefault(client, []).append(run)
        elif event["action"] in ("stop", "kill", "died") and running.get(client):
            run = _first_silent(running[client])
            running[client].remove(run)
            run.end, run.how = event["t_ms"], event["action"]
            run.gone, run.error = event.get("gone_ms"), event.get("error") or ""
    return runs


def _first_silent(runs: list[Run]) -> Run:
    """Which of the processes with one client id has ended: the others print on."""
    return min(runs, key=lambda run: run.seen[-1]["t_ms"] if run.seen else run.start)


def partitions(detail: str) -> frozenset[tuple[str, int]]:
    """The partitions that a client printed, in any of their ways."""
    if detail.startswith("{"):
        read = json.loads(detail)["assignment"]
        return frozenset((topic, n) for topic, numbers in read.items() for n in numbers)
    if detail.startswith("map["):
        found = re.findall(r"([^\s\[\]:]+):\[([\d ]*)\]", detail[4:-1])
        return frozenset((topic, int(n)) for topic, numbers in found for n in numbers.split())
    return frozenset((topic, int(n)) for topic, n in re.findall(r"([\w.-]+)-(\d+)", detail))


def protocol(run: Run, elected: str | None) -> str | None:
    """EAGER or COOPERATIVE, as this client decides it (KIP-429; franz-go follows the vote).

    None where that rests with an assignor of the application's own.
    """
    if run.speaks == "consumer":
        return "COOPERATIVE"
    follows = run.family in ("franz-go", "connect") and elected
    names = {elected} if follows else set(run.assignors)
    if names & EAGER:
        return "EAGER"
    return "COOPERATIVE" if names <= COOPERATIVE else None
