"""Is what was given to a scan what it reads: records of `__consumer_offsets`, or request logs.

A picture, a request log given as offsets or another topic's records must not pass for a quiet
cluster: each is an error with one sentence that says what to give instead.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rebal.groups.errors import DocumentError
from rebal.groups.wire.offsets_topic import KINDS
from rebal.inspectors.fleet.sources.source import TOPIC
from rebal.inspectors.logs.requests.lines import MARK

HEAD: Final = 1 << 16
"""Bytes by which a file is recognized."""
_GZIP_WINDOW: Final = 31
_PLACE: Final = ("partition", "offset")
_FEW: Final = 10
"""Less than one record in so many of what was read is almost nothing."""
_MANY: Final = 100
"""A scan that goes on from another one may find this many broken records alone."""


def recognize_lines(path: Path, head: bytes) -> None:
    """Look at the first `HEAD` bytes of a file of captured records, plain or gz.

    Raises:
        DocumentError: no line of it is a record; says what it is, and what to give.
    """
    if path.suffix == ".gz":
        try:
            head = zlib.decompressobj(_GZIP_WINDOW).decompress(head, HEAD)
        except zlib.error:
            return  # told where it is read
    if MARK in head:
        raise DocumentError(
            f"{path}: is a broker's request log, and holds no record of {TOPIC}; give it with "
            "--request-log."
        )
    *lines, last = head.split(b"\n")
    if any(map(_is_record, lines)) or _may_begin_record(last, cut=len(head) == HEAD):
        return
    raise DocumentError(
        f"{path}: holds no record of {TOPIC}; give JSON lines with key, value, partition and "
        "offset, or Parquet with these columns, or --segments."
    )


def check_records(names: Sequence[str], ended: Mapping[str, int], before: bool) -> None:
    """Check that more than a few of a source's records are the topic's.

    `ended` counts them by their kinds' names, `before` is whether the scan goes on from another.

    Raises:
        DocumentError: fewer than one in ten is of a known kind and can be read.
    """
    read = sum(ended.values())
    known = sum(ended.get(name, 0) for name in KINDS.values())
    if known * _FEW >= read or (before and read < _MANY):
        return
    raise DocumentError(
        f"{', '.join(names)}: {known:,} of {read:,} records are {TOPIC}'s; it seems to be "
        f"something else: give records of {TOPIC}, with key and value as brokers wrote them."
    )


def check_request_logs(paths: Sequence[str], counts: Mapping[str, int]) -> None:
    """Check that request logs hold a line of the request logger; `counts` are `RequestLogs`' own.

    Raises:
        DocumentError: there are lines, and none is one.
    """
    if counts["lines"] and not counts["requests"]:
        raise DocumentError(
            f"{', '.join(paths)}: none of {counts['lines']:,} lines is a request log's; give the "
            "file of kafka.request.logger at DEBUG."
        )


def _is_record(line: bytes) -> bool:
    """Return whether a whole line is JSON that names a record's partition and offset."""
    try:
        read = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(read, dict) and all(isinstance(read.get(name), int) for name in _PLACE)


def _may_begin_record(line: bytes, *, cut: bool) -> bool:
    """Return whether the file's last line that was read is a record, or may go on as one."""
    return line.lstrip().startswith(b"{") if cut else _is_record(line)
