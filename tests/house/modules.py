"""The modules of the rooms, by file and by dotted name, and the imports between them."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("cli", "planner", "inspectors", "groups")


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

    A module at the top of a room stands for itself, and so does a package's `__init__`.
    """
    packages = {dotted(path): _package(path) for room in ROOMS for path in files(room)}
    found: dict[str, set[str]] = {name: set() for name in packages.values()}
    for name, others in graph.items():
        found[packages[name]] |= {packages[other] for other in others} - {packages[name]}
    return found


def _package(path: Path) -> str:
    own = dotted(path)
    top = len(path.relative_to(ROOT).parts) == 2
    return own if top or path.stem == "__init__" else own.rpartition(".")[0] + ".*"


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules of which each imports, directly or not, every other one."""
    reached = {name: _reached(graph, name) for name in graph}
    found: list[set[str]] = []
    for name in sorted(graph):
        if name in reached[name] and not any(name in circle for circle in found):
            found.append({other for other in reached[name] if name in reached[other]})
    return found


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph[waiting.pop()] - reached:
            reached.add(name)
            waiting.append(name)
    return reached
