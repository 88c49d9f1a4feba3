"""Configuration files parsed into documents: properties, YAML, JSON, TOML, environment files."""

import json
import re
import tomllib
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from rebal.groups.errors import DocumentError
from rebal.groups.snapshot.documents import events
from rebal.inspectors.connection.properties import key_and_value, logical_lines

Tree = str | None | list["Tree"] | dict[str, "Tree"]
Flat = dict[str, str]

# A stand-in for the pod's name until the pods of a StatefulSet are enumerated.
POD_NAME: Final = "\x00pod\x00"
# The value of a variable that is set to something unknown: a placeholder of which nothing is known.
NOT_KNOWN: Final = "${not.known}"
_MOST_SETTINGS: Final = 200_000
_DEEPEST: Final = 60
# Characters of a value behind its placeholders.
_LONGEST: Final = 10_000
_LARGEST_YAML: Final = 8 << 20
# A text with fewer is not nested too deep for the parser in C.
_MOST_BRACKETS: Final = 5_000
_MOST_LEVELS: Final = 1_000
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PLACEHOLDER: Final = re.compile(r"\$\{([^${}:]+)(?::(-?)([^${}]*))?\}")
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def span_ms(text: str) -> int | None:
    """Return a time with its unit, such as `45s` or `1m30s`, in milliseconds.

    None for any other text, and for zero.
    """
    # 45s, 500ms, 1m30s (Spring, Go), PT45S (ISO 8601).
    match = re.fullmatch(r"(?:PT)?((?:\d{1,9}(?:ms|[hms]))+)", text.strip(), re.IGNORECASE)
    found = re.findall(r"(\d+)(ms|[hms])", match[1].lower()) if match else []
    return sum(int(number) * _UNITS[unit] for number, unit in found) or None


def file_written(file: Path) -> datetime | None:
    """Return the time of the file's last change, in whole seconds; None if it cannot be read."""
    try:
        return datetime.fromtimestamp(int(file.stat().st_mtime), UTC)
    except OSError:
        return None


def key_words(key: str) -> tuple[str, ...]:
    """Return the words of a settings key in lower case: (group, id) for `group-id` and `groupId`.

    Capitals in a row are one word, so the environment variable `GROUP_ID` has two words and
    `GROUPID` has one.
    """
    return tuple(word.lower() for word in _WORD.findall(key))


def is_assignor_list_key(key: str) -> bool:
    """Return whether a key is `partition.assignment.strategy`, with any prefix.

    The parsers keep an empty value of this key only: an empty assignor list is a mistake to report.
    """
    return key.endswith("partition.assignment.strategy")


def mapping(value: object) -> dict[str, Any]:
    """Return `value` if it is a dict, else an empty dict."""
    return value if isinstance(value, dict) else {}


def str_or_none(value: object) -> str | None:
    """Return `value` if it is a str, else None."""
    return value if isinstance(value, str) else None


def flatten(tree: Tree, name: str) -> Flat:
    """Return a nested document of the file `name` as flat settings: `a.b[0].c` → text.

    Lists of plain values are joined by commas. YAML merge keys (`<<`) are followed. Null and empty
    values are left out, except for an empty `partition.assignment.strategy`.

    Raises:
        UnreadableDocument: nested deeper than any configuration, or made too large by aliases.
    """
    flat: Flat = {}
    for count, (key, value) in enumerate(_leaves(tree, "", 0, name)):
        if count > _MOST_SETTINGS:
            raise UnreadableDocument(name, "more settings than any configuration file has")
        flat[key] = value
    return flat


def _leaves(tree: Tree, path: str, depth: int, name: str) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST:
        raise UnreadableDocument(name, "nested deeper than any configuration file is")
    match tree:
        case dict():
            merged = tree.get("<<", [])
            for part in merged if isinstance(merged, list) else [merged]:
                yield from _leaves(part, path, depth + 1, name)
            for key, value in tree.items():
                if key != "<<":
                    inner = key.removeprefix("[").removesuffix("]")
                    yield from _leaves(value, f"{path}.{inner}" if path else inner, depth + 1, name)
        case list() if variables := _variables(tree):
            yield from _leaves(variables, path, depth + 1, name)
        case list() if all(isinstance(item, str) for item in tree):
            yield path, ",".join(item for item in tree if isinstance(item, str))
        case list():
            for index, item in enumerate(tree):
                yield from _leaves(item, f"{path}[{index}]", depth + 1, name)
        case str() if tree not in ("", "null", "~") or (tree == "" and is_assignor_list_key(path)):
            yield path, tree


