"""`SimulatedWorld`: the world of an obeying story, made of the rehearsal engine, and its files."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from rebal.groups.evidence.observations import Declared
from rebal.groups.model import Cluster, CoordinatorKind, GroupSnapshot, GroupState
from rebal.inspectors.inventory.reader import read_inventory
from rebal.planner.commands import Given
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan
from rebal.planner.rehearsal.engine.ledger import Note
from rebal.planner.rehearsal.engine.member import Process as Settings
from rebal.planner.rehearsal.engine.member import SimulatedMember
from rebal.planner.rehearsal.engine.memory import Brokers
from rebal.planner.verification.journal import JournalEntry
from rebal.planner.verification.verify import (
    AnsweredError,
    NothingToConfirmError,
    confirm,
    entry_of,
    verify,
)
from tests.live.obey import Process
from tests.search.evidence import CLUSTER, Operator
from tests.search.histories import History
from tests.search.judge import Judge, Seen, SeenWorld, Truth
from tests.search.sources import CLASSES, GROUP, TOPIC, Book


class Inventory:
    """The files with which the service's processes start next; each keeps its own date."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._folder = TemporaryDirectory(prefix="rebal-search-")
        self._texts: dict[str, str] = {}
        self._declared: tuple[Declared, ...] = ()

    def read(self, processes: Iterable[Settings]) -> tuple[Declared, ...]:
        texts = dict(map(_file, processes))
        if texts == self._texts:
            return self._declared
        folder = Path(self._folder.name)
        for name in self._texts.keys() - texts.keys():
            (folder / name).unlink()
        written = self._book.moment().timestamp()
        for name, text in texts.items():
            if self._texts.get(name) != text:
                (folder / name).write_text(text)
                os.utime(folder / name, (written, written))
        self._texts = texts
        self._declared = read_inventory(folder).declared
        return self._declared


def _file(process: Settings) -> tuple[str, str]:
    settings = {
        "group.id": GROUP,
        "client.id": process.client_id,
        "session.timeout.ms": f"{process.session * 1000:.0f}",
        "max.poll.interval.ms": f"{process.rebalance * 1000:.0f}",
    }
    if process.client_id.startswith(f"consumer-{GROUP}-"):
        # Java makes this client id itself.
        del settings["client.id"]
    if process.instance_id:
        settings["group.instance.id"] = process.instance_id
    names = process.assignors
    if process.family != "java":
        settings["partition.assignment.strategy"] = ",".join(names)
        return f"{process.name}.json", json.dumps(settings)
    if process.protocol == "consumer":
        settings["group.protocol"] = "consumer"
        # KIP-848: a client that sets it does not start.
        del settings["session.timeout.ms"]
    else:
        classes = [f"org.apache.kafka.clients.consumer.{CLASSES[name]}" for name in names]
        settings["partition.assignment.strategy"] = ",".join(classes)
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    return f"{process.name}.properties", text


PARTITIONS = 6
_AFTER_LOAD = 10.0
# group.consumer.heartbeat.interval.ms of the simulated brokers, in seconds.
_HEARTBEAT = 5.0
_ANSWER = 0.5
# The share of looks whose screen is read; each takes some milliseconds.
_SCREENS = 0.12
_GIVEN = Given(connection=("-b", "broker:9092"))
_FAMILIES = {
    "confluent-kafka": ("librdkafka", "2.16.0"),
    "kafka-python": ("kafka-python", "3.0.12"),
    "franz-go": ("franz-go", "1.22.1"),
}


