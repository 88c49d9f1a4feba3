"""Time and chance of a simulation: what happens next, how long things took, what is drawn."""

import heapq
import math
from base64 import urlsafe_b64encode
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, Final
from uuid import UUID

# AbstractCoordinator's heartbeat thread looks at its timer every retry.backoff.ms, and such waits
# last a little longer than that: in brokers' request logs 301 ms for 300, 1001 to 1002 ms for 1000.
_TICK: Final = 0.1
_DRIFT: Final = 0.004


class Agenda:
    """Events in the order of their time; those of one time in the order in which they were added.

    Times are seconds since the simulation began. Nothing here reads a clock or draws a number, so
    two agendas that are given the same events run alike.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers: Final = count()

    def at(self, when: float, event: Callable[..., None], *args: Any) -> None:
        """Schedule `event(*args)` at `when`, or now if that time is over."""
        heapq.heappush(self._events, (max(when, self.now), next(self._numbers), event, args))

    def after(self, seconds: float, event: Callable[..., None], *args: Any) -> None:
        """Schedule `event(*args)` in `seconds`."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), event, args))

    def run(self, until: float, done: Callable[[], bool] | None = None) -> bool:
        """Let events happen up to the time `until`, and return whether `done` ended it before.

        `done` is asked before each event. Where it never holds, the time afterwards is `until`.
        """
        events = self._events
        while True:
            if done is not None and done():
                return True
            if not events or events[0][0] > until:
                break
            self.now, _, event, args = heapq.heappop(events)
            event(*args)
        self.now = max(self.now, until)
        return False


class Timer:
    """One appointment in an agenda, which the next one replaces."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda, self._number = agenda, 0

    def at(self, when: float, event: Callable[..., None], *args: Any) -> None:
        """Schedule `event(*args)` at `when`, in place of what was scheduled before."""
        self._number += 1
        self._agenda.at(when, self._happen, self._number, event, args)

    def after(self, seconds: float, event: Callable[..., None], *args: Any) -> None:
        """Schedule `event(*args)` in `seconds`, in place of what was scheduled before."""
        self.at(self._agenda.now + seconds, event, *args)

    def cancel(self) -> None:
        """Drop what was scheduled."""
        self._number += 1

    def _happen(self, number: int, event: Callable[..., None], args: tuple[Any, ...]) -> None:
        if number == self._number:
            event(*args)


class Latency:
    """Times of one kind: how many, their sum and the longest, in seconds (KIP-429's metrics)."""

    def __init__(self) -> None:
        self.count, self.total, self.longest, self.last = 0, 0.0, 0.0, -1.0

    def add(self, seconds: float, now: float) -> None:
        """Count one more, which ended now."""
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)
        self.last = now


class Chance:
    """Everything that a run leaves to chance, drawn from one seeded source.

    A subclass can answer from a recording instead: a replay then has the member ids and the
    heartbeats of the captured group. Times are seconds since the simulation began.
    """

    def __init__(self, random: Random) -> None:
        self._random = random

    def member_id(self, client_id: str, instance_id: str | None, now: float) -> str:  # noqa: ARG002
        """Return the id of a new member: its instance id or client id, and a random UUID."""
        return f"{instance_id or client_id}-{UUID(int=self._random.getrandbits(128))}"

    def kip848_member_id(self, client_id: str, now: float) -> str:  # noqa: ARG002
        """Return the id of a new member of a KIP-848 group: a bare UUID, as Kafka prints it."""
        return urlsafe_b64encode(self._random.getrandbits(128).to_bytes(16)).decode().rstrip("=")

    def phase(self, heartbeat: float) -> float:
        """Return how long ago the last heartbeat of a member was that is in the group already."""
        return self._random.random() * heartbeat

    def interval(self, heartbeat: float) -> float:
        """Return the seconds between a member's heartbeats during one generation."""
        return math.ceil(heartbeat / _TICK - _DRIFT) * _TICK * (1 + self._random.random() * _DRIFT)

    def poll(self, client_id: str, beat: float, every: float, now: float) -> float:  # noqa: ARG002
        """Return when a member polls that learns of a rebalance at its heartbeat `beat`.

        It polls every `every` seconds; 0 for clients that join again without a poll.
        """
        return beat + self._random.random() * every if every else beat

    def last_beat(self, member_id: str, usual: float, session: float) -> float:  # noqa: ARG002
        """Return when a member that ends has sent its last heartbeat, by its rhythm at `usual`."""
        return usual

    def retry(self, client_id: str, after: float, now: float) -> float:  # noqa: ARG002
        """Return when a client joins again that waits `after` seconds for it."""
        return now + after

    def assigned(self, client_id: str, after: float, now: float) -> float:  # noqa: ARG002
        """Return when a leader sends an assignment that takes it `after` seconds."""
        return now + after

    def metadata(self, client_id: str, within: float, now: float) -> float:  # noqa: ARG002
        """Return when a client reads its metadata the next time, `within` so many seconds."""
        return now + self._random.random() * within
