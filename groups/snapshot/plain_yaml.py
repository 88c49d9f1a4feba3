"""YAML text → plain data: mappings, lists, strings, numbers; `read_yaml` is the only way in.

The YAML library reads what a first look at its events admits. Aliases are rejected (a small file
could expand to a huge one), and so are repeated keys, merges, collections with a tag and nesting
deeper than any snapshot needs. A time stays text.
"""

from collections.abc import Iterator
from typing import Any, Final

import yaml

_DEEPEST: Final = 64


class PlainLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A YAML loader for which a time stays text, and a key that stands twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping; its keys are scalars, each once, and none merges."""
        made: dict[Any, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _error("a key is no text", key.start_mark)
            if key.tag == "tag:yaml.org,2002:merge":
                raise _error("merges (<<) are not read", key.start_mark)
            name = self.construct_object(key)
            if name in made:
                raise _error(f"the key `{key.value}` stands here twice", key.start_mark)
            made[name] = self.construct_object(value, deep=deep)
        return made


PlainLoader.add_constructor("tag:yaml.org,2002:timestamp", PlainLoader.construct_yaml_str)


def read_yaml(text: str) -> object:
    """Return the one document in `text`; None when there is none.

    Raises:
        yaml.YAMLError: it is not YAML, or holds what this module does not read.
    """
    for event in events(text, PlainLoader, _DEEPEST):
        if isinstance(event, yaml.AliasEvent):
            raise _error(f"aliases (*{event.anchor}) are not read", event.start_mark)
        if isinstance(event, yaml.CollectionStartEvent) and event.tag is not None:
            raise _error(f"the tag {event.tag} is not read", event.start_mark)
    return yaml.load(text, Loader=PlainLoader)


def events(text: str, loader: Any, deepest: int) -> Iterator[yaml.Event]:
    """Yield the events of a text, with which the parser in C knows no limit of its own: a tree of
    some ten thousand levels ends the process.

    Raises:
        yaml.YAMLError: it is not YAML, or nested deeper than that.
    """
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > deepest:
            raise _error("nested too deep", event.start_mark)
        yield event


def _error(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
