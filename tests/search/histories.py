"""Random histories of a group as data: `draw(seed)` makes one, `smaller(history)` shrinks it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import yaml

from tests.live.obey import DEFAULT, FINAL, RANGE, WIDE, Process

JAVA = ("java-2.8.2", "java-3.1.2", "java-3.9.1", "java-4.1.1")
MODERN = ("java-3.9.1", "java-4.1.1")
ONE_KIND = ("confluent-kafka", "kafka-python")
SKEWS = (-3_600.0, -40.0, -3.0, 3.0, 40.0, 3_600.0)
ROUND_ROBIN: tuple[str, ...] = ("roundrobin",)
OTHER_EAGER: tuple[tuple[str, ...], ...] = (ROUND_ROBIN, ("sticky", "range"), ("sticky",))
FORWARD = (
    "eager", "eager", "other eager", "default", "default", "half default", "half wide",
    "half wide", "half narrow", "half narrowed default", "one client", "with franz-go",
    "mixed families", "reordered", "own class",
)  # fmt: skip
BACKWARD = ("cooperative", "half back", "half narrow", "default")
EVENTS = (
    "reload", "reload", "reload", "crash", "crash", "scale up", "scale down", "roll back",
    "old image", "cut", "cut", "merge", "wrong list", "leave",
)  # fmt: skip

ONLINE_EVENTS = (
    "reload", "crash", "scale up", "scale down", "roll back", "old image", "cut", "merge", "leave",
)  # fmt: skip


@dataclass(frozen=True)
class Consumer:
    """One process: its client software, its list, whether it is static, and its group.protocol.

    `own`: a class of the application stands behind the name cooperative-sticky, an EAGER one.
    """

    name: str
    software: str
    assignors: tuple[str, ...]
    static: bool = False
    own: bool = False
    protocol: str = "classic"

    def process(self) -> Process:
        instance = self.name if self.static else None
        return Process(self.name, self.software, self.assignors, instance_id=instance)

    def __str__(self) -> str:
        words = [self.name + "*" * self.static, self.software, ",".join(self.assignors)]
        words += ["own"] if self.own else []
        return " ".join([*words, *([self.protocol] if self.protocol != "classic" else [])])

    @staticmethod
    def read(text: str) -> Consumer:
        name, software, lists, *more = text.split()
        return Consumer(
            name.rstrip("*"),
            software,
            tuple(lists.split(",")),
            static=name.endswith("*"),
            own="own" in more,
            protocol="consumer" if "consumer" in more else "classic",
        )


@dataclass(frozen=True)
class Event:
    """Something that happens before look number `look` (0: before the plan is made).

    `pick` seeds what is left to chance in it, such as the member that it concerns.
    """

    look: int
    kind: str
    pick: int

    def __str__(self) -> str:
        return f"{self.look} {self.kind} {self.pick}"

    @staticmethod
    def read(text: str) -> Event:
        look, *kind, pick = text.split()
        return Event(int(look), " ".join(kind), int(pick))


@dataclass(frozen=True)
class Evidence:
    """The sources that each look reads, and how they were kept.

    `kinds` are probe, request log, client log, offsets topic and inventory. `prefixed`: the client
    logs are one stream whose lines name their pod; `merged`: one stream whose lines do not.
    `foreign` adds the logs of a group with the same name on another cluster. `shift` hours are
    added to each time in a log, which names no zone; `dated`: the files' own dates are kept.
    `late`: the logs begin when the plan is made. `flaky`: some probes are refused or not answered.
    `skew` are the seconds by which rebal's clock is ahead of the brokers' (`measured`: the brokers
    show their time, KIP-836), `drift` those of the clients' machines.
    """

    kinds: frozenset[str] = frozenset()
    merged: bool = False
    prefixed: bool = False
    foreign: bool = False
    shift: int = 0
    dated: bool = True
    late: bool = False
    flaky: bool = False
    skew: float = 0.0
    measured: bool = True
    drift: float = 0.0


@dataclass(frozen=True)
class History:
    """A group from its first start, in the order of `consumers`, to the end of its roll-out.

    `alike`: all pods have Java's automatic client id. `counted`: rebal is told how many members the
    service has. Timeouts are seconds; `kind` is the coordinator's,
    `epoch` the leader epoch of its partition when the group begins (0: never loaded). `lies`: the
    operator confirms what no process runs.
    """

    seed: int
    goal: str
    consumers: tuple[Consumer, ...]
    evidence: Evidence
    events: tuple[Event, ...] = ()
    alike: bool = False
    counted: bool = False
    session: float = 8.0
    rebalance: float = 15.0
    kind: str = "java"
    epoch: int = 3
    max_size: int | None = None
    lies: bool = False

    @property
    def kip848(self) -> bool:
        """True if the group goes to KIP-848's protocol or begins with it."""
        return self.goal == "consumer" or any(one.protocol == "consumer" for one in self.consumers)

    def __str__(self) -> str:
        """Return it as the text that `read` takes: only what differs from the defaults."""
        given = _differing(self.evidence)
        given["kinds"] = sorted(self.evidence.kinds)
        data = _differing(self) | {"evidence": given}
        data |= {"consumers": [*map(str, self.consumers)], "events": [*map(str, self.events)]}
        kept = {name: value for name, value in data.items() if value not in ([], {"kinds": []})}
        return yaml.safe_dump(
            kept, default_flow_style=True, sort_keys=False, width=96, allow_unicode=True
        ).strip()

    @staticmethod
    def read(data: Mapping[str, Any]) -> History:
        given = data.get("evidence", {})
        made = {
            "consumers": tuple(map(Consumer.read, data["consumers"])),
            "evidence": Evidence(**{**given, "kinds": frozenset(given.get("kinds", ()))}),
            "events": tuple(map(Event.read, data.get("events", ()))),
        }
        return History(**{**data, **made})


