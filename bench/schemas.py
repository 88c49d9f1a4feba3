"""JSON Schema (2020-12) of every document that rebal has, generated from the documents' records.

`make schemas` writes them to `cli/data/schemas`, which the wheel ships and `rebal schema` prints.
A schema describes what this version writes: a key that is always written is required. Further keys
are allowed everywhere, because a later version of the same major may add some.
"""

import inspect as python
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect

from rebal.cli.commands.explain_cmd import RulesDocument
from rebal.cli.commands.fleet_compact_cmd import CompactDocument
from rebal.cli.commands.fleet_scan_cmd import SummaryDocument
from rebal.cli.difference import DiffDocument
from rebal.cli.files import write_text
from rebal.cli.overview import Overview
from rebal.cli.render.check import CheckDocument
from rebal.cli.render.doctor import DoctorDocument
from rebal.cli.render.fleet.document import FleetDocument
from rebal.cli.render.inspection.document import InspectDocument
from rebal.cli.render.simulation.documents import RehearsalDocument, SimulationsDocument
from rebal.cli.render.verification import Watched
from rebal.groups.compact import FOLDED, ByTopic, Lags, Partitions, Replicas
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import SCHEMA as SNAPSHOT
from rebal.inspectors.fleet.manifest import SCHEMA as SCAN
from rebal.inspectors.fleet.manifest import Manifest
from rebal.planner.plan import SCHEMA as PLAN
from rebal.planner.plan import KeptPlan
from rebal.planner.rehearsal.script_file import SCHEMA as SCRIPT
from rebal.planner.rehearsal.script_file import ScriptFile
from rebal.planner.rehearsal.whatif.simulation import Simulation, WorkersSimulation
from rebal.planner.verification.journal import JOURNAL_SCHEMA, JournalEntry
from rebal.planner.verification.timeline import Timeline

Schema = dict[str, Any]
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
EXIT_CODES: Final = (0, 1, 3, 4)


class Kind(NamedTuple):
    """One kind of document: its schema's name, and the record or records that are its body.

    `code`: the envelope adds `exit_code` after the body.
    """

    schema: str
    bodies: tuple[type[msgspec.Struct], ...]
    code: bool = True


def kinds() -> dict[str, Kind]:
    """Return every kind of document by its name."""
    made = (
        Kind("rebal.inspect/1", (InspectDocument,)),
        Kind("rebal.groups/1", (Overview,)),
        Kind("rebal.check/1", (CheckDocument,)),
        Kind("rebal.diff/1", (DiffDocument,)),
        Kind("rebal.doctor/1", (DoctorDocument,)),
        Kind(PLAN, (KeptPlan,), code=False),
        Kind("rebal.verify/1", (Watched,)),
        Kind(JOURNAL_SCHEMA, (JournalEntry,), code=False),
        Kind("rebal.timeline/1", (Timeline,)),
        Kind("rebal.simulate/1", (Simulation, SimulationsDocument)),
        Kind("rebal.simulate-workers/1", (WorkersSimulation,)),
        Kind("rebal.rehearsal/1", (RehearsalDocument,)),
        Kind(SCRIPT, (ScriptFile,), code=False),
        Kind("rebal.rules/1", (RulesDocument,)),
        Kind(SNAPSHOT, (GroupSnapshot,), code=False),
        Kind("rebal.fleet/1", (FleetDocument,)),
        Kind("rebal.fleet-summary/1", (SummaryDocument,)),
        Kind("rebal.fleet-compact/1", (CompactDocument,)),
        Kind(SCAN, (Manifest,), code=False),
    )
    return {kind.schema.removeprefix("rebal.").partition("/")[0]: kind for kind in made}


def schema_of(kind: Kind) -> Schema:
    """Return the JSON Schema of one kind of document."""
    records = _Records()
    bodies = [records.body(body, kind) for body in kind.bodies]
    return {
        "$schema": DIALECT,
        "$id": f"urn:{kind.schema.replace('.', ':').replace('/', ':')}",
        "title": kind.schema,
        **(bodies[0] if len(bodies) == 1 else {"oneOf": bodies}),
        "$defs": dict(sorted(records.definitions.items())),
    }


def incompatible(before: Schema, after: Schema) -> list[str]:
    """Return what a reader of `before` misses in `after`: keys and types, a path each.

    Within a major version keys and values of enumerations are only added, and what is always
    written stays so; another major (another `title`) may change all of it.
    """
    if before["title"] != after["title"]:
        return []
    return sorted(set(_missed(before, after, "")))


def main(folder: str) -> int:
    """Write all schemas to `folder`; return 1, and write none, where a reader would break."""
    made = {name: schema_of(kind) for name, kind in kinds().items()}
    broken = []
    for name, schema in made.items():
        path = Path(folder, f"{name}.json")
        if path.exists():
            missed = incompatible(json.loads(path.read_text()), schema)
            broken += [f"{path}: {one}: raise the document's major version." for one in missed]
    for name, schema in {} if broken else made.items():
        write_text(Path(folder, f"{name}.json"), text_of(schema))
    print("\n".join(broken) or f"{len(made)} schemas", file=sys.stderr)
    return 1 if broken else 0


