"""Real consumers as processes under the test's control.

`Host` is one process with one consumer of a client (clients.py), `JavaHost(version)` a JVM with any
number of consumers of one Java client's version, `StreamsHost(version)` one with Kafka Streams
programs. All give `Member` handles whose events are what the client itself printed. `Members` is
what the `members` fixture hands out: it starts members by software name and ends them with the
test.

A group is rolled by `Rolling`; `answer` and `inspect` are what `rebal` says of it in JSON.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rebal.cli import app
from tests.documents import checked
from tests.kafka import clients, jars
from tests.kafka.broker import Administration, ChildProcess, HarnessTimeoutError, wait_for

JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    # Not Kafka's own: java/ShelfAssignor.java.
    "shelf": "com.example.ShelfAssignor",
    "shelf-cooperative": "com.example.ShelfAssignor$Cooperative",
    "shelf-only": "com.example.ShelfAssignor$Only",
    # With the names of Kafka's own: cooperative-sticky and range.
    "eager-cooperative-sticky": "com.example.ShelfAssignor$Eager",
    "cooperative-range": "com.example.ShelfAssignor$Range",
}
# Java's usual console layout, so that the file is what a container's log gives.
_JAVA_LOG = {
    "showDateTime": "true",
    "dateTimeFormat": "[yyyy-MM-dd HH:mm:ss,SSS]",
    "showThreadName": "false",
    "showLogName": "true",
    "levelInBrackets": "false",
    "defaultLogLevel": "info",
}


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

    def leaves(self, owned: set[tuple[str, int]]) -> set[tuple[str, int]]:
        """What its member owns after it, of what it owned before: given is added, lost is taken."""
        return owned | self.partitions if self.kind == "assigned" else owned - self.partitions


@dataclass
class Member:
    """One consumer object. A restart is a new `Member`, also when the client id is the same."""

    host: Host
    id: str
    client_id: str
    group: str
    settings: Mapping[str, str]
    assignors: tuple[str, ...] | None
    closed: bool = field(default=False, init=False)

    @property
    def events(self) -> list[Event]:
        return [event for event in list(self.host.events) if event.member == self.id]

    def said(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]

    @property
    def owned(self) -> set[tuple[str, int]]:
        """What the member owns by its own account: assigned, less revoked and lost."""
        now: set[tuple[str, int]] = set()
        for event in self.said("assigned", "revoked", "lost"):
            now = event.leaves(now)
        return now

    @property
    def member_id(self) -> str | None:
        """The member id as the client itself knows it (Java 2.5 and later, Python clients)."""
        joined = self.said("joined")
        return joined[-1].data["member_id"] if joined else None

    @property
    def generation(self) -> int | None:
        """The generation (or member epoch) as the client knows it; None where it does not say."""
        joined = self.said("joined")
        return joined[-1].data["generation"] if joined else None

    @property
    def error(self) -> str | None:
        """What the client said when it failed, as `Kind: message`."""
        errors = self.said("error")
        return f"{errors[0].data['kind']}: {errors[0].data['message']}" if errors else None

    def log(self) -> str:
        return self.host.log()

    def wait_for(self, kind: str, *, timeout: float = 30, count: int = 1) -> Event:
        """Wait for the `count`-th event of a kind and give it back."""
        what = f"{self.id} to say {kind!r} ({count} times)"
        self.host.wait(
            what, lambda: len(self.said(kind)) >= count or not self.host.process.alive, timeout
        )
        if not self.host.process.alive:
            self.host.read_to_end()
        if len(self.said(kind)) < count:
            tail = self.host.process.tail()
            raise HarnessTimeoutError(f"waited for {what}, but its process ended\n{tail}")
        return self.said(kind)[count - 1]

    def stop(self, timeout: float = 20) -> None:
        """A clean close; returns when the client has left and closed."""
        if not self.closed and not self.ended:
            self.host.process.say(f"stop\t{self.id}")
            self.host.wait(f"{self.id} to close", lambda: self.ended, timeout)
        self.closed = True

    def rebalance(self) -> None:
        """Java 2.6 and later: enforceRebalance() at the next poll."""
        self.host.process.say(f"rebalance\t{self.id}")

    def hold(self, milliseconds: int) -> None:
        """No poll for so long: what a busy application does."""
        self.host.process.say(f"hold\t{self.id}\t{milliseconds}")

    def kill(self) -> None:
        """SIGKILL of the member's whole process: Java members share one unless `own=True`."""
        self.host.kill()

    def crash(self) -> None:
        """End this one member without a LeaveGroup; other clients than Java by a SIGKILL."""
        if self.host.java:
            self.host.process.say(f"crash\t{self.id}")
            self.host.wait(f"{self.id} to end", lambda: self.ended, 20)
        else:
            self.kill()
        self.closed = True

    @property
    def ended(self) -> bool:
        """Whether the consumer has closed or failed, or its process has gone."""
        fatal = self.host.java and bool(self.said("error"))
        return bool(self.said("closed")) or fatal or not self.host.process.alive


