"""YAML text → plain data: mappings, lists, strings, numbers; `read_yaml` is the only way in.

The parser's events become the data in one pass, without nodes in between: a snapshot of a large
group has a million of them. Aliases are not read (a small file could stand for a huge one), no key
stands twice, nothing is nested deeper than a snapshot ever is, and a time stays text.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

_DEEPEST: Final = 64
_STR: Final = "tag:yaml.org,2002:str"
_NO_KEY: Final = object()


class PlainLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Plain data only; a key that stands twice is an error and a time stays text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """One mapping, each key once."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _twice(key.value, key.start_mark)
                seen.add(key.value)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


PlainLoader.add_constructor("tag:yaml.org,2002:timestamp", PlainLoader.construct_yaml_str)


def read_yaml(text: str) -> object:
    """The one document in `text`; None when there is none.

    Raises:
        yaml.YAMLError: it is not YAML, or holds what this module does not read.
    """
    try:
        return _Builder(text).read()
    except _UnusualError:
        return yaml.load(text, Loader=PlainLoader)


class _UnusualError(Exception):
    """Valid YAML that only the loader's own, slower way builds: tags, merges, odd keys."""


class _Builder:
    """One pass over a document's events."""

    def __init__(self, text: str) -> None:
        self._loader = PlainLoader(text)
        self._known: dict[str, Any] = {}
        self._unusual = False

    def read(self) -> object:
        """The document.

        Raises:
            yaml.YAMLError: as `read_yaml` says.
            _UnusualError: the loader has to build it; everything that is refused was looked for.
        """
        known = self._known
        stack: list[tuple[Any, Any]] = []
        root: list[Any] = []
        into: Any = root
        key: Any = _NO_KEY
        next_event = self._loader.get_event
        while (event := next_event()) is not None:
            kind = type(event)
            if kind is yaml.ScalarEvent:
                value = event.value
                if event.implicit[0]:
                    try:
                        value = known[value]
                    except KeyError:
                        value = self._resolved(value)
                if event.tag is not None:
                    self._unusual = True
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                if event.tag is not None or (type(into) is dict and key is _NO_KEY):
                    self._unusual = True
                value = {} if kind is yaml.MappingStartEvent else []
                if len(stack) >= _DEEPEST:
                    raise yaml.MarkedYAMLError(
                        problem="nested too deep", problem_mark=event.start_mark
                    )
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                into, key = stack.pop()
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
        if self._unusual:
            raise _UnusualError
        return root[0] if root else None

    def _outside(self, event: Any, root: list[Any]) -> None:
        mark: Any = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            problem = f"aliases (*{event.anchor}) are not read"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        if isinstance(event, yaml.DocumentStartEvent) and root:
            raise yaml.MarkedYAMLError(problem="but found another document", problem_mark=mark)

    def _resolved(self, text: str) -> Any:
        """What plain text stands for: itself mostly, else null, a number, true or false."""
        value: Any = text
        if text.isascii() and text.isdigit() and (text[0] != "0" or text == "0"):
            value = self._known[text] = int(text)
            return value
        tag = self._loader.resolve(yaml.ScalarNode, text, (True, False))
        if tag == "tag:yaml.org,2002:merge":
            self._unusual = True
        elif tag != _STR:
            value = self._loader.construct_object(yaml.ScalarNode(tag, text))
        self._known[text] = value
        return value


class _Complex:
    """Stands for a key that is no scalar, until the loader's own way says what is wrong with it."""


def _twice(key: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=f"the key `{key}` stands here twice", problem_mark=mark)
