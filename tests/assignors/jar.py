"""Random groups and histories of Connect workers, and what Kafka's own assignors make of them.

A history is the same for one seed; it goes on from what the assignors under test gave. Run as a
program it records what test_recorded.py reads.

"""

import base64
import gzip
import json
import os
import random
import selectors
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rebal.groups.assignors import NAMES, Assignment, LeaderWouldFail, Spec, SpecMember, get
from rebal.groups.assignors.connect import (
    ConnectRound,
    GivenWork,
    Item,
    Memory,
    Work,
    after,
    by_connector,
    eager,
    incremental,
    work_of,
)
from rebal.groups.model import Record
from rebal.groups.wire.consumer_protocol import (
    CONNECTOR,
    StickyUserData,
    WorkerAssignment,
    WorkerMetadata,
    decode_worker_assignment,
    encode_sticky,
)
from tests.encoders import encode_worker
from tests.kafka import jars

PATIENCE = 60
COLLIDING = ("AaAa", "AaBB", "BBAa", "BBBB", "C#AaAa", "C#BBBB")


class Jar:
    """One JVM that answers `assign` as kafka-clients does."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._buffer = b""

    def assign(self, name: str, spec: Spec) -> Assignment | str:
        """The assignment, or the name of the exception.

        Raises:
            TimeoutError: no answer in PATIENCE seconds; the JVM is of no use any more.
        """
        self._say(*_lines(name, spec))
        result: Assignment = {}
        while (line := self._line()) != "done":
            if line.startswith("throws "):
                return line.removeprefix("throws ")
            member, _, owned = line.partition("\t")
            result[member] = [
                (topic, int(p))
                for topic, _, p in (word.rpartition(":") for word in owned.split(",") if word)
            ]
        return result

    def _say(self, *lines: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write("".join(f"{line}\n" for line in lines).encode())
        self._child.stdin.flush()

    def _line(self) -> str:
        assert self._child.stdout is not None
        while b"\n" not in self._buffer:
            with selectors.DefaultSelector() as waiting:
                waiting.register(self._child.stdout, selectors.EVENT_READ)
                if not waiting.select(PATIENCE):
                    raise TimeoutError(f"no answer in {PATIENCE} s")
            read = os.read(self._child.stdout.fileno(), 1 << 16)
            if not read:
                raise EOFError("the JVM ended")
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()


@contextmanager
def running() -> Iterator[Jar]:
    with jvm("Assign", "clients-4.1.1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off") as child:
        yield Jar(child)


@contextmanager
def jvm(
    class_: str, libraries: str, *options: str, stderr: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A JVM that answers on its standard output, and ends with the block."""
    classes = jars.compiled(class_, libraries, Path(__file__).parent / "java")
    path = os.pathsep.join((jars.classpath(libraries), classes))
    java, pipe = jars.tool("java"), subprocess.PIPE
    assert java is not None
    command = [java, "-XX:+UseSerialGC", *options, "-cp", path, class_]
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=stderr, bufsize=0)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def random_rounds(random_: random.Random) -> Iterator[tuple[str, Spec]]:
    """A group over some rebalances with one assignor, changed at random in between."""
    name = random_.choice((*NAMES, "sticky", "cooperative-sticky"))
    spec = _random_group(random_)
    for generation in range(1, random_.randint(2, 6)):
        yield name, spec
        try:
            result = get(name).assign(spec)
        except LeaderWouldFail:
            return
        members = [
            get(name).on_assignment(m, result[m.member_id], None, generation) for m in spec.members
        ]
        spec = _changed(random_, replace(spec, members=tuple(members)), name, generation)


def _random_group(random_: random.Random) -> Spec:
    big = random_.random() < 0.15
    topics = _texts(random_, random_.randint(1, 40 if big else 7), "t")
    ids = _texts(random_, random_.randint(1, 60 if big else 9), "m")
    racks = random_.choice((None, None, ("a", "b"), ("a", "b", "c", "")))
    alike = random_.random() < 0.4
    common = tuple(random_.sample(topics, random_.randint(1, len(topics))))
    most = random_.choice((3, 12, 12, 90))
    replicas = {
        name: [
            random_.sample(range(4), random_.randint(1, 3)) if racks else []
            for _ in range(random_.randint(0, most))
        ]
        for name in topics
    }
    return Spec(
        members=tuple(
            SpecMember(
                member_id=id_,
                topics=common if alike else _some(random_, topics),
                instance_id=f"i{random_.randint(0, 9)}-{n}" if random_.random() < 0.2 else None,
                rack=random_.choice((None, *racks)) if racks else None,
            )
            for n, id_ in enumerate(ids)
        ),
        partitions={name: len(partitions) for name, partitions in replicas.items()},
        replicas=replicas,
        racks={n: random_.choice((None, *racks)) if racks else None for n in range(4)},
    )


