"""Lines of a text source: a file, a stream or standard input, plain or gz."""

import glob
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from errno import ENXIO
from pathlib import Path
from typing import IO, Any, Final, Literal

from rebal.groups.errors import DocumentError
from rebal.inspectors.files import opened, unread_form

TextSource = Path | IO[bytes]

_STDIN: Final = "-"
LONGEST_LINE: Final = 16 * 1024 * 1024
_PART: Final = 1 << 20
_CLAUSES: Final[dict[type[Exception], str]] = {
    FileNotFoundError: "no such file; check the path",
    IsADirectoryError: "is a directory; name the files in it",
    PermissionError: "permission denied; run as a user who may read it",
}


class TextInput:
    """One source of text; `name` is for messages, `lines()` can be called once.

    A gz stream that ends too early yields the lines it still contains and sets `cut_off`.
    """

    def __init__(self, source: TextSource, name: str = "") -> None:
        self._source = source
        self.cut_off = False
        # The file's last change; None if the source is no file.
        self.written_at: datetime | None = None
        if isinstance(source, Path):
            self.name = "standard input" if str(source) == _STDIN else name or str(source)
        else:
            self.name = str(getattr(source, "name", "") or "stream")

    def lines(self) -> Iterator[bytes]:
        """Yield the lines with their line ends; one longer than `LONGEST_LINE` is split.

        Raises:
            DocumentError: the source is missing, unreadable, a directory, or damaged gz.
        """
        for line in self._parts("readline", LONGEST_LINE):
            # The hole ends within a block, which the file system fills up.
            text = line.translate(None, b"\0") if line.startswith(b"\0") else line
            if text:
                yield text
            elif len(line) == LONGEST_LINE:
                raise DocumentError(f"{self.name}: holds no text; check the path.")

    def _parts(self, method: Literal["read", "readline"], size: int) -> Iterator[bytes]:
        source = self._source
        try:
            if not isinstance(source, Path):
                yield from self._pieces(source, method, size)
            elif str(source) == _STDIN:
                yield from self._pieces(sys.stdin.buffer, method, size)
            else:
                with opened(source) as stream:
                    _skip_hole(stream)
                    yield from self._pieces(stream, method, size)
                    # A log may grow while it is read: its last line is no newer than this.
                    changed = os.fstat(stream.fileno()).st_mtime
                self.written_at = datetime.fromtimestamp(changed, UTC)
        except (gzip.BadGzipFile, zlib.error):
            raise DocumentError(
                f"{self.name}: damaged gz data; fetch the file again or unpack what is readable."
            ) from None
        except (OSError, ValueError) as error:
            raise cannot_read(self.name, error) from None

    def read(self, limit: int) -> bytes:
        """Return all bytes of the source, unpacked.

        Raises:
            DocumentError: as `lines`; or there are more than `limit` bytes.
        """
        data = bytearray()
        for part in self._parts("read", _PART):
            data += part
            if len(data) > limit:
                raise DocumentError(
                    f"{self.name}: larger than {limit // (1024 * 1024)} MiB, "
                    "which is no configuration file; name the files to read."
                )
        return bytes(data)

    def _pieces(self, stream: IO[bytes], method: str, size: int) -> Iterator[bytes]:
        # In memory there is no `peek`.
        joined: Any = stream if hasattr(stream, "peek") else io.BufferedReader(stream)
        start = joined.peek(8)
        if what := unread_form(start):
            raise DocumentError(f"{self.name}: {what}.")
        if start.startswith(b"\x1f\x8b"):
            joined = gzip.GzipFile(fileobj=joined)
        take = getattr(joined, method)
        try:
            while piece := take(size):
                yield piece
        except EOFError:
            self.cut_off = True


def _skip_hole(stream: IO[bytes]) -> None:
    """Skip the hole with which a log begins that was truncated while written (copytruncate)."""
    try:
        stream.seek(os.lseek(stream.fileno(), 0, os.SEEK_DATA))
    except OSError as error:
        if error.errno == ENXIO:
            stream.seek(0, os.SEEK_END)


def files_in(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return `paths` with each directory replaced by its files, sorted, without hidden ones.

    A pattern such as `pods/*.log`, which the shell did not expand, is replaced by what it matches.

    Raises:
        DocumentError: a path is missing, a pattern matches nothing, or a directory cannot be listed
            or contains no file.
    """
    found: list[Path] = []
    for path in _expanded(paths):
        if str(path) == _STDIN or not os.path.isdir(path):
            found.append(path)
            continue
        try:
            inside = sorted(
                p
                for p in path.rglob("*")
                if p.is_file() and not any(s.startswith(".") for s in p.relative_to(path).parts)
            )
        except OSError as error:
            raise cannot_read(str(path), error) from None
        if not inside:
            raise DocumentError(f"{path}: the directory holds no file; name one that does.")
        found += inside
    return tuple(found)


def _expanded(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if not glob.has_magic(str(path)) or path.exists():
            yield path
            continue
        matches = sorted(glob.glob(str(path), recursive=True))
        if not matches:
            raise DocumentError(f"{path}: no file matches this pattern; check the path.")
        yield from map(Path, matches)


def cannot_read(name: str, error: Exception) -> DocumentError:
    """Return the error for a path that cannot be read."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or "unreadable"
    clause = _CLAUSES.get(type(error), f"cannot be read ({reason}); check the path")
    return DocumentError(f"{name}: {clause}.")
