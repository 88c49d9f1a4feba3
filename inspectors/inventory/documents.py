"""Texts of configuration files as documents: properties, YAML, JSON, environment files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from rebal.groups.errors import DocumentError
from rebal.inspectors.inventory.values import Flat, Tree, flatten

ENDINGS: Final = ("properties", "yaml", "yml", "json", "conf", "cfg", "env")
_PROFILE_KEYS: Final = ("spring.config.activate.on-profile", "spring.profiles")
_PROFILE_NAME: Final = re.compile(r"(?:application|bootstrap)-([\w-]+)\.(?:ya?ml|properties)\Z")
_SEPARATOR: Final = re.compile(r"[#!]---\s*\Z")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class Document:
    """One document of a file: a Kubernetes object (`resource`), or settings made flat.

    `profile` is the Spring profile that the settings are for; None: always.
    """

    settings: Flat
    resource: dict[str, Tree] | None = None
    profile: str | None = None


def documents(text: str, name: str) -> list[Document]:
    """The documents in the file called `name`; its ending says the format, else the text does.

    Raises:
        DocumentError: not the format, or nothing that looks like settings.
    """
    if "\x00" in text:
        raise DocumentError(f"{name}: is a binary file; name a properties, YAML or JSON file.")
    ending = name.rpartition(".")[2].lower()
    named = _PROFILE_NAME.search(name)
    profile = named[1] if named else None
    start = text.lstrip()[:1]
    if ending in ("properties", "conf", "cfg", "env"):
        return _properties(text, profile)
    if ending == "json" or (ending not in ("yaml", "yml") and start in ("{", "[")):
        return _trees([_json(text, name)], name, profile)
    if ending in ("yaml", "yml"):
        return _trees(_yaml(text, name), name, profile)
    try:
        trees = _yaml(text, name)
    except DocumentError:
        trees = []
    if any(isinstance(tree, dict) for tree in trees):
        return _trees(trees, name, profile)
    made = _properties(text, profile)
    if not any(document.settings for document in made):
        raise DocumentError(f"{name}: holds no settings; name a properties, YAML or JSON file.")
    return made


def _trees(trees: list[Tree], name: str, profile: str | None) -> list[Document]:
    made = []
    for tree in trees:
        for part in _items(tree, 0):
            if isinstance(part, dict) and "apiVersion" in part and "kind" in part:
                made.append(Document(settings={}, resource=part))
                continue
            try:
                flat = flatten(part)
            except DocumentError as error:
                raise DocumentError(f"{name}: {error}.") from None
            made.append(Document(settings=flat, profile=_profile(flat) or profile))
    return made


def _items(tree: Tree, depth: int) -> Iterator[Tree]:
    """A Kubernetes List as its items (`kubectl get … -o yaml` gives one)."""
    if isinstance(tree, dict) and str(tree.get("kind", "")).endswith("List") and depth < 4:
        items = tree.get("items")
        for item in items if isinstance(items, list) else []:
            yield from _items(item, depth + 1)
    elif tree is not None:
        yield tree


def _profile(flat: Flat) -> str | None:
    return next((flat[key] for key in _PROFILE_KEYS if key in flat), None)


def _yaml(text: str, name: str) -> list[Tree]:
    # The base loader leaves every value as it is written: no dates, no octal numbers, no yes/no.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        return list(yaml.load_all(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise DocumentError(f"{name}: not valid YAML: {error.problem}{line}.") from None
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else "nested too deep"
        raise DocumentError(f"{name}: not valid YAML: {reason}.") from None


def _json(text: str, name: str) -> Tree:
    try:
        return _texts(json.loads(text), 0)
    except json.JSONDecodeError as error:
        raise DocumentError(f"{name}: not valid JSON: {error.msg} (line {error.lineno}).") from None
    except (ValueError, RecursionError):
        raise DocumentError(f"{name}: not valid JSON: a number or nesting too large.") from None


def _texts(value: Any, depth: int) -> Tree:
    if depth > 200:
        raise RecursionError
    if isinstance(value, dict):
        return {str(key): _texts(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_texts(inner, depth + 1) for inner in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _properties(text: str, profile: str | None) -> list[Document]:
    """Java's properties format (and `KEY=value` of environment files); `#---` parts documents."""
    made: list[Document] = []
    flat: Flat = {}
    for line in _logical_lines(text):
        if _SEPARATOR.match(line):
            made.append(Document(settings=flat, profile=_profile(flat) or profile))
            flat = {}
            continue
        if line[:1] in ("#", "!", ""):
            continue
        key, value = _key_and_value(line.removeprefix("export "))
        if key and value and not key.startswith("["):
            flat[key] = value
    made.append(Document(settings=flat, profile=_profile(flat) or profile))
    return made


def _logical_lines(text: str) -> Iterator[str]:
    held = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = held + raw.lstrip(" \t\f")
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2 and line[:1] not in ("#", "!"):
            held = line[:-1]
            continue
        held = ""
        yield line
    if held:
        yield held


def _key_and_value(line: str) -> tuple[str, str]:
    index = 0
    while index < len(line) and line[index] not in "=: \t\f":
        index += 2 if line[index] == "\\" else 1
    rest = line[index:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    value = _unescape(rest).rstrip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    return _unescape(line[:index]), value


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2]), text)
