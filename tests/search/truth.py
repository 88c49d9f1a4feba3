"""`Truth`: a simulated group as it really is, which the judge holds each look against."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rebal.planner.rehearsal.engine.member import Member
from tests.live.obey import Process
from tests.search.evidence import Operator
from tests.search.sources import Life

if TYPE_CHECKING:
    from tests.search.world import SeenWorld


class Truth:
    """The engine's own knowledge of a group, and what the evidence at hand shows for certain.

    `current` is each process's newest consumer, by name. `alike`: all clients have one client id.
    """

    def __init__(
        self,
        world: SeenWorld,
        operator: Operator,
        processes: Sequence[Process],
        current: Mapping[str, Member],
        *,
        alike: bool,
    ) -> None:
        self._world, self._operator = world, operator
        self._processes, self._current, self._alike = processes, current, alike

    # --- the group ------------------------------------------------------------------------------

    @property
    def counted_members(self) -> int:
        """Return how many members the coordinator counts."""
        return self._world.group.size

    def rejects(self, names: Sequence[str], left: frozenset[str] = frozenset()) -> bool:
        """Return whether a join with this list is rejected for certain, once `left` have left.

        It is where neither the remembered lists nor the whole ones, which members that run send
        when they join again, have an assignor of it in common.
        """
        lives = self._world.lives
        running = {one.member_id for one in self._current.values() if one.alive}
        lists = {id_: each for id_, each in self._world.group.lists().items() if id_ not in left}
        whole = [lives[id_].process.assignors if id_ in running else lists[id_] for id_ in lists]

        def admits(remembered: Collection[tuple[str, ...]]) -> bool:
            return any(all(name in each for each in remembered) for name in names)

        return not admits(lists.values()) and not admits(whole)

    # --- processes ------------------------------------------------------------------------------

    def life_of(self, process: Process) -> Life | None:
        """Return the newest life of a process."""
        lives = reversed(self._world.book.lives)
        return next((one for one in lives if one.process.name == process.name), None)

    def rejected_out(self) -> list[Process]:
        """Return the processes whose last start was rejected and that are not in the group."""
        rejected = {one.who for one in self._world.happened if one.what == "rejected"}
        out = (one for one in self._processes if not one.running and one.name in rejected)
        return [one for one in out if (life := self.life_of(one)) and not life.member_id]

    def owned_by(self, member_id: str) -> int:
        """Return how many partitions the process behind a member id owns."""
        return sum(len(one.owned) for one in self._of(member_id) if one.alive)

    def list_of(self, member_id: str) -> tuple[str, ...]:
        """Return the list that the process behind a member id runs; empty if it has ended."""
        running = (one.process.assignors for one in self._of(member_id) if one.alive)
        return next(running, ())

    def age_of(self, member_id: str) -> float:
        """Return for how many seconds the process behind a member id has run."""
        names = {one.process.name for one in self._of(member_id)}
        return self._world.agenda.now - max(self._starts(names), default=0.0)

    def starts_within(self, seconds: float) -> int:
        """Return how many processes started in the last so many seconds."""
        since = self._world.agenda.now - seconds
        return sum(at >= since for at in self._starts(self._current))

    def _of(self, member_id: str) -> list[Member]:
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
        known = not (self._alike and "client log" in self._operator.kinds)
        return known and life is not None and self._operator.shows_member(life)

    def shown_list(self, member_id: str) -> bool:
        """Return whether the evidence shows this member's list."""
        life = self._world.lives.get(member_id)
        return life is not None and self._operator.shows_member(life, b'"protocols":[{')
