"""One story twice: carried out on real members, and rehearsed by the engine."""

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from rebal.groups.evidence.merge import merge
from rebal.groups.model import GroupSnapshot, Knowledge
from rebal.inspectors.files import files_in
from rebal.inspectors.logs.requests.reader import read_request_log
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scene import scene_of, with_parameters
from rebal.planner.rehearsal.scripts import Deed, Scene, Script, ScriptEvent
from rebal.planner.timeouts import Speed
from tests.kafka.members import Member, wait_assigned
from tests.kafka.processes import wait_for
from tests.kafka.rolling import Rolling
from tests.live_support import read_group

HEARTBEAT = 0.3
POLL = 0.0
"""Member.java does nothing between two polls, and a poll joins again at once when it must."""
RESTART = 1.5
"""Seconds from the stop of a process until the next one is started: the group is at rest before."""
_FOUND = 2.0
_JOINS = re.compile(
    r"^\[(?P<at>[^]]+)\].*\[Consumer (?:instanceId=[^,]+, )?clientId=(?P<client>[^,]+), "
    r"groupId=(?P<group>[^],]+)\] \(Re-\)joining group",
    re.MULTILINE,
)
_TOO_LATE = re.compile(r'"requestApiKeyName":"SYNC_GROUP".*"response":\{[^{]*"errorCode":27').search
_REJECTED = "InconsistentGroupProtocol"
_OWNERSHIP = ("assigned", "revoked", "lost")
Place = tuple[str, int]


class Seed(NamedTuple):
    """One member to begin with: its name, client and list."""

    name: str
    software: str
    assignors: tuple[str, ...]
    static: bool = False


class Course(NamedTuple):
    """What a story has cost, as members report it or as the engine foretells it.

    `generations` are those that members joined; `stopped` counts each time that a partition lost
    its owner, `moved` each time that it got another one; `owned` is how much each running member
    has at the end, the most first.
    """

    generations: int
    stopped: int
    moved: int
    rejected: int
    owned: tuple[int, ...]


