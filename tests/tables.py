"""Tables of cases that are mostly text: `table` reads one from tests/data/tables."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parent / "data" / "tables"


def table(file: str, name: str) -> Any:
    """Return the table of this name, each list in it as a tuple."""
    return _tuples(_read(file)[name])


@cache
def _read(file: str) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((_FOLDER / f"{file}.yaml").read_text(encoding="utf-8"))
    return made


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(each) for key, each in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