def _changed(random_: random.Random, spec: Spec, name: str, generation: int) -> Spec:
    members = list(spec.members)
    replicas = dict(spec.replicas)
    topics = sorted(replicas)
    for _ in range(random_.randint(0, 3)):
        change = random_.randrange(8)
        at = random_.randrange(len(members))
        member = members[at]
        if change == 0 and len(members) > 1:
            del members[at]
        elif change == 1:
            members.insert(at, SpecMember(member_id=f"new-{generation}-{_}", topics=member.topics))
        elif change == 2:
            members[at] = replace(member, topics=_some(random_, topics))
        elif change == 3:
            topic = random_.choice(topics)
            replicas[topic] = [*replicas[topic], *replicas[topic][: random_.randint(0, 9)]]
        elif change == 4 and random_.random() < 0.5:
            topic = random_.choice(topics)
            replicas[topic] = replicas[topic][: random_.randint(0, 9)]
        elif change == 5 and member.generation is not None:
            members[at] = replace(member, generation=random_.randint(-1, generation))
        elif change == 6 and member.owned:
            keep = random_.sample(member.owned, random_.randint(0, len(member.owned)))
            members[at] = replace(member, owned=tuple(keep))
        elif change == 7:
            stolen = random_.choice(members).owned
            mine = [p for p in member.owned if p not in stolen]
            members[at] = replace(member, owned=(*mine, *stolen))
    if name == "sticky":
        members = [_with_user_data(random_, member) for member in members]
    random_.shuffle(members)
    return replace(
        spec,
        members=tuple(members),
        replicas=replicas,
        partitions={topic: len(partitions) for topic, partitions in replicas.items()},
    )


def _with_user_data(random_: random.Random, member: SpecMember) -> SpecMember:
    if member.generation is None:
        return member
    generation = None if random_.random() < 0.02 else member.generation
    data = encode_sticky(StickyUserData(previous=tuple(member.owned), generation=generation))
    if random_.random() < 0.03:
        data = data[: random_.randint(0, len(data))]
    return replace(member, user_data=data, owned=(), generation=None)


def _texts(random_: random.Random, count: int, letter: str) -> list[str]:
    width = random_.choice((1, 3))
    texts = [f"{letter}{random_.randrange(10**width):0{width}}" for _ in range(count)]
    if random_.random() < 0.2:
        texts += random_.sample(COLLIDING, min(count, len(COLLIDING)))
    return list(dict.fromkeys(texts))


def _some(random_: random.Random, topics: list[str]) -> tuple[str, ...]:
    some = random_.sample(topics, random_.randint(0 if random_.random() < 0.1 else 1, len(topics)))
    return (*some, "unknown") if random_.random() < 0.05 else tuple(some)


def _lines(name: str, spec: Spec) -> Iterator[str]:
    def word(value: object) -> str:
        return "-" if value is None else str(value)

    for broker, rack in spec.racks.items():
        yield f"broker\t{broker}\t{word(rack)}"
    for topic, partitions in spec.replicas.items():
        brokers = (",".join(map(str, replicas)) or "-" for replicas in partitions)
        yield "\t".join(("topic", topic, *brokers))
    for member in spec.members:
        data = member.user_data
        fields = (
            member.member_id,
            word(member.instance_id),
            word(member.rack),
            str(-1 if member.generation is None else member.generation),
            "-" if data is None else base64.b64encode(data).decode(),
            ",".join(member.topics),
            ",".join(f"{topic}:{partition}" for topic, partition in member.owned),
        )
        yield "\t".join(("member", *fields))
    yield f"assign\t{name}"


VERSIONS = {"default": 0, "compatible": 1, "sessioned": 2}


class Led(Record, frozen=True, kw_only=True):
    """One rebalance with who leads it, by which protocol; `config` counts tasks by connector."""

    leader: str
    protocol: str
    config: dict[str, int]
    round: ConnectRound


