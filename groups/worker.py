"""What a member of a Connect worker group is and runs; `Member.worker` in groups/model.py."""

from __future__ import annotations

import msgspec


class Running(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one worker runs of one connector: the connector `itself`, and tasks by number."""

    connector: str
    itself: bool = False
    tasks: tuple[int, ...] = ()


class WorkerState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Connect worker: its REST address, and what it was given and has kept (None: not said).

    `running` is in the order in which the worker holds it. `leader`: it leads the group, and shares
    its work out. `held_back_ms` is above 0 while a lost worker's tasks wait for it to come back
    (KIP-415).
    """

    url: str
    running: tuple[Running, ...] | None = None
    leader: bool = False
    held_back_ms: int = 0

    @property
    def connectors(self) -> int | None:
        """How many connectors run there."""
        return None if self.running is None else sum(one.itself for one in self.running)

    @property
    def tasks(self) -> int | None:
        """How many tasks run there."""
        return None if self.running is None else sum(len(one.tasks) for one in self.running)
