"""rebal's own code as one zip file, for executors that have no rebal.

It is made from the running rebal: an editable install, a wheel and a checkout ship the same code.
Executors need the third-party packages of the extra `fleet` themselves.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rebal.inspectors.fleet.spark.tasks import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOMS: Final = ("groups", "inspectors")
_LEFT_OUT: Final = frozenset({"__pycache__"})


def ship(spark: SparkSession) -> None:
    """Let a session's tasks import rebal, wherever they run; a second time changes nothing."""
    if not is_local(spark):
        spark.addArtifacts(str(_zip()), pyfile=True)


@cache
def _zip() -> Path:
    """Return the zip file; it lasts as long as the process, for executors that start later."""
    folder = tempfile.mkdtemp(prefix="rebal-shipped-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build_zip(Path(folder))


def build_zip(folder: Path) -> Path:
    """Return `folder/rebal.zip` with the rooms that run on executors, package data included."""
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
