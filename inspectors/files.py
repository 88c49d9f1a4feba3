"""Files that the operator names: `opened`, `read_text`, and `TextInput` for the lines of a log.

`opened` and `read_text` raise only OSError, whose `strerror` is a clause for a sentence;
`TextInput` raises DocumentError and also reads gz. Nothing waits long for a named pipe without a
writer. A file of a known other format is rejected at its first bytes.
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
    """Return `text` as a path with `~` expanded; unchanged if no home directory is known."""
    return Path(os.path.expanduser(text))


def opened(path: Path) -> IO[bytes]:
    """Open a file for reading; wait at most 3 s for the first data of a named pipe.

    Raises:
        OSError: the file cannot be opened, or nothing is written to the pipe in time.
    """
    try:
        return open(path, "rb", buffering=_BUFFER, opener=_handle)
    except ValueError:
        raise OSError(EINVAL, "no file can have this name") from None


def read_text(path: Path, most: int = MOST) -> str:
    """Return the text of the UTF-8 file `path`.

    Raises:
        OSError: the file cannot be read, is no UTF-8 text or has more than `most` bytes.
    """
    with opened(path) as file:
        return read_stream(file, most)


def read_stream(file: IO[bytes], most: int = MOST) -> str:
    """Return the UTF-8 text of an open file from its current position on.

    Raises:
        OSError: the file cannot be read, is no UTF-8 text or has more than `most` bytes.
    """
    data = bytearray()
    while part := file.read(_PART):
        data += part
        if what := format_problem(data, _NO_DOCUMENT):
            raise OSError(EILSEQ, what)
        if len(data) > most:
            raise OSError(EFBIG, f"is larger than {most >> 20} MiB, so it is no document")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OSError(EILSEQ, f"not UTF-8 text (byte {error.start})") from None


def format_problem(start: bytes | bytearray, forms: Mapping[bytes, str] = _OTHERS) -> str:
    """Return why rebal does not read a file that begins with the bytes `start`; empty if it does.

    `forms` maps the first bytes of each rejected format to a reason, such as `is UTF-16 text; save
    it as UTF-8`. By default UTF-16, bz2, xz and zst are rejected.
    """
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
    """One source of text: a file, standard input or an open stream; plain or gz.

    `name` is for messages. `lines()` or `read()` can be called once. If gz data ends too early, the
    lines that it still contains are read, and `cut_off` becomes True.
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
        """Yield the lines, each with its line end; a line longer than 16 MiB is split.

        Raises:
            DocumentError: the source is missing, unreadable, a directory, damaged gz, or no text.
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
        """Return all bytes of the source, unpacked if it is gz.

        Raises:
            DocumentError: the source is missing, unreadable, a directory or damaged gz, or has more
                than `limit` bytes.
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
        if what := format_problem(start):
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
    """Move `stream` to its first data, past a hole (bytes never written) at the file's start.

    A log begins with a hole if it was truncated while its program went on writing (logrotate's
    copytruncate).
    """
    try:
        stream.seek(os.lseek(stream.fileno(), 0, os.SEEK_DATA))
    except OSError as error:
        if error.errno == ENXIO:
            stream.seek(0, os.SEEK_END)


def files_in(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return `paths` with each directory replaced by the files below it, sorted, none hidden.

    A pattern that the shell did not expand, such as `pods/*.log`, is replaced by the matching
    paths.

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
    """Return the DocumentError for the file or directory `name`, with `error` as the reason."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or "unreadable"
    clause = _CLAUSES.get(type(error), f"cannot be read ({reason}); check the path")
    return DocumentError(f"{name}: {clause}.")
