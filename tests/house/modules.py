"""The modules of the rooms, by file and by dotted name, their imports and their texts."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("cli", "planner", "inspectors", "groups")
FILLED = "\x00"
"""What stands in a text for each value that is filled in."""


def files(folder: str) -> list[Path]:
    """Return every Python file below `folder` of the project."""
    return sorted((ROOT / folder).rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of the file."""
    return ast.parse(path.read_text())


def dotted(path: Path) -> str:
    """Return the name by which the rooms import the file: `rebal.planner.context`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(("rebal", *parts) if parts[0] in ROOMS else parts)


@cache
def imports(path: Path) -> list[tuple[int, str, tuple[str, ...]]]:
    """Return the line, the module and the imported names of each import, inside functions too."""
    found: list[tuple[int, str, tuple[str, ...]]] = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import hides its arrow"
            names = tuple(alias.name for alias in node.names)
            found.append((node.lineno, node.module or "", names))
    return found


def import_graph(folders: tuple[str, ...]) -> dict[str, set[str]]:
    """Return the modules that each module of `folders` imports, by dotted name.

    `from rebal.planner import goals` is an arrow to `rebal.planner.goals`, not to the package.
    """
    named = {dotted(path): path for folder in folders for path in files(folder)}
    graph: dict[str, set[str]] = {}
    for name, path in named.items():
        found: set[str] = set()
        for _, module, members in imports(path):
            wanted = {f"{module}.{member}" for member in members} | {module}
            below = wanted & named.keys() - {module}
            found |= below
            if module in named and len(below) < max(1, len(members)):
                found.add(module)
        graph[name] = found - {name}
    return graph


def package_graph(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the packages that each package imports.

    A module beside packages stands for itself, and so does a package's `__init__`.
    """
    packages = {dotted(path): _package(path) for room in ROOMS for path in files(room)}
    found: dict[str, set[str]] = {name: set() for name in packages.values()}
    for name, others in graph.items():
        found[packages[name]] |= {packages[other] for other in others} - {packages[name]}
    return found


def _package(path: Path) -> str:
    beside = any(path.parent.glob("*/__init__.py"))
    own = dotted(path)
    return own if beside or path.stem == "__init__" else own.rpartition(".")[0] + ".*"


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return names of which each imports the next, and the last is the first; empty where none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def texts(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each literal that is not a docstring."""
    silent: set[ast.AST] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
            first = node.body[0]
            silent |= {first.value} if isinstance(first, ast.Expr) else set()
        if isinstance(node, ast.JoinedStr):
            silent |= set(node.values)
    for node in ast.walk(module):
        if isinstance(node, ast.expr) and node not in silent:
            text = _text(node)
            if text is not None:
                yield node.lineno, text


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or FILLED for part in node.values)
    return None


def rule_pages(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the docstring of each rule, which `rebal explain` prints."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(each, ast.Call) and getattr(each.func, "id", "") == "rule"
            for each in node.decorator_list
        ):
            yield node.lineno, ast.get_docstring(node) or ""
