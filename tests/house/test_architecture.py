"""ARCHITECTURE.md names functions that exist, and the short way to each command's work."""

import inspect
import re
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rebal.cli.app import COMMANDS
from tests.house.modules import ROOMS, ROOT, imports

TEXT = (ROOT / "ARCHITECTURE.md").read_text()
NAMED = sorted(set(re.findall(rf"`((?:{'|'.join(ROOMS)})(?:\.\w+)+)`", TEXT)))
WAYS = {
    row[0]: re.findall(r"`([\w.]+)`", row[1])
    for row in re.findall(r"^\| `([a-z -]+)` \| (`cli\.app.*) \|$", TEXT, re.MULTILINE)
}
MODULES = {
    f"{entry.name} {below.name}" if below else entry.name: (below or entry).module
    for entry in COMMANDS
    for below in entry.under or (None,)
}
"""Each command → its module."""
MOST_FILES = 4


def module_of(name: str) -> tuple[ModuleType, list[str]]:
    """Return the module that the name begins with, and the attributes after it."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            return import_module(".".join(["rebal", *parts[:length]])), parts[length:]
        except ModuleNotFoundError:
            continue
    raise AssertionError(f"no module begins {name}")


def found(name: str) -> Any:
    """Return the function, class or module of this name."""
    here, attributes = module_of(name)
    for attribute in attributes:
        here = getattr(here, attribute)
    return here


def file_of(name: str) -> Path:
    path = module_of(name)[0].__file__
    assert path is not None
    return Path(path).resolve()


def uses(path: Path, called: str) -> bool:
    """Return whether the file imports the function or its module, also through a package."""
    module, attributes = module_of(called)
    wanted = getattr(module, attributes[0])
    return any(
        getattr(import_module(name), member, None) in (module, wanted)
        for _, name, members in imports(path)
        if name.startswith("rebal.")
        for member in members
    )


@pytest.mark.parametrize("name", NAMED)
def test_what_the_page_names_exists_in_the_file_that_it_names(name: str) -> None:
    made = found(name)
    if inspect.isfunction(made) or inspect.isclass(made):
        assert Path(inspect.getfile(inspect.unwrap(made))).resolve() == file_of(name)


def test_every_command_has_its_row() -> None:
    assert set(WAYS) == set(MODULES)


@pytest.mark.parametrize("command", sorted(WAYS))
def test_a_command_reaches_its_work_over_at_most_four_files(command: str) -> None:
    way = WAYS[command]
    assert len({file_of(name) for name in way}) <= MOST_FILES
    assert way[0] == "cli.app.run"
    assert way[1] == f"cli.commands.{MODULES[command]}.command"
    for caller, called in pairwise(way[1:]):
        assert uses(file_of(caller), called), f"{caller} → {called}"
