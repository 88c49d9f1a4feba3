"""What each import inside a function saves a start of rebal that does not come to it.

Such an import hides what a module needs, so each must pay: with the module around it loaded, what
it names must take at least `LEAST` of the time of `import typer`. What takes less, or is loaded by
then, belongs at the top of the file.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from subprocess import run

ROOT = Path(__file__).parents[1]
ROOMS = ("cli", "planner", "inspectors", "groups")
LEAST = 0.05
RUNS = 3
# The process itself: it must hold its handler of Ctrl-C before anything else is imported.
FIRST = ("rebal.cli.entry", "rebal.cli.app")


@dataclass(frozen=True)
class LazyRow:
    """One import inside a function; times in seconds."""

    module: str
    name: str
    takes: float
    typer: float

    @property
    def holds(self) -> bool:
        return self.takes >= LEAST * self.typer

    def text(self) -> str:
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        return (
            f"{self.module} imports {self.name} when needed: saves {self.takes:.3f} s, "
            f"{self.takes / self.typer:.2f} of import typer, at least {LEAST}: {verdict}"
        )


def rows() -> Iterator[LazyRow]:
    typer = _takes("sys", "typer")
    for module, name in sorted(_inside()):
        if (module, name) != FIRST:
            yield LazyRow(module, name, _takes(f"rebal.cli.app, {module}", name), typer)


def _inside() -> Iterator[tuple[str, str]]:
    """Yield each module, and the name of what it imports inside a function."""
    seen = set()
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        module = ".".join(("rebal", *path.relative_to(ROOT).with_suffix("").parts))
        tree = ast.parse(path.read_text())
        for function in ast.walk(tree):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for node in ast.walk(function):
                    seen |= {(module, name) for name in _names(node)}
    yield from seen


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module == "rebal.cli":
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [str(node.module)] if isinstance(node, ast.ImportFrom) else []


def _takes(before: str, name: str) -> float:
    """Return how long a fresh process takes to import `name`, after the modules `before`."""
    code = (
        f"import {before}\nfrom time import perf_counter\nbegin = perf_counter()\n"
        f"import {name}\nprint(perf_counter() - begin)"
    )
    words = [sys.executable, "-c", code]
    return median(
        float(run(words, capture_output=True, text=True, check=True).stdout) for _ in range(RUNS)
    )
