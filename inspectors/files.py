"""Files that the operator names: `opened` opens each of them, `read_text` reads one as text.

All that can be wrong with a file is an OSError, whose `strerror` is a clause for a sentence.
Nothing waits for a pipe without a writer, and no file is read into memory that is no text.
"""

import os
from collections.abc import Mapping
from errno import EFBIG, EILSEQ, EINVAL, ETIMEDOUT
from pathlib import Path
from select import select
from stat import S_ISFIFO
from typing import IO, Final

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
        if what := _form(data, _NO_DOCUMENT):
            raise OSError(EILSEQ, what)
        if len(data) > most:
            raise OSError(EFBIG, f"is larger than {most >> 20} MiB, so it is no document")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OSError(EILSEQ, f"not UTF-8 text (byte {error.start})") from None


def unread_form(start: bytes) -> str:
    """Return what the first bytes of a log say against it; empty for text, and for gz."""
    return _form(start, _OTHERS)


def _form(start: bytes | bytearray, forms: Mapping[bytes, str]) -> str:
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
