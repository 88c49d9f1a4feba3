"""`SeenWorld`, a simulated group whose sources are written down, and `Truth`: what it really is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rebal.groups.model import RebalanceProtocol
from rebal.planner.rehearsal.engine.consumer import Consumer
from rebal.planner.rehearsal.engine.member import Process as Settings
from rebal.planner.rehearsal.engine.member import SimulatedMember
from rebal.planner.rehearsal.engine.world import World
from tests.live.obey import Process
from tests.search.evidence import Operator
from tests.search.sources import Book, Life, Witness, life_of


class SeenWorld(World):
    """A simulated group whose sources are written down in `book`."""

    def __init__(self, book_of: Any, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.book: Book = book_of(self.agenda)
        self.group = self.witness = Witness(
            self.agenda, self._brokers, self, self.chance, server=self, book=self.book
        )

    @property
    def lives(self) -> dict[str, Life]:
        """The processes that the coordinator counts, by member id."""
        return {id_: life_of(member.client) for id_, member in self.group.now._members.items()}

    def _consumer(self, process: Settings) -> SimulatedMember:
        made = super()._consumer(process)
        own = process.name in self.book.own and "cooperative-sticky" in process.assignors
        if own and isinstance(made, Consumer):
            made._fixed = made.protocol = RebalanceProtocol.EAGER
        return made

    def _metadata_seen(self, topic: str) -> None:
        # The brokers of a group that was converted meanwhile see the new partitions, too.
        self.group.refresh(topic)
        super()._metadata_seen(topic)

    def tell(self, consumer: SimulatedMember, what: str, detail: str = "") -> None:
        """Print what the client prints, too."""
        if what == "started":
            self.book.built(self.witness.line(consumer).life)
        elif what == "stopped":
            self.book.closed(self.witness.line(consumer).life)
        super().tell(consumer, what, detail)

    def generation(self, number: int, assignor: str | None, members: int) -> None:
        """Note the change of state, too."""
        self.book.completed()
        super().generation(number, assignor, members)


class Truth:
    """The engine's own knowledge of a group, and what the evidence at hand shows for certain.

    `current` is each process's newest consumer, by name. `alike`: all clients have one client id.
    """

    def __init__(
        self,
        world: SeenWorld,
        operator: Operator,
        processes: Sequence[Process],
        current: Mapping[str, SimulatedMember],
        *,
        alike: bool,
    ) -> None:
        self._world, self._operator = world, operator
        self._processes, self._current, self.alike = processes, current, alike

    # --- the group ------------------------------------------------------------------------------

    @property
    def counted_members(self) -> int:
        """Return how many members the coordinator counts."""
        return self._world.group.now.size

    def rejects(self, names: Sequence[str], left: frozenset[str] = frozenset()) -> bool:
        """Return whether a join with this list is rejected now, once `left` have left."""
        lists = [each for id_, each in self._world.group.now.lists().items() if id_ not in left]
        return not any(all(name in each for each in lists) for name in names)

    def names(self) -> frozenset[str]:
        """Return the names of the processes that the coordinator counts."""
        return frozenset(life.process.name for life in self._world.lives.values())

    # --- processes ------------------------------------------------------------------------------

    def life_of(self, process: Process) -> Life | None:
        """Return the newest life of a process."""
        lives = reversed(self._world.book.lives)
        return next((one for one in lives if one.process.name == process.name), None)

    def rejected_out(self) -> list[Process]:
        """Return the processes whose last start was rejected and that are not in the group."""
        last = {
            one.who: one.what for one in self._world.happened if one.what in ("started", "rejected")
        }
        out = (one for one in self._processes if not one.running)
        return [one for one in out if last.get(one.name) == "rejected"]

    def outlives_a_load(self) -> bool:
        """Return whether a stopped process is counted, and its coordinator loaded the group last.

        Its session began anew then, and no evidence shows that load where the group's partition of
        the offsets topic is not read.
        """
        running = sum(one.alive for one in self._current.values())
        return self._world.book.in_place and self.counted_members > running

    def owned_by(self, member_id: str) -> int:
        """Return how many partitions the process behind a member id owns."""
        return sum(len(one.owned) for one in self._of(member_id) if one.alive)

    def list_of(self, member_id: str) -> tuple[str, ...]:
        """Return the list that the process behind a member id runs; empty if it has ended."""
        running = (one.process.assignors for one in self._of(member_id) if one.alive)
        return next(running, ())

    def has_own_class(self, member_id: str) -> bool:
        """Return whether this process may have a class of the application's own."""
        return any(one.process.name in self._world.book.own for one in self._of(member_id))

    def age_of(self, member_id: str) -> float:
        """Return for how many seconds the process behind a member id has run."""
        names = {one.process.name for one in self._of(member_id)}
        return self._world.agenda.now - max(self._starts(names), default=0.0)

    def starts_within(self, seconds: float) -> int:
        """Return how many processes started in the last so many seconds."""
        since = self._world.agenda.now - seconds
        return sum(at >= since for at in self._starts(self._current))

    def _of(self, member_id: str) -> list[SimulatedMember]:
        return [one for one in self._current.values() if one.member_id == member_id]

    def _starts(self, names: Collection[str]) -> Iterable[float]:
        happened = self._world.happened
        return (one.at for one in happened if one.what == "started" and one.who in names)

    # --- what the evidence shows for certain ------------------------------------------------------

    def shown_rejected(self, process: Process) -> bool:
        """Return whether the evidence shows that its last start was rejected."""
        life = self.life_of(process)
        return life is not None and self._operator.shows_rejection(life)

    def shown_back(self, process: Process) -> bool:
        """Return whether the evidence shows that it joined."""
        life = self.life_of(process)
        # One log of several processes with one client id has no address that tells them apart.
        known = not (self.alike and "client log" in self._operator.kinds)
        return known and life is not None and self._operator.shows_join(life)

    def shown_all_back(self, service: Sequence[Process]) -> bool:
        """Return whether the evidence shows the join of each process, and of each other one that
        was rejected: where it was scaled away since, nobody knows which of them it was.
        """
        rejected = {one.who for one in self._world.happened if one.what == "rejected"}
        others = (one for one in self._processes if one.name in rejected)
        return all(self.shown_back(one) for one in (*service, *others))

    def shown_list(self, member_id: str) -> bool:
        """Return whether the evidence shows this member's list."""
        life = self._world.lives.get(member_id)
        return life is not None and self._operator.shows_list(life)
