"""Compact texts in snapshot documents: partitions, replicas, offsets and lists of topics.

A group of a thousand topics has a thousand entries for each member. Each value is one line:

    Partitions   `0-11,14`                    ascending runs, in the order given
    ByTopic      `a 0-3; b 5`                 partitions by topic
    topics       `a b c`                      a list of topics, folded by `fold`
    Replicas     `1,2,3 2,3,1`                broker ids by partition
    Lags         `100 - 7`                    committed and end offsets, one line each by topic

Short lists and mappings stay as they are; both forms are read.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple, Self, TypeVar, overload

_TOKEN: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?\Z")
_INT32_MAX: Final = 2**31 - 1
_T = TypeVar("_T")


class Partitions:
    """Immutable sequence of partition numbers (int32, zero or more), stored as ascending runs.

    The order given is kept, because a member's own order can matter to its assignor. `runs` are
    ascending ranges, each as long as possible. Equal sequences are equal and hash alike, whether
    they were given as runs or as single numbers.
    """

    __slots__ = ("runs",)
    runs: tuple[range, ...]

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self.runs = _joined(range(number, number + 1) for number in numbers)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `"0-11,14"` as thirteen partitions and `""` as none.

        Raises:
            ValueError: the text is not a comma-separated list of numbers and `low-high` runs.
        """
        made = cls()
        made.runs = _parsed(text)
        return made

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self.runs)

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def __contains__(self, number: object) -> bool:
        return any(number in run for run in self.runs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partitions) and self.runs == other.runs

    def __hash__(self) -> int:
        return hash(self.runs)

    def __str__(self) -> str:
        return ",".join(
            str(run.start) if len(run) == 1 else f"{run.start}-{run.stop - 1}" for run in self.runs
        )

    def __repr__(self) -> str:
        return f"Partitions({str(self)!r})"


@lru_cache(maxsize=100_000)
def _parsed(text: str) -> tuple[range, ...]:
    """Return the runs of partitions in `text`; cached, because topics often have the same text."""
    return _joined(map(_run, text.split(",") if text.strip() else ()))


def _run(token: str) -> range:
    if (match := _TOKEN.match(token.strip())) is None:
        raise ValueError(f'expected partitions such as "0-11,14", got "{token[:40]}"')
    low, high = int(match[1]), int(match[2] or match[1])
    if low > high:
        raise ValueError(f'the run "{token.strip()}" does not go upwards')
    return range(low, high + 1)


def _joined(runs: Iterable[range]) -> tuple[range, ...]:
    """Return `runs` with adjacent runs joined: 0-3 followed by 4-7 becomes 0-7.

    Raises:
        ValueError: a number is negative or above int32.
    """
    made: list[range] = []
    for run in runs:
        if not 0 <= run.start < run.stop <= _INT32_MAX + 1:
            wrong = run.start if run.start < 0 else run.stop - 1
            raise ValueError(f"a partition is a number from 0 to {_INT32_MAX}, not {wrong}")
        if made and made[-1].stop == run.start:
            made[-1] = range(made[-1].start, run.stop)
        else:
            made.append(run)
    return tuple(made)


class ByTopic(dict[str, Partitions]):
    """Partitions by topic name, in the order given. Do not modify an instance: records share it."""


def read_partitions(value: object) -> Partitions:
    """Convert a document's value for one topic to `Partitions`.

    Raises:
        ValueError: it is neither a number nor a text that `Partitions.parse` reads.
    """
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise ValueError('expected partitions such as "0-11,14"')
    return Partitions.parse(str(value))


def read_by_topic(value: object) -> ByTopic:
    """Convert a document's value for several topics to `ByTopic`.

    The value is a mapping of topics to partitions, or a folded text such as `a 0-3; b 5`.

    Raises:
        ValueError: the value is neither of these, a topic occurs twice, or its partitions are
            invalid; the message ends with the topic, in msgspec's notation for a path.
    """
    pairs: Iterable[tuple[object, object]]
    if isinstance(value, str):
        pairs = (part.partition(" ")[::2] for part in (value.split("; ") if value else ()))
    elif isinstance(value, Mapping):
        pairs = value.items()
    else:
        raise ValueError("expected partitions by topic")
    made = ByTopic()
    for topic, numbers in pairs:
        if not isinstance(topic, str):
            raise ValueError(f"expected a topic's name, got {topic!r}")
        if topic in made:
            raise ValueError(f"the topic `{topic}` stands twice on one line")
        try:
            made[topic] = read_partitions(numbers)
        except ValueError as error:
            shown = topic if re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) else "..."
            raise ValueError(f"{error} - at `$[{shown}]`") from None
    return made


_LISTS: Final = frozenset({"topics", "subscribed_topics"})
_MAPS: Final = frozenset({"assignment", "target_assignment", "owned_partitions"})
FOLDED: Final = _LISTS | _MAPS
"""Keys whose long values are written on one line in a saved document."""
# Mappings whose keys are names of topics, clients or settings, not of fields.
_FREE: Final = _MAPS | {"lag", "families", "ignore", "settings", "features"}
_LONG: Final = 20


def fold(body: Any) -> Any:
    """Return plain data with long lists and mappings of topics as one line of text each."""
    if isinstance(body, Mapping):
        return {key: _folded(key, value) for key, value in body.items()}
    return [fold(item) for item in body] if isinstance(body, list | tuple) else body


