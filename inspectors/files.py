"""Files that the operator names: `opened` opens each of them, `read_text` reads one as text, and
`TextInput` the lines of a log, plain or gz.

All that can be wrong with a file is an OSError, whose `strerror` is a clause for a sentence.
Nothing waits for a pipe without a writer, and no file is read into memory that is no text.
"""

import glob
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from errno import EFBIG, EILSEQ, EINVAL, ENXIO, ETIMEDOUT
from pathlib import Path
from select import select
from stat import S_ISFIFO
from typing import IO, Any, Final, Literal

from rebal.groups.errors import DocumentError

# The most bytes of a text; a snapshot of a hundred thousand members has fewer.
MOST: Final = 1 << 27
_PATIENCE: float = 3.0
_PART: Final = 1 << 20
_BUFFER: Final = 1 << 18
# Windows has neither the flag nor named pipes among its files.
AT_ONCE: Final = getattr(os, "O_NONBLOCK", 0)
_OTHERS: Final = {
    b"\xff\xfe": "is UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "is UTF-16 text; save it as UTF-8",
    b"BZh": "is compressed (bz2); unpack it, or compress it as gz",
    b"\xfd7zXZ": "is compressed (xz); unpack it, or compress it as gz",
    b"(\xb5/\xfd": "is compressed (zst); unpack it, or compress it as gz",
}
_NO_DOCUMENT: Final = {
    **_OTHERS,
    b"\x1f\x8b": "is compressed; unpack it first (gunzip)",
    b"\0": "is no text",
}


def expanded(text: str) -> Path:
    """Return the path with `~` expanded, or as it is where no home is known."""
    return Path(os.path.expanduser(text))


def opened(path: Path) -> IO[bytes]:
    """Open a file to read; a named pipe has some seconds for its first data.

    Raises:
        OSError: it cannot be opened, or nobody writes to the pipe.
    """
    try:
        return open(path, "rb", buffering=_BUFFER, opener=_handle)
    except ValueError:
        raise OSError(EINVAL, "no file can have this name") from None


def read_text(path: Path, most: int = MOST) -> str:
    """Return the text of `path`.

    Raises:
        OSError: it cannot be read, is no UTF-8 text or has more than `most` bytes.
    """
    with opened(path) as file:
        return text_of(file, most)


def text_of(file: IO[bytes], most: int = MOST) -> str:
    """Return the text of an open file, from its current place on; errors as in `read_text`."""
    data = bytearray()
    while part := file.read(_PART):
        data += part
        if what := unread_form(data, _NO_DOCUMENT):
            raise OSError(EILSEQ, what)
        if len(data) > most:
            raise OSError(EFBIG, f"is larger than {most >> 20} MiB, so it is no document")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OSError(EILSEQ, f"not UTF-8 text (byte {error.start})") from None


def unread_form(start: bytes | bytearray, forms: Mapping[bytes, str] = _OTHERS) -> str:
    """Return what the first bytes of a log say against it; empty for text, and for gz."""
    return next((what for magic, what in forms.items() if start.startswith(magic)), "")


def _handle(path: str, flags: int) -> int:
    handle = os.open(path, flags | AT_ONCE)
    try:
        # The shell's own pipes, `<(command)`, have their writer from the start.
        if (
            S_ISFIFO(os.fstat(handle).st_mode)
            and "/fd/" not in path
            and not select([handle], [], [], _PATIENCE)[0]
        ):
            raise OSError(ETIMEDOUT, f"nothing was written to this pipe within {_PATIENCE:g} s")
        os.set_blocking(handle, True)
    except BaseException:
        os.close(handle)
        raise
    return handle


TextSource = Path | IO[bytes]

_STDIN: Final = "-"
LONGEST_LINE: Final = 16 * 1024 * 1024
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
