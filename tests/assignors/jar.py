"""Random groups, and what Kafka's own assignors (4.1.1) make of them."""

import base64
import os
import random
import selectors
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from rebal.groups.assignors import NAMES, Assignment, LeaderWouldFail, Spec, SpecMember, get
from rebal.groups.wire.user_data import StickyUserData, encode_sticky
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
