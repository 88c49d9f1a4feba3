"""Partition numbers of one topic, kept as runs: `0-11,14` is twelve partitions and one more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

_TOKEN: Final = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?\Z")
_INT32_MAX: Final = 2**31 - 1


class Partitions:
    """Ordered, immutable partition numbers (int32, zero or more), kept as ascending runs.

    The order given is kept (a member's own order can matter to its assignor); equal lists are
    equal and hash alike.
    """

    __slots__ = ("_len", "_runs")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        runs: list[range] = []
        start = stop = -1
        for number in numbers:
            if number == stop and start >= 0:
                stop += 1
                continue
            if not 0 <= number <= _INT32_MAX:
                raise ValueError(f"a partition is a number from 0 to {_INT32_MAX}, not {number}")
            if start >= 0:
                runs.append(range(start, stop))
            start, stop = number, number + 1
        if start >= 0:
            runs.append(range(start, stop))
        self._set(runs)

    def _set(self, runs: list[range]) -> None:
        self._runs = tuple(runs)
        self._len = sum(map(len, runs))

    @classmethod
    def parse(cls, text: str) -> Partitions:
        """`"0-11,14"` → the thirteen partitions; `""` is none.

        Raises:
            ValueError: the text is not a comma-separated list of numbers and `low-high` runs.
        """
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
        made = cls.__new__(cls)
        made._set(runs)
        return made

    @property
    def runs(self) -> tuple[range, ...]:
        """The ascending runs, in order; neighbouring runs never join."""
        return self._runs

    def __iter__(self) -> Iterator[int]:
        for run in self._runs:
            yield from run

    def __len__(self) -> int:
        return self._len

    def __contains__(self, number: object) -> bool:
        return any(number in run for run in self._runs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partitions) and self._runs == other._runs

    def __hash__(self) -> int:
        return hash(self._runs)

    def __str__(self) -> str:
        return ",".join(
            str(run.start) if len(run) == 1 else f"{run.start}-{run.stop - 1}" for run in self._runs
        )

    def __repr__(self) -> str:
        return f"Partitions({str(self)!r})"
