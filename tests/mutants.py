"""Mutants of the code that decides about restarts: `python -m tests.mutants --sample 120`.

mutmut changes one operator, constant or argument of a function and runs the pure planner tests and
the found histories that call this function, the fastest first; a mutant that no test fails on
survives. mutmut needs the layout `src/<package>`, so the rooms are copied to
build/mutants/src/rebal. It leaves out decorated functions (the properties). `[tool.mutmut]` in
pyproject.toml names the packages.
"""

import argparse
import json
import os
import random
import re
import shutil
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_STAGE = _ROOT / "build/mutants"
_ROOMS = ("cli", "groups", "inspectors", "planner")
_IMPORTS = re.compile(r"rebal\.planner\.(admission|advice|verification)|tests\.planner\.looks")
_SENTENCE = re.compile(r'"[^"]* [^"]*"')
# mutmut's exit codes of a mutant whose tests passed, and of one that no test calls.
_SURVIVED = (0, 33)


def main() -> int:
    """Return 0 where at least 90 % of the drawn mutants are killed, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=120, help="mutants to draw (120)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("names", nargs="*", help="these mutants, in place of a sample")
    given = parser.parse_args()
    _stage()
    # They read their configuration in the folder that is current when they are imported.
    from mutmut.__main__ import _run, copy_also_copy_files, copy_src_dir, create_mutants
    from mutmut.configuration import config
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    config().pytest_add_cli_args_test_selection = _tests()
    copy_src_dir()
    copy_also_copy_files()
    create_mutants(1)
    every = sorted(_results())
    random.Random(given.seed).shuffle(every)
    drawn = (name for name in every if not _is_sentence(get_diff_for_mutant(name)))
    names = given.names or list(islice(drawn, given.sample))
    print(f"{len(names)} of {len(every)} mutants, seed {given.seed}", flush=True)
    began = time.monotonic()
    _run(names, 1)
    seconds = time.monotonic() - began
    codes = _results()
    survived = [name for name in names if codes[name] in _SURVIVED]
    for name in survived:
        print(f"# {name}\n{get_diff_for_mutant(name)}\n")
    killed = len(names) - len(survived)
    print(f"{killed} of {len(names)} mutants killed, seed {given.seed}")
    print(f"{seconds:.0f} s, {seconds / len(names):.1f} s a mutant")
    return int(killed * 100 < len(names) * 90)


def _stage() -> None:
    """Copy the rooms and the tests, and work in the copy."""
    shutil.rmtree(_STAGE, ignore_errors=True)
    shutil.copytree(_ROOT / "tests", _STAGE / "tests")
    for room in _ROOMS:
        shutil.copytree(_ROOT / room, _STAGE / "src/rebal" / room)
    for name in ("cli", "pyproject.toml"):
        (_STAGE / name).symlink_to(_ROOT / name)
    (_STAGE / "mutants").mkdir()
    os.chdir(_STAGE)
    os.environ.update(HYPOTHESIS_PROFILE="mutants", REBAL_LIVE="0")


def _tests() -> list[str]:
    """Return the pure test files that import a mutated package, themselves or by `looks`, and the
    histories that the search has found."""
    files = sorted(Path("tests/planner").glob("test_*.py"))
    named = [str(file) for file in files if _IMPORTS.search(file.read_text())]
    return [*named, "tests/search/test_found.py"]


def _results() -> dict[str, int | None]:
    """Return mutant → exit code of its tests; None where they have not run."""
    found: dict[str, int | None] = {}
    for meta in Path("mutants").rglob("*.meta"):
        found |= json.loads(meta.read_text())["exit_code_by_key"]
    return found


def _is_sentence(diff: str) -> bool:
    """Return whether the mutant changes only the words of a sentence: kept screens hold those."""

    def side(sign: str) -> Iterator[str]:
        lines = (line for line in diff.splitlines()[2:] if line.startswith(sign))
        return (_SENTENCE.sub("", line[1:]) for line in lines)

    return list(side("-")) == list(side("+"))


if __name__ == "__main__":
    sys.exit(main())
