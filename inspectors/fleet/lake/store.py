"""The files of a lake in a store, by delta-rs's own client, for pyarrow.

So what reads and writes files is configured as what commits is, finds the same credentials, and
needs no library of the store's: HDFS takes no JVM.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSystem, PyFileSystem


def open_store(url: str, options: Mapping[str, str]) -> FileSystem:
    """Return the file system below a URL; `options` are delta-rs's."""
    return PyFileSystem(_Handler(url, dict(options)))


class _Handler(DeltaStorageHandler):
    def open_output_stream(
        self, path: str, metadata: dict[str, str] | None = None
    ) -> pa.PythonFile:
        """Open a file to be written; it is there from its closing on."""
        return pa.PythonFile(_Stream(self._handler.open_output_stream(path, metadata)), mode="w")

    def delete_dir(self, path: str) -> None:
        """Delete the files in a folder, and the folder: HDFS has it beside them."""
        super().delete_dir(path)
        with contextlib.suppress(FileNotFoundError):
            self.delete_file(path)


class _Stream:
    """delta-rs's streams take `bytes`, and pyarrow's writers hand over buffers."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def write(self, data: pa.Buffer) -> int:
        self._raw.write(bytes(data))
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)