class Host:
    """A process that prints members' events; `events` grows as they come."""

    java: ClassVar[bool] = False

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

    def start(self, broker: Administration, client_id: str, group: str, **options: Any) -> Member:
        """Start a consumer; `options` are those of `consumer_settings`. Returns at once."""
        member = self.fresh(client_id)
        made = consumer_settings(broker, client_id, group, java=self.java, **options)
        self.begin(member, made)
        assignors = options.get("assignors")
        names = None if assignors is None else tuple(assignors)
        return Member(self, member, client_id, group, made, names)

    def fresh(self, name: str) -> str:
        """An id for the next client."""
        return name

    def begin(self, member: str, settings: Mapping[str, str]) -> None:
        """Tell the process to start a client."""
        for text in (member, *settings.values()):
            assert not {"\t", "\n"} & set(text), f"tab or newline in {text!r}"
        self.process.say("\t".join(["start", member, *(f"{k}={v}" for k, v in settings.items())]))

    def wait(
        self, what: str, ready: Callable[[], object], timeout: float, every: float = 0.05
    ) -> None:
        """`wait_for`, with the process's log in the error."""
        wait_for(what, ready, timeout=timeout, every=every, involved=lambda: [self.process])

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


class JavaHost(Host):
    """A JVM with consumers of one kafka-clients version (workers: connect.py)."""

    program: ClassVar[str] = "Member"
    library: ClassVar[str] = "clients"
    oldest: ClassVar[str] = jars.CLIENT_VERSIONS[0]
    java = True

    def __init__(self, version: str, folder: Path, options: Sequence[str] = ()) -> None:
        classes = jars.compiled(self.program, f"{self.library}-{self.oldest}")
        logging = [f"-Dorg.slf4j.simpleLogger.{key}={value}" for key, value in _JAVA_LOG.items()]
        own = jars.compiled("ShelfAssignor", "clients-2.8.2")
        classpath = f"{classes}:{own}:{jars.classpath(f'{self.library}-{version}')}"
        self.version = version
        command = [*jars.jvm(192), *logging, *options, "-cp", classpath, self.program]
        super().__init__(f"{self.library}-{version}", command, folder)
        self._started = 0

    def fresh(self, name: str) -> str:
        """An id for the next client: one with the same name may have been here before."""
        self._started += 1
        return f"{name}#{self._started}"


class StreamsHost(JavaHost):
    """A JVM with Streams programs of one version.

    Each is a program of its own (application id, process id, state folder) with one stream thread,
    so one member. `joined` comes from clients of 2.5 and later.
    """

    program: ClassVar[str] = "StreamsMember"
    library: ClassVar[str] = "streams"
    oldest: ClassVar[str] = jars.STREAMS_VERSIONS[0]

    def start(
        self,
        broker: Administration,
        client_id: str,
        group: str,
        *,
        topics: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        **_: Any,
    ) -> Member:
        """Start one program; `settings` (upgrade.from, …) win. Returns before it has joined.

        The session timeout is short: a program that is stopped leaves only when it is over.
        """
        member = self.fresh(client_id)
        made = {
            "bootstrap.servers": broker.bootstrap,
            "application.id": group,
            "client.id": client_id,
            "topics": ",".join(topics),
            "state.dir": str(self.log_path.parent / f"state-{member}"),
            "auto.offset.reset": "earliest",
            "commit.interval.ms": "500",
            "session.timeout.ms": "1500",
            "heartbeat.interval.ms": "200",
            **(settings or {}),
        }
        self.begin(member, made)
        return Member(self, member, client_id, group, made, None)


