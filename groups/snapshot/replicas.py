"""Which brokers hold each partition of a topic, compactly: `1,2,3 2,3,1` is two partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, overload

_BROKERS: Final = re.compile(r"(?:-|-?[0-9]{1,10}(?:,-?[0-9]{1,10})*)\Z")


class Replicas(Sequence[tuple[int, ...]]):
    """For each partition its broker ids (empty: not known); equal to a tuple of the same.

    Partitions with the same brokers share one tuple.
    """

    __slots__ = ("_sets",)

    def __init__(self, sets: Iterable[Sequence[int]] = ()) -> None:
        known: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._sets = tuple(known.setdefault(key, key) for key in map(tuple, sets))

    @classmethod
    def parse(cls, text: str) -> Replicas:
        """From `str()`'s text.

        Raises:
            ValueError: it is not broker ids by commas, and partitions by blanks.
        """
        words = text.split(" ") if text else []
        known = {word: _brokers(word) for word in set(words)}
        made = cls()
        made._sets = tuple(map(known.__getitem__, words))
        return made

    @overload
    def __getitem__(self, at: int) -> tuple[int, ...]: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[tuple[int, ...], ...]: ...
    def __getitem__(self, at: int | slice) -> tuple[int, ...] | tuple[tuple[int, ...], ...]:
        return self._sets[at]

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return iter(self._sets)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Replicas):
            return self._sets == other._sets
        return self._sets == other

    def __hash__(self) -> int:
        return hash(self._sets)

    def __str__(self) -> str:
        known = {brokers: ",".join(map(str, brokers)) or "-" for brokers in set(self._sets)}
        return " ".join(map(known.__getitem__, self._sets))

    def __repr__(self) -> str:
        return f"Replicas({str(self)!r})"


NO_REPLICAS: Final = Replicas()


def _brokers(word: str) -> tuple[int, ...]:
    if _BROKERS.match(word) is None:
        raise ValueError(f'expected brokers by partition such as "1,2 2,3", got "{word[:40]}"')
    return () if word == "-" else tuple(map(int, word.split(",")))
