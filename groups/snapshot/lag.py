"""Committed and end offsets by partition, compactly: `Lags` holds a `Lag` for each.

In a document a topic has one line for its partitions and one for each kind of offset: a group of a
million partitions is still read at once.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeGuard

import msgspec

from rebal.groups.snapshot.partitions import Partitions

_UNKNOWN: Final = -1
_OFFSETS: Final = re.compile(r"(?:[0-9]{1,19}|-)(?: (?:[0-9]{1,19}|-))*\Z")
_INT64_MAX: Final = 2**63 - 1
_NUMBERS: Final = msgspec.json.Decoder(list[int])
Row = tuple[Partitions, "array[int]", "array[int]"]


class Lag(NamedTuple):
    """Committed and end offset of one partition, in records; None: nothing committed or unknown."""

    topic: str
    partition: int
    committed: int | None = None
    end: int | None = None


class Lags:
    """Immutable; iterates `Lag`s by topic and partition as given; equal contents are equal."""

    __slots__ = ("_rows",)
    _rows: dict[str, Row]

    def __init__(self, lags: Iterable[Lag] = ()) -> None:
        parts: dict[str, tuple[list[int], array[int], array[int]]] = {}
        for topic, partition, committed, end in lags:
            numbers, first, second = parts.setdefault(topic, ([], array("q"), array("q")))
            numbers.append(partition)
            first.append(_UNKNOWN if committed is None else _offset(committed))
            second.append(_UNKNOWN if end is None else _offset(end))
        self._rows = {topic: (Partitions(n), first, second) for topic, (n, first, second) in
                      parts.items()}  # fmt: skip

    @classmethod
    def read(cls, document: object) -> Lags:
        """From plain data: `dump`'s, or a list with one mapping for each partition.

        Raises:
            ValueError: it is neither.
        """
        made = cls()
        if isinstance(document, list):
            made._rows = cls(map(_one, document))._rows
        elif isinstance(document, Mapping):
            made._rows = {str(topic): _row(str(topic), one) for topic, one in document.items()}
        else:
            raise ValueError("expected offsets by topic")
        return made

    def dump(self) -> dict[str, dict[str, str]]:
        """Plain data: by topic its `partitions`, `committed` and `end`, `-` where not known."""
        return {
            topic: {"partitions": str(numbers), "committed": _text(first), "end": _text(second)}
            for topic, (numbers, first, second) in self._rows.items()
        }

    def __iter__(self) -> Iterator[Lag]:
        for topic, (numbers, first, second) in self._rows.items():
            for number, committed, end in zip(numbers, first, second, strict=True):
                yield Lag(
                    topic,
                    number,
                    None if committed == _UNKNOWN else committed,
                    None if end == _UNKNOWN else end,
                )

    def __len__(self) -> int:
        return sum(len(numbers) for numbers, _, _ in self._rows.values())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Lags):
            return self._rows == other._rows
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple((topic, row[0]) for topic, row in self._rows.items()))

    def __repr__(self) -> str:
        return f"Lags({list(self)!r})"


NO_LAG: Final = Lags()


def _one(value: object) -> Lag:
    match value:
        case {"topic": str(topic), "partition": int(partition), **rest}:
            committed, end = rest.get("committed"), rest.get("end")
            if type(partition) is int and _is_offset(committed) and _is_offset(end):
                return Lag(topic, partition, committed, end)
    raise ValueError("expected a topic, a partition and its offsets")


def _is_offset(value: object) -> TypeGuard[int | None]:
    return value is None or (type(value) is int and 0 <= value <= _INT64_MAX)


def _row(topic: str, value: object) -> Row:
    match value:
        case {"partitions": str() | int() as text, "committed": committed, "end": end}:
            numbers = Partitions.parse(str(text))
            first, second = _offsets(topic, committed), _offsets(topic, end)
            if len(numbers) == len(first) == len(second):
                return numbers, first, second
            raise ValueError(
                f"{topic} has {len(numbers)} partitions, {len(first)} committed and {len(second)} "
                "end offsets"
            )
    raise ValueError(f"expected partitions, committed and end of {topic}")


def _offsets(topic: str, text: object) -> array[int]:
    # One offset alone reads as a number in YAML.
    words = str(text) if isinstance(text, str | int) else "?"
    # A million at once are read as a list of JSON; what that does not take is looked at closely.
    if words.isascii() and not words.encode().translate(None, b"0123456789 -"):
        listed = words.encode().replace(b"-", b"-1").replace(b" ", b",")
        try:
            made = array("q", _NUMBERS.decode(b"[%b]" % listed))
        except (msgspec.DecodeError, OverflowError):
            pass
        else:
            if min(made, default=0) >= _UNKNOWN:
                return made
    if words and _OFFSETS.match(words) is None:
        raise _no_offsets(topic)
    try:
        return array("q", map(int, words.replace("-", str(_UNKNOWN)).split(" ") if words else ()))
    except OverflowError:
        raise _no_offsets(topic) from None


def _no_offsets(topic: str) -> ValueError:
    return ValueError(f"expected offsets of {topic} such as 100 - 7")


def _offset(number: int) -> int:
    if not 0 <= number <= _INT64_MAX:
        raise ValueError(f"an offset is a number from 0 to {_INT64_MAX}, not {number}")
    return number


def _text(offsets: array[int]) -> str:
    return " ".join("-" if offset == _UNKNOWN else str(offset) for offset in offsets)
