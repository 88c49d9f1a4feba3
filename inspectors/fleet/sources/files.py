"""Files that a scan reads: on a file system of this machine, or in a store that delta-rs reaches.

The driver and the executors open them alike. A store's credentials come from the environment of
the process that needs them, as a lake's do.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from rebal.groups.errors import DocumentError
from rebal.inspectors.files import opened
from rebal.inspectors.fleet.lake.place import Place, find_place
from rebal.inspectors.logs.text_input import cannot_read, files_in

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def is_remote(path: str) -> bool:
    """Return whether a path is a URL (`s3://…`, `hdfs://…`)."""
    return _SCHEME.match(path) is not None


def absolute(path: str) -> str:
    """Return a path as processes with another working directory find it."""
    return path if is_remote(path) else os.path.abspath(path)


def is_folder(path: str) -> bool:
    """Return whether files are below a path."""
    return list_files(path) != [path] if is_remote(path) else os.path.isdir(path)


def list_files(path: str) -> list[str]:
    """Return the files of a path, a folder or a pattern, sorted, without hidden ones.

    Raises:
        DocumentError: the path is missing or cannot be listed, or has no file.
    """
    if not is_remote(path):
        return [str(file) for file in files_in([Path(path)])]
    from pyarrow.fs import FileSelector

    place, name = _place_of(path)
    with place.errors():
        files = place.files()
        if files.get_file_info(name).is_file:
            return [path]
        found = files.get_file_info(FileSelector(name, recursive=True))
        below = [one.path for one in found if one.is_file and "/." not in f"/{one.path}"]
    if not below:
        raise DocumentError(f"{path}: no file is there; check the URL.")
    return [f"{place}/{each}" for each in sorted(below)]


@contextmanager
def opened_file(path: str) -> Iterator[IO[bytes]]:
    """Open a file to read.

    Raises:
        DocumentError: it cannot be opened or read.
    """
    try:
        if not is_remote(path):
            with opened(Path(path)) as stream:
                yield stream
            return
        place, name = _place_of(path)
        with place.errors(), place.files().open_input_file(name) as file:
            yield io.BufferedReader(file)
    except OSError as error:
        raise cannot_read(path, error) from None


def _place_of(url: str) -> tuple[Place, str]:
    """Return the folder that a URL's last part is in, and that part."""
    folder, _, name = url.rpartition("/")
    return find_place(folder), name
