"""The rows that all sources of records give, and files split into parts for tasks; without Spark.

A file is on this machine or in an object store. The driver and the executors open it in the same
way; a store's file by delta-rs. Credentials come from the environment of the process, as for a
lake. A plain file is split, and a line belongs to the part in which it begins. A gzip file (known
by its first bytes) is one part.
"""

import contextlib
import gzip
import hashlib
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import pyarrow as pa

from rebal.groups.errors import DocumentError
from rebal.inspectors.files import LONGEST_LINE, cannot_read, files_in, format_problem, opened
from rebal.inspectors.fleet.lake.place import SCHEME, LakePlace, find_place
from rebal.inspectors.fleet.manifest import ReadLog
from rebal.inspectors.fleet.schemas import RECORDS
from rebal.inspectors.fleet.spark.tasks import shares_of
from rebal.inspectors.kafka.brokers import ClusterReading

TOPIC: Final = "__consumer_offsets"
SOURCE: Final = RECORDS.append(pa.field("problem", pa.string()))
"""The columns of `schemas.RECORDS`, and `problem`: null for a record. Otherwise it is the reason
why the row is unreadable, or `SKIPPED` and the kind of a row that is no record."""
SourceRow = tuple[bytes | None, bytes | None, int | None, int | None, int | None, str, str | None]
"""A row of `SOURCE`; its timestamp is microseconds since 1970."""
SKIPPED: Final = "skipped: "
UNREADABLE: Final = "UNREADABLE"
"""The kind under which unreadable records are counted."""
_ROWS: Final = 4000
# Rows and bytes of a batch, about, whichever is less.
_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class RecordSource:
    """The records that a scan reads; `names` are the names of their files or brokers.

    `share` returns one share for each task. Its arguments are the number of cores, and the last
    offset of each partition that earlier scans have read; it may leave out records up to there.
    `read` yields batches of `SOURCE` of one share, in a task. `cluster` is the cluster id, if the
    source has it. `notes` are sentences for the operator. `brokers` is what was read of a live
    cluster's brokers and topics.
    """

    names: tuple[str, ...]
    share: Callable[[int, Mapping[int, int]], Sequence[Any]]
    read: Callable[[Any], Iterator[pa.RecordBatch]]
    cluster: str | None = None
    notes: tuple[str, ...] = ()
    brokers: ClusterReading | None = None


def batches_of(rows: Iterable[SourceRow]) -> Iterator[pa.RecordBatch]:
    """Yield these rows as batches of `SOURCE`."""
    held: list[SourceRow] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row[1] or b"")
        if len(held) >= _ROWS or size >= _BYTES:
            yield _batch_of(held)
            held, size = [], 0
    yield _batch_of(held)


