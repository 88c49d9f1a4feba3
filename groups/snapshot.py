"""Snapshot documents: `GroupSnapshot` ↔ text, YAML or JSON; no files are touched here.

A document holds one group and says `schema: rebal.snapshot/1`. The same snapshot always gives the
same text. Partitions are written compactly (`orders: 0-11,14`), bytes as base64, times as RFC 3339.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

import msgspec
import yaml

from rebal.groups.errors import DocumentError
from rebal.groups.model import GroupSnapshot
from rebal.groups.partitions import Partitions

SCHEMA: Final = "rebal.snapshot/1"
Format = Literal["yaml", "json"]
_T = TypeVar("_T")
_WHERE: Final = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?\Z", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def enc_hook(value: object) -> object:
    """msgspec's hook for the model's own types."""
    if isinstance(value, Partitions):
        return str(value)
    raise NotImplementedError(f"no document form for {type(value).__name__}")


def dec_hook(kind: type, value: object) -> object:
    """msgspec's hook for the model's own types."""
    if kind is Partitions:
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise ValueError('expected partitions such as "0-11,14"')
        return Partitions.parse(str(value))
    raise NotImplementedError(f"no document form for {kind.__name__}")


def format_of(name: str) -> Format:
    """The format of a file by its ending: `.json`, or `.yaml` / `.yml`.

    Raises:
        DocumentError: another ending.
    """
    ending = name.rsplit(".", 1)[-1].lower()
    if ending == "json":
        return "json"
    if ending in ("yaml", "yml"):
        return "yaml"
    raise DocumentError(f"{name}: the ending says the format: use .yaml, .yml or .json.")


def dumps(schema: str, record: msgspec.Struct, form: Format) -> str:
    """`record` as a document: the schema first, then its fields in the model's order."""
    body = {"schema": schema, **msgspec.to_builtins(record, enc_hook=enc_hook)}
    if form == "json":
        return json.dumps(body, indent=2, ensure_ascii=False) + "\n"
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(body, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1_000_000_000)
    return str(text)


def loads(text: str, form: Format, name: str, schema: str, kind: type[_T]) -> _T:
    """The document `text` (called `name` in errors) as a `kind`.

    Raises:
        DocumentError: not the format, another schema or major version, or a field that does not
            fit; the message names the file, the field's path and its line.
    """
    try:
        body = _parse(text, form)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DocumentError(f"{name}: {_syntax(error, form)}") from None
    if not isinstance(body, dict):
        raise DocumentError(f"{name}: expected a document with `schema: {schema}`.")
    _check_schema(body.get("schema"), schema, name)
    try:
        return msgspec.convert(body, kind, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        match = _WHERE.match(str(error))
        assert match is not None
        path = (match["path"] or "$").removeprefix("$").removeprefix(".")
        steps = [a or b for a, b in _STEP.findall("." + path if path[:1] != "[" else path)]
        line = _line(text, steps)
        what = match["what"][:1].lower() + match["what"][1:]
        where = f" (line {line})" if line else ""
        raise DocumentError(f"{name}: {path or 'document'}: {what}{where}.") from None


def dump_snapshot(snapshot: GroupSnapshot, form: Format = "yaml") -> str:
    """The snapshot as a `rebal.snapshot/1` document; the same snapshot gives the same text."""
    return dumps(SCHEMA, snapshot, form)


def load_snapshot(text: str, form: Format, name: str = "snapshot") -> GroupSnapshot:
    """The snapshot in `text`; errors as `loads` says."""
    return loads(text, form, name, SCHEMA, GroupSnapshot)


def file_stem(group_id: str) -> str:
    """A file name for a group id, safe on every file system and different for different ids.

    Letters, digits, `.`, `_` and `-` stay; every other byte becomes `%XX`; a leading dot too.
    """
    made = re.sub(
        rb"[^A-Za-z0-9._-]",
        lambda m: b"%%%02X" % m[0][0],
        group_id.encode("utf-8", "surrogatepass"),
    ).decode("ascii")
    if made.startswith("."):
        made = "%2E" + made[1:]
    if len(made) > 180:
        import hashlib

        digest = hashlib.sha256(group_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        made = f"{made[:160]}%~{digest}"
    return made or "%"


def _parse(text: str, form: Format) -> object:
    if form == "json":
        return json.loads(text)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(text, Loader=loader)


def _check_schema(found: object, wanted: str, name: str) -> None:
    if found == wanted:
        return
    kind, _, major = wanted.partition("/")
    if not isinstance(found, str) or found.partition("/")[0] != kind:
        raise DocumentError(f"{name}: schema: expected {wanted}, got {_short(found)}.")
    raise DocumentError(
        f"{name}: schema: this rebal reads {kind}/{major}, the file says {_short(found)}; "
        "use the rebal version that wrote it."
    )


def _short(value: object) -> str:
    return "nothing" if value is None else repr(value)[:60]


def _syntax(error: Exception, form: Format) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"not valid YAML: {error.problem} (line {mark.line + 1}, column {mark.column + 1})."
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})."
    return f"not valid {form.upper()}: {str(error).splitlines()[0] if str(error) else 'too deep'}."


def _line(text: str, steps: list[str]) -> int | None:
    """The line of the node at `steps`; JSON is read as YAML for this, only on errors."""
    loader: Callable[[str], Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        node = loader(text).get_single_node()
    except yaml.YAMLError:
        return None
    for step in steps:
        found = None
        if isinstance(node, yaml.MappingNode):
            found = next((v for k, v in node.value if k.value == step), None)
        elif isinstance(node, yaml.SequenceNode) and step.isdigit():
            found = node.value[int(step)] if int(step) < len(node.value) else None
        if found is None:
            break
        node = found
    return int(node.start_mark.line) + 1
