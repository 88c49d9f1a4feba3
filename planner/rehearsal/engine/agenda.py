"""Time of a simulation: what happens next, what time it is, and how long things took."""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any, Final


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

    __slots__ = ("_agenda", "_number")

    def __init__(self, agenda: Agenda) -> None:
        self._agenda, self._number = agenda, 0

    def at(self, when: float, event: Callable[..., None], *args: Any) -> None:
        """Have `event(*args)` happen at `when`, unless this is set again or cancelled before."""
        self._number += 1
        self._agenda.at(when, self._happen, self._number, event, args)

    def after(self, seconds: float, event: Callable[..., None], *args: Any) -> None:
        """Have `event(*args)` happen in `seconds`, under the same condition."""
        self.at(self._agenda.now + seconds, event, *args)

    def cancel(self) -> None:
        """Have nothing happen."""
        self._number += 1

    def _happen(self, number: int, event: Callable[..., None], args: tuple[Any, ...]) -> None:
        if number == self._number:
            event(*args)


class Latency:
    """Times of one kind: how many, their sum and the longest, in seconds (KIP-429's metrics)."""

    __slots__ = ("count", "last", "longest", "total")

    def __init__(self) -> None:
        self.count, self.total, self.longest, self.last = 0, 0.0, 0.0, -1.0

    def add(self, seconds: float, now: float) -> None:
        """Count one more, which ended now."""
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)
        self.last = now
