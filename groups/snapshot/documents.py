"""Snapshot documents: `GroupSnapshot` ↔ text, YAML or JSON; no files are touched here.

A document holds one group and says `schema: rebal.snapshot/1`. The same snapshot always gives the
same text. Partitions are written compactly (`orders: 0-11,14`), bytes as base64, times as RFC 3339.

`read_yaml` checks the parse events of a YAML text before the YAML library builds values from them.
It rejects aliases (a small file could expand to a huge one), collections with a tag and nesting
deeper than any snapshot needs. `PlainLoader` rejects repeated keys and merges. A time stays text.
"""

import gc
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeVar

import msgspec
import yaml

from rebal.groups.commands import Command
from rebal.groups.compact import (
    ByTopic,
    Lags,
    Partitions,
    Replicas,
    fold,
    read_by_topic,
    read_partitions,
    unfold,
)
from rebal.groups.errors import DocumentError
from rebal.groups.model import GroupSnapshot

SCHEMA: Final = "rebal.snapshot/1"
Format = Literal["yaml", "json"]
_T = TypeVar("_T")
_WHERE: Final = re.compile(
    r"(?P<what>.*?)(?: - at `\$(?P<topic>\[.*\])`)?(?: - at `(?P<path>[^`]*)`)?\Z", re.DOTALL
)
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([^\]]+)\]")
# C0 (but the newlines of the layout), DEL, C1, and Unicode's marks that reorder or hide text.
_HIDDEN: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


