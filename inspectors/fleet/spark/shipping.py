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
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rebal.inspectors.fleet.spark.tasks import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOMS: Final = ("groups", "inspectors")


def ship(spark: SparkSession) -> None:
    """Let a session's tasks import rebal, wherever they run; a second time changes nothing."""
    if not is_local(spark):
        spark.addArtifacts(str(_zip()), pyfile=True)


@cache
def _zip() -> Path:
    """Return the zip file; it lasts as long as the process, for executors that start later."""
    folder = Path(tempfile.mkdtemp(prefix="rebal-shipped-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build_zip(folder)


def build_zip(folder: Path) -> Path:
    """Return `folder/rebal.zip` with the rooms that run on executors, package data included."""
    made = folder / "rebal.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        # Python finds a package without __init__.py in a zip by the folder's own entry only.
        archive.mkdir("rebal")
        for room in ROOMS:
            source = Path(import_module(f"rebal.{room}").__path__[0])
            for path in sorted([source, *source.rglob("*")]):
                place = Path("rebal", room, path.relative_to(source))
                if not any(part.startswith((".", "__pycache__")) for part in place.parts):
                    archive.write(path, place)
    return made
