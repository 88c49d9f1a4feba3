"""`LiveWorld`: the world of an obeying story, made of real brokers and real members."""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.kafka.administration import Administration
from tests.kafka.cluster import Cluster
from tests.kafka.connect import ConnectHost, Worker, wait_workers
from tests.kafka.members import JAVA_ASSIGNORS, Member, Members
from tests.kafka.service import properties_of
from tests.live.obey import Process
from tests.live.obey_rebal import Rebal

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}")
# Fetches are most of a request log and say nothing of a group.
_NOISE = b'"requestApiKeyName":"FETCH"'
LISTS = "partition.assignment.strategy"
# What a step's own text is for: the others' texts are code, of which the list is read.
FILED = ("java", "streams", "connect", "librdkafka")
STREAMS_NEXT = "streams-3.9.1"


@dataclass
class Life:
    """One run of a process: its member, and when it ended for the group (milliseconds)."""

    process: Process
    member: Member
    ended_ms: int | None = None


@dataclass
class Given:
    """The evidence that each look gives: its kinds, and how the logs were kept.

    `since` are the bytes of a log file that are not given, `shift` hours are added to each time,
    `merged` logs of one kind are one file.
    """

    kinds: set[str]
    shift: int = 0
    merged: bool = False
    since: dict[Path, int] = field(default_factory=dict)
    whole: dict[Path, int] = field(default_factory=dict)