class SimulatedWorld:
    def __init__(self, history: History) -> None:
        self.history = history
        self.processes = [one.process() for one in history.consumers]
        self.session_seconds, self.rebalance_seconds = history.session, history.rebalance
        self.faults: list[str] = []
        # group.protocol of each process, and of one that joins now.
        self.protocols = {one.name: one.protocol for one in history.consumers}
        self.joining = self.begun = history.consumers[0].protocol
        brokers = Brokers(
            kind=CoordinatorKind.JAVA if history.kind == "java" else CoordinatorKind.SCALA,
            max_size=history.max_size or 2**31 - 1,
            consumer_session=history.session,
        )
        given = history.evidence
        self.world = _group(history, brokers, CLUSTER, 1, given.shift)
        self.world.book.drift = given.drift
        self.world.book.own |= {one.name for one in history.consumers if one.own}
        java = history.kind == "java"
        settings = {
            "group.consumer.migration.policy": "bidirectional",
            "group.coordinator.rebalance.protocols": f"classic{',consumer' if java else ''}",
            "group.max.size": str(brokers.max_size),
            "group.min.session.timeout.ms": "6000",
            "group.max.session.timeout.ms": "1800000",
        }
        self.operator = Operator(
            self.world.group,
            self.world.book,
            given,
            partitions=PARTITIONS,
            cluster=Cluster(
                cluster_id=CLUSTER,
                version="4.1.1" if java else "3.9.1",
                features={"group.version": 1} if history.kip848 else {},
                settings=settings,
            ),
            random=Random(f"{history.seed} probes"),
            foreign=[_elsewhere(history, brokers)] if given.foreign else [],
            declared=self._declared,
        )
        self._files = Inventory(self.world.book)
        # Lists that files bring to members that have not restarted since.
        self.filed: dict[str, tuple[str, ...]] = {}
        self.confirms: tuple[tuple[str, ...], tuple[str, ...]] = (), ()
        self.plans = 0
        self.snapshot: GroupSnapshot | None = None
        self._plan: Plan | None = None
        self._entries: list[JournalEntry] = []
        self._random = Random(history.seed)
        # Which screens are read; what the judge reads changes nothing in the history.
        self._draws = Random(f"{history.seed} screens")
        self._current: dict[str, SimulatedMember] = {}
        self.truth = Truth(
            self.world, self.operator, self.processes, self._current, alike=history.alike
        )
        self.judge = Judge(self.truth)

    def begin(self) -> bool:
        """Start all processes, one after the other; False where one of them is not admitted."""
        for process in self.processes:
            if self.start(process) is not None:
                return False
            process.running = True
        self.settle()
        return True

    # --- time -----------------------------------------------------------------------------------

    def now(self) -> float:
        return self.world.agenda.now

    def sleep(self, seconds: float) -> None:
        self.world.run(seconds)

    # --- members --------------------------------------------------------------------------------

    def start(self, process: Process) -> str | None:
        world = self.world
        before = self._current.get(process.name)
        if before is not None and before.alive:
            before.kill()
        protocol = self.protocols.setdefault(process.name, self.joining)
        world.start(_settings(self.history, process, protocol))
        seen = len(world.happened)
        world.run(0.0)
        consumer = world.consumers.get(process.name)
        if consumer is None or consumer is before:
            return next(one.detail for one in world.happened[seen:] if one.what == "did not start")
        self._current[process.name] = consumer

        def decided() -> bool:
            return bool(consumer.rebalances.count or consumer.rejected or not consumer.alive)

        world.agenda.run(self.now() + 3 * self.rebalance_seconds, decided)
        world.run(0.01)
        error = self.error(process)
        if error is not None and consumer.alive:
            consumer.kill()
        return error

    def stop(self, process: Process) -> None:
        self.world.stop(process.name)
        self.world.run(0.05)

    def crash(self, process: Process) -> None:
        self.world.kill(process.name)

    def error(self, process: Process) -> str | None:
        if self._current.get(process.name) is None:
            return None
        for one in reversed(self.world.happened):
            if one.who == process.name:
                if one.what == "started":
                    break
                if one.what in ("rejected", "failed as leader"):
                    return f"{one.what}: {one.detail}"
        return None

    def settle(self) -> bool:
        bound = 2 * self.rebalance_seconds + self.session_seconds
        done = self.world.agenda.run(self.now() + bound, self._quiet)
        self.world.run(0.2)
        done = done and self.world.agenda.run(self.now() + bound, self._quiet)
        if done:
            self._judge_owners()
        return done

    def _quiet(self) -> bool:
        return self.world.group.now.phase is GroupState.STABLE and not self.world._moving

    def _judge_owners(self) -> None:
        """At rest each partition has one owner, where every member of the group is alive.

        A leader sees new partitions late. The second round of a cooperative rebalance may not come:
        a load ends the rebalance (the record says Stable), and a static member that restarts has
        nothing to revoke. What was to move then waits for the next rebalance: rebal asks for one
        before a plan is finished.
        """
        if not self._all_alive():
            return
        started = max((one.at for one in self.world.happened if self._is_static(one)), default=0.0)
        cut_short = started >= self.world.book._completed or self.world._coming
        if cut_short or self.now() - self.world.book.loaded_at < _AFTER_LOAD:
            return
        self.faults += self.unowned_at_rest()[:1]
        for (topic, number), owners in self.world.ledger.owners().items():
            # franz-go keeps what it owns when a vote turns it EAGER ("not supported per KIP-429").
            if len(owners) > 1 and not any(one.software == "franz-go" for one in self.processes):
                self.faults.append(f"{topic}-{number} at rest is owned by {list(owners)}")

    def _is_static(self, one: Note) -> bool:
        static = {each.name for each in self.processes if each.instance_id}
        return one.what == "started" and one.who in static

    def deliver(self) -> None:
        """Let members receive what the coordinator reports as theirs.

        It reports the new target of a KIP-848 member, and what a static member owned before its
        restart, before the member has received it: no evidence shows the difference.
        """
        self.sleep(_HEARTBEAT if self.world.group.kip848 else _ANSWER)

    def unowned_at_rest(self) -> list[str]:
        owners = self.world.ledger.owners()
        return [
            f"{topic}-{number} has no owner" for (topic, number), who in owners.items() if not who
        ]

    def _all_alive(self) -> bool:
        """Return whether each member that the coordinator counts runs."""
        lives = self.world.lives.values()
        alive = {
            id(self.world.witness.line(one).life) for one in self._current.values() if one.alive
        }
        return all(id(life) in alive for life in lives)

    def gone(self, processes: Sequence[Process]) -> bool:
        # A rejected process was no member: the entry is of its life before.
        members = {life.process.name: life for life in self.world.book.lives if life.member_id}
        lives = {id(members[one.name]) for one in processes if one.name in members}

        def left() -> bool:
            return not any(id(life) in lives for life in self.world.lives.values())

        return self.world.agenda.run(self.now() + 3 * self.session_seconds + 5, left)

    @property
    def own(self) -> set[str]:
        """The processes with an application's class behind the name cooperative-sticky."""
        return self.world.book.own

    @property
    def kip848(self) -> bool:
        return self.world.group.kip848

    def runs(self, process: Process) -> str:
        return self._current[process.name].protocol

    def shown(self, process: Process) -> bool:
        """Return whether the evidence shows that this process was a member of the group."""
        operator, book = self.operator, self.world.book
        lives = [one for one in book.lives if one.process.name == process.name and one.member_id]
        counted = any(self.world.group.now.counts_member(one.member_id) for one in lives)
        if counted or "request log" not in operator.kinds:
            # The coordinator counts a member that is down until its session ends.
            return False
        here = [one.encode() for one in self.world.lives]
        shown = [
            lines
            for broker, lines in operator.request_lines().items()
            # A former coordinator's log that shows no member of now may be another cluster's.
            if broker == book.broker or any(id_ in line for line in lines for id_ in here)
        ]
        return any(
            b'"errorCode":0,"generationId"' in line and one.member_id.encode() in line
            for one in lives
            for lines in shown
            for line in lines
        )

    @property
    def elected(self) -> str | None:
        return self.snapshot.group.assignor if self.snapshot is not None else None

    @property
    def has_rejected(self) -> bool:
        return any(one.what == "rejected" for one in self.world.happened)

    @property
    def sees_no_growth(self) -> bool:
        """True until new partitions are seen: in a KIP-848 group at the next heartbeat."""
        return bool(self.world._coming or getattr(self.world.group.now, "_refresh", False))

    def counts_a_stopped_one(self) -> bool:
        """Return whether the coordinator still counts a process that has ended."""
        return not self._all_alive()

    # --- who is who -----------------------------------------------------------------------------

    def found(self, member_id: str, name: str) -> Process | None:
        lives = self.world.book.lives
        _, _, host = name.rstrip(")").partition(" (")
        # The process at an address, else another of the service: one that was taken back stays out.
        there = {life.process.name for life in lives if host and life.host == host}
        down = [p for p in self.processes if p.name in there and not p.running]
        processes = [p for p in down if not p.retired] if down else self.processes
        # Members with one client id are told apart by the end of their member ids.
        _, _, end = name.partition(" …")
        for life in reversed(lives) if member_id or end else ():
            if life.member_id == member_id if member_id else life.member_id.endswith(end):
                return next((p for p in processes if p.name == life.process.name), None)
        # A pod of an automatic client id: one of the service that is down, first one that no
        # supervisor starts again. Who was scaled away is started by nobody, and a static member's
        # automatic client id is its own.
        stopped = (p for p in processes if not (p.running or p.retired or p.instance_id))
        first = iter(sorted(stopped, key=lambda p: p.due is not None))
        named = (each for each in processes if each.name == name)
        return next(first if name.partition(" (")[0] == _automatic(None) else named, None)

    def is_of_step(self, advice: dict[str, Any]) -> bool:
        """Return whether the restart brings the list of its step to a service with files."""
        step = self._plan.step(advice["step"]) if self._plan is not None else None
        filed = "inventory" in self.history.evidence.kinds and advice["action"] == "restart"
        return filed and step is not None and tuple(advice["assignors"]) == step.target_list

    def _declared(self) -> tuple[Declared, ...]:
        service = [
            replace(one, assignors=self.filed.get(one.name, one.assignors))
            for one in self.processes
            if not one.retired
        ]
        protocols = self.protocols
        return self._files.read(
            _settings(self.history, one, protocols.setdefault(one.name, self.joining))
            for one in service
        )

    # --- brokers --------------------------------------------------------------------------------

    def reload(self) -> str:
        book = self.world.book
        broker = book.broker if self._random.random() < 0.3 else book.broker % 3 + 1
        seconds = self._random.choice((0.2, 2.0))
        self.world.move_coordinator(seconds)
        self.world.agenda.after(seconds, book.loaded, broker)
        self.world.run(seconds + 0.01)
        return f"loaded by broker {broker}"

    def grow(self) -> str:
        """Add two partitions to the topic; a leader sees them when it reads metadata again."""
        self.operator.partitions += 2
        noticed = self._random.choice((1.0, 20.0, 290.0))
        self.world.add_partitions(TOPIC, self.operator.partitions, noticed)
        return f"{TOPIC} has {self.operator.partitions} partitions, noticed in {noticed:g} s"

    # --- rebal ----------------------------------------------------------------------------------

    def plan(self, expected: int | None, *, ignore: Sequence[str] = ()) -> dict[str, Any]:
        self._entries = []
        self.snapshot = self.operator.look()
        self._plan = made = make_plan(
            self.snapshot,
            self.history.goal,
            expect_members=expected,
            ignore=dict.fromkeys(ignore, "agreed"),
            pricing=None,
            given=_GIVEN,
        )
        self.plans += 1
        self.judge.words.clear()
        self.faults += self.judge.plan_faults(made, drawn=self._draws.random() < _SCREENS)
        return {
            "advice": _plain(made.advice),
            "withheld": [_plain(one) for one in made.withheld],
            # The command beside a precondition records what a person agrees to.
            "steps": [
                {"precondition": " ".join([step.precondition, *(c.line for c in step.commands)])}
                for step in made.steps
            ],
            "verdict": str(made.verdict),
            "exit_code": made.exit_code,
            "asked": [one.rule for one in made.findings],
            "finished": made.verdict == "done",
        }

    def verify(self, expected: int | None, *, confirm: int | None = None) -> dict[str, Any]:
        """Look where the newest plan stands; a step is confirmed first."""
        assert self._plan is not None
        plan, entries = self._plan, self._entries
        seen = self.snapshot = self.operator.look()
        if confirm is not None:
            self._confirm(seen, confirm, expected)
        given = msgspec.structs.replace(_GIVEN, plan="plan.yaml")
        standing = verify(plan, entries, seen, expect_members=expected, given=given)
        entries.append(entry_of(plan, standing, seen, entries=entries))
        look = Seen(plan, standing, [one for one in self.processes if not one.retired], expected)
        drawn = standing.finished or self._draws.random() < _SCREENS
        self.faults += self.judge.faults(look, drawn=drawn)
        return {
            "advice": _plain(standing.advice),
            "withheld": [_plain(one) for one in standing.withheld],
            "exit_code": standing.exit_code,
            "finished": standing.finished,
            "at": standing.at.isoformat(),
            "dangers": [str(one.message) for one in standing.dangers],
            "step": standing.step,
        }

    def _confirm(self, seen: GroupSnapshot, step: int, expected: int | None) -> None:
        assert self._plan is not None
        plan, entries = self._plan, self._entries
        now = verify(plan, entries, seen, expect_members=expected)
        asked = verify(plan, entries, seen, step=step, expect_members=expected)
        try:
            members, names = self.confirms
            word = confirm(now, asked, step, "looked at each of them", members=members, names=names)
        except (NothingToConfirmError, AnsweredError):
            return
        entry = entry_of(plan, asked, seen, entries=entries)
        entries.append(msgspec.structs.replace(entry, confirmed=word))
        self.judge.words |= dict.fromkeys(word.members, names)

    def grant(self, kind: str) -> bool:
        return self.operator.grant(kind)

    def cut(self) -> str:
        """Rotate away what the logs hold; what was done."""
        self.operator.cut()
        return "cut"

    def merge(self) -> str:
        """Merge the logs of each kind into one stream from now on; what was done."""
        self.operator.merged = True
        return "merged"


