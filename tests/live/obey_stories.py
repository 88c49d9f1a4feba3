"""The states in which obeying stories begin, drawn by a seed: `draw(rng)`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.live.obey import Process

RANGE: tuple[str, ...] = ("range",)
WIDE: tuple[str, ...] = ("cooperative-sticky", "range")
DEFAULT: tuple[str, ...] = ("range", "cooperative-sticky")
FINAL: tuple[str, ...] = ("cooperative-sticky",)
BACK: tuple[str, ...] = ("range", "cooperative-sticky")
JAVA = ("java-2.8.2", "java-3.9.1", "java-4.1.1")
MODERN = ("java-3.9.1", "java-4.1.1")

Lists = list[tuple[str, ...]]


@dataclass(frozen=True)
class Begin:
    """Where a story begins: the processes in the order of their start, and what is given."""

    state: str
    goal: str
    processes: tuple[Process, ...]
    kinds: frozenset[str]
    counted: bool
    session_ms: int
    shift: int

    def __str__(self) -> str:
        lists = ", ".join(
            f"{p.name}{'*' if p.instance_id else ''} {p.software} {list(p.assignors)}"
            for p in self.processes
        )
        given = ", ".join(sorted(self.kinds)) or "no evidence"
        counted = ", counted" if self.counted else ""
        return (
            f"{self.state} → {self.goal}: {lists}; given {given}{counted}; "
            f"session {self.session_ms} ms; log times {self.shift:+} h"
        )


def _lists(state: str, size: int, rng: random.Random) -> Lists:
    """The lists in the order of the start, each admitted by those before it."""
    some = rng.randrange(1, size) if size > 1 else 1
    made: dict[str, Callable[[], Lists]] = {
        "eager": lambda: [RANGE] * size,
        "other eager": lambda: [rng.choice([("roundrobin",), ("sticky", "range")])] * size,
        "default": lambda: [DEFAULT] * size,
        "half default": lambda: [RANGE] * some + [DEFAULT] * (size - some),
        "half wide": lambda: [RANGE] * some + [WIDE] * (size - some),
        "half narrow": lambda: [WIDE] * some + [FINAL] * (size - some),
        "half narrowed default": lambda: [DEFAULT] * some + [FINAL] * (size - some),
        "cooperative": lambda: [FINAL] * size,
        "half back": lambda: [FINAL] * some + [BACK] * (size - some),
        "one client": lambda: [RANGE] * size,
        "with franz-go": lambda: [RANGE] * size,
    }
    return made[state]()


FORWARD = (
    "eager", "eager", "other eager", "default", "default", "half default", "half wide",
    "half wide", "half narrow", "half narrowed default", "one client", "with franz-go",
)  # fmt: skip
BACKWARD = ("cooperative", "half back", "half narrow", "default")


def draw(rng: random.Random, *, others: bool = True, most: int = 5) -> Begin:
    """Return one beginning of at most so many members; `others` allows clients beside Java's."""
    goal = "cooperative" if rng.random() < 0.75 else "eager"
    states: tuple[str, ...] = FORWARD if goal == "cooperative" else BACKWARD
    if not others:
        states = tuple(each for each in states if each not in ("one client", "with franz-go"))
    state = rng.choice(states)
    size = rng.randrange(2, most + 1) if state != "one client" else rng.randrange(2, 4)
    lists = _lists(state, size, rng)
    software = [rng.choice(JAVA if names == RANGE else MODERN) for names in lists]
    if rng.random() < 0.5:
        software = [rng.choice(MODERN)] * size
    if state == "one client":
        software = [rng.choice(("confluent-kafka", "kafka-python"))] * size
    if state == "with franz-go":
        software[-1] = "franz-go"
    static = rng.choices(("none", "all", "some"), (0.4, 0.3, 0.3))[0]
    processes = []
    for number, names in enumerate(lists):
        name = f"app-{number}"
        is_static = static == "all" or (static == "some" and rng.random() < 0.5)
        if software[number] == "kafka-python":
            is_static = False
        processes.append(
            Process(name, software[number], names, instance_id=name if is_static else None)
        )
    kinds = {kind for kind in ("probe",) if rng.random() < 0.6}
    kinds |= {rng.choice(("request log", "client log"))} if rng.random() < 0.6 else set()
    return Begin(
        state=state,
        goal=goal,
        processes=tuple(processes),
        kinds=frozenset(kinds),
        counted=rng.random() < 0.6,
        session_ms=rng.choice((6000, 8000, 10_000)),
        shift=rng.choice((0, 0, 0, 0, -5, 2, 9)),
    )
