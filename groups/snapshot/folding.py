"""Many topics on one line: how a document writes long lists of topics and what is owned of them.

`topics: [a, b, …]` becomes `topics: a b …`, and `assignment: {a: 0-3, b: 5, …}` becomes
`assignment: a 0-3; b 5; …`. A member of a group of a thousand topics is a few lines then, and a
document that a parser has to take apart word by word is read in a tenth of the time. Both forms are
read wherever they stand: lists by `unfold`, the others by `by_topic`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_LISTS: Final = frozenset({"topics", "subscribed_topics"})
_MAPS: Final = frozenset({"assignment", "target_assignment", "owned_partitions"})
_LONG: Final = 20
# Kafka's own names are plain; what a hand has written otherwise stays as it is.
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+\Z")


def fold(body: Any) -> Any:
    """Plain data with its long lists and mappings of topics on one line."""
    if isinstance(body, Mapping):
        return {key: _folded(key, value) for key, value in body.items()}
    if isinstance(body, list | tuple):
        return [fold(item) if isinstance(item, Mapping | list | tuple) else item for item in body]
    return body


def unfold(body: Any) -> None:
    """Long lists as lists again, in place; equal lines become one list, which nobody may change."""
    _Unfolding().walk(body)


def _folded(key: str, value: Any) -> Any:
    if not isinstance(value, Mapping | list | tuple):
        return value
    if len(value) > _LONG and key in _LISTS | _MAPS and all(map(_is_plain, value)):
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
        """Everything below `body`, which is a mapping or a list."""
        for key, value in body.items() if isinstance(body, dict) else enumerate(body):
            if isinstance(value, dict | list):
                self.walk(value)
            elif isinstance(value, str) and key in _LISTS:
                body[key] = self._list(value)

    def _list(self, text: str) -> list[str]:
        if text not in self._lists:
            self._lists[text] = [self._names.setdefault(name, name) for name in text.split()]
        return self._lists[text]
