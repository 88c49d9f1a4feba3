"""cli → planner → groups ← inspectors, and cli → inspectors; no other arrow, no circle.

Imports inside functions count too.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.modules import (
    ROOMS,
    ROOT,
    circle,
    files,
    import_graph,
    imports,
    package_graph,
    tree,
)

ALLOWED = {
    "cli": {"cli", "planner", "inspectors", "groups"},
    "planner": {"planner", "groups"},
    "inspectors": {"inspectors", "groups"},
    "groups": {"groups"},
}
CLIENTS = {"confluent_kafka", "kafka"}
PURE = ("planner", "groups")
# What a pure room must not reach for: files, processes, sockets, the clock's sleep.
IMPURE_MODULES = {"os", "subprocess", "socket", "pathlib", "shutil", "tempfile", "io", "requests"}


def arrows(room: str) -> Iterator[tuple[Path, int, str]]:
    for path in files(room):
        for line, module, members in imports(path):
            yield path.relative_to(ROOT), line, module
            if module == "rebal":
                for member in members:
                    yield path.relative_to(ROOT), line, f"rebal.{member}"


@pytest.mark.parametrize("room", ROOMS)
def test_a_top_level_package_imports_only_what_it_may_use(room: str) -> None:
    assert files(room), f"{room}/ has no modules"
    wrong = [
        f"{path}:{line} imports {name}"
        for path, line, name in arrows(room)
        if (name.startswith("rebal.") and name.split(".")[1] not in ALLOWED[room])
        or name.split(".")[0] in {*ROOMS, "tests", "bench"}
    ]
    assert wrong == []


@pytest.mark.parametrize("room", ROOMS)
def test_kafka_clients_spark_and_io_are_imported_only_in_their_packages(room: str) -> None:
    def is_wrong(path: Path, top: str) -> bool:
        if top in CLIENTS:
            return room != "inspectors"
        if top in IMPURE_MODULES:
            return room in PURE
        return top == "pyspark" and path.parts[:2] != ("inspectors", "fleet")

    wrong = [
        f"{path}:{line} imports {name}"
        for path, line, name in arrows(room)
        if is_wrong(path, name.split(".")[0])
    ]
    assert wrong == []


@pytest.mark.parametrize("folders", [ROOMS, ("tests", "bench")])
def test_files_do_not_import_each_other_in_a_circle(folders: tuple[str, ...]) -> None:
    assert circle(import_graph(folders)) == []


def test_packages_do_not_import_each_other_in_a_circle() -> None:
    assert circle(package_graph(import_graph(ROOMS))) == []


def test_only_the_module_cli_files_writes_files() -> None:
    writers = {"write_text", "write_bytes", "NamedTemporaryFile", "mkstemp"}
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} calls {node.attr}"
        for room in ROOMS
        for path in files(room)
        if path != ROOT / "cli" / "files.py"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and node.attr in writers
    ]
    assert wrong == [], "cli/files.py is the only place that writes files"


def test_no_class_name_stands_for_two_things() -> None:
    places: dict[str, list[str]] = {}
    for path in (path for room in ROOMS for path in files(room)):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_is_named_like_the_standard_library(room: str) -> None:
    clashes = [
        str(path.relative_to(ROOT)) for path in files(room) if path.stem in sys.stdlib_module_names
    ]
    assert clashes == []
