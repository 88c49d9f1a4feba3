"""The address of a lake: a folder or a URL of an object store, for delta-rs and for pyarrow.

Hadoop's schemes are accepted too: `s3a://` for `s3://`, and `abfss://` for `az://`. Credentials
come from the environment of the process that needs them, or from `--lake-option`, whose values
travel to Spark's executors.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from rebal.groups.errors import DocumentError
from rebal.inspectors.files import expanded

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_SAME: Final = {"s3a": "s3", "gcs": "gs", "abfs": "abfss", "az": "abfss"}
_LONGEST: Final = 300
_REQUEST: Final = "Error performing [A-Z]+ (?:http|REDACTED)"
_CHAIN: Final = re.compile(rf"↳|^Generic \w+ error: |: {_REQUEST}")
# Rust's backtrace, frame by frame.
_STACK: Final = re.compile(r"\n\s+0: ")
_ENDS: Final = re.compile(r"\n|: ")
_ANSWER: Final = re.compile(r"<\?xml|<Error|\{\"error")
_LEFT_OUT: Final = re.compile(rf"\s*at |{_REQUEST}|\d+, retry_timeout|\d+s +- ")
_JAVA: Final = re.compile(r"^(?:\w+\.)+\w+Exception:? ")
_HOST: Final = re.compile(r"(https?://)(?:[^/\s]*@)?([^/\s]+)")
# What stands before a host; a secret key may have a / in it.
_LOGIN: Final = re.compile(r"//(?:[^/]*|[^/@]*:(?!\d+/)[^/]*/.*)@")
_ENDPOINT: Final = re.compile(r"(?i)((aws|azure(_storage)?|google)_)?endpoint(_url(_\w+)?)?")
_URL: Final = re.compile(r"(?i)https?://([^/\s]*@)?(\[[\da-f:]+\]|[^/\s:@]+)(:\d+)?(/.*)?")
_ENVIRONMENT: Final = {"s3": "AWS_", "abfss": "AZURE_", "gs": "GOOGLE_"}
PROBE: Final = "_probe"
# It asks for others by the name that they have within a URL.
_HDFS_PATH: Final = re.compile(r"[\w./=+~@,-]*", re.ASCII)


class LakeError(DocumentError):
    """Error for a lake that cannot be read or written; one sentence says why and what to do."""


@dataclass(frozen=True)
class LakePlace:
    """A lake's address, and settings of its store by delta-rs's names, such as AWS_ENDPOINT_URL."""

    text: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.text

    @property
    def folder(self) -> Path | None:
        """The lake's folder, if it is on a mounted file system; None for a URL of a store."""
        if self._scheme != "file":
            return None
        is_url = SCHEME.match(self.text)
        return Path(urlsplit(self.text).path if is_url else os.path.abspath(expanded(self.text)))

    @property
    def url(self) -> str:
        """The lake's address in the form that delta-rs accepts."""
        in_store = f"{self._scheme}:{self.text.partition(':')[2]}".rstrip("/")
        return in_store if self.folder is None else str(self.folder)

    def table(self, name: str) -> str:
        """Return the address of the lake's table `name`."""
        return f"{self.url}/{name}"

    def files(self) -> FileSystem:
        """Return the file system in which paths are relative to the lake.

        Raises:
            LakeError: the place is a store, and its client is not configured.
        """
        from pyarrow import fs

        if self.folder is not None:
            return fs.SubTreeFileSystem(str(self.folder), fs.LocalFileSystem(use_mmap=True))
        from rebal.inspectors.fleet.lake.store import open_store

        with self.errors():
            return open_store(self.url, self.options)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors of the store, pyarrow or delta-rs into a `LakeError` of one sentence.

        Raises:
            LakeError: one of these errors was raised in the block.
        """
        from pyarrow import ArrowException

        try:
            yield
        except BaseException as error:
            # A folder needs no delta-rs, so its errors are told by where they come from.
            known = isinstance(error, (ArrowException, OSError, UnicodeDecodeError))
            if not known and type(error).__module__.split(".")[0] not in (
                "deltalake",
                "_internal",
                "pyo3_runtime",
            ):
                raise
            raise LakeError(f"{self}: {_reason(error)}.") from None

    def probe(self, name: str) -> None:
        """Write a small file of this name, and remove it.

        Raises:
            LakeError: the place cannot be written to.
        """
        files = self.files()
        with self.errors():
            files.create_dir(PROBE, recursive=True)
            with files.open_output_stream(f"{PROBE}/{name}") as out:
                out.write(b"rebal")
            files.delete_file(f"{PROBE}/{name}")

    @property
    def _scheme(self) -> str:
        found = SCHEME.match(self.text)
        scheme = found[1].lower() if found else "file"
        return _SAME.get(scheme, scheme)


def import_delta() -> None:
    """Import delta-rs with its log output off, unless RUST_LOG is set.

    delta-rs reads RUST_LOG once, at import. The process's environment is restored afterwards.
    """
    if "RUST_LOG" not in os.environ and "deltalake" not in sys.modules:
        os.environ["RUST_LOG"] = "off"
        with contextlib.suppress(ImportError):
            importlib.import_module("deltalake")
        del os.environ["RUST_LOG"]


def find_place(text: str, options: Mapping[str, str] | None = None) -> LakePlace:
    """Return the address of the lake that `--out LAKE` or `report LAKE` names; nothing is opened.

    Raises:
        LakeError: the text is empty, the URL's scheme is not supported, or the store's client would
            misread a part of the URL or of a setting.
    """
    import_delta()
    if not text:
        raise LakeError("no lake is named; name a folder or a URL.")
    made = LakePlace(text, dict(options or {}))
    if made.folder is not None:
        return made
    plain = re.split("[?#]", text, maxsplit=1)[0]
    if made._scheme != "abfss":
        plain = _LOGIN.sub("//", plain)
    if made._scheme not in ("file", "s3", "abfss", "gs", "hdfs"):
        raise LakeError(
            f"{plain}: no lake can be there; name a folder, or a URL that begins with s3://, "
            "abfss://, gs:// or hdfs://."
        )
    if plain != text:
        raise LakeError(
            f"{plain}: a lake's URL has no login, no ? and no #: name the cluster with --cluster, "
            "and the store's settings with --lake-option."
        )
    if made._scheme == "hdfs" and _HDFS_PATH.fullmatch(urlsplit(text).path) is None:
        raise LakeError(
            f"{text}: delta-rs finds no such path on HDFS: name one of the letters a to z, digits "
            "and - _ . = only."
        )
    own = _ENVIRONMENT.get(made._scheme, "/")
    for name, value in {
        **{name: value for name, value in os.environ.items() if name.startswith(own)},
        **made.options,
    }.items():
        # The store's client would panic at it; it may hold a secret.
        if _ENDPOINT.fullmatch(name) and not _URL.fullmatch(value):
            raise LakeError(f"{text}: {name} is no URL such as https://store:9000.")
    return made


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"the store says: {error.strerror}"
    if isinstance(error, UnicodeDecodeError):
        return "the name of a file there is not UTF-8; rename it"
    text = _STACK.split(re.sub(r"\x1b\[[0-9;]*m", "", str(error)), maxsplit=1)[0]
    said = _causes(text) if _CHAIN.search(text) else _pieces(text)
    reason = ": ".join(said or [type(error).__name__])
    return f"the store says: {reason if len(reason) <= _LONGEST else reason[:_LONGEST] + ' …'}"


def _causes(text: str) -> list[str]:
    """Return the causes in delta-rs's error text, without HTTP requests, Java stacks and XML."""
    said = [
        _JAVA.sub("", line)
        for line in _pieces(_ANSWER.split(text, maxsplit=1)[0])[1:]
        if not _LEFT_OUT.match(line)
    ]
    told = (r"<Code>(\w+)</Code>", r"<Message>([^<\n]+?)\.?[<\n]")
    said += [found[1] for found in (re.search(one, text) for one in told) if found]
    host = _HOST.search(text)
    return [*said[:-1], f"{said[-1]} ({host[1]}{host[2]})"] if said and host else said


def _pieces(text: str) -> list[str]:
    return [said for piece in _ENDS.split(text) if (said := piece.strip(" ↳").rstrip(".:"))]
