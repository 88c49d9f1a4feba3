"""YAML text → plain data: mappings, lists, strings, numbers; `read_yaml` is the only way in.

The parser's events become the data in one pass, without nodes in between: a snapshot of a large
group has a million of them. The parser looks at each character, so long lines are replaced by short
names before it sees them. Aliases are rejected (a small file could expand to a huge one), and so
are repeated keys, merges, collections with a tag and nesting deeper than any snapshot needs. A time
stays text.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

_DEEPEST: Final = 64
_STR: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "tag:yaml.org,2002:merge"
_NO_KEY: Final = object()
# `key: value` to the end of the line, in characters that mean nothing else to YAML.
_LONG_LINE: Final = re.compile(
    r"^( *(?:- )?[A-Za-z0-9_][A-Za-z0-9._-]*: )('?)"
    r"([A-Za-z0-9-][A-Za-z0-9 ;,._-]{200,}[A-Za-z0-9-])\2$",
    re.MULTILINE,
)
_MARK: Final = "\ue000"


class PlainLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A YAML loader for which a time stays text."""


PlainLoader.add_constructor("tag:yaml.org,2002:timestamp", PlainLoader.construct_yaml_str)


def read_yaml(text: str) -> object:
    """Return the one document in `text`; None when there is none.

    Raises:
        yaml.YAMLError: it is not YAML, or holds what this module does not read.
    """
    long: dict[str, str] = {}
    short = _shortened(text, long)
    if long:
        try:
            return _Builder(short, long).read()
        except yaml.YAMLError:
            # A long line was no value of its own, or an error needs its true place.
            pass
    return _Builder(text, {}).read()


def _shortened(text: str, long: dict[str, str]) -> str:
    """Return `text` with a name for each long value; `long` gets the values by name."""
    if _MARK in text:
        return text
    same: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        before, quote, value = found.groups()
        # Without a blank or a comma it may be a number; a dash of its own is a list's.
        if not quote and (value[0] == "-" or (" " not in value and "," not in value)):
            return found[0]
        made = f"{_MARK}{len(long)}"
        long[made] = same.setdefault(value, value)
        return f"{before}{quote}{made}{quote}"

    return _LONG_LINE.sub(name, text)


class _Builder:
    """One pass over a document's events; `long` are the values of names that stand for them."""

    def __init__(self, text: str, long: dict[str, str]) -> None:
        self._loader = PlainLoader(text)
        self._known: dict[str, Any] = {}
        self._long = long

    def read(self) -> object:
        """Return the document.

        Raises:
            yaml.YAMLError: as `read_yaml` says, or a long value is a part of something else.
        """
        known, long = self._known, self._long
        within = 0  # flow collections, in which a comma ends a value
        stack: list[tuple[Any, Any]] = []
        root: list[Any] = []
        into: Any = root
        key: Any = _NO_KEY
        next_event = self._loader.get_event
        while (event := next_event()) is not None:
            kind = type(event)
            if kind is yaml.ScalarEvent:
                value = event.value
                if long and _MARK in value:
                    if within or value not in long:
                        raise yaml.YAMLError
                    value = long.pop(value)
                elif event.implicit[0]:
                    try:
                        value = known[value]
                    except KeyError:
                        value = self._resolved(value, event.start_mark)
                elif event.tag is not None and event.tag != "!":
                    value = self._constructed(event.tag, value, event.start_mark)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                is_key = type(into) is dict and key is _NO_KEY
                if event.tag is not None or is_key or len(stack) >= _DEEPEST:
                    raise _not_read(event, is_key=is_key)
                value = {} if kind is yaml.MappingStartEvent else []
                within += bool(within or event.flow_style)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                into, key = stack.pop()
                within -= bool(within)
                continue
            else:
                self._outside(event, root)
                continue
            if type(into) is list:
                into.append(value)
            elif key is _NO_KEY:
                if value in into:
                    raise _error(f"the key `{event.value}` stands here twice", event.start_mark)
                key = value
            else:
                into[key] = value
                key = _NO_KEY
            if kind is not yaml.ScalarEvent:
                stack.append((into, key))
                into, key = value, _NO_KEY
        if long:
            raise yaml.YAMLError
        return root[0] if root else None

    def _outside(self, event: Any, root: list[Any]) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise _error(f"aliases (*{event.anchor}) are not read", event.start_mark)
        if isinstance(event, yaml.DocumentStartEvent) and root:
            raise _error("but found another document", event.start_mark)

    def _resolved(self, text: str, mark: Any) -> Any:
        """Return the value of plain text: mostly itself, else null, a number, true or false."""
        value: Any = text
        if text.isascii() and text.isdigit() and (text[0] != "0" or text == "0"):
            value = self._known[text] = int(text)
            return value
        tag = self._loader.resolve(yaml.ScalarNode, text, (True, False))
        if tag == _MERGE:
            raise _error("merges (<<) are not read", mark)
        if tag != _STR:
            value = self._constructed(tag, text, mark)
        self._known[text] = value
        return value

    def _constructed(self, tag: str, text: str, mark: Any) -> Any:
        return self._loader.construct_object(yaml.ScalarNode(tag, text, mark, mark))


def _not_read(event: Any, *, is_key: bool) -> yaml.MarkedYAMLError:
    """Return the error of a collection that begins where, or as, none is read."""
    if event.tag is not None:
        return _error(f"the tag {event.tag} is not read", event.start_mark)
    return _error("a key is no text" if is_key else "nested too deep", event.start_mark)


def _error(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