def _folded(key: str, value: Any) -> Any:
    if isinstance(value, Mapping | list | tuple) and key in FOLDED and len(value) > _LONG:
        # Kafka's own names are plain; what a hand has written otherwise stays as it is.
        plain = all(
            isinstance(name, str) and re.fullmatch("[A-Za-z0-9._-]+", name) for name in value
        )
        if plain and key in _LISTS and not isinstance(value, Mapping):
            return " ".join(value)
        if plain and key in _MAPS and isinstance(value, Mapping):
            return "; ".join(f"{topic} {numbers}" for topic, numbers in value.items())
    return fold(value)


def unfold(body: Any) -> None:
    """Replace folded lists of topics in `body` (plain data) by lists, in place.

    Folded mappings stay text; `read_by_topic` reads them.
    """
    for key, value in body.items() if isinstance(body, dict) else enumerate(body):
        if isinstance(value, str) and key in _LISTS:
            body[key] = value.split()
        elif isinstance(value, list) or (isinstance(value, dict) and key not in _FREE):
            unfold(value)


_BROKERS: Final = re.compile(r"(?:-|-?[0-9]{1,10}(?:,-?[0-9]{1,10})*)\Z")


class _Items(Sequence[_T]):
    """Immutable sequence; equal to a tuple, or to an instance of its class, with the same items."""

    __slots__ = ("_items",)
    _items: tuple[_T, ...]

    @overload
    def __getitem__(self, at: int) -> _T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[_T, ...]: ...
    def __getitem__(self, at: int | slice) -> _T | tuple[_T, ...]:
        return self._items[at]

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return self._items == (other._items if isinstance(other, type(self)) else other)

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"


class Replicas(_Items[tuple[int, ...]]):
    """Broker ids of the replicas of each partition, by partition number (empty: not known)."""

    __slots__ = ()

    def __init__(self, sets: Iterable[Sequence[int]] = ()) -> None:
        self._items = tuple(map(tuple, sets))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text such as `1,2,3 2,3,1`, as `str()` writes it.

        Raises:
            ValueError: it is not broker ids separated by commas, partitions by blanks.
        """
        return cls(map(_brokers, text.split(" ") if text else ()))

    def __str__(self) -> str:
        return " ".join(",".join(map(str, brokers)) or "-" for brokers in self)


NO_REPLICAS: Final = Replicas()


def _brokers(word: str) -> tuple[int, ...]:
    if _BROKERS.match(word) is None:
        raise ValueError(f'expected brokers by partition such as "1,2 2,3", got "{word[:40]}"')
    return () if word == "-" else tuple(map(int, word.split(",")))


_OFFSETS: Final = re.compile(r"(?:[0-9]{1,19}|-)(?: (?:[0-9]{1,19}|-))*\Z")
_INT64_MAX: Final = 2**63 - 1


class Lag(NamedTuple):
    """Committed offset and end offset of one partition; None: nothing committed, or not known."""

    topic: str
    partition: int
    committed: int | None = None
    end: int | None = None

    @property
    def records(self) -> int | None:
        """Return the lag: end offset minus committed offset, at least 0; None if either is None."""
        known, end = self.committed, self.end
        return None if known is None or end is None else max(0, end - known)


class Lags(_Items[Lag]):
    """Immutable sequence of `Lag`, with the entries of one topic next to each other."""

    __slots__ = ()

    def __init__(self, lags: Iterable[Lag] = ()) -> None:
        by_topic: dict[str, list[Lag]] = {}
        for lag in lags:
            by_topic.setdefault(lag.topic, []).append(lag)
        self._items = tuple(chain.from_iterable(by_topic.values()))
        # No number that is no partition's is kept.
        Partitions(lag.partition for lag in self)
        for number in (each for lag in self for each in (lag.committed, lag.end)):
            if number is not None and not (type(number) is int and 0 <= number <= _INT64_MAX):
                raise ValueError(f"an offset is a number from 0 to {_INT64_MAX}, not {number}")

    @classmethod
    def read(cls, document: object) -> Self:
        """Convert plain data in the form that `dump` returns.

        Raises:
            ValueError: `document` does not have that form.
        """
        if isinstance(document, Mapping):
            return cls(each for topic, one in document.items() for each in _of(str(topic), one))
        raise ValueError("expected offsets by topic")

    def dump(self) -> dict[str, dict[str, str]]:
        """Return plain data: topic → texts `partitions`, `committed` and `end` (`-`: not known)."""
        by_topic = ((topic, list(some)) for topic, some in groupby(self, attrgetter("topic")))
        return {
            topic: {
                "partitions": str(Partitions(lag.partition for lag in lags)),
                "committed": _text(lag.committed for lag in lags),
                "end": _text(lag.end for lag in lags),
            }
            for topic, lags in by_topic
        }


NO_LAG: Final = Lags()


def _of(topic: str, value: object) -> list[Lag]:
    match value:
        case {"partitions": str() | int() as text, "committed": committed, "end": end}:
            numbers = Partitions.parse(str(text))
            first, second = _offsets(topic, committed), _offsets(topic, end)
            if len(numbers) == len(first) == len(second):
                return list(map(Lag, repeat(topic), numbers, first, second))
            raise ValueError(
                f"{topic} has {len(numbers)} partitions, {len(first)} committed and {len(second)} "
                "end offsets"
            )
    raise ValueError(f"expected partitions, committed and end of {topic}")


def _offsets(topic: str, text: object) -> list[int | None]:
    # One offset alone reads as a number in YAML.
    words = str(text) if isinstance(text, str | int) else "?"
    if words and _OFFSETS.match(words) is None:
        raise ValueError(f"expected offsets of {topic} such as 100 - 7")
    return [None if word == "-" else int(word) for word in words.split()]


def _text(offsets: Iterable[int | None]) -> str:
    return " ".join("-" if offset is None else str(offset) for offset in offsets)
