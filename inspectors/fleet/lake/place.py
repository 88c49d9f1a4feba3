"""The place of a lake: a folder or a URL of an object store, for delta-rs and for pyarrow alike.

`s3a://` and `abfss://` are Hadoop's names for what everybody else calls `s3://` and `az://`; both
are taken. Credentials come from the environment of the process that needs them, or from
`--lake-option`, whose values travel to Spark's executors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from rebal.groups.errors import DocumentError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_SAME: Final = {"s3a": "s3", "gcs": "gs", "abfs": "abfss", "az": "abfss"}
_DELTA: Final = ("deltalake", "_internal")
_STORES: Final = ("file", "s3", "abfss", "gs", "hdfs")
_LONGEST: Final = 300
PROBE: Final = "_probe"


# delta-rs prints what goes wrong on its way; the error that it raises says it too.
os.environ.setdefault("RUST_LOG", "off")


class LakeError(DocumentError):
    """The lake cannot be read or written; one sentence that says why and what to do."""


@dataclass(frozen=True)
class Place:
    """A lake's address; `options` are delta-rs's own names, such as AWS_ENDPOINT_URL."""

    text: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.text

    @property
    def folder(self) -> Path | None:
        """The folder of a lake on a file system that this machine has mounted."""
        return None if self._scheme != "file" else Path(self._path)

    @property
    def url(self) -> str:
        """The address as delta-rs takes it."""
        if self.folder is not None:
            return str(self.folder)
        return f"{self._scheme}:{self.text.split(':', 1)[1]}".rstrip("/")

    def table(self, name: str) -> str:
        """The address of one of its tables."""
        return f"{self.url}/{name}"

    def files(self) -> FileSystem:
        """Return the file system in which paths are relative to the lake."""
        from pyarrow import fs

        with self.errors():
            return fs.SubTreeFileSystem(self._path, self._store(fs))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Say in one sentence what went wrong in a store or in delta-rs.

        Raises:
            LakeError: instead of their own errors.
        """
        from pyarrow import ArrowException

        try:
            yield
        except Exception as error:
            # Executors need no delta-rs, so its errors are told by where they come from.
            known = isinstance(error, (ArrowException, OSError))
            if not known and type(error).__module__.split(".")[0] not in _DELTA:
                raise
            raise LakeError(f"{self}: {_reason(error)}.") from None

    def probe(self, name: str) -> None:
        """Write a small file of this name, read it back and remove it.

        Raises:
            LakeError: the place cannot be written to.
        """
        if self.folder is not None:
            _require_folder(self.folder, self)
        files = self.files()
        path, said = f"{PROBE}/{name}", os.urandom(16)
        with self.errors():
            files.create_dir(PROBE, recursive=True)
            with files.open_output_stream(path) as out:
                out.write(said)
            with files.open_input_stream(path) as back:
                same = back.read() == said
            files.delete_file(path)
        if not same:
            raise LakeError(f"{self}: what was written there does not read back the same.")

    @property
    def _scheme(self) -> str:
        found = _SCHEME.match(self.text)
        scheme = found[1].lower() if found else "file"
        return _SAME.get(scheme, scheme)

    @property
    def _path(self) -> str:
        """The path below the store's root: for an object store with the bucket in front."""
        if _SCHEME.match(self.text) is None:
            return os.path.abspath(Path(self.text).expanduser())
        parts = urlsplit(self.text)
        if self._scheme in ("file", "hdfs"):
            return parts.path
        container = parts.netloc.rsplit("@", 1)[0] if "@" in parts.netloc else parts.netloc
        return f"{container}{parts.path}".rstrip("/")

    def _option(self, name: str) -> str | None:
        return self.options.get(name) or os.environ.get(name)

    def _store(self, fs: Any) -> FileSystem:
        made: FileSystem
        if self._scheme == "s3":
            made = self._s3(fs)
        elif self._scheme == "gs":
            made = fs.GcsFileSystem()
        elif self._scheme == "abfss":
            host = urlsplit(self.text).netloc.rsplit("@", 1)[-1]
            account = self._option("AZURE_STORAGE_ACCOUNT_NAME") or host.split(".")[0]
            made = fs.AzureFileSystem(account, self._option("AZURE_STORAGE_ACCOUNT_KEY"))
        elif self._scheme == "hdfs":
            parts = urlsplit(self.text)
            made = fs.HadoopFileSystem(parts.hostname or "default", parts.port or 0)
        else:
            made = fs.LocalFileSystem(use_mmap=True)
        return made

    def _s3(self, fs: Any) -> FileSystem:
        endpoint = self._option("AWS_ENDPOINT_URL") or self._option("AWS_ENDPOINT_URL_S3")
        given: dict[str, Any] = {"region": self._option("AWS_REGION") or "us-east-1"}
        key = self._option("AWS_ACCESS_KEY_ID")
        if key is not None:
            given |= {
                "access_key": key,
                "secret_key": self._option("AWS_SECRET_ACCESS_KEY"),
                "session_token": self._option("AWS_SESSION_TOKEN"),
            }
        if endpoint is not None:
            given |= {"endpoint_override": endpoint, "scheme": urlsplit(endpoint).scheme}
        made: FileSystem = fs.S3FileSystem(**given)
        return made


def find_place(text: str, options: Mapping[str, str] | None = None) -> Place:
    """Return the lake that `--out LAKE` or `report LAKE` names; nothing is looked up there.

    Raises:
        LakeError: the text is a URL of a kind that no lake can be in.
    """
    made = Place(text, dict(options or {}))
    if made._scheme not in _STORES:
        raise LakeError(
            f"{text}: no lake can be there; name a folder, or a URL that begins with s3://, "
            "abfss://, gs:// or hdfs://."
        )
    return made


def _require_folder(folder: Path, place: Place) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise LakeError(f"{place}: is a file; name a folder with --out.") from None
    except OSError as error:
        raise LakeError(f"{place}: cannot be written to ({error.strerror}).") from None


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"the store says: {error.strerror}"
    lines = [line.strip(" ↳") for line in _COLOURS.sub("", str(error)).splitlines()]
    said = ": ".join(line.rstrip(".:") for line in lines if line) or type(error).__name__
    return f"the store says: {said if len(said) <= _LONGEST else said[:_LONGEST] + ' …'}"