class RealGroup(Rolling):
    """A group of real members by name, whose stories are told as the engine's scripts tell them."""

    def __init__(self, *names: Any, session: float = 6.0) -> None:
        super().__init__(*names, partitions=12)
        self._session = session
        self._began, self._log_from = 0.0, 0

    def form(self, seeds: Sequence[Seed]) -> Scene:
        """Start these one after another, and return the group as the real readers see it."""
        for seed in seeds:
            self.place(
                seed.name, list(seed.assignors), software=seed.software,
                instance_id=seed.name if seed.static else None,
                session_timeout_ms=int(1000 * self._session),
                settings={"heartbeat.interval.ms": str(int(1000 * HEARTBEAT))},
            )  # fmt: skip
            self.settle()
        return self.scene()

    def scene(self) -> Scene:
        """Return the group of this moment as a scene, by the brokers' answers and request log."""
        made, assumed = scene_of(self.snapshot(), speed=Speed(restart=RESTART))
        assert assumed == (), assumed
        return with_parameters(made, {"heartbeat": HEARTBEAT, "poll": POLL})

    def snapshot(self) -> GroupSnapshot:
        """Return what the brokers answer, with the lists of the request log, all of them exact."""
        found: list[GroupSnapshot] = []

        def known() -> bool:
            seen = read_group(self.broker, self.group)
            log = read_request_log(files_in([self.broker.request_log_path]), tz_offset=UTC)
            found[:] = [merge(seen, (*log.observations, *log.logs))]
            return all(one.assignors.knowledge is Knowledge.EXACT for one in found[0].members)

        wait_for("every list to be in the request log", known, timeout=20, every=0.5)
        return found[0]

    def play(self, events: Sequence[ScriptEvent]) -> tuple[ScriptEvent, ...]:
        """Make all this happen, each when the group is at rest after what came before.

        Returns the events with the seconds that restarts have really taken, from the stop until the
        JoinGroup, and loads of the group.
        """
        self._began = time.time()
        self._log_from = self.broker.request_log_path.stat().st_size
        made = []
        for event in events:
            deed = self._reload if event.do is Deed.COORDINATOR else self._restart
            made.append(deed(event))
            self.settle()
        return tuple(made)

    def settle(self) -> None:
        """Wait until the group is at rest: members own all, and the broker calls it Stable."""
        for name, member in list(self.running.items()):
            if member.error:
                assert _REJECTED in member.error, member.error
                del self.running[name]
        running = list(self.running.values())
        if not running:
            return
        patience = 40 + 3 * self._session
        self.broker.wait_stable(self.group, len(running), timeout=patience)
        wait_assigned(running, self.partitions, each=0, quiet=0.9, timeout=patience)
        self.broker.wait_stable(self.group, len(running))

    def course(self) -> Course:
        """Return what has happened since the story began, by the members' own account."""
        last: dict[Place, str] = {}
        owners: dict[Place, set[str]] = {}
        joined: dict[bool, set[int]] = {False: set(), True: set()}
        moved = stopped = rejected = 0
        said = [
            (event.t_ms / 1000, name, event)
            for name, member in self.ever
            for event in member.said(*_OWNERSHIP, "joined", "error")
        ]
        for at, name, event in sorted(said, key=lambda one: one[0]):
            counts = at >= self._began
            if event.kind == "joined":
                joined[counts].add(event.data["generation"])
            elif event.kind == "error":
                rejected += counts and _REJECTED in str(event.data)
            elif event.kind == "assigned":
                for place in event.partitions:
                    moved += counts and last.get(place, name) != name
                    last[place] = name
                    owners.setdefault(place, set()).add(name)
            else:
                for place in event.partitions & {p for p, who in owners.items() if name in who}:
                    owners[place].discard(name)
                    stopped += counts and not owners[place]
        owned = sorted((len(one.owned) for one in self.running.values()), reverse=True)
        return Course(len(joined[True] - joined[False]), stopped, moved, rejected, tuple(owned))

    def overtaken(self) -> int:
        """Return how many SyncGroups came too late, by the request log.

        Another member had its partitions, and had begun the next rebalance, before this one asked:
        it never learns what it was assigned. How fast each process runs decides that.
        """
        with self.broker.request_log_path.open(encoding="utf-8") as log:
            log.seek(self._log_from)
            return sum(f'"groupId":"{self.group}"' in line for line in filter(_TOO_LATE, log))

    def end(self) -> None:
        """Stop all members."""
        for name in list(self.running):
            self.running.pop(name).stop()

    # Deeds

    def _restart(self, event: ScriptEvent) -> ScriptEvent:
        (name,) = event.members
        member = self.running.pop(name)
        member.stop()
        gone = _end_of(member)
        time.sleep(max(0.0, gone + RESTART - time.time()))
        self.place(name, list(event.assignors), **self._options[name])
        again = self.running[name]
        wait_for(f"{name} to join", lambda: bool(again.said("joined", "error")), timeout=60)
        return replace(event, seconds=self._joined_at(again, gone) - gone)

    def _reload(self, event: ScriptEvent) -> ScriptEvent:
        began = time.time()
        self.broker.restart()
        return replace(event, seconds=time.time() - began)

    def _joined_at(self, member: Member, after: float) -> float:
        """Return when the member first asked to join, by its own log."""
        times = [
            datetime.strptime(found["at"], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC).timestamp()
            for found in _JOINS.finditer(member.log())
            if (found["client"], found["group"]) == (member.client_id, self.group)
        ]
        return min(at for at in times if at >= after)


def foretold(
    scene: Scene, events: Sequence[ScriptEvent], seed: int = 0
) -> tuple[Course, Rehearsal]:
    """Return what the engine says of the same story."""
    run = rehearse(scene, Script(events=tuple(events)), seed=seed, keep=False)
    of = run.measures
    owned = sorted((one.owned for one in run.members if one.state == "running"), reverse=True)
    return Course(of.rebalances, of.stopped, of.moved, of.rejected, tuple(owned)), run


def _end_of(member: Member) -> float:
    """Return when a member gave up its partitions, or was closed."""
    said = member.said(*_OWNERSHIP, "closed", "error")
    ends = [one for one in said if one.kind != "assigned"]
    last = ends[-1].t_ms
    gave = [one.t_ms for one in ends if one.kind in _OWNERSHIP and last - one.t_ms < 1000 * _FOUND]
    return (gave[-1] if gave else last) / 1000
