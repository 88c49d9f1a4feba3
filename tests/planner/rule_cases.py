"""The cases of the rules, as `tests/data/rules` has them: one file a rule."""

from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parents[1] / "data" / "rules"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
RULES = sorted(path.stem for path in _FOLDER.glob("RB*.yaml"))
OUTCOMES = ("fires", "does_not_fire", "cannot_tell")


def document_of(rule: str) -> dict[str, Any]:
    """Return the whole file: a list of cases for each outcome, or why there are none."""
    text = (_FOLDER / f"{rule}.yaml").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.load(text, _LOADER)
    return document


def cases_of(rule: str, *outcomes: str) -> list[dict[str, Any]]:
    document = document_of(rule)
    listed = [document[outcome] for outcome in outcomes or OUTCOMES]
    return [case for some in listed if isinstance(some, list) for case in some]