def _differing(one: Any) -> dict[str, Any]:
    found = {each.name: getattr(one, each.name) for each in fields(one)}
    return {each.name: found[each.name] for each in fields(one) if found[each.name] != each.default}


def draw(seed: int) -> History:
    random = Random(seed)
    goal = "cooperative" if random.random() < 0.75 else "eager"
    consumers = _consumers(random, random.choice(FORWARD if goal == "cooperative" else BACKWARD))
    looks = sorted(
        random.choice((0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 8, 10))
        for _ in range(random.choice((0, 1, 1, 2, 2, 3, 3, 4, 5)))
    )
    events = tuple(Event(n, random.choice(EVENTS), random.randrange(8)) for n in looks)
    evidence = _evidence(random)
    if any(one.own for one in consumers):
        # Nothing but the member's own log names its class.
        kinds = evidence.kinds | {"client log"}
        evidence = replace(evidence, kinds=kinds, merged=False, prefixed=False, late=False)
        events = tuple(one for one in events if one.kind not in ("cut", "merge"))
    return _unsure(
        History(
            seed=seed,
            goal=goal,
            consumers=consumers,
            evidence=evidence,
            events=events,
            alike=random.random() < 0.4,
            counted=random.random() < 0.6,
            session=random.choice((8.0, 8.0, 45.0, 300.0)),
            rebalance=random.choice((15.0, 15.0, 60.0)),
            kind=random.choice(("java", "java", "scala")),
            epoch=random.choice((0, 3)),
            max_size=len(consumers) + random.choice((0, 1)) if random.random() < 0.06 else None,
        )
    )


def _unsure(history: History) -> History:
    """Return the history with probes that fail, clocks that differ and an operator who errs."""
    history = _with_rarer(history)
    random, given = Random(f"{history.seed} unsure"), history.evidence
    flaky = "probe" in given.kinds and random.random() < 0.25
    skew = random.choice(SKEWS) if random.random() < 0.1 else 0.0
    drift = random.choice((-4.0, -0.7, 0.7, 4.0)) if random.random() < 0.1 else 0.0
    lies = "inventory" in given.kinds and random.random() < 0.5
    if lies and random.random() < 0.7:
        given = replace(given, kinds=given.kinds - {"client log", "request log"})
    # ZooKeeper's brokers, and those that deny DESCRIBE on the cluster, do not show their time.
    given = replace(given, flaky=flaky, skew=skew, measured=random.random() < 0.6, drift=drift)
    return replace(history, evidence=given, lies=lies)


def _with_rarer(history: History) -> History:
    """Return the history with what only some seeds have; the others stay as they are."""
    # Only Java and librdkafka clients have a file that names their list.
    filed = all(
        one.software in (*JAVA, "confluent-kafka") and not one.own for one in history.consumers
    )
    if Random(f"{history.seed} inventory").random() < 0.15 and filed:
        given = history.evidence
        history = replace(history, evidence=replace(given, kinds=given.kinds | {"inventory"}))
    random = Random(f"{history.seed} rarer")
    java = all(one.software in JAVA and not one.own for one in history.consumers)
    if random.random() < 0.12 and java:
        pod = Event(random.choice((0, 0, 1, 2, 4)), "rejected pod", random.randrange(8))
        events = sorted((*history.events, pod), key=lambda one: one.look)
        return replace(history, events=tuple(events), alike=True, counted=False, max_size=None)
    if java and history.kind == "java" and random.random() < 0.12:
        history = _of_kip848(history, random)
    if random.random() < 0.06:
        grows = Event(random.choice((0, 1, 2, 3, 5)), "topic grows", random.randrange(8))
        events = sorted((*history.events, grows), key=lambda one: one.look)
        return replace(history, events=tuple(events))
    return history


def _of_kip848(history: History, random: Random) -> History:
    """Return the history as one of the move to KIP-848, or back from it."""
    up = history.goal == "cooperative"
    size = len(history.consumers)
    begun = random.choice((0, 0, random.randrange(size))) if up else size
    consumers = tuple(
        replace(
            one,
            software="java-4.1.1",
            assignors=FINAL if begun else one.assignors,
            protocol="consumer" if number >= size - begun else "classic",
        )
        for number, one in enumerate(history.consumers)
    )
    return replace(
        history,
        goal="consumer" if up else "eager",
        consumers=consumers,
        events=tuple(one for one in history.events if one.kind in ONLINE_EVENTS),
        max_size=None,
    )


