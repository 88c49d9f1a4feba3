"""The third-party packages that tasks import, as one archive for executors that have none.

Spark unpacks an archive of `spark.archives` in the folder in which an executor runs, and puts
`spark.executorEnv.PYTHONPATH` on the path of its Python. rebal's own code is sent by the scan
(`shipping`).
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import IO, Final

from rebal.groups.errors import RebalError

FOLDER: Final = "rebal_packages"
"""The name under which executors unpack the archive."""
_IMPORTED: Final = ("deltalake", "kafka-python", "msgspec", "numpy", "pandas", "pyarrow", "pyyaml")
_LEFT_OUT: Final = frozenset({"__pycache__", "tests", "include", ".."})
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_FAST: Final = 1


class PackError(RebalError):
    """An archive that cannot be made; one sentence that says why."""


def pack(out: IO[bytes]) -> None:
    """Write the packages of this Python to `out` as a .tar.gz.

    Executors need a Python of the same minor version, on the same kind of machine.

    Raises:
        PackError: a package is not installed.
    """
    wanted = _closure()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=_FAST) as archive:
        for package in wanted:
            for source, name in _files(package):
                archive.add(source, name, recursive=False)


def platform() -> str:
    """Return the Python and the kind of machine that the packages are for."""
    return f"Python {sys.version_info[0]}.{sys.version_info[1]} on {sysconfig.get_platform()}"


def spark_settings(archive: str) -> dict[str, str]:
    """Return the settings of Spark with which executors use the archive at this path or URL."""
    return {
        "spark.archives": f"{archive}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": FOLDER,
    }


def _closure() -> list[Distribution]:
    """The packages that tasks import, and those that these need and that are installed."""
    found: dict[str, Distribution] = {}
    left = list(_IMPORTED)
    while left:
        name = left.pop()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            if name in _IMPORTED:
                raise PackError(
                    f"{name} is not installed: pip install 'rebal[fleet]' first."
                ) from None
            continue
        for required in found[name].requires or ():
            needed = _NAME.match(required)
            if needed is not None and "extra ==" not in required:
                left.append(needed[0])
    return [found[name] for name in sorted(found)]


def _files(package: Distribution) -> Iterator[tuple[str, str]]:
    """The path of each file of a package that a task may need, and its name in the archive."""
    for file in package.files or ():
        if not _LEFT_OUT.intersection(file.parts):
            source = str(package.locate_file(file))
            if os.path.exists(source):
                yield source, file.as_posix()