class ConnectJar(Jar):
    """One JVM with leaders that remember, as Connect's do."""

    def forget(self) -> None:
        self._say("forget")

    def lead(self, led: Led) -> dict[str, GivenWork]:
        """What each worker was sent, decoded."""
        asked = led.round
        self._say("\t".join(["config", *(f"{name}:{n}" for name, n in led.config.items())]))
        for worker, held in asked.workers.items():
            data = base64.b64encode(_metadata(held, VERSIONS[led.protocol])).decode()
            self._say(f"member\t{worker}\t{data}")
        numbers = (asked.max_delay_ms, asked.last_generation, asked.generation, asked.now_ms)
        self._say("\t".join(["assign", led.leader, led.protocol, *map(str, numbers)]))
        given = {}
        while (line := self._line()) != "done":
            assert not line.startswith("throws"), line
            worker, _, data = line.partition("\t")
            sent = decode_worker_assignment(base64.b64decode(data))
            assert (sent.version, sent.error) == (VERSIONS[led.protocol], 0)
            given[worker] = GivenWork(
                assigned=work_of(sent.assigned),
                revoked=work_of(sent.revoked),
                delay_ms=sent.delay_ms,
            )
        return given


@contextmanager
def running_connect(version: str = "4.1.1") -> Iterator[ConnectJar]:
    quiet = subprocess.DEVNULL
    with jvm("ConnectAssign", f"connect-{version}", "-Xmx256m", stderr=quiet) as child:
        yield ConnectJar(child)


def sent(given: dict[str, GivenWork]) -> dict[str, GivenWork]:
    """`given` in the order in which a worker reads it."""
    return {
        worker: GivenWork(
            assigned=work_of(by_connector(one.assigned)),
            revoked=work_of(by_connector(one.revoked, hashed=False)),
            delay_ms=one.delay_ms,
        )
        for worker, one in given.items()
    }


def answer(led: Led, memories: dict[str, Memory]) -> dict[str, GivenWork]:
    """What our assignors make of it; `memories` are the leaders', and are brought up to date."""
    if led.protocol == "default":
        shared = eager(led.round.workers, led.round.configured)
        return sent({worker: GivenWork(assigned=work) for worker, work in shared.items()})
    given, memories[led.leader] = incremental(led.round, memories.get(led.leader, Memory()))
    return sent(given)


def history(seed: int) -> Iterator[tuple[Led, dict[str, GivenWork]]]:
    """Rebalances of one group, each with our own answer, on which the next one builds."""
    made = _History(random.Random(seed))
    for _ in range(made.random.randint(3, 14)):
        led = made.next()
        ours = answer(led, made.memories)
        yield led, ours
        made.join(led, ours)