def consumer_settings(
    broker: Administration,
    client_id: str,
    group: str,
    *,
    topics: Sequence[str],
    assignors: Sequence[str] | None = None,
    instance_id: str | None = None,
    protocol: str | None = None,
    session_timeout_ms: int = 6000,
    settings: Mapping[str, str] | None = None,
    java: bool = True,
) -> dict[str, str]:
    """Consumer properties; `assignors` None leaves the list unset, as the client's default.

    `protocol="consumer"` is KIP-848: the session timeout is then the broker's business.
    `settings` are further properties, and win. `topics` is Member.java's word for the subscription.
    """
    made = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "client.id": client_id,
        "topics": ",".join(topics),
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": "500",
        # A refresh makes kafka-python rejoin by itself, at a moment that no test expects.
        "metadata.max.age.ms": "5000" if java else "60000",
    }
    if protocol is not None:
        made["group.protocol"] = protocol
    if protocol != "consumer":
        made["session.timeout.ms"] = str(session_timeout_ms)
        made["heartbeat.interval.ms"] = str(max(100, min(500, session_timeout_ms // 4)))
    if assignors is not None:
        names = [JAVA_ASSIGNORS.get(name, name) if java else name for name in assignors]
        made["partition.assignment.strategy"] = ",".join(names)
    if instance_id is not None:
        made["group.instance.id"] = instance_id
    return made | dict(settings or {})


class Members:
    """Starts members by software name and ends all of them at the end of the test.

    The names are `java-VERSION`, `streams-VERSION`, `clients.PYTHON_SOFTWARE` and, with the fixture
    `other_clients`, `clients.OTHER_SOFTWARE`. Java members of one version share a JVM (which
    outlives the test, members do not) unless `own=True`, and so do a test's Streams programs; every
    other client has its own process.
    """

    _shared: ClassVar[dict[str, JavaHost]] = {}

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rebal-members-"))
        self._started: list[Member] = []
        self._own: list[Host] = []
        self._streams: dict[str, StreamsHost] = {}

    def start(
        self,
        software: str,
        broker: Administration,
        client_id: str,
        group: str,
        *,
        own: bool = False,
        **options: Any,
    ) -> Member:
        """One member; `options` are those of `consumer_settings`. Returns before it has joined."""
        if software.startswith("java-"):
            host: Host = self.java(software.removeprefix("java-"), own=own)
        elif software.startswith("streams-"):
            host = self.streams(software.removeprefix("streams-"))
        else:
            host = Host(software, clients.command(software), self._folder)
            self._own.append(host)
        member = host.start(broker, client_id, group, **options)
        self._started.append(member)
        return member

    def java(self, version: str, *, own: bool = False) -> JavaHost:
        """The JVM shared by the members of one version, or a new one."""
        if own:
            host = JavaHost(version, self._folder)
            self._own.append(host)
            return host
        host = self._shared.get(version)
        if host is None or not host.process.alive:
            folder = (
                host.log_path.parent if host else Path(tempfile.mkdtemp(prefix="rebal-members-"))
            )
            host = self._shared[version] = JavaHost(version, folder)
        return host

    def streams(self, version: str) -> StreamsHost:
        """The JVM of one version's Streams programs, which ends with the test."""
        if version not in self._streams:
            self._streams[version] = StreamsHost(version, self._folder)
            self._own.append(self._streams[version])
        return self._streams[version]

    def end(self) -> None:
        """Stop every member; a process that no other test shares ends too."""
        on_shared = [member for member in self._started if member.host not in self._own]
        for member in on_shared:
            if member.host.process.alive and not member.ended:
                member.host.process.say(f"stop\t{member.id}")
        for host in self._own:
            host.close()
        for member in on_shared:
            member.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @classmethod
    def end_shared(cls) -> None:
        """Kill the shared JVMs: their members were stopped by their tests."""
        for host in cls._shared.values():
            if host.process.alive:
                host.kill()
            shutil.rmtree(host.log_path.parent, ignore_errors=True)
        cls._shared.clear()


def wait_assigned(
    members: Sequence[Member], total: int, *, each: int = 1, quiet: float = 0.3, timeout: float = 40
) -> None:
    """Wait until `members` own `total` partitions between them, and nothing moves any more.

    Each owns at least `each`, no partition twice, and none of them said anything for `quiet`
    seconds. `Broker.wait_stable` asks the broker's side of it.
    """
    last = (-1, time.monotonic())

    def settled() -> bool:
        nonlocal last
        ended = [member for member in members if member.ended]
        if ended:
            raise HarnessTimeoutError(
                f"{ended[0].id} has ended: {ended[0].error}\n{ended[0].host.process.tail()}"
            )
        said = sum(len(member.events) for member in members)
        if said != last[0]:
            last = (said, time.monotonic())
        owned = [member.owned for member in members]
        union = set().union(*owned)
        whole = len(union) == total == sum(map(len, owned))
        return whole and min(map(len, owned)) >= each and time.monotonic() - last[1] >= quiet

    try:
        wait_for(
            f"{total} partitions owned by {[member.id for member in members]}",
            settled,
            timeout=timeout,
            involved=lambda: list({m.host.process.pid: m.host.process for m in members}.values()),
        )
    except HarnessTimeoutError as late:
        owned = {member.id: (sorted(member.owned), member.error) for member in members}
        raise HarnessTimeoutError(f"{late}\nowned: {owned}") from late


def answer(
    broker: Administration, capsys: pytest.CaptureFixture[str], command: str, *words: str
) -> dict[str, Any]:
    """What a command says of this broker's groups in JSON, whose exit code is the command's."""
    code = app.run([command, *words, "-b", broker.bootstrap, "-o", "json"])
    told = capsys.readouterr()
    assert told.out, told.err
    assert "fault of rebal" not in told.err
    body: dict[str, Any] = checked(told.out)
    assert body["exit_code"] == code
    return body


def inspect(broker: Administration, group: str, *options: str) -> dict[str, Any]:
    """The one group in `rebal inspect`'s JSON."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = app.run(["inspect", group, "-o", "json", "-b", broker.bootstrap, *options])
    assert code in (0, 3, 4), err.getvalue()
    answer = json.loads(out.getvalue())
    assert answer["schema"] == "rebal.inspect/1"
    (only,) = answer["groups"]
    return only


def named(body: dict[str, Any], word: str) -> set[str]:
    """The members of whom a verify says `word` (yes, no, cannot tell)."""
    return {member["name"] for member in body["members"] if member["done"] == word}


def properties_of(text: str) -> dict[str, str]:
    """The settings of a properties text, which may have comments."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


class Rolling:
    """The running members of a new topic's group by client id, and the list of each.

    An empty list is the client's own default; `ever` has all that were started, in that order.
    `settle`, and what ends with it, waits until the group is at rest: all partitions have their
    owner, and the broker calls the group Stable.
    """

    quiet = 0.3
    """Seconds in which nobody says anything when the group is at rest."""

    def __init__(
        self,
        broker: Administration,
        members: Members,
        group: str,
        topic: str,
        *,
        partitions: int = 6,
        software: str | None = None,
    ) -> None:
        """`software` of all members; None: that in its name, `franz-go` in `franz-go-0`."""
        self.broker = broker
        self.group = group
        self.topic = broker.create_topic(topic, partitions)
        self.partitions = partitions
        self.running: dict[str, Member] = {}
        self.ever: list[tuple[str, Member]] = []
        self.lists: dict[str, list[str]] = {}
        self._members = members
        self._software = software
        self._options: dict[str, dict[str, Any]] = {}

    def start(
        self, name: str, assignors: Sequence[str], *, software: str | None = None, **options: Any
    ) -> Member:
        """One more process, which has no place among the running ones. Returns at once."""
        member = self._members.start(
            software or self._software or name.rpartition("-")[0],
            self.broker, name, self.group, topics=[self.topic], assignors=assignors or None,
            **options,
        )  # fmt: skip
        self.ever.append((name, member))
        return member

    def place(self, name: str, assignors: list[str], **options: Any) -> None:
        """Start `name` as one of the running ones. Returns at once."""
        self.running[name] = self.start(name, assignors, **options)
        self.lists[name] = assignors
        self._options[name] = options

    def begin(self, names: Iterable[str], assignors: list[str], **options: Any) -> None:
        """Start these, all with one list."""
        for name in names:
            self.place(name, assignors, **options)
        self.settle()

    def restart(self, name: str, assignors: list[str]) -> None:
        """Stop `name` and start it as it was placed, but with this list."""
        self.running[name].stop()
        self.begin([name], assignors, **self._options.get(name, {}))

    def stop(self, name: str) -> None:
        """Stop `name`, which has no place any more. Returns when it has left."""
        self.running.pop(name).stop()
        self.lists.pop(name)

    def settle(self) -> None:
        running = list(self.running.values())
        wait_assigned(running, self.partitions, quiet=self.quiet)
        self.broker.wait_stable(self.group, len(running))

    def refuses(self, name: str, assignors: list[str], saying: str, **options: Any) -> None:
        """A newcomer with this list dies with these words, and the group goes on as it was."""
        newcomer = self.start(name, assignors, **options)
        newcomer.wait_for("error")
        assert saying in str(newcomer.error)
        newcomer.stop()
        self.settle()

    def errors(self) -> dict[str, str]:
        """What running members said of their failures."""
        return {name: member.error for name, member in self.running.items() if member.error}

    @contextmanager
    def logged(self) -> Iterator[None]:
        """With the broker's request log on."""
        self.broker.log_requests(True)
        try:
            yield
        finally:
            self.broker.log_requests(False)