def _plain(advice: Any) -> dict[str, Any]:
    made = {name: getattr(advice, name) for name in advice.__struct_fields__}
    while_ = advice.valid_while
    made["verdict"] = str(advice.verdict)
    made["valid_while"] = {"assignor": while_.assignor} if while_ is not None else None
    return made


def _automatic(instance_id: str | None) -> str:
    """Return the client id that Java gives a consumer that sets none."""
    return f"consumer-{GROUP}-{instance_id or 1}"


def _settings(history: History, process: Process, protocol: str = "classic") -> Settings:
    family, version = _FAMILIES.get(process.software, ("java", process.software[5:]))
    return Settings(
        name=process.name,
        protocol=protocol,
        client_id=_automatic(process.instance_id) if history.alike else process.name,
        instance_id=process.instance_id,
        family=family,
        version=version,
        assignors=process.assignors,
        topics=(TOPIC,),
        session=history.session,
        rebalance=history.rebalance,
    )


def _group(
    history: History, brokers: Brokers, cluster_id: str, network: int, shift: int
) -> SeenWorld:
    def book_of(agenda: Any) -> Book:
        return Book(
            agenda, shift=shift, cluster_id=cluster_id, network=network, epoch=history.epoch
        )

    return SeenWorld(book_of, {TOPIC: PARTITIONS}, brokers, Random(history.seed * 7 + network))


def _elsewhere(history: History, brokers: Brokers) -> Book:
    """Return the sources of a group of the same name whose members have other lists."""
    world = _group(history, brokers, "elsewhere", 2, history.evidence.shift)
    lists = (("cooperative-sticky", "range"), ("range",), ("cooperative-sticky",))
    for number, names in enumerate(lists):
        world.start(_settings(history, Process(f"app-{number}", "java-3.9.1", names)))
        world.settle(60.0)
    return world.book
