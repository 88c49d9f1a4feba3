"""`ReplayWorld`: real brokers and members for a history that the search found on the model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rebal.groups.model import RebalanceProtocol
from tests.kafka.cluster import Cluster
from tests.kafka.members import Members
from tests.live.obey import KINDS, Limits, Process
from tests.live.obey_world import LiveWorld
from tests.search.histories import History
from tests.search.world import find_process

PARTITIONS = 6
SESSION = 30.0
"""Seconds of a session at most: nobody waits for five minutes here."""
LIMITS = Limits(
    seconds=500, event_chance=0, race_chance=0, opening_chance=0, trial_chance=0, looks=200
)


def why_not(history: History) -> str | None:
    """Return what of a history no real group here can show; None where all of it can."""
    if any(one.own for one in history.consumers):
        return "a class of the application"
    if history.evidence.foreign:
        return "the logs of a second cluster"
    if "inventory" in history.evidence.kinds:
        return "the files of a deployment"
    if history.max_size is not None:
        return "group.max.size"
    if any(event.kind == "topic grows" for event in history.events):
        return "a topic that grows"
    return None


class ReplayWorld(LiveWorld):
    """A real group with a history's members, of which nobody but its members' own words is asked.

    What only the evidence's reader could judge (whom a log shows) is judged on the model.
    """

    def __init__(
        self, broker: Cluster, members: Members, group: str, *, folder: Path, history: History
    ) -> None:
        super().__init__(
            broker,
            members,
            group,
            f"t-{group}",
            folder=folder,
            rng=random.Random(history.seed),
            processes=[one.process() for one in history.consumers],
            kinds={kind for kind in KINDS if kind in history.evidence.kinds},
            goal=history.goal,
            partitions=PARTITIONS,
            # librdkafka takes no session that is longer than max.poll.interval.ms.
            session_ms=round(1000 * min(history.session, SESSION, history.rebalance)),
            rebalance_ms=round(1000 * history.rebalance),
            shift=history.evidence.shift,
        )
        self.history = history
        self.given.merged = history.evidence.merged
        self.protocols = {one.name: one.protocol for one in history.consumers}
        self.begun = self.joining = history.consumers[0].protocol
        self.filed: dict[str, tuple[str, ...]] = {}
        self.faults: list[str] = []
        self.confirms: tuple[tuple[str, ...], tuple[str, ...]] = (), ()
        self.own: set[str] = set()
        self.has_rejected = self.sees_no_growth = self.misled = False

    def found(self, member_id: str, name: str) -> Process | None:
        """Return the process behind a member id or a label, as on the model."""
        lives = [(life.member.member_id or "", life.process.name) for life in self._lives]
        return find_process(self.processes, lives, member_id, name, self._automatic(None))

    @property
    def kip848(self) -> bool:
        """True while a member speaks KIP-848's protocol."""
        return any(self.runs(one) == "CONSUMER" for one in self.processes if one.running)

    def _online(self) -> bool:
        return self.kip848

    @property
    def elected(self) -> str | None:
        """The assignor of the group, as rebal inspects it."""
        seen = self.inspect()
        return None if seen is None else seen["assignor"]

    def start(self, process: Process) -> str | None:
        """Start it, and note a rejection."""
        error = super().start(process)
        self.has_rejected = self.has_rejected or error is not None
        return error

    def gone(self, processes: Sequence[Process]) -> bool:
        """Wait until the group has no more members than processes run: client ids may be alike.

        A KIP-848 member that is closed has left, and a static one's entry is its next life's.
        """

        def left() -> bool:
            state, clients = self.broker.described(self.group)
            return self.kip848 or (bool(state) and len(clients) <= self._count_running())

        return self._until(3 * self.session_seconds + 5, left) or not processes

    def runs(self, process: Process) -> str:
        """Return the protocol that a process runs, by its configuration."""
        if self._protocol(process) == "consumer":
            return "CONSUMER"
        every = all("cooperative" in name for name in process.assignors)
        return RebalanceProtocol.COOPERATIVE if every else RebalanceProtocol.EAGER

    def plan(self, expected: int | None, *more: str) -> dict[str, Any] | None:
        """Return the plan's document, with the rules that it names and whether nothing is left."""
        body = super().plan(expected, *more)
        if body is None:
            return None
        asked = [one["rule"] for one in body["findings"]]
        return body | {"asked": asked, "finished": body["verdict"] == "done"}

    def spoil(self) -> str:
        """Cut the logs, as a history's events do."""
        return self.cut()

    def grow(self) -> str:
        """No history with such an event is replayed (`why_not`)."""
        raise NotImplementedError

    def deliver(self) -> None:
        """Let members receive what the coordinator reports as theirs."""
        self.sleep(5.0 if self.kip848 else 1.0)

    def shown(self, process: Process) -> bool:
        """Return False: judged on the model."""
        return False

    def shown_rejected(self, process: Process) -> bool:
        """Return False: judged on the model."""
        return False

    def counts_a_stopped_one(self) -> bool:
        """Return whether the coordinator still counts a process that has ended."""
        _, clients = self.broker.described(self.group)
        return len(clients) > self._count_running()

    def unowned(self, since: float, breaks: Sequence[float]) -> tuple[float, str]:
        """The longest time that a partition had no owner, less a session.

        So long the coordinator counts a static member that was stopped.
        """
        longest, what = super().unowned(since, breaks)
        return max(0.0, longest - self.session_seconds), what

    def unowned_at_rest(self) -> list[str]:
        """Return a fault for each partition that no running member says it owns."""
        lives = [life for life in self._lives if life.ended_ms is None]
        owned = {place for life in lives for place in life.member.owned}
        every = [(self.topic, number) for number in range(self._partitions)]
        return [f"{topic}-{n} has no owner" for topic, n in every if (topic, n) not in owned]

    def is_of_step(self, advice: dict[str, Any]) -> bool:
        """Return False: no files are declared here."""
        return False

    def _count_running(self) -> int:
        return sum(one.running for one in self.processes)

    def _protocol(self, process: Process) -> str:
        return self.protocols.setdefault(process.name, self.joining)

    def _automatic(self, instance_id: str | None) -> str:
        """Return the client id that Java gives a consumer that sets none."""
        return f"consumer-{self.group}-{instance_id or 1}"

    def _options(self, process: Process) -> dict[str, Any]:
        options = super()._options(process)
        if self.history.alike:
            options["settings"]["client.id"] = self._automatic(process.instance_id)
        if self._protocol(process) == "consumer":
            return options | {"protocol": "consumer", "assignors": None}
        return options
