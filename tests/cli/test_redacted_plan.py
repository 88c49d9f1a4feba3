"""A redacted snapshot gives the plan and the simulation of the real one, under other names."""

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from rebal.cli.files import read_snapshot
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.redact import redact
from rebal.planner.paths import make_plan
from rebal.planner.plan import dump_plan

FOLDER = Path(str(files("rebal.cli") / "data" / "demo"))
BUNDLED = sorted(path.name for path in FOLDER.iterdir())


def pair(name: str) -> tuple[GroupSnapshot, GroupSnapshot, dict[str, str]]:
    """The real one, the redacted one, and real name → pseudonym."""
    real = read_snapshot(FOLDER / name)
    made = redact(real)
    names: dict[str, str] = {}
    for before, after in zip(real.members, made.members, strict=True):
        names[before.member_id] = after.member_id
        names[before.client_id] = after.client_id
        if before.instance_id is not None and after.instance_id is not None:
            names[before.instance_id] = after.instance_id
    return real, made, names


def renamed(text: str, names: dict[str, str]) -> str:
    longest = sorted(names, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest))
    return re.sub(rf"(?<![\w-])(?:{pattern})(?!\w)", lambda found: names[found[0]], text)


def planned(snapshot: GroupSnapshot, to: str, names: dict[str, str]) -> object:
    body = json.loads(dump_plan(make_plan(snapshot, to), "json"))
    del body["baseline"], body["made_at"], body["checksum"]

    def without_details(value: object) -> object:
        # Where a fact was read (a file's name and line) is one of the things that redaction takes.
        if isinstance(value, dict):
            return {k: without_details(v) for k, v in value.items() if k != "detail"}
        return [without_details(v) for v in value] if isinstance(value, list) else value

    return json.loads(renamed(json.dumps(without_details(body)), names))


@pytest.mark.parametrize("to", ["cooperative", "eager"])
@pytest.mark.parametrize("name", BUNDLED)
def test_a_redacted_snapshot_gives_the_same_plan(name: str, to: str) -> None:
    real, made, names = pair(name)
    assert planned(made, to, {"no name": ""}) == planned(real, to, names)
