"""cli → planner → groups ← inspectors, and cli → inspectors; no other arrow, no heavy import."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("cli", "planner", "inspectors", "groups")
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


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide their arrow"
            yield node.lineno, node.module or ""
            if node.module == "rebal":
                for alias in node.names:
                    yield node.lineno, f"rebal.{alias.name}"


def arrows(room: str) -> Iterator[tuple[Path, int, str]]:
    for path in modules(room):
        for line, name in imported(ast.parse(path.read_text())):
            yield path.relative_to(ROOT), line, name


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_along_its_arrows(room: str) -> None:
    assert modules(room), f"{room}/ has no modules"
    wrong = [
        f"{path}:{line} imports {name}"
        for path, line, name in arrows(room)
        if (name.startswith("rebal.") and name.split(".")[1] not in ALLOWED[room])
        or name.split(".")[0] in {*ROOMS, "tests", "bench"}
    ]
    assert wrong == []


@pytest.mark.parametrize("room", ROOMS)
def test_kafka_clients_and_spark_stay_in_their_rooms(room: str) -> None:
    def is_wrong(path: Path, top: str) -> bool:
        if top in CLIENTS:
            return room != "inspectors"
        return top == "pyspark" and path.parts[:2] != ("inspectors", "fleet")

    wrong = [
        f"{path}:{line} imports {name}"
        for path, line, name in arrows(room)
        if is_wrong(path, name.split(".")[0])
    ]
    assert wrong == []


@pytest.mark.parametrize("room", PURE)
def test_pure_rooms_import_nothing_that_reaches_outside(room: str) -> None:
    wrong = [
        f"{path}:{line} imports {name}"
        for path, line, name in arrows(room)
        if name.split(".")[0] in IMPURE_MODULES
    ]
    assert wrong == []


def test_the_inspectors_meet_in_the_model_not_in_the_files_of_the_person() -> None:
    writers = {"write_text", "write_bytes", "NamedTemporaryFile", "mkstemp"}
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} calls {node.attr}"
        for room in ROOMS
        for path in modules(room)
        if path != ROOT / "cli" / "files.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in writers
    ]
    assert wrong == [], "cli/files.py is the only place that writes files"


@pytest.mark.parametrize("room", [*ROOMS, "tests", "bench", "examples"])
def test_modules_stay_readable(room: str) -> None:
    assert modules(room), f"{room}/ has no modules"
    long = [
        f"{path.relative_to(ROOT)}: {lines} lines"
        for path in modules(room)
        if (lines := len(path.read_text().splitlines())) > 600
    ]
    assert long == []


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_is_named_like_the_standard_library(room: str) -> None:
    import sys

    clashes = [
        str(path.relative_to(ROOT))
        for path in modules(room)
        if path.stem in sys.stdlib_module_names
    ]
    assert clashes == []
