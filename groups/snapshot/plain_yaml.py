"""YAML text → plain data: mappings, lists, strings, numbers; `read_yaml` is the only way in.

The parser's events become the data in one pass, without nodes in between: a snapshot of a large
group has a million of them. The parser looks at each character, so long lines are replaced by short
names before it sees them. Aliases are rejected (a small file could expand to a huge one), and so
are repeated keys and nesting deeper than any snapshot needs. A time stays text.
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
    """A YAML loader for plain data: a repeated key is an error, and a time stays text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return one mapping; raise if a key stands twice, in it or in what it merges (<<)."""
        _check_keys(node)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


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
        except (yaml.YAMLError, _UnusualError):
            # A long line was no value of its own, or an error needs its true place.
            pass
    try:
        return _Builder(text, {}).read()
    except _UnusualError:
        return yaml.load(text, Loader=PlainLoader)


def check_start(text: str) -> None:
    """Check the syntax at the start of a document, of which `text` is a part.

    Raises:
        yaml.YAMLError: as `read_yaml` says, anywhere but at the end of `text`.
    """
    try:
        _Builder(text, {}).read()
    except _UnusualError:
        pass
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        # The end of the part is no end of the document: what is open there may be closed later.
        if mark is None or mark.index < len(text) - 1:
            raise


class _UnusualError(Exception):
    """Valid YAML that only the loader's own way builds: tags, anchors, merges, odd keys."""


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
        self._unusual = False

    def read(self) -> object:
        """Return the document.

        Raises:
            yaml.YAMLError: as `read_yaml` says.
            _UnusualError: the loader has to build it; everything that is rejected was looked for.
        """
        known, long = self._known, dict(self._long)
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
                    value = self._whole(long, value, within)
                elif event.implicit[0]:
                    try:
                        value = known[value]
                    except KeyError:
                        value = self._resolved(value)
                self._unusual |= event.tag is not None or event.anchor is not None
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._unusual |= event.tag is not None or event.anchor is not None
                if type(into) is dict and key is _NO_KEY:
                    self._unusual = True
                value = {} if kind is yaml.MappingStartEvent else []
                within += bool(within or event.flow_style)
                if len(stack) >= _DEEPEST:
                    raise yaml.MarkedYAMLError(
                        problem="nested too deep", problem_mark=event.start_mark
                    )
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
                if type(value) in (dict, list):
                    value = _Complex()
                elif value in into:
                    raise _twice(event.value, event.start_mark)
                key = value
            else:
                into[key] = value
                key = _NO_KEY
            if kind is not yaml.ScalarEvent:
                stack.append((into, key))
                into, key = (value if type(value) is not _Complex else []), _NO_KEY
        if self._unusual or long:
            raise _UnusualError
        return root[0] if root else None

    def _whole(self, long: dict[str, str], name: str, within: int) -> str | None:
        """Return the long value of that name, unless the name is a part of something else."""
        value = None if within else long.pop(name, None)
        self._unusual |= value is None
        return value

    def _outside(self, event: Any, root: list[Any]) -> None:
        mark: Any = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            problem = f"aliases (*{event.anchor}) are not read"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        if isinstance(event, yaml.DocumentStartEvent) and root:
            raise yaml.MarkedYAMLError(problem="but found another document", problem_mark=mark)

    def _resolved(self, text: str) -> Any:
        """Return the value of plain text: mostly itself, else null, a number, true or false."""
        value: Any = text
        if text.isascii() and text.isdigit() and (text[0] != "0" or text == "0"):
            value = self._known[text] = int(text)
            return value
        tag = self._loader.resolve(yaml.ScalarNode, text, (True, False))
        if tag == _MERGE:
            self._unusual = True
        elif tag != _STR:
            value = self._loader.construct_object(yaml.ScalarNode(tag, text))
        self._known[text] = value
        return value


def _check_keys(node: yaml.MappingNode) -> None:
    seen = set()
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                raise _twice(key.value, key.start_mark)
            seen.add(key.value)
        if key.tag == _MERGE:
            merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for each in merged:
                if isinstance(each, yaml.MappingNode):
                    _check_keys(each)


class _Complex:
    """Stands for a key that is no scalar, until the loader's own way says what is wrong with it."""


def _twice(key: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=f"the key `{key}` stands here twice", problem_mark=mark)
