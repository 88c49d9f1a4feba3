"""Imports of Spark's Python processes: rebal from a zip file, PySpark from where it is installed.

Executors that have no rebal get its packages as one zip file, made from the running rebal: an
editable install, a wheel and a checkout ship the same code. They need the third-party packages of
the extra `fleet` themselves.

Spark puts the packed copy of PySpark that it ships before all else on the path of its Python
processes, and Python compiles what it imports from there anew in each session: two thirds of a
second. On this machine the unpacked one is the same, and is compiled already. Arrow imports pandas
where it is installed, a third of a second, and no task has use for it. `python -m` this module is
PySpark's daemon without either.
"""

from __future__ import annotations

import sys
import zipfile
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOMS: Final = ("groups", "inspectors")
_LEFT_OUT: Final = frozenset({"__pycache__"})


def build_zip(folder: Path) -> Path:
    """`folder/rebal.zip` with the rooms that run on executors, package data included."""
    made = folder / "rebal.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        # Python finds a package without __init__.py in a zip by the folder's own entry only.
        archive.mkdir("rebal")
        for room in ROOMS:
            spec = find_spec(f"rebal.{room}")
            if spec is None or not spec.submodule_search_locations:
                raise ModuleNotFoundError(f"rebal.{room} is not installed as a folder of files")
            _add(archive, Path(spec.submodule_search_locations[0]), f"rebal/{room}")
    return made


def _add(archive: zipfile.ZipFile, source: Path, place: str) -> None:
    archive.mkdir(place)
    for path in sorted(source.iterdir()):
        if path.name in _LEFT_OUT or path.name.startswith("."):
            continue
        if path.is_dir():
            _add(archive, path, f"{place}/{path.name}")
        else:
            archive.write(path, f"{place}/{path.name}")


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("rebal's tasks do without pandas", name=fullname)


def run_daemon() -> None:
    """Run PySpark's daemon, which starts workers until Spark ends it."""
    sys.path[:] = [place for place in sys.path if not place.endswith("pyspark.zip")]
    sys.meta_path.insert(0, _WithoutPandas())
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    run_daemon()
