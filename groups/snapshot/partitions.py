"""Partition numbers of one topic, written as runs: `0-11,14` is twelve partitions and one more."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

_TOKEN: Final = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?\Z")
_NUMBERS: Final = re.compile(r"[0-9]{1,10}(?:,[0-9]{1,10})*\Z")
_INT32_MAX: Final = 2**31 - 1


class Partitions:
    """Ordered, immutable partition numbers (int32, zero or more).

    The order given is kept (a member's own order can matter to its assignor); equal lists are
    equal and hash alike. They are kept as given, as runs or as single numbers, and the other form
    is made when it is asked for: a snapshot holds a million numbers that nobody may look at.
    """

    __slots__ = ("_numbers", "_runs")
    _numbers: array[int] | None
    _runs: tuple[range, ...] | None

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._runs = None
        if isinstance(numbers, range) and numbers.step == 1:
            self._numbers = None
            self._runs = (numbers,) if numbers else ()
            if numbers and not 0 <= numbers[0] <= numbers[-1] <= _INT32_MAX:
                raise _not_one(numbers[0] if numbers[0] < 0 else numbers[-1])
            return
        if not isinstance(numbers, array):
            numbers = list(numbers)
        if numbers and not (min(numbers) >= 0 and max(numbers) <= _INT32_MAX):
            raise _not_one(next(n for n in numbers if not 0 <= n <= _INT32_MAX))
        self._numbers = array("i", numbers)

    @classmethod
    def parse(cls, text: str) -> Partitions:
        """`"0-11,14"` → the thirteen partitions; `""` is none.

        Raises:
            ValueError: the text is not a comma-separated list of numbers and `low-high` runs.
        """
        made = cls.__new__(cls)
        made._runs = made._numbers = None
        if _NUMBERS.match(text):
            try:
                made._numbers = array("i", map(int, text.split(",")))
            except OverflowError:
                pass
            else:
                return made
        made._runs = _runs_in(text)
        return made

    @property
    def runs(self) -> tuple[range, ...]:
        """The ascending runs, in order; neighbouring runs never join."""
        if self._runs is None:
            assert self._numbers is not None
            self._runs = _joined(self._numbers)
        return self._runs

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers) if self._numbers is not None else chain.from_iterable(self.runs)

    def __len__(self) -> int:
        return len(self._numbers) if self._numbers is not None else sum(map(len, self.runs))

    def __contains__(self, number: object) -> bool:
        if self._numbers is not None:
            return number in self._numbers
        return any(number in run for run in self.runs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partitions):
            return False
        if self._numbers is not None and other._numbers is not None:
            return self._numbers == other._numbers
        return self.runs == other.runs

    def __hash__(self) -> int:
        return hash(self.runs)

    def __str__(self) -> str:
        return ",".join(
            str(run.start) if len(run) == 1 else f"{run.start}-{run.stop - 1}" for run in self.runs
        )

    def __repr__(self) -> str:
        return f"Partitions({str(self)!r})"


def _runs_in(text: str) -> tuple[range, ...]:
    runs: list[range] = []
    for token in text.split(",") if text.strip() else ():
        match = _TOKEN.match(token.strip())
        if match is None:
            raise ValueError(f'expected partitions such as "0-11,14", got "{text[:40]}"')
        low = int(match[1])
        high = int(match[2] or low)
        if not low <= high <= _INT32_MAX:
            raise ValueError(f'the run "{token.strip()}" does not go upwards or is too large')
        if runs and runs[-1].stop == low:
            runs[-1] = range(runs[-1].start, high + 1)
        else:
            runs.append(range(low, high + 1))
    return tuple(runs)


def _joined(numbers: array[int]) -> tuple[range, ...]:
    runs: list[range] = []
    start = stop = -1
    for number in numbers:
        if number == stop:
            stop += 1
            continue
        if start >= 0:
            runs.append(range(start, stop))
        start, stop = number, number + 1
    if start >= 0:
        runs.append(range(start, stop))
    return tuple(runs)


def _not_one(number: int) -> ValueError:
    return ValueError(f"a partition is a number from 0 to {_INT32_MAX}, not {number}")
