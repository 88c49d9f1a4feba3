"""TABLES.md says of each column what it is and means, and of none that does not exist."""

import re
from pathlib import Path

import pyarrow as pa

from rebal.inspectors.fleet.schemas import TABLES

DOC = Path(__file__).parents[2] / "inspectors" / "fleet" / "TABLES.md"


def type_name(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "time"
    if pa.types.is_list(kind):
        inner = kind.value_type
        return "partitions" if pa.types.is_struct(inner) else f"{type_name(inner)}s"
    names = {"string": "text", "int32": "int", "int64": "long", "bool": "bool", "binary": "bytes"}
    return names.get(str(kind), str(kind))


def test_every_column_is_documented() -> None:
    tables: dict[str, list[tuple[str, str]]] = {}
    for part in DOC.read_text().split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        rows = re.findall(r"^\| (\w+) \| (\w+) \| (\S.*) \|$", text, re.MULTILINE)
        tables[title.strip()] = [(column, kind) for column, kind, _ in rows if kind != "type"]
    assert tables == {
        name: [(field.name, type_name(field.type)) for field in schema]
        for name, schema in TABLES.items()
    }