class LiveWorld:
    """A group on a broker or a cluster; `processes` are started by `begin`.

    Each process has its configuration file in the folder `conf`. With `apart` each run of a Java
    consumer has a JVM, and so a log, of its own.
    """

    def __init__(
        self,
        broker: Administration,
        members: Members,
        group: str,
        topic: str,
        *,
        folder: Path,
        rng: random.Random,
        processes: Sequence[Process],
        kinds: set[str],
        apart: bool = False,
        goal: str = "cooperative",
        partitions: int = 8,
        session_ms: int = 6000,
        rebalance_ms: int = 15_000,
        shift: int = 0,
    ) -> None:
        self.broker = broker
        self.group = group
        self.topic = broker.create_topic(topic, partitions)
        self.processes = list(processes)
        self.session_seconds = session_ms / 1000
        self.rebalance_seconds = rebalance_ms / 1000
        self.given = Given(set(kinds), shift=shift)
        self._members = members
        self._folder = folder
        self._rng = rng
        self._goal = goal
        self._partitions = partitions
        self._lives: list[Life] = []
        self._plans = 0
        self._rebal = Rebal()
        self._apart = apart
        self._hosts: dict[str, ConnectHost] = {}
        self.files = folder / "conf"
        self.files.mkdir()
        self.logs = folder / "logs"
        self.logs.mkdir()
        for path in self._request_logs():
            self.given.whole[path] = _size(path)

    def begin(self) -> None:
        """Start all processes, one after the other, and wait until they are at rest."""
        for process in self.processes:
            error = self.start(process)
            assert error is None, f"the story cannot begin: {process.name}: {error}"
            process.running = True
        assert self.settle(), "the story cannot begin: the group is not Stable"

    def end(self) -> None:
        """End all members: the next story begins on a quiet cluster."""
        for life in self._lives:
            if life.ended_ms is None:
                life.member.stop()
        for host in self._hosts.values():
            host.close()
        self._rebal.end()

    @property
    def aborted(self) -> int:
        """How often rebal's own process was aborted in a look."""
        return self._rebal.aborted

    # --- time -----------------------------------------------------------------------------------

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    # --- members --------------------------------------------------------------------------------

    def start(self, process: Process) -> str | None:
        life = self._life(process)
        if life is not None and life.ended_ms is None:
            self._end(life)
        self._write(process)
        member = self._member(process)
        link = self.logs / member.host.log_path.name
        if not link.exists():
            link.symlink_to(member.host.log_path)
        life = Life(process, member)
        self._lives.append(life)
        deadline = self.now() + 3 * self.rebalance_seconds
        while self.now() < deadline:
            error = self.error(process)
            if error is not None:
                self._end(life)
                return error
            if member.said("joined" if process.family == "connect" else "assigned"):
                return None
            time.sleep(0.05)
        # Not rejected: it waits for the others, and the next look says so.
        return None

    def configure(self, process: Process, plan: Path, step: int) -> int:
        """Write the step's settings into its file; the number of commands that this took."""
        if process.family not in FILED:
            return 0
        words = ["show", str(plan), "--set", "--step", str(step), "--family", process.family]
        code, text, said = self._rebal.run(words)
        assert code == 0, f"{words}: exit {code}: {said}"
        process.settings = properties_of(text)
        if process.software == "streams-2.3.1":
            process.software = STREAMS_NEXT
        return 1

    def _write(self, process: Process) -> None:
        """Write the configuration file that the process is started with."""
        ids = {"group.id": self.group, "client.id": process.name, "bootstrap.servers": "b:1"}
        if process.family == "streams":
            ids["application.id"] = ids.pop("group.id")
        if process.instance_id is not None:
            ids["group.instance.id"] = process.instance_id
        if process.assignors and not process.settings:
            names = process.assignors
            java = process.family == "java"
            ids[LISTS] = ",".join(JAVA_ASSIGNORS.get(n, n) if java else n for n in names)
        lines = [f"{key}={value}\n" for key, value in (ids | process.settings).items()]
        (self.files / f"{process.name}.properties").write_text("".join(lines))

    def _member(self, process: Process) -> Member:
        """Start its client. Returns before it has joined."""
        kind, _, version = process.software.partition("-")
        filed, name = process.settings, process.name
        if kind == "connect":
            if process.software not in self._hosts:
                self._hosts[process.software] = ConnectHost(version, self._folder / kind)
            return self._hosts[process.software].launch(self.broker, name, self.group, filed)
        self._skip_others(process.software)
        own = {"own": True} if self._apart and kind == "java" else {}
        return self._members.start(
            process.software,
            self.broker,
            process.name,
            self.group,
            **own,
            **self._options(process),
        )

    def stop(self, process: Process) -> None:
        life = self._life(process)
        assert life is not None
        life.member.stop()
        life.ended_ms = life.ended_ms or _milliseconds()

    def crash(self, process: Process) -> None:
        life = self._life(process)
        assert life is not None
        life.ended_ms = _milliseconds()
        life.member.crash()

    def error(self, process: Process) -> str | None:
        life = self._life(process)
        if life is None:
            return None
        for event in life.member.said("error"):
            kind, message = event.data["kind"], event.data["message"]
            # Java and kafka-python end with their first error; the others say all and go on.
            stops = process.software.startswith(("java", "kafka-python"))
            if stops or kind == "refused" or "FENCED" in message or "fatal" in message.lower():
                return f"{kind}: {message}"
        if life.ended_ms is None and not life.member.host.process.alive:
            return "its process has ended"
        return None

    def settle(self) -> bool:
        members = [life.member for life in self._lives if life.ended_ms is None]
        workers = [member for member in members if isinstance(member, Worker)]
        if workers:
            wait_workers(self.broker, workers)
            return True

        def rests() -> bool:
            if not self._online():
                return self.broker.described(self.group)[0] == "Stable"
            owned = [place for member in members for place in member.owned]
            return len(owned) == len(set(owned)) == self._partitions

        return self._until(2 * self.rebalance_seconds + self.session_seconds, rests, times=3)

    def _until(self, seconds: float, reached: Callable[[], bool], times: int = 1) -> bool:
        """Wait until this is so, `times` in a row; False where it is not in time."""
        deadline, seen = self.now() + seconds, 0
        while seen < times and self.now() < deadline:
            seen = seen + 1 if reached() else 0
            time.sleep(0.2)
        return seen == times

    def _online(self) -> bool:
        """Whether a member speaks KIP-848's protocol: the classic description is empty then."""
        return any(
            one.running and one.settings.get("group.protocol") == "consumer"
            for one in self.processes
        )

    def gone(self, processes: Sequence[Process]) -> bool:
        if processes[0].family == "connect":
            # kafka-python reads no worker's metadata; a worker that is stopped has left.
            return True
        names = {process.name for process in processes}

        def left() -> bool:
            state, clients = self.broker.described(self.group)
            # Streams names the consumer of each thread after its program.
            clients = [each.partition("-StreamThread-")[0] for each in clients]
            return self._online() or (bool(state) and not names & set(clients))

        return self._until(3 * self.session_seconds + 5, left)

    def found(self, member_id: str, name: str) -> Process | None:
        for life in reversed(self._lives):
            if member_id and life.member.member_id == member_id:
                return life.process
        name = name.partition("-StreamThread-")[0]
        return next((each for each in self.processes if each.name == name), None)

    # --- brokers --------------------------------------------------------------------------------

    @property
    def cluster(self) -> Cluster:
        """The brokers, of which one can succeed another."""
        assert isinstance(self.broker, Cluster), "one broker alone has no successor"
        return self.broker

    def reload(self) -> str:
        node = self.cluster.coordinator_of(self.group)
        how = self._rng.random()
        if how < 0.7:
            return f"moved from node {node} to {self.cluster.move_coordinator(self.group)}"
        if how < 0.85:
            self.cluster.restart(node)
            return f"node {node} restarted"
        self.cluster.kill(node)
        self.cluster.restart(node)
        return f"node {node} killed and started"

    # --- rebal ----------------------------------------------------------------------------------

    def plan(self, expected: int | None, *more: str) -> dict[str, Any] | None:
        self._plans += 1
        words = ["plan-upgrade", self.group, "--to", self._goal, "--out", str(self.plan_file)]
        return self._ask([*words, *more, *self._evidence(), *_expect(expected)])

    def verify(self, expected: int | None, *more: str) -> dict[str, Any] | None:
        words = ["verify", str(self.plan_file), *more]
        return self._ask([*words, *self._evidence(), *_expect(expected)])

    def grant(self, kind: str) -> bool:
        had = kind in self.given.kinds
        logs = self._request_logs() if kind == "request log" else self._client_logs()
        cut = kind != "probe" and any(self.given.since.pop(path, None) for path in logs)
        self.given.kinds.add(kind)
        return not had or cut

    def spoil(self) -> str:
        """Merge the logs of each kind from now on, or cut them: what they hold is rotated away."""
        if self._rng.random() < 0.4:
            self.given.merged = True
            return "merged"
        for path in [*self._request_logs(), *self._client_logs()]:
            self.given.since[path] = _size(path)
        return "cut"

    # --- judging --------------------------------------------------------------------------------

    def unowned(self, since: float, breaks: Sequence[float]) -> tuple[float, str]:
        if self.processes[0].family == "connect":
            # Workers share connectors and tasks.
            return 0.0, ""
        offset = time.time() - time.monotonic()
        cuts = sorted((each + offset) * 1000 for each in breaks)
        end = time.time() * 1000
        begin = (since + offset) * 1000
        longest, what = 0.0, ""
        for number in range(self._partitions):
            for start, stop in self._gaps(number, begin, end):
                edges = [start, *(cut for cut in cuts if start < cut < stop), stop]
                piece = max(b - a for a, b in pairwise(edges))
                if piece > longest:
                    longest, what = piece, f"{self.topic}-{number}"
        return longest / 1000, what

    def _gaps(self, number: int, begin: float, end: float) -> list[tuple[float, float]]:
        """When the partition had no owner."""
        changes: list[tuple[float, int]] = []
        for life in self._lives:
            owns = False
            for event in life.member.said("assigned", "revoked", "lost"):
                if (self.topic, number) not in event.partitions:
                    continue
                if life.ended_ms is not None and event.t_ms > life.ended_ms:
                    continue
                now = event.kind == "assigned"
                if now is not owns:
                    changes.append((event.t_ms, 1 if now else -1))
                    owns = now
            if owns and life.ended_ms is not None:
                changes.append((life.ended_ms, -1))
        gaps, owners, since = [], 0, begin
        for at, change in sorted(changes):
            if owners == 0 and change > 0 and at > begin:
                gaps.append((max(since, begin), at))
            owners += change
            if owners == 0:
                since = at
        if owners <= 0:
            gaps.append((max(since, begin), end))
        return gaps

    # --- within ---------------------------------------------------------------------------------

    def _life(self, process: Process) -> Life | None:
        return next((life for life in reversed(self._lives) if life.process is process), None)

    def _end(self, life: Life) -> None:
        """A client that was rejected may try again for ever: its process ends here."""
        life.ended_ms = life.ended_ms or _milliseconds()
        if not life.member.ended:
            life.member.crash()

    def _options(self, process: Process) -> dict[str, Any]:
        """The options of `Members.start` for a process."""
        poll = {"max.poll.interval.ms": str(round(self.rebalance_seconds * 1000))}
        if process.family == "streams":
            return {"topics": [self.topic], "settings": process.settings}
        return {
            "topics": [self.topic],
            "assignors": None if process.settings else process.assignors or None,
            "instance_id": process.instance_id,
            "protocol": process.settings.get("group.protocol"),
            "session_timeout_ms": round(self.session_seconds * 1000),
            "settings": poll | process.settings,
        }

    @property
    def plan_file(self) -> Path:
        """The newest plan."""
        return self._folder / f"plan-{self._plans}.yaml"

    def _ask(self, words: list[str]) -> dict[str, Any] | None:
        full = [*words, "-b", self.broker.bootstrap, "-o", "json", "--timeout", "8"]
        code, text, said = self._rebal.run(full)
        assert "fault of rebal" not in said, f"{full}\n{said}"
        if code in (1, None):
            return None
        assert text, f"{full}\n{said}"
        body: dict[str, Any] = json.loads(text)
        return body

    def _evidence(self) -> list[str]:
        words = ["--probe"] if "probe" in self.given.kinds else []
        for kind, option, paths in (
            ("request log", "--request-log", self._request_logs()),
            ("client log", "--client-log", self._client_logs()),
        ):
            if kind in self.given.kinds:
                for path in self._kept(kind, paths):
                    words += [option, str(path)]
        return words

    def rejected(self) -> Counter[str]:
        """How many joins of each client the brokers rejected for its list, by their request logs.

        rebal's own are its probes.
        """
        found: Counter[str] = Counter()
        for path in self._request_logs():
            for line in self._text(path).decode("utf-8", "replace").splitlines():
                if '"errorCode":23' in line and '"JOIN_GROUP"' in line and self.group in line:
                    (client,) = re.findall(r'"clientId":"([^"]*)"', line)[:1] or [""]
                    found[client] += client != "rebal"
        return +found

    def _kept(self, kind: str, paths: Sequence[Path]) -> list[Path]:
        """The logs as the operator has them: cut, shifted or merged."""
        folder = self._folder / kind.replace(" ", "-")
        folder.mkdir(exist_ok=True)
        texts = {path: self._text(path) for path in paths if path.exists()}
        if self.given.merged and texts:
            # One after the other, not in the order of time: what `cat *.log` gives.
            (folder / "merged.log").write_bytes(b"".join(texts.values()))
            return [folder / "merged.log"]
        made = []
        for number, text in enumerate(texts.values()):
            (folder / f"{number}.log").write_bytes(text)
            made.append(folder / f"{number}.log")
        return made

    def _text(self, path: Path) -> bytes:
        start = max(self.given.whole.get(path, 0), self.given.since.get(path, 0))
        with path.open("rb") as log:
            log.seek(start)
            data = log.read()
        lines = [line for line in data.splitlines(keepends=True) if _NOISE not in line]
        if self.given.shift:
            lines = [_shifted(line, self.given.shift) for line in lines]
        return b"".join(lines)

    def _request_logs(self) -> list[Path]:
        if not isinstance(self.broker, Cluster):
            return []
        return list(self.broker.request_logs.values())

    def _client_logs(self) -> list[Path]:
        return list(dict.fromkeys(life.member.host.log_path for life in self._lives))

    def _skip_others(self, software: str) -> None:
        """A JVM that other stories have used has their lines in its log."""
        if software.startswith("java-"):
            path = self._members.java(software.removeprefix("java-")).log_path
            self.given.whole.setdefault(path, _size(path))


def _expect(expected: int | None) -> list[str]:
    return [] if expected is None else ["--expect-members", str(expected)]


def _shifted(line: bytes, hours: int) -> bytes:
    """The line with its time some hours later: written in another time zone."""
    head = line[:40].decode("utf-8", "replace")
    found = _TIME.search(head)
    if found is None:
        return line
    moved = datetime.fromisoformat(found[0]) + timedelta(hours=hours)
    text = moved.strftime(f"%Y-%m-%d{found[0][10]}%H:%M:%S").encode()
    return line.replace(found[0].encode(), text, 1)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _milliseconds() -> int:
    return round(time.time() * 1000)
