"""File access: rebal writes files only here (except scan tables), and reads snapshot files here."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Final

from rebal.cli.errors import FileError, UsageError
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import dump_snapshot, file_stem, format_of, load_snapshot
from rebal.inspectors import files as text_files

ENDING: Final = ".rebal.yaml"


def write_text(path: Path, text: str) -> None:
    """Write `text` (UTF-8) to `path` atomically; an existing file is replaced.

    If `path` is a device or a pipe (`/dev/stdout`, `>(command)`), the text is written to it
    instead.

    Raises:
        FileError: the file cannot be written; an existing file stays as it was.
    """
    target = Path(os.path.realpath(path))
    temporary: str | None = None
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            # A pipe that nobody reads is an error at once.
            handle = os.open(path, os.O_WRONLY | text_files.AT_ONCE)
            os.set_blocking(handle, True)
            with os.fdopen(handle, "wb") as out:
                out.write(text.encode())
            return
        handle, temporary = tempfile.mkstemp(prefix=".rebal-", suffix=".tmp", dir=target.parent)
        with os.fdopen(handle, "wb") as out:
            out.write(text.encode())
            out.flush()
            os.fsync(out.fileno())
            os.fchmod(out.fileno(), _mode(target))
        os.replace(temporary, target)
        temporary = None
        _sync_folder(target.parent)
    except OSError as error:
        raise FileError(f"cannot write {path}: {_why(error)}.") from None
    finally:
        if temporary is not None:
            os.unlink(temporary)


def next_name(path: Path, more: str) -> Path:
    """Return the first free path of `name.1.ending`, `name.2.ending`, … beside `path`.

    It is free if neither that file exists nor the one with `more` added to its name.
    """
    names = (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in count(1))
    return next(one for one in names if not (one.exists() or Path(f"{one}{more}").exists()))


def move(path: Path, target: Path) -> None:
    """Rename a file in its folder; an existing `target` is not replaced.

    Raises:
        FileError: it cannot be renamed, or `target` exists.
    """
    try:
        os.link(path, target)
        os.unlink(path)
        _sync_folder(target.parent)
    except OSError as error:
        raise FileError(f"cannot rename {path} to {target}: {_why(error)}.") from None


@contextmanager
def locked(path: Path, *, appending: bool) -> Iterator[IO[bytes]]:
    """Open a file that several commands append to, and lock it until it is closed.

    With `appending` the lock is exclusive, a missing file is created, and every write goes to its
    end. Otherwise the file is opened for reading, and the lock is shared with other readers.

    Raises:
        FileError: the file cannot be opened, read or written.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT if appending else os.O_RDONLY
    try:
        handle = os.open(path, flags | text_files.AT_ONCE, 0o666)
        # Not buffered: a buffer would hand a long line to the system in pieces.
        with os.fdopen(handle, "rb+" if appending else "rb", buffering=0) as file:
            # Without locks, single appends are still whole.
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX if appending else fcntl.LOCK_SH)
            yield file
    except OSError as error:
        raise FileError(
            f"cannot {'write' if appending else 'read'} {path}: {_why(error)}."
        ) from None


def append_line(file: IO[bytes], line: str) -> None:
    """Append `line` (without its newline) to a locked file and sync it to the disk.

    If a crash or a full disk left the last line incomplete, that line is ended first, so that the
    new one stays readable.
    """
    torn = False
    if file.seek(0, os.SEEK_END):
        file.seek(-1, os.SEEK_END)
        torn = file.read(1) != b"\n"
    left = memoryview((b"\n" if torn else b"") + f"{line}\n".encode())
    while left:
        left = left[file.write(left) :]
    os.fsync(file.fileno())


def read_text(path: Path) -> str:
    """Return the text of `path`.

    Raises:
        FileError: the file is missing, a folder, not readable, endless or not UTF-8 text.
    """
    try:
        return text_files.read_text(path)
    except FileNotFoundError:
        raise FileError(f"{path}: there is no such file.") from None
    except IsADirectoryError:
        raise FileError(f"{path}: is a folder; name a file in it.") from None
    except OSError as error:
        raise FileError(f"cannot read {path}: {_why(error)}.") from None


def read_snapshot(path: Path) -> GroupSnapshot:
    """Return the snapshot in a `.yaml`, `.yml` or `.json` file.

    Raises:
        FileError: the file cannot be read.
        DocumentError: the file is not a snapshot; the message names the field and the line.
    """
    return load_snapshot(read_text(path), format_of(str(path)), str(path))


def save_snapshot(snapshot: GroupSnapshot, path: Path) -> Path:
    """Write `snapshot` to the file `path`, or into the folder `path`; return the file's path.

    The file's ending decides the format.
    """
    made = path / f"{file_stem(snapshot.group.group_id)}{ENDING}" if path.is_dir() else path
    write_text(made, dump_snapshot(snapshot, format_of(str(made))))
    return made


def the_one_snapshot(folder: Path) -> Path:
    """Return the only `*.rebal.yaml` file in `folder`.

    Raises:
        UsageError: there is none, or more than one; the message says what to type.
    """
    found = sorted(path for path in folder.glob("*" + ENDING) if path.is_file())
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            "no group is named: give GROUP (live) or --snapshot FILE, or save a snapshot here with "
            "rebal inspect GROUP --save."
        )
    names = ", ".join(path.name for path in found[:5]) + (", …" if len(found) > 5 else "")
    raise UsageError(
        f"no group is named, and this folder has {len(found)} ({names}): give --snapshot FILE."
    )


def _mode(target: Path) -> int:
    """Return the permissions of `target`; if it does not exist, those of a new file."""
    try:
        return target.stat().st_mode & 0o777
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


def _sync_folder(folder: Path) -> None:
    """Sync the folder to the disk, so that a rename in it survives a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _why(error: OSError) -> str:
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]