def _evidence(random: Random) -> Evidence:
    kinds = {
        kind
        for kind, share in (
            ("probe", 0.6), ("request log", 0.4), ("client log", 0.4), ("offsets topic", 0.85),
        )
        if random.random() < share
    }  # fmt: skip
    merged = random.random() < 0.3
    return Evidence(
        kinds=frozenset(kinds),
        merged=merged,
        prefixed=merged and random.random() < 0.3,
        foreign=random.random() < 0.15,
        shift=random.choice((0, 0, 0, 0, -5, 2, 9)),
        dated=random.random() < 0.7,
        late=random.random() < 0.3,
    )


def _consumers(random: Random, state: str) -> tuple[Consumer, ...]:
    """Return members whose lists are admitted in the order of their start."""
    size = random.randrange(2, 4) if state == "one client" else random.choice((1, 2, 3, 3, 4, 5))
    some = random.randrange(1, size) if size > 1 else 1
    rest = size - some
    lists: dict[str, list[tuple[str, ...]]] = {
        "eager": [RANGE] * size,
        "other eager": [random.choice(OTHER_EAGER)] * size,
        "default": [DEFAULT] * size,
        "half default": [RANGE] * some + [DEFAULT] * rest,
        "half wide": [RANGE] * some + [WIDE] * rest,
        "half narrow": [WIDE] * some + [FINAL] * rest,
        "half narrowed default": [DEFAULT] * some + [FINAL] * rest,
        "reordered": [DEFAULT] * some + [WIDE] * rest,
        "cooperative": [FINAL] * size,
        "half back": [FINAL] * some + [DEFAULT] * rest,
        "one client": [RANGE] * size,
        "with franz-go": [random.choice((RANGE, WIDE))] * size,
        "mixed families": [RANGE] * size,
        "own class": [random.choice((FINAL, WIDE, DEFAULT))] * size,
    }
    software = [random.choice(JAVA if names == RANGE else MODERN) for names in lists[state]]
    if random.random() < 0.5:
        software = [random.choice(MODERN)] * size
    if state == "one client":
        software = [random.choice(ONE_KIND)] * size
    elif state == "with franz-go":
        software[-1] = "franz-go"
    elif state == "mixed families":
        software[-1] = random.choice(ONE_KIND)
    own = random.randrange(1, size + 1) if state == "own class" else 0
    static = random.choices(("none", "all", "some"), (0.4, 0.3, 0.3))[0]
    return tuple(
        Consumer(
            f"app-{number}",
            software[number],
            names,
            static=software[number] != "kafka-python"
            and (static == "all" or (static == "some" and random.random() < 0.5)),
            own=number < own,
        )
        for number, names in enumerate(lists[state])
    )


_PLAIN: dict[str, Any] = {
    "alike": False, "max_size": None, "lies": False, "kind": "java", "session": 8.0,
    "rebalance": 15.0, "counted": True, "epoch": 0,
}  # fmt: skip


def smaller(history: History) -> Iterator[History]:
    """Yield histories that are simpler by one thing, those that lose most first."""
    consumers, events, given = history.consumers, history.events, history.evidence
    if len(events) > 2:
        yield replace(history, events=())
    for number in range(len(events)):
        yield replace(history, events=events[:number] + events[number + 1 :])
    for number in reversed(range(len(consumers))):
        left = consumers[:number] + consumers[number + 1 :]
        if left:
            yield replace(history, consumers=left)
    # Nothing but the client log shows a class of the application's own.
    needed = {"client log"} if any(one.own for one in consumers) else set[str]()
    for kind in sorted(given.kinds - needed):
        yield replace(history, evidence=replace(given, kinds=given.kinds - {kind}))
    usual: dict[str, Any] = {one.name: one.default for one in fields(given) if one.name != "kinds"}
    kept = [replace(given, **{name: value}) for name, value in usual.items()]
    plainer = [replace(history, evidence=each) for each in kept]
    plainer += [replace(history, **{name: value}) for name, value in _PLAIN.items()]
    yield from (one for one in plainer if one != history)
    for number, one in enumerate(consumers):
        before, after = consumers[:number], consumers[number + 1 :]
        plain = (
            replace(one, static=False),
            replace(one, software=MODERN[history.kip848]),
            replace(one, own=False),
        )
        for consumer in plain:
            if consumer != one:
                yield replace(history, consumers=(*before, consumer, *after))
    for number, event in enumerate(events):
        for changed in (replace(event, look=max(event.look - 1, 0)), replace(event, pick=0)):
            if changed != event:
                yield replace(history, events=(*events[:number], changed, *events[number + 1 :]))


class Known(NamedTuple):
    """A history that was found, and how it ends now."""

    history: History
    ends: str = "finished"


def found() -> dict[str, Known]:
    """Return what was found (found.yaml), by what was wrong."""
    text = Path(__file__).with_name("found.yaml").read_text(encoding="utf-8")
    return {
        why: Known(ends=one.pop("ends", "finished"), history=History.read(one))
        for why, one in yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)).items()
    }
