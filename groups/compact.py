"""Compact texts in snapshot documents: partitions, replicas, offsets and lists of topics.

A group of a thousand topics has a thousand entries for each member, most of them alike. Each value
is one line, and each distinct word of a document is parsed once:

    Partitions   `0-11,14`                    ascending runs, in the order given
    ByTopic      `a 0-3; b 5`                 partitions by topic
    topics       `a b c`                      a list of topics, folded by `fold`
    Replicas     `1,2,3 2,3,1`                broker ids by partition
    Lags         `100 - 7`                    committed and end offsets, one line each by topic

Short lists and mappings stay as they are; both forms are read.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from sys import intern
from typing import Any, Final, NamedTuple, TypeGuard, overload

import msgspec

_TOKEN: Final = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?\Z")
_NUMBERS: Final = re.compile(r"[0-9]{1,10}(?:,[0-9]{1,10})*\Z")
_INT32_MAX: Final = 2**31 - 1


class Partitions:
    """Ordered, immutable partition numbers (int32, zero or more).

    The order given is kept, because a member's own order can matter to its assignor. Equal lists
    are equal and hash alike, whether they were given as runs or as single numbers; the other form
    is computed only when it is needed.
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
        """Parse `"0-11,14"` as thirteen partitions and `""` as none.

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
        """The ascending runs, in order; each run is as long as possible."""
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


_MOST_KEPT: Final = 4_000_000
_SHOWN: Final = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


class ByTopic(dict[str, Partitions]):
    """Partitions by topic name, in the order given; never change one, since records share it."""


class TopicReader:
    """Reads the values of one document; equal ones become the same object."""

    def __init__(self) -> None:
        self._last: tuple[str, ByTopic] = ("", ByTopic())
        self._words = _Words()

    def partitions(self, value: object) -> Partitions:
        """Return one topic's partitions.

        Raises:
            ValueError: it is neither a number nor a text that `Partitions.parse` reads.
        """
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise ValueError('expected partitions such as "0-11,14"')
        return self._words[f"{value};"]

    def by_topic(self, value: object) -> ByTopic:
        """Return the partitions of each topic.

        Raises:
            ValueError: it is neither form, a topic occurs twice, or its partitions are invalid; the
                message ends with the topic, in msgspec's notation for a path.
        """
        if isinstance(value, str):
            # What a member owns stands in its subscription too, a few lines above.
            if value != self._last[0]:
                self._last = (value, self._line(value))
            return self._last[1]
        if not isinstance(value, Mapping):
            raise ValueError("expected partitions by topic")
        return ByTopic({topic: self._of(topic, one) for topic, one in value.items()})

    def _line(self, text: str) -> ByTopic:
        words = f"{text};".split(" ")
        names = words[::2]
        try:
            numbers = map(self._words.__getitem__, words[1::2])
            made = ByTopic(zip(map(intern, names), numbers, strict=True))
        except ValueError:
            return self._odd_line(text)
        # Else a name has a semicolon, or stands twice, or something has a blank.
        if len(made) * 2 == len(words) and text.count(";") == len(made) - 1:
            return made
        return self._odd_line(text)

    def _odd_line(self, text: str) -> ByTopic:
        made = ByTopic()
        for part in text.split("; ") if text else ():
            name, _, numbers = part.partition(" ")
            if name in made:
                raise ValueError(f"the topic `{name}` stands twice on one line")
            made[name] = self._of(name, numbers)
        return made

    def _of(self, topic: object, value: object) -> Partitions:
        if not isinstance(topic, str):
            raise ValueError(f"expected a topic's name, got {topic!r}")
        try:
            return self.partitions(value)
        except ValueError as error:
            shown = topic if _SHOWN.match(topic) else "..."
            raise ValueError(f"{error} - at `$[{shown}]`") from None


class _Words(dict[str, Partitions]):
    """Partitions by their text with a semicolon behind it, as they stand on a line."""

    _kept = 0

    def __missing__(self, word: str) -> Partitions:
        if word[-1:] != ";":
            raise ValueError(word)
        made = Partitions.parse(word[:-1])
        self._kept += len(word)
        if self._kept > _MOST_KEPT:
            self.clear()
            self._kept = len(word)
        self[word] = made
        return made


_LISTS: Final = frozenset({"topics", "subscribed_topics"})
_MAPS: Final = frozenset({"assignment", "target_assignment", "owned_partitions"})
FOLDED: Final = _LISTS | _MAPS
"""Keys whose long values stand on one line in a kept document."""
# Mappings whose keys are names of topics, clients or settings, not of fields.
_FREE: Final = _MAPS | {"lag", "families", "ignore", "settings", "features"}
_LONG: Final = 20
# Kafka's own names are plain; what a hand has written otherwise stays as it is.
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+\Z")


def fold(body: Any) -> Any:
    """Return plain data in which long lists and mappings of topics are one line of text."""
    if isinstance(body, Mapping):
        return {key: _folded(key, value) for key, value in body.items()}
    if isinstance(body, list | tuple):
        return [fold(item) if isinstance(item, Mapping | list | tuple) else item for item in body]
    return body


def unfold(body: Any) -> None:
    """Replace folded lines by lists, in place; equal lines share one list, which must not be
    changed.
    """
    _Unfolding().walk(body)


def _folded(key: str, value: Any) -> Any:
    if not isinstance(value, Mapping | list | tuple):
        return value
    if len(value) > _LONG and key in FOLDED and all(map(_is_plain, value)):
        if key in _LISTS and not isinstance(value, Mapping):
            return " ".join(value)
        if key in _MAPS and isinstance(value, Mapping):
            return "; ".join(f"{topic} {numbers}" for topic, numbers in value.items())
    return fold(value)


def _is_plain(name: object) -> bool:
    return isinstance(name, str) and _PLAIN.match(name) is not None


class _Unfolding:
    """One document; remembers lines and names, which come again and again."""

    def __init__(self) -> None:
        self._lists: dict[str, list[str]] = {}
        self._names: dict[str, str] = {}

    def walk(self, body: Any) -> None:
        """Unfold everything below `body`, which is a mapping or a list."""
        for key, value in body.items() if isinstance(body, dict) else enumerate(body):
            if key in _FREE and isinstance(value, dict):
                continue
            if isinstance(value, dict | list):
                self.walk(value)
            elif isinstance(value, str) and key in _LISTS:
                body[key] = self._list(value)

    def _list(self, text: str) -> list[str]:
        if text not in self._lists:
            self._lists[text] = [self._names.setdefault(name, name) for name in text.split()]
        return self._lists[text]


_BROKERS: Final = re.compile(r"(?:-|-?[0-9]{1,10}(?:,-?[0-9]{1,10})*)\Z")


class Replicas(Sequence[tuple[int, ...]]):
    """For each partition its broker ids (empty: not known); equal to a tuple of the same.

    Partitions with equal broker ids share one tuple.
    """

    __slots__ = ("_sets",)

    def __init__(self, sets: Iterable[Sequence[int]] = ()) -> None:
        known: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._sets = tuple(known.setdefault(key, key) for key in map(tuple, sets))

    @classmethod
    def parse(cls, text: str) -> Replicas:
        """Parse a text such as `1,2,3 2,3,1`, as `str()` writes it.

        Raises:
            ValueError: it is not broker ids separated by commas, partitions by blanks.
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


_UNKNOWN: Final = -1
_OFFSETS: Final = re.compile(r"(?:[0-9]{1,19}|-)(?: (?:[0-9]{1,19}|-))*\Z")
_INT64_MAX: Final = 2**63 - 1
_INT_LIST: Final = msgspec.json.Decoder(list[int])
Row = tuple[Partitions, "array[int]", "array[int]"]


class Lag(NamedTuple):
    """Committed and end offset of one partition, in records; None: nothing committed or unknown."""

    topic: str
    partition: int
    committed: int | None = None
    end: int | None = None

    @property
    def records(self) -> int | None:
        """Return how many records are not committed; None where an offset is not known."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


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
        """Read plain data: that of `dump`, or a list with one mapping for each partition.

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
        """Return plain data: `partitions`, `committed` and `end` by topic, `-` where not known."""
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
            made = array("q", _INT_LIST.decode(b"[%b]" % listed))
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