class _History:
    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.memories: dict[str, Memory] = {}
        big = random_.random() < 0.15
        self._most = 70 if big else 9
        self._max_delay = random_.choice((0, 1, 37, 1000, 10_000, 300_000, 300_000, 123_456))
        self._protocol = random_.choice(("compatible", "sessioned"))
        self._names = iter([f"w{n:x}-{random_.randrange(10**6)}" for n in range(400)])
        self._held: dict[str, Work] = {}
        for _ in range(random_.randint(1, 40 if big else 7)):
            self._held[next(self._names)] = ()
        self._config = {
            name: random_.randint(0, 12)
            for name in random_.sample(
                [f"connector-{n}" for n in range(50)] + list(COLLIDING),
                random_.randint(0, 40 if big else 8),
            )
        }
        self._leader = random_.choice(list(self._held))
        self._completed: dict[str, int] = {}
        self._generation = 0
        self._now = 1_700_000_000_000

    def next(self) -> Led:
        random_ = self.random
        if self._generation:
            for _ in range(random_.choice((0, 0, 1, 1, 2, 3))):
                self._change()
        self._generation += random_.choice((1, 1, 1, 2))
        self._now += random_.choice((0, 10, 1500, self._max_delay // 2, self._max_delay, 400_000))
        protocol = self._protocol if random_.random() < 0.95 else "default"
        ids = list(self._held)
        if random_.random() < 0.3:
            random_.shuffle(ids)
        return Led(
            leader=self._leader,
            protocol=protocol,
            config=dict(self._config),
            round=ConnectRound(
                workers={
                    i: () if protocol == "default" else work_of(by_connector(self._held[i]))
                    for i in ids
                },
                configured=_configured(self._config),
                generation=self._generation,
                last_generation=self._completed.get(self._leader, -1),
                now_ms=self._now,
                max_delay_ms=self._max_delay,
            ),
        )

    def join(self, led: Led, given: dict[str, GivenWork]) -> None:
        """Most workers get what the leader made of it; now and then one never does."""
        for worker, one in given.items():
            if self.random.random() < 0.03:
                continue
            held = () if led.protocol == "default" else self._held[worker]
            self._held[worker] = after(held, one)
            self._completed[worker] = self._generation

    def _change(self) -> None:
        random_ = self.random
        ids = list(self._held)
        match random_.randrange(9):
            case 0 | 1 if len(ids) > 1:
                gone = random_.choice(ids)
                del self._held[gone]
                self.memories.pop(gone, None)
                if gone == self._leader:
                    self._leader = random_.choice(list(self._held))
            case 2 | 3 if len(ids) < self._most:
                self._held[next(self._names)] = ()
            case 4:
                self._config[f"new-{random_.randrange(99)}"] = random_.randint(0, 9)
            case 5 if self._config:
                del self._config[random_.choice(list(self._config))]
            case 6 if self._config:
                self._config[random_.choice(list(self._config))] = random_.randint(0, 14)
            case 7 if random_.random() < 0.3:
                one, other = random_.choice(ids), random_.choice(ids)
                stolen = self._held[other][: random_.randint(0, 9)]
                self._held[one] = after(self._held[one], GivenWork(assigned=stolen))
            case 8:
                self._leader = random_.choice(ids)


def _configured(config: dict[str, int]) -> frozenset[Item]:
    return frozenset(
        (name, number) for name, count in config.items() for number in (CONNECTOR, *range(count))
    )


def _metadata(held: Work, version: int) -> bytes:
    told = None
    if version and held:
        told = WorkerAssignment(
            version=version,
            leader="w",
            leader_url="http://w:1/",
            config_offset=1,
            assigned=by_connector(held, hashed=False),
            revoked=(),
        )
    return encode_worker(
        WorkerMetadata(version=version, url="http://w:1/", config_offset=1, assignment=told)
    )


def written(given: dict[str, GivenWork]) -> dict[str, list[Any]]:
    """What each worker was sent, as a record has it."""
    return {
        worker: [
            [[name, list(numbers)] for name, numbers in by_connector(one.assigned, hashed=False)],
            [[name, list(numbers)] for name, numbers in by_connector(one.revoked, hashed=False)],
            one.delay_ms,
        ]
        for worker, one in given.items()
    }


def read(line: dict[str, Any]) -> Led:
    """The rebalance of a recorded line."""
    return Led(
        leader=line["leader"],
        protocol=line["protocol"],
        config=line["config"],
        round=ConnectRound(
            workers={worker: work_of(sent_) for worker, sent_ in line["workers"].items()},
            configured=_configured(line["config"]),
            generation=line["generation"],
            last_generation=line["last_generation"],
            now_ms=line["now_ms"],
            max_delay_ms=line["max_delay_ms"],
        ),
    )


def record(path: Path, seeds: range) -> None:
    """Write histories with what the jar gives: a line a rebalance, read by test_recorded.py."""
    with running_connect() as kafka, gzip.GzipFile(path, "wb", mtime=0) as file:
        for seed in seeds:
            kafka.forget()
            for led, ours in history(seed):
                given = kafka.lead(led)
                assert given == ours, seed
                line = {
                    "history": seed,
                    "leader": led.leader,
                    "protocol": led.protocol,
                    "max_delay_ms": led.round.max_delay_ms,
                    "last_generation": led.round.last_generation,
                    "generation": led.round.generation,
                    "now_ms": led.round.now_ms,
                    "config": led.config,
                    "workers": {
                        worker: by_connector(work, hashed=False)
                        for worker, work in led.round.workers.items()
                    },
                    "given": written(given),
                }
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


def restless() -> Spec:
    """A group that every other rebalance takes something away from, with `cooperative-sticky`."""
    counts = {"orders": 5, "payments": 3, "clicks": 2, "audit.v1": 2, "t-é": 5}
    people = (
        ("é", "audit.v1 clicks t-é", "j0", "a"),
        ("ab", "clicks orders", "i1", "b"),
        ("10", "t-é clicks audit.v1", "j2", None),
        ("2", "payments t-é", "i3", ""),
        ("00", "audit.v1 orders clicks t-é", None, "b"),
        ("1", "payments", "j5", "a"),
    )
    return Spec(
        members=tuple(
            SpecMember(member_id=name, topics=tuple(topics.split()), instance_id=static, rack=rack)
            for name, topics, static, rack in people
        ),
        partitions=counts,
        replicas={name: [[p % 3, (p + 1) % 3] for p in range(n)] for name, n in counts.items()},
        racks={0: "a", 1: "b", 2: None},
    )


if __name__ == "__main__":
    record(Path(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3])))
