"""The files of a lake in an object store, for pyarrow, through delta-rs's own client.

So reading and writing files uses the same settings and credentials as the Delta commits. It needs
no other library for the store, and no JVM for HDFS.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSystem, PyFileSystem


def open_store(url: str, options: Mapping[str, str]) -> FileSystem:
    """Return the file system of a store, with paths relative to `url`.

    `options` are the store's settings by delta-rs's names.
    """
    return PyFileSystem(_Handler(url, dict(options)))


class _Handler(DeltaStorageHandler):
    def open_output_stream(
        self, path: str, metadata: dict[str, str] | None = None
    ) -> pa.PythonFile:
        """Open a file for writing; it exists once it is closed."""
        return pa.PythonFile(_Stream(self._handler.open_output_stream(path, metadata)), mode="w")

    def delete_dir(self, path: str) -> None:
        """Delete the files in a folder and, on HDFS, the folder itself."""
        super().delete_dir(path)
        with contextlib.suppress(FileNotFoundError):
            self.delete_file(path)


class _Stream:
    """Output stream that passes on the buffers of pyarrow's writers to delta-rs as `bytes`."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def write(self, data: pa.Buffer) -> int:
        self._raw.write(bytes(data))
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)
