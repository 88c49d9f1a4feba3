"""What is owned of each topic, as a document has it: `{a: 0-3, b: 5}`, or on one line `a 0-3; b 5`.

A group of a thousand topics has a thousand such entries for each member, most of them alike; they
are read word by word, and each different word is understood once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from sys import intern
from typing import Final

from rebal.groups.snapshot.partitions import Partitions

_MOST_KEPT: Final = 4_000_000
_SHOWN: Final = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


class ByTopic(dict[str, Partitions]):
    """Partitions by topic name, in the order given; whoever reads a document may not change it."""


class TopicReader:
    """Reads the values of one document; equal ones become the same object."""

    def __init__(self) -> None:
        self._last: tuple[str, ByTopic] = ("", ByTopic())
        self._words = _Words()

    def partitions(self, value: object) -> Partitions:
        """One topic's partitions.

        Raises:
            ValueError: no text or number that `Partitions.parse` reads.
        """
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise ValueError('expected partitions such as "0-11,14"')
        return self._words[f"{value};"]

    def by_topic(self, value: object) -> ByTopic:
        """The partitions of each topic.

        Raises:
            ValueError: it is neither form, a topic stands twice on the line, or its partitions are
                none; the message ends with the topic, as msgspec writes a path.
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
