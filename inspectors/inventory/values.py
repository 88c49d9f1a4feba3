"""Settings of configuration files: spellings of a key, nested documents made flat, placeholders."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rebal.groups.errors import DocumentError

Tree = str | None | list["Tree"] | dict[str, "Tree"]
Flat = dict[str, str]

# Stands for the pod's own name until the members of a StatefulSet are counted out.
POD_NAME: Final = "\x00pod\x00"
_MOST_SETTINGS: Final = 200_000
_DEEPEST: Final = 60
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PLACEHOLDER: Final = re.compile(r"\$\{([^${}:]+)(?::(-?)([^${}]*))?\}")
_UNRESOLVED: Final = re.compile(r"\$\{|\$\(|\{\{|#\{|<%|@[\w.]+@")
# 45s, 500ms, 1m30s (Spring, Go), PT45S (ISO 8601).
_SPAN: Final = re.compile(r"(?:PT)?((?:\d{1,9}(?:ms|[hms]))+)", re.IGNORECASE)
_UNIT: Final = re.compile(r"(\d+)(ms|[hms])")
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def span_ms(text: str) -> int | None:
    """A time with its unit, in milliseconds; None for anything else, and for one that is zero."""
    match = _SPAN.fullmatch(text.strip())
    found = _UNIT.findall(match[1].lower()) if match else []
    return sum(int(number) * _UNITS[unit] for number, unit in found) or None


def words(key: str) -> tuple[str, ...]:
    """The words of a key in any spelling: `spring.kafka.consumer.group-id`, `groupId`, `GROUP_ID`.

    A part without lower-case letters is one word per underscore, as in an environment variable.
    """
    return tuple(word.lower() for word in _WORD.findall(key))


def flatten(tree: Tree) -> Flat:
    """A nested document as `a.b[0].c` → text; lists of plain values are joined by commas.

    YAML merge keys (`<<`) are followed; what is null or empty is left out.

    Raises:
        DocumentError: nested deeper than any configuration, or made too large by YAML aliases.
    """
    flat: Flat = {}
    for seen, (key, value) in enumerate(_leaves(tree, "", 0)):
        if seen > _MOST_SETTINGS:
            raise DocumentError("more settings than any configuration file has")
        flat[key] = value
    return flat


def _leaves(tree: Tree, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST:
        raise DocumentError("nested deeper than any configuration file is")
    if isinstance(tree, dict):
        if "<<" in tree:
            merged = tree["<<"]
            for part in merged if isinstance(merged, list) else [merged]:
                yield from _leaves(part, path, depth + 1)
        for key, value in tree.items():
            if key != "<<":
                inner = key.removeprefix("[").removesuffix("]")
                yield from _leaves(value, f"{path}.{inner}" if path else inner, depth + 1)
    elif isinstance(tree, list):
        if all(isinstance(item, str) for item in tree):
            yield path, ",".join(item for item in tree if isinstance(item, str))
            return
        for index, item in enumerate(tree):
            yield from _leaves(item, f"{path}[{index}]", depth + 1)
    elif tree is not None and tree not in ("", "null", "~"):
        yield path, tree


Lookup = Callable[[str], str | None]


class Environment:
    """What a placeholder may name: the settings beside it, and the process's environment.

    `variables` None: nobody knows the environment, so no default can be taken for sure. A value
    None is a variable that is set, to something not known (a Secret's).
    """

    def __init__(
        self, variables: Mapping[str, str | None] | None = None, complete: bool = True
    ) -> None:
        self._variables = variables
        self._complete = complete

    def resolve(self, text: str, beside: Flat, depth: int = 0) -> str | None:
        """`text` with its placeholders replaced; None when one of them is not known."""
        failed = False

        def replace(match: re.Match[str]) -> str:
            nonlocal failed
            found = self._value(match[1].strip(), match[3], beside, depth)
            failed = failed or found is None
            return found or ""

        for _ in range(_DEEPEST):
            if not _PLACEHOLDER.search(text):
                break
            text = _PLACEHOLDER.sub(replace, text)
            if failed:
                return None
        return None if _UNRESOLVED.search(text) else text

    def _value(self, name: str, default: str | None, beside: Flat, depth: int) -> str | None:
        if depth > 8 or name.startswith("random."):
            return None
        if self._variables is not None:
            # Spring's relaxed name of a property as a variable: app.group-id is APP_GROUPID.
            relaxed = re.sub(r"\W", "_", name.replace("-", "")).upper()
            for variable in (name, relaxed):
                if variable in self._variables:
                    return self._variables[variable]
        if name in beside:
            return self.resolve(beside[name], beside, depth + 1)
        if self._variables is None or not self._complete:
            return None
        return default
