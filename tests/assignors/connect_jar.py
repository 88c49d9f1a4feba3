"""Random histories of Connect worker groups, and what Connect's own assignors make of each round.

A history is the same for one seed; it goes on from what the assignors under test gave.
"""

import base64
import gzip
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from rebal.groups.wire.user_data import (
    CONNECTOR,
    WorkerAssignment,
    WorkerMetadata,
    decode_worker_assignment,
)
from tests.assignors.jar import COLLIDING, Jar, jvm
from tests.encoders import encode_worker

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
def running(version: str = "4.1.1") -> Iterator[ConnectJar]:
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
    with running() as kafka, gzip.GzipFile(path, "wb", mtime=0) as file:
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


if __name__ == "__main__":
    record(Path(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3])))