def text_of(schema: Schema) -> str:
    """Return a schema as the text of its file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


class _Records:
    """The records and enumerations met in one document, as `$defs`."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._owners: dict[str, type] = {}

    def body(self, record: type[msgspec.Struct], kind: Kind) -> Schema:
        """Return the schema of the envelope around one record: the schema first, the code last."""
        found = self._fields(_struct(record))
        first: Schema = {"schema": {"const": kind.schema}}
        last: Schema = {"exit_code": {"enum": list(EXIT_CODES)}} if kind.code else {}
        return found | {
            "properties": first | found["properties"] | last | first,
            "required": list(dict.fromkeys([*first, *found["required"], *last])),
        }

    def _fields(self, info: inspect.StructType) -> Schema:
        """Return the schema of a record's fields; some records leave defaults out."""
        written = not info.cls.__struct_config__.omit_defaults
        properties = {field.encode_name: self._field(field) for field in info.fields}
        required = [
            field.encode_name
            for field in info.fields
            if field.required or (written and _has_default(field))
        ]
        return {
            **_described(info.cls),
            "type": "object",
            "properties": properties,
            "required": required,
        }

    def _field(self, field: inspect.Field) -> Schema:
        schema = self._type(field.type)
        # Long lists and mappings of topics stand on one line in a kept document.
        if field.encode_name in FOLDED and schema.get("type") == "array":
            return {"anyOf": [schema, {"type": "string"}]}
        return schema

    def _type(self, info: inspect.Type) -> Schema:
        if isinstance(info, inspect.Metadata):
            return self._type(info.type)
        if isinstance(info, inspect.UnionType):
            return {"anyOf": [self._type(one) for one in info.types]}
        if isinstance(info, inspect.CollectionType):
            return {"type": "array", "items": self._type(info.item_type)}
        if isinstance(info, inspect.DictType):
            return {"type": "object", "additionalProperties": self._type(info.value_type)}
        if isinstance(info, inspect.EnumType):
            return self._named(info.cls, {"enum": [one.value for one in info.cls]})
        if isinstance(info, inspect.StructType):
            return self._struct(info)
        if isinstance(info, inspect.CustomType):
            return _CUSTOM[info.cls]
        return _PLAIN[type(info)]

    def _struct(self, info: inspect.StructType) -> Schema:
        if self._owners.get(_title(info.cls)) is not info.cls:
            # Entered before its fields are walked: a record may hold its own kind.
            self._named(info.cls, {})
            self.definitions[_title(info.cls)] = self._fields(info)
        return {"$ref": f"#/$defs/{_title(info.cls)}"}

    def _named(self, kind: type, schema: Schema) -> Schema:
        """Define `kind`; two kinds of one name in one document are a fault."""
        name = _title(kind)
        assert self._owners.setdefault(name, kind) is kind, f"two records are called {name}"
        self.definitions.setdefault(name, {**_described(kind), **schema})
        return {"$ref": f"#/$defs/{name}"}


_NUMBERS: Final = {"type": "string", "description": 'Partitions, such as "0-11,14".'}
_BY_TOPIC: Final = {
    "description": 'Partitions by topic, or on one line: "orders 0-11; payments 3".',
    "anyOf": [{"type": "object", "additionalProperties": _NUMBERS}, {"type": "string"}],
}
_CUSTOM: Final[Mapping[type, Schema]] = {
    ByTopic: _BY_TOPIC,
    Partitions: _NUMBERS,
    Replicas: {"type": "string", "description": 'Broker ids by partition, such as "1,2 2,3".'},
    Lags: {
        "description": "Committed and end offsets by topic; `-` where an offset is not known.",
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {key: {"type": "string"} for key in ("partitions", "committed", "end")},
            "required": ["partitions", "committed", "end"],
        },
    },
}
_PLAIN: Final[Mapping[type, Schema]] = {
    inspect.AnyType: {},
    inspect.NoneType: {"type": "null"},
    inspect.BoolType: {"type": "boolean"},
    inspect.IntType: {"type": "integer"},
    inspect.FloatType: {"type": "number"},
    inspect.StrType: {"type": "string"},
    inspect.DateTimeType: {"type": "string", "format": "date-time"},
    inspect.BytesType: {"type": "string", "contentEncoding": "base64"},
}


def _struct(record: type[msgspec.Struct]) -> inspect.StructType:
    info = inspect.type_info(record)
    assert isinstance(info, inspect.StructType)
    return info


def _has_default(field: inspect.Field) -> bool:
    """Return False where a field that may be left out is simply not written (UNSET)."""
    return (field.default, field.default_factory) != (msgspec.NODEFAULT, msgspec.NODEFAULT)


def _title(kind: type) -> str:
    return kind.__name__.removeprefix("_")


def _described(kind: type) -> Schema:
    doc = kind.__doc__
    return {"description": python.cleandoc(doc)} if doc else {}


def _missed(before: Schema, after: Schema, path: str) -> Iterator[str]:
    """Yield each place where `after` lacks what `before` promises, descriptions left aside."""
    for key in sorted(before.keys() - {"description", "$schema", "$id", "title"}):
        kept, now = before[key], after.get(key)
        here = f"{path}/{key}"
        if key == "oneOf" and isinstance(now, list):
            kept, now = ({str(at): one for at, one in enumerate(each)} for each in (kept, now))
        if isinstance(kept, dict) and isinstance(now, dict):
            yield from _missed(kept, now, here)
        elif key in ("required", "enum") and isinstance(now, list):
            yield from (f"{here}/{one}" for one in kept if one not in now)
        elif now != kept:
            yield here


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