def _variables(tree: list[Tree]) -> dict[str, Tree]:
    """Return a list of environment variables as name → value; empty for any other list.

    Compose writes an item as `NAME=value`, a Kubernetes container as `name` and `value`.
    """
    found: dict[str, Tree] = {}
    for item in tree:
        match item:
            case str():
                key, _, text = item.partition("=")
                found[key] = text
            case dict() if isinstance(name := item.get("name"), str):
                key, found[name] = name, item.get("value")
            case _:
                return {}
        # The name of an environment variable.
        if not re.fullmatch(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+", key):
            return {}
    # A name alone is a variable of the shell; names alone are none.
    return found if any(found.values()) else {}


@dataclass(frozen=True)
class Environment:
    """The environment variables that placeholders in settings may name.

    `complete` is True if all variables are known. Only then does a placeholder's default count,
    because an unknown variable could replace it. The value `NOT_KNOWN` means that the variable is
    set to something unknown, such as a Secret.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False

    def resolve(self, text: str, beside: Flat) -> str | None:
        """Return `text` with its placeholders replaced; None if the value of one is not known.

        A placeholder names an environment variable, or a setting of the same process (`beside`). A
        value that refers to itself is not known.
        """
        for _ in range(_DEEPEST):
            before, text = text, _PLACEHOLDER.sub(lambda found: self._value(found, beside), text)
            if text == before or len(text) > _LONGEST:
                break
        return None if re.search(r"\$\{|\$\(|\{\{|#\{|<%|@[\w.]+@", text) else text

    def _value(self, placeholder: re.Match[str], beside: Flat) -> str:
        name, default = placeholder[1].strip(), placeholder[3]
        # Spring's relaxed variable name of a property: APP_GROUPID for app.group-id.
        relaxed = re.sub(r"\W", "_", name.replace("-", "")).upper()
        places = ((self.variables, name), (self.variables, relaxed), (beside, name))
        found = [own[key] for own, key in places if key in own]
        certain = [default] if default is not None and self.complete else []
        return (
            placeholder[0] if name.startswith("random.") else (*found, *certain, placeholder[0])[0]
        )


ENDINGS: Final = ("properties", "yaml", "yml", "json", "conf", "cfg", "env", "toml")
# Files that a program or tool reads together: the base, and what is laid over it by name.
LAYER: Final = re.compile(
    r"(?:.*/)?(application|bootstrap|(?:docker-)?compose|values|appsettings)(?:[-.]([\w-]+))?"
    r"\.(?:ya?ml|properties|json)"
)


def layer_prefix(file: str) -> str:
    """Return the common path prefix of the configuration files that one process reads together.

    Spring reads application.yaml and application-PROFILE.properties of one folder together: both
    give `FOLDER/application`. For a file that is read alone, it is the whole path.
    """
    layer = LAYER.fullmatch(file)
    return file[: layer.end(1)] if layer else file


class UnreadableDocument(DocumentError):  # noqa: N818 - named for what it is, as its base is
    """A text that cannot be parsed in its format; `reason` is a clause for other sentences."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}.")
        self.reason = reason


@dataclass(frozen=True)
class ConfigDocument:
    """One document of a configuration file: a Kubernetes object (`resource`), or flat settings.

    `profile` is the Spring or Quarkus profile of the settings (None: every profile).
    """

    settings: Flat
    resource: dict[str, Tree] | None = None
    profile: str | None = None


def documents(text: str, name: str) -> list[ConfigDocument]:
    """Return the documents in `text`, the content of the configuration file `name`.

    The suffix of `name` determines the format. If the suffix is unknown, the format is guessed from
    the text.

    Raises:
        UnreadableDocument: the text is not valid in that format, or no format fits.
    """
    ending = name.rpartition(".")[2].lower()
    named = LAYER.fullmatch(name)
    profile = named[2] if named else None
    if ending in ("properties", "conf", "cfg", "env"):
        return _properties(text, profile)
    if ending == "toml":
        text, ending = json.dumps(toml_tree(text, name), default=str), "json"
    if ending == "json" or (ending not in ("yaml", "yml") and text.lstrip().startswith(("{", "["))):
        return list(_trees([json_tree(text, name)], name, profile))
    if ending in ("yaml", "yml"):
        return list(_trees(_yaml(text, name), name, profile))
    try:
        trees = _yaml(text, name)
    except UnreadableDocument:
        trees = []
    if any(isinstance(tree, dict) for tree in trees):
        return list(_trees(trees, name, profile))
    made = _properties(text, profile)
    if not any(document.settings for document in made):
        raise UnreadableDocument(name, "holds no settings; name a properties, YAML or JSON file")
    return made


def _trees(trees: list[Tree], name: str, profile: str | None) -> Iterator[ConfigDocument]:
    for part in (part for tree in trees for part in _items(tree, 0)):
        if isinstance(part, dict) and "apiVersion" in part and "kind" in part:
            yield ConfigDocument(settings={}, resource=part)
        else:
            yield from _by_profile(flatten(part, name), profile)


def _items(tree: Tree, depth: int) -> Iterator[Tree]:
    """Yield the items of a Kubernetes List (from `kubectl get … -o yaml`), or the tree itself."""
    if isinstance(tree, dict) and str(tree.get("kind", "")).endswith("List") and depth < 4:
        items = tree.get("items")
        for item in items if isinstance(items, list) else []:
            yield from _items(item, depth + 1)
    elif tree is not None:
        yield tree