_END: Final = "...\n"
# Characters: from here on a text is looked over before it is parsed.
_BIG: Final = 2_000_000


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """YAML dumper that double-quotes texts with special characters: only this style has escapes."""

    def represent_text(self, text: str) -> Any:
        """Return the YAML node of one string; a newline in it is written as an escape."""
        style = '"' if "\n" in text or _HIDDEN.search(text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


def enc_hook(value: object) -> object:
    """Convert a value of a type that msgspec does not know to plain data, for a document."""
    match value:
        case Partitions() | Replicas() | Command():
            return str(value)
        case Lags():
            return value.dump()
        case Mapping():
            return dict(value)
    raise NotImplementedError(f"no document form for {type(value).__name__}")


def dec_hook(kind: type, value: object) -> object:
    """Convert a value from a document to `kind`, a type of the model that msgspec does not know."""
    return _READERS[kind](value)


def _replicas(value: object) -> Replicas:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return Replicas.parse(str(value))
    if isinstance(value, list) and all(
        isinstance(one, list) and all(type(broker) is int for broker in one) for one in value
    ):
        return Replicas(value)
    raise ValueError('expected brokers by partition such as "1,2 2,3"')


_READERS: Final[Mapping[type, Callable[[object], object]]] = {
    ByTopic: read_by_topic,
    Partitions: read_partitions,
    Replicas: _replicas,
    Lags: Lags.read,
}


def format_of(name: str) -> Format:
    """Return the format of a file by its ending: `.json`, or `.yaml` / `.yml`.

    Raises:
        DocumentError: another ending.
    """
    forms: dict[str, Format] = {"json": "json", "yaml": "yaml", "yml": "yaml"}
    if (form := forms.get(name.rpartition(".")[2].lower())) is None:
        raise DocumentError(f"{name}: the ending says the format: use .yaml, .yml or .json.")
    return form


def dumps(schema: str, record: msgspec.Struct, form: Format, *, sealed: bool = False) -> str:
    """Return `record` as a document: the schema first, then its fields in the model's order.

    With `sealed`, a checksum of the fields follows them. YAML ends with a line `...`, so that a
    file that was cut off is known by its missing end.
    """
    body = fold(msgspec.to_builtins(record, enc_hook=enc_hook))
    seal = {CHECKSUM: checksum(body)} if sealed else {}
    text = text_of({"schema": schema, **body, **seal}, form)
    return text + _END if form == "yaml" else text


def text_of(body: Mapping[str, object], form: Format) -> str:
    """Return `body` (plain data) as YAML or JSON text, in its own key order.

    Characters that a terminal obeys or hides (controls, bidirectional marks) are written as the
    format's own escapes, so that the text is safe to show and reads back as it was.
    """

    def escaped(match: re.Match[str]) -> str:
        if form == "json":
            return json.dumps(match[0])[1:-1]
        code = ord(match[0])
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    if form == "json":
        return _HIDDEN.sub(escaped, json.dumps(body, indent=2, ensure_ascii=False)) + "\n"
    text = yaml.dump(body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000_000)
    return _HIDDEN.sub(escaped, text)


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause Python's cyclic garbage collector, which would scan millions of new records in vain."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@no_collection()
def loads(
    text: str,
    form: Format,
    name: str,
    schema: str,
    kind: type[_T],
    *,
    sealed: bool = False,
    by_hand: bool = False,
) -> _T:
    """Return the document `text` (called `name` in errors) as an instance of `kind`.

    With `by_hand`, a person may have written it: YAML then needs no line `...` at its end. With
    `sealed`, its checksum must match its fields.

    Raises:
        DocumentError: not the format, another schema or major version, a field of a wrong type, or,
            with `sealed`, a changed field; the message names the file, the field's path and, where
            it is known, its line.
    """
    body = _body(text, form, name, schema, by_hand=by_hand)
    if sealed:
        check_seal(body, name)
    try:
        return msgspec.convert(body, kind, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        match = _WHERE.match(str(error))
        assert match is not None
        path = (match["path"] or "$").removeprefix("$").removeprefix(".") + (match["topic"] or "")
        steps = [a or b for a, b in _STEP.findall("." + path if path[:1] != "[" else path)]
        where = f" (line {line})" if (line := line_of(text, steps)) else ""
        what = match["what"][:1].lower() + match["what"][1:]
        raise DocumentError(f"{name}: {path or 'document'}: {what}{where}.") from None


def _body(text: str, form: Format, name: str, schema: str, *, by_hand: bool) -> dict[str, object]:
    if form == "yaml" and len(text) > _BIG:
        # A parser needs a minute for what these checks find at once.
        line = r"""(?m)^[{ ]?["']?schema["']?[ \t]*:[ \t]*["']?([^\s"'#]*)"""
        found = re.search(line, text)
        _check_schema(found and found[1], schema, name)
        _check_end(text, name)
    try:
        is_json = form == "json"
        body = json.loads(text, object_pairs_hook=_without_twins) if is_json else read_yaml(text)
        if isinstance(body, dict):
            unfold(body)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DocumentError(f"{name}: {_syntax(error, form)}") from None
    if not isinstance(body, dict):
        raise DocumentError(f"{name}: expected a document with `schema: {schema}`.")
    _check_schema(body.get("schema"), schema, name)
    if form == "yaml" and not by_hand:
        _check_end(text, name)
    return body


def _check_end(text: str, name: str) -> None:
    end = text[-100:].rstrip()
    if not (end if len(end) >= len(_END) else text.rstrip()).endswith("\n..."):
        lines = text.count("\n") + (not text.endswith("\n"))
        raise DocumentError(
            f"{name}: cut off after line {lines}: the line `...` that ends a document is missing; "
            "copy the whole file again, or add the line to your own file."
        )


def dump_snapshot(snapshot: GroupSnapshot, form: Format = "yaml") -> str:
    """Return the snapshot as a `rebal.snapshot/1` document."""
    return dumps(SCHEMA, snapshot, form)


def load_snapshot(text: str, form: Format, name: str = "snapshot") -> GroupSnapshot:
    """Return the snapshot in the document `text`; raises as `loads` does."""
    return loads(text, form, name, SCHEMA, GroupSnapshot)


def file_stem(group_id: str) -> str:
    """Return a file name for a group id, safe in every folder and different for each id.

    Letters, digits, `.`, `_` and `-` stay; every other byte becomes `%XX`, and so does a leading
    dot or dash. A very long name is cut and ends with a hash of the id. The names of two ids that
    differ only in case also differ only in case.
    """
    raw = group_id.encode("utf-8", "surrogatepass")
    made = re.sub(rb"[^A-Za-z0-9._-]", lambda m: b"%%%02X" % m[0][0], raw).decode("ascii")
    if made[:1] in (".", "-"):
        made = f"%{ord(made[0]):02X}{made[1:]}"
    if len(made) > 180:
        made = f"{made[:160]}%~{hashlib.sha256(raw).hexdigest()[:16]}"
    return made or "%"


def _without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key `{twice}` stands twice in one object")
    return made


def _check_schema(found: object, wanted: str, name: str) -> None:
    if found == wanted:
        return
    said = "nothing" if found is None else repr(found)[:60]
    if not isinstance(found, str) or found.partition("/")[0] != wanted.partition("/")[0]:
        raise DocumentError(f"{name}: schema: expected {wanted}, got {said}.")
    raise DocumentError(
        f"{name}: schema: this rebal reads {wanted}, the file says {said}; "
        "use the rebal version that wrote it."
    )


def _syntax(error: Exception, form: Format) -> str:
    match error:
        case yaml.MarkedYAMLError(problem_mark=mark) if mark is not None:
            place = f"line {mark.line + 1}, column {mark.column + 1}"
            return f"not valid YAML: {error.problem} ({place})."
        case json.JSONDecodeError():
            return f"not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})."
        case RecursionError():
            return f"not valid {form.upper()}: nested too deep."
    return f"not valid {form.upper()}: {str(error).splitlines()[0]}."


def line_of(text: str, steps: Sequence[str]) -> int | None:
    """Return the line number of the value at the path `steps`, for an error message.

    `steps` are keys, and list indexes from 0. If a step leads nowhere, the line is that of the
    value before it. JSON is read as YAML. None if the text is no YAML, or so large that looking for
    the line would take longer than reading the text did.
    """
    if len(text) > _BIG:
        return None
    try:
        node = PlainLoader(text).get_single_node()
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


# The seal protects against edits and damage, not against somebody who also writes new digests.
CHECKSUM: Final = "checksum"


def checksum(body: Mapping[str, object]) -> str:
    """Return the digests of all fields of plain data: `path:digest` pairs on one line.

    A list of records has its length and a digest for each record; a record with an `id` (a plan's
    step) has one for each of its fields.
    """
    texts = (
        (path, json.dumps(_plain(fold(value)), sort_keys=True, separators=(",", ":")))
        for path, value in _parts(body)
    )
    return " ".join(f"{path}:{hashlib.sha256(t.encode()).hexdigest()[:12]}" for path, t in texts)


def check_seal(body: Mapping[str, object], name: str) -> None:
    """Compare the document's checksum with its fields; key order and layout do not matter.

    Raises:
        DocumentError: there is no checksum, or a field has changed; the message names the field.
    """
    written = body.get(CHECKSUM)
    if not isinstance(written, str):
        raise DocumentError(
            f"{name}: the field `{CHECKSUM}` is missing, so an edit would not be noticed: "
            "use the file as rebal wrote it."
        )
    before, after = (
        dict(part.rpartition(":")[::2] for part in sums.split())
        for sums in (written, checksum(body))
    )
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    if not set(before.items()) & set(after.items()):
        changed = [CHECKSUM]
    if changed:
        raise DocumentError(
            f"{name}: `{changed[0]}` has changed since rebal wrote the file: "
            "use the file as it was written, or make a new one."
        )


def _parts(body: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for key, value in body.items():
        if key in ("schema", CHECKSUM):
            continue
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            yield f"{key}[]", len(value)
            for number, one in enumerate(value):
                fields = one.items() if "id" in one else ()
                yield from ((f"{key}[{number}].{name}", each) for name, each in fields)
                if not fields:
                    yield f"{key}[{number}]", one
        else:
            yield key, value


def _plain(value: Any) -> Any:
    """Return `value` in a form that is the same before and after other tools rewrite the JSON.

    A whole float becomes an integer, because some tools write 36.0 as 36.
    """
    match value:
        case dict():
            return {str(key): _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case float() if value.is_integer():
            return int(value)
        case None | str() | int() | float():
            return value
    return repr(value)


_DEEPEST: Final = 64


class PlainLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML loader that leaves a time as text and rejects a repeated key."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of `node`.

        Raises:
            yaml.MarkedYAMLError: a key is repeated, is not a scalar, or is a merge (`<<`).
        """
        made: dict[Any, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _error("a key is no text", key.start_mark)
            if key.tag == "tag:yaml.org,2002:merge":
                raise _error("merges (<<) are not read", key.start_mark)
            if (name := self.construct_object(key)) in made:
                raise _error(f"the key `{key.value}` stands here twice", key.start_mark)
            made[name] = self.construct_object(value, deep=deep)
        return made


PlainLoader.add_constructor("tag:yaml.org,2002:timestamp", PlainLoader.construct_yaml_str)


def read_yaml(text: str) -> object:
    """Return the one document in `text`; None when there is none.

    Raises:
        yaml.YAMLError: it is not YAML, or contains something that this module rejects.
    """
    for event in events(text, PlainLoader, _DEEPEST):
        if isinstance(event, yaml.AliasEvent):
            raise _error(f"aliases (*{event.anchor}) are not read", event.start_mark)
        if isinstance(event, yaml.CollectionStartEvent) and event.tag is not None:
            raise _error(f"the tag {event.tag} is not read", event.start_mark)
    return yaml.load(text, Loader=PlainLoader)


def events(text: str, loader: Any, deepest: int) -> Iterator[yaml.Event]:
    """Yield the parse events of `text`, up to `deepest` levels of nesting.

    PyYAML's parser in C has no limit of its own: some ten thousand levels end the process.

    Raises:
        yaml.YAMLError: it is not YAML, or nested deeper than `deepest`.
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
