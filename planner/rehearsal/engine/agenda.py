"""Simulated time and randomness: scheduled events, latencies, and values drawn at random."""

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
    """Scheduled events in the order of their time; at the same time, in the order of scheduling.

    Times are seconds since the simulation began. The agenda reads no clock and draws no random
    number, so two agendas with the same events run alike.
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
        """Run events up to the time `until`, and return whether `done` ended the run earlier.

        `done` is called before each event. If it never returns True, `now` is `until` afterwards.
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
    """At most one scheduled event of an agenda; scheduling another one replaces it."""

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
        """Cancel the scheduled event, if there is one."""
        self._number += 1

    def _happen(self, number: int, event: Callable[..., None], args: tuple[Any, ...]) -> None:
        if number == self._number:
            event(*args)


class Latency:
    """Count, sum and maximum of one kind of latency, in seconds (KIP-429's metrics).

    `last` is the time at which the last of these latencies ended (-1.0: none yet).
    """

    def __init__(self) -> None:
        self.count, self.total, self.longest, self.last = 0, 0.0, 0.0, -1.0

    def add(self, seconds: float, now: float) -> None:
        """Count a latency of `seconds` that ends at the time `now`."""
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
        """Return the seconds since the last heartbeat of a member when the simulation begins."""
        return self._random.random() * heartbeat

    def interval(self, heartbeat: float) -> float:
        """Return the seconds between a member's heartbeats during one generation.

        Its client sends them a little later than every `heartbeat` seconds, as its timer drifts.
        """
        return math.ceil(heartbeat / _TICK - _DRIFT) * _TICK * (1 + self._random.random() * _DRIFT)

    def poll(self, client_id: str, beat: float, every: float, now: float) -> float:  # noqa: ARG002
        """Return when a member first polls after its heartbeat at `beat` has found a rebalance.

        `every` is the seconds between its polls. It is 0 for clients that join again without a
        poll.
        """
        return beat + self._random.random() * every if every else beat

    def last_beat(self, member_id: str, usual: float, session: float) -> float:  # noqa: ARG002
        """Return the time of the last heartbeat of a member whose process ends.

        That is `usual`, which the caller has computed from the member's heartbeat interval. A
        recording ignores it: it subtracts the session timeout of `session` seconds from the time at
        which the session ended.
        """
        return usual

    def retry(self, client_id: str, after: float, now: float) -> float:  # noqa: ARG002
        """Return the time of a client's next join, for which it waits `after` seconds."""
        return now + after

    def assigned(self, client_id: str, after: float, now: float) -> float:  # noqa: ARG002
        """Return the time at which a leader sends its assignment, which takes `after` seconds."""
        return now + after

    def metadata(self, client_id: str, within: float, now: float) -> float:  # noqa: ARG002
        """Return the time of a client's next metadata refresh, at most `within` seconds later."""
        return now + self._random.random() * within