def _batch_of(rows: Sequence[SourceRow]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(SOURCE)
    arrays = [pa.array(column, one.type) for one, column in zip(SOURCE, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SOURCE)


def error_row(
    row: Mapping[str, Any], what: str, group_id: str | None, error: str
) -> dict[str, Any]:
    """Return the row of `errors` for a source's row that is broken.

    `what` names the kind of record, and `error` says what is wrong.
    """
    return {
        "source": row["source"],
        "partition": row["partition"],
        "offset": row["offset"],
        "at": row["timestamp"],
        "group_id": group_id,
        "what": what,
        "error": error,
        "key": row["key"],
        "value": row["value"],
    }


def is_remote(path: str) -> bool:
    """Return whether a path is a URL (`s3://…`, `hdfs://…`)."""
    return SCHEME.match(path) is not None


def list_files(path: str) -> list[str]:
    """Return the files at a path (a file, folder or pattern), sorted, without hidden ones.

    Raises:
        DocumentError: the path is missing, has no file, or cannot be listed.
    """
    if not is_remote(path):
        return [str(file) for file in files_in([Path(path)])]
    from pyarrow.fs import FileSelector

    place, name = _place_of(path)
    with place.errors():
        files = place.files()
        if files.get_file_info(name).is_file:
            return [path]
        below = [
            one.path
            for one in files.get_file_info(FileSelector(name, recursive=True))
            if one.is_file and "/." not in f"/{one.path}"
        ]
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


def _place_of(url: str) -> tuple[LakePlace, str]:
    folder, _, name = url.rpartition("/")
    return find_place(folder), name


# Bytes of plain files for one task: each task costs a tenth of a second.
_LEAST, _MOST = 2 << 20, 128 << 20
# Bytes by which a log is known again: a dozen lines, with their times.
_HEAD: Final = 4096
_BLOCK: Final = 1 << 20
_TAIL: Final = 1 << 16
_TO_ITS_END: Final = sys.maxsize
_SHORTER: Final = "the file became shorter while it was read, from here on; scan it again"
_DAMAGED: Final = (EOFError, gzip.BadGzipFile, zlib.error)


def head_of(path: str) -> bytes:
    """Return the first 4096 bytes of a file.

    Raises:
        DocumentError: the file cannot be read, or is in a form that is not read (UTF-16, bz2, xz,
            zst).
    """
    with opened_file(path) as stream:
        head = stream.read(_HEAD)
    if what := format_problem(head):
        raise DocumentError(f"{path}: {what}.")
    return head


@dataclass(frozen=True)
class FilePart:
    """The lines of a file that begin at `begin` or later and before `end`, both in bytes."""

    path: str
    begin: int
    end: int


class TextBlock(NamedTuple):
    """Whole lines and the byte `position` of the first in the file's text.

    `problem` says why no more text can be read from there (None: nothing is wrong).
    """

    position: int
    text: bytes
    problem: str | None = None


def share_out(
    paths: Sequence[str], tasks: int, known: Sequence[ReadLog] = ()
) -> tuple[list[list[FilePart]], list[ReadLog]]:
    """Return the files at `paths` in shares for about `tasks` tasks, and how far each is read.

    A gzip file is one share, for it cannot be split. Bytes that earlier scans read (`known`) are in
    no share. The second item is one `ReadLog` for each file, for the next scan.

    Raises:
        DocumentError: a path is missing or cannot be read, or a folder holds no file.
    """
    packed: list[list[FilePart]] = []
    plain_files: dict[str, tuple[int, int]] = {}
    logs: list[ReadLog] = []
    found = [file for path in paths for file in list_files(path)]
    # Processes with another working directory find it by its whole path.
    for file in dict.fromkeys(f if is_remote(f) else os.path.abspath(f) for f in found):
        with opened_file(file) as stream:
            head, size = stream.read(_HEAD), stream.seek(0, 2)
            is_packed = head.startswith(b"\x1f\x8b")
            text = _first_text(stream) if is_packed else head
            # Up to where earlier scans have read the log that begins with this text.
            most = sys.maxsize if is_packed else size
            begin = max(
                (
                    log.until
                    for log in known
                    if log.until <= most and _as_read(text, log.until) == log
                ),
                default=0,
            )
            if not is_packed:
                plain_files[file] = begin, size
                logs.append(_as_read(text, max(begin, _last_line(stream, begin, size))))
            else:
                logs.append(_as_read(head, size))
                if logs[-1] not in known:
                    packed.append([FilePart(file, begin, _TO_ITS_END)])
    new = sum(size - begin for begin, size in plain_files.values())
    most = min(_MOST, max(_LEAST, -(-new // tasks)))
    plain = [
        FilePart(path, at, min(at + most, size))
        for path, (begin, size) in plain_files.items()
        for at in range(begin, size, most)
    ]
    shares = shares_of([(part, part.end - part.begin) for part in plain], -(-new // most))
    return packed + shares, [log for log in logs if log.until]


def _as_read(head: bytes, until: int) -> ReadLog:
    return ReadLog(digest=hashlib.sha256(head[: min(until, _HEAD)]).hexdigest(), until=until)


def _last_line(stream: IO[bytes], begin: int, size: int) -> int:
    """Return the byte after the last whole line between `begin` and `size`; `begin` if none."""
    for start in range(size - _TAIL, max(begin, size - LONGEST_LINE) - _TAIL, -_TAIL):
        at = max(begin, start)
        stream.seek(at)
        found = stream.read(start + _TAIL - at).rfind(b"\n")
        if found >= 0:
            return at + found + 1
    return begin


def blocks(part: FilePart) -> Iterator[TextBlock]:
    """Yield the lines of a part in blocks; a line longer than `LONGEST_LINE` comes in pieces.

    Raises:
        DocumentError: the file cannot be read.
    """
    with opened_file(part.path) as stream:
        is_packed = part.end == _TO_ITS_END
        text: Any = gzip.GzipFile(fileobj=stream) if is_packed else stream
        position, block, problem = part.begin, bytearray(), None
        try:
            if position:
                text.seek(position - 1)
                while (rest := text.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                    if text.tell() >= part.end:
                        return
                position = text.tell()
            while position < part.end:
                most = min(_BLOCK, part.end - position)
                # A packed text comes in small pieces, and what came before damage is kept.
                while piece := text.read1(most - len(block)):
                    block += piece
                if not block:
                    problem = None if is_packed else _SHORTER
                    break
                if not block.endswith(b"\n"):
                    block += text.readline(LONGEST_LINE)
                yield TextBlock(position, bytes(block))
                position, block = position + len(block), bytearray()
        except _DAMAGED:
            problem = "the packed file is cut off or damaged from here on; fetch it again"
        if problem is not None:
            yield TextBlock(position, bytes(block), problem)


def _first_text(stream: IO[bytes]) -> bytes:
    """Return the first 4096 bytes of a gzip file's unpacked text; empty if it is damaged."""
    stream.seek(0)
    with contextlib.suppress(*_DAMAGED):
        return gzip.GzipFile(fileobj=stream).read(_HEAD)
    return b""
