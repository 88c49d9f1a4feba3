"""docs/fleet-tables.md documents every column, its type and its meaning, and no other column."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rebal.inspectors.fleet.lake.scans import SCHEMA as SCANS
from rebal.inspectors.fleet.schemas import TABLES
from tests.fleet.synthetic import fleet
from tests.fleet.tablefiles import write_tables

DOC = Path(__file__).parents[2] / "docs" / "fleet-tables.md"

EXAMPLES = Path(__file__).parents[2] / "examples" / "fleet"


def type_name(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "time"
    if pa.types.is_list(kind):
        inner = kind.value_type
        return "partitions" if pa.types.is_struct(inner) else f"{type_name(inner)}s"
    if pa.types.is_map(kind):
        return "counts"
    names = {"string": "text", "int32": "int", "int64": "long", "bool": "bool", "binary": "bytes"}
    return names.get(str(kind), str(kind))


def test_every_column_is_documented() -> None:
    tables: dict[str, list[tuple[str, str]]] = {}
    for part in DOC.read_text().split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        if rows := re.findall(r"^\| (\w+) \| (\w+) \| (\S.*) \|$", text, re.MULTILINE):
            tables[title.strip()] = [(column, kind) for column, kind, _ in rows if kind != "type"]
    assert tables == {
        name: [(field.name, type_name(field.type)) for field in schema]
        for name, schema in {"scans": SCANS, **TABLES}.items()
    }


def test_the_example_reads_the_last_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, views = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL)
    write_tables(tmp_path / "fleet", fleet(4))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    found: dict[str, Any] = {}
    exec(code, found)
    exec(views, found)
    assert found["connection"].sql("SELECT count(*) FROM groups").fetchall() == [(4,)]
    assert sorted(found["rows"]["group_id"].to_pylist()) == sorted(
        row["group_id"] for row in fleet(4)["groups"]
    )