def _by_profile(flat: Flat, named: str | None) -> list[ConfigDocument]:
    """Return one document for each profile that the settings of a file belong to.

    A Quarkus key `%PROFILE.key` belongs to that profile. All other keys, and those of Quarkus's
    default profile `prod`, belong to the Spring profile that the settings name, else to `named`,
    the profile in the file's name (None: every profile).
    """
    spring = flat.get("spring.config.activate.on-profile", flat.get("spring.profiles", named))
    own: dict[str | None, Flat] = {spring: {}}
    for key, value in flat.items():
        quarkus = re.fullmatch(r"%\{?([\w,-]+)\}?\.(.+)", key)
        if quarkus is None:
            own[spring].setdefault(key, value)
        else:
            for profile in quarkus[1].split(","):
                # A program of Quarkus runs with `prod` unless it is told otherwise.
                own.setdefault(spring if profile == "prod" else profile, {})[quarkus[2]] = value
    return [ConfigDocument(settings=one, profile=profile) for profile, one in own.items()]


def _check_size(text: str, name: str) -> None:
    """Reject a YAML text above 8 MiB unless it is complete output of `kubectl get … -o yaml`.

    Parsing such a text takes up to a minute, and only Kubernetes objects are that large. kubectl
    prints the kind of a list after its items, so a text that was cut off lacks the list's kind.

    Raises:
        UnreadableDocument: the text has no Kubernetes objects, or was cut off.
    """
    if len(text) <= _LARGEST_YAML:
        return
    if not re.search("^apiVersion:", text, re.MULTILINE):
        raise UnreadableDocument(
            name, f"is larger than {_LARGEST_YAML >> 20} MiB and holds no Kubernetes objects"
        )
    if text.startswith("apiVersion: v1\nitems:\n") and not re.search("^kind:", text, re.MULTILINE):
        lines = text.count("\n") + 1
        raise UnreadableDocument(
            name, f"was cut off: the list's kind is missing behind line {lines}; fetch it again"
        )


def _yaml(text: str, name: str) -> list[Tree]:
    _check_size(text, name)
    # The base loader keeps every value as text: no dates, octal numbers or booleans.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        if sum(map(text.count, "[{")) > _MOST_BRACKETS or re.search(r"(?:[-?:] +){1000}", text):
            deque(events(text, loader, _MOST_LEVELS), maxlen=0)
        return list(yaml.load_all(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise UnreadableDocument(name, f"not valid YAML: {error.problem}{line}") from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise UnreadableDocument(name, f"not valid YAML: {why}") from None


def toml_tree(text: str, name: str) -> dict[str, Any]:
    """Return the TOML text of the file `name` as a tree.

    Raises:
        UnreadableDocument: it is not valid, or nested too deep.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0][:200] if isinstance(error, ValueError) else "too deep"
        raise UnreadableDocument(name, f"not valid TOML: {reason}") from None


def json_tree(text: str, name: str) -> Tree:
    """Return the JSON text of the file `name` as a tree, every value as text.

    Raises:
        UnreadableDocument: it is not valid, or nested too deep.
    """
    try:
        tree: Tree = json.loads(
            text, object_hook=_object, parse_int=str, parse_float=str, parse_constant=str
        )
    except json.JSONDecodeError as error:
        raise UnreadableDocument(
            name, f"not valid JSON: {error.msg} (line {error.lineno})"
        ) from None
    except RecursionError:
        raise UnreadableDocument(name, "not valid JSON: nested too deep") from None
    return tree


def _object(found: dict[str, Any]) -> dict[str, Tree]:
    return {k: str(v).lower() if isinstance(v, bool) else v for k, v in found.items()}


def _properties(text: str, profile: str | None) -> list[ConfigDocument]:
    """Return the documents of a properties or environment file; `#---` separates documents."""
    parts: list[Flat] = [{}]
    blocks: list[str] = []
    seen: Counter[str] = Counter()

    def begin(name: str) -> str:
        """Return `name` for a new block, with `[n]` after it if n blocks here had it before."""
        at = ".".join((*blocks, name))
        seen[at] += 1
        return name if seen[at] == 1 else f"{name}[{seen[at] - 1}]"

    for _, line in logical_lines(text):
        # Logstash writes `key => "value"`.
        key, raw = key_and_value(line.removeprefix("export "))
        value = re.sub(
            r"\A(['\"])(.*)\1\Z",
            r"\2",
            raw.removeprefix("=>").removeprefix(">").strip(),
            flags=re.DOTALL,
        )
        if line[0] == "}":
            del blocks[-1:]
        if re.match(r"[#!]---\s*\Z", line):
            parts.append({})
        elif line[0] == "[":
            blocks.clear()
            section = begin(line.strip("[] \t"))
            # The first section of a name is the whole file, as a rule.
            blocks += [section] if line.startswith("[[") or "[" in section else []
        elif line[0] not in "#!" and raw.endswith("{"):
            # Logstash and HOCON.
            blocks += [begin(key)] if len(blocks) < _DEEPEST else []
        elif line[0] not in "#!" and key and (value or is_assignor_list_key(key)):
            parts[-1][".".join((*blocks, key))] = value
    return [document for flat in parts for document in _by_profile(flat, profile)]
