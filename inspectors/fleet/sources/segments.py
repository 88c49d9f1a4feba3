"""Log segments of `__consumer_offsets` copied off a broker's disk, read with kafka-python's reader.

Record batches of format v2 and the older ones. Brokers store the topic without compression, unless
`offsets.topic.compression.codec` is set; gzip is read, the other codecs need their libraries. As a
consumer that reads only what is committed, it leaves out aborted transactions, and what comes after
the begin of one whose end is not in the files (a later scan reads that): these, control records and
cut-off ends are counted. A batch that fails its CRC is one broken record.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import re
import struct
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from kafka.errors import KafkaError, UnsupportedCodecError
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecordBatch

from rebal.groups.errors import DocumentError
from rebal.inspectors.files import opened, read_text
from rebal.inspectors.fleet.sources.source import SKIPPED, TOPIC, Source, SourceRow, batch_of
from rebal.inspectors.logs.text_input import cannot_read

_CLUSTER_ID: Final = re.compile(r"(?m)^\s*cluster\.id\s*=\s*(\S+)")
_FOLDER: Final = re.compile(rf"{TOPIC}-(\d+)(?:\.[0-9a-f]+-(?:future|stray))?")
_LOG: Final = re.compile(r"\d{20}\.log")
_HEAD: Final = struct.Struct(">qiib")
_OVERHEAD: Final = 12
_SMALLEST: Final = {0: 26, 1: 34, 2: 61}
_AT_ONCE: Final = 4000
_BYTES_AT_ONCE: Final = 8 << 20

CONTROL: Final = f"{SKIPPED}control records"
ABORTED: Final = f"{SKIPPED}records of aborted transactions"
OPEN: Final = f"{SKIPPED}records since an open transaction"
CUT_OFF: Final = f"{SKIPPED}cut-off ends of segments"


def find_segments(paths: Sequence[str]) -> list[tuple[int, list[str]]]:
    """Return each partition's segment files in order; a partition of two folders comes twice.

    A path is a segment file, the folder `__consumer_offsets-N`, or a broker's whole log folder.

    Raises:
        DocumentError: a path is missing or holds no segment, or its partition is not known.
    """
    found: dict[Path, list[str]] = defaultdict(list)
    for text in paths:
        path = Path(text).absolute()
        try:
            files = [path] if path.is_file() else _logs_in(path)
        except OSError as error:
            raise cannot_read(text, error) from None
        if not files:
            raise DocumentError(
                f"{text}: no segment of {TOPIC} is there; name folders such as {TOPIC}-7, or the "
                "broker's log folder that holds them."
            )
        for file in files:
            found[file.parent].append(str(file))
    made: list[tuple[int, list[str]]] = []
    for folder, names in sorted(found.items()):
        match = _FOLDER.fullmatch(folder.name)
        if match is None:
            raise DocumentError(
                f"{folder}: the partition is not known; keep the name that the folder has on the "
                f"broker, such as {TOPIC}-7."
            )
        made.append((int(match[1]), sorted(set(names), key=lambda name: Path(name).name)))
    return sorted(made)


def find_cluster_id_of(paths: Sequence[str]) -> str | None:
    """Return the cluster's id, from the brokers' `meta.properties` beside the segments' folders.

    Raises:
        DocumentError: the segments are of several clusters.
    """
    ids: dict[str, Path] = {}
    for path in (Path(text).absolute() for text in paths):
        for folder in (path, *path.parents[:2]):
            with contextlib.suppress(OSError):
                for found in _CLUSTER_ID.findall(read_text(folder / "meta.properties")):
                    ids.setdefault(found, path)
    if len(ids) > 1:
        told = " and ".join(f"{path} of {name}" for name, path in ids.items())
        raise DocumentError(f"the segments are of {len(ids)} clusters: {told}; scan one at a time.")
    return next(iter(ids), None)


def read_segments(paths: Sequence[str]) -> Source:
    """Return the records in segments; a task for each folder.

    Raises:
        DocumentError: as `find_segments` and `find_cluster_id_of` do.
    """
    found = find_segments(paths)
    names = sorted({f"{TOPIC}-{partition}" for partition, _ in found})
    cluster = find_cluster_id_of(paths)
    return Source(tuple(names), lambda *_: found, read_partition, cluster=cluster)


def read_partition(share: tuple[int, Sequence[str]]) -> Iterator[pa.RecordBatch]:
    """Yield the segments of one partition, in order, as batches of `SOURCE`."""
    partition, files = share
    ends = _transactions(files)
    rows = _Rows(partition)
    for file in files:
        rows.source = Path(file).name
        for batch in _batches(file, rows):
            _place(batch, ends, rows)
            if rows.full:
                yield rows.take()
    yield rows.take()


def _place(batch: Any, ends: _Transactions, rows: _Rows) -> None:
    """Add the batch's records, or count them as what they are instead."""
    records = _records(batch, rows)
    if batch.base_offset >= ends.open_since:
        rows.skip([(None, None, None, None) for _ in records], OPEN)
    elif getattr(batch, "is_control_batch", False):
        rows.skip(records, CONTROL)
    elif getattr(batch, "is_transactional", False) and not ends.committed(batch):
        rows.skip(records, ABORTED)
    else:
        rows.add(records)


class _Transactions(NamedTuple):
    """A partition's transactions: where each producer's ended, and whether it was committed.

    `open_since` is the offset at which the first open one begins; infinite where none is open.
    """

    ends: Mapping[int, Sequence[tuple[int, bool]]]
    open_since: float

    def committed(self, batch: Any) -> bool:
        """Return whether the transaction that the batch is in was committed."""
        ends = self.ends.get(batch.producer_id, ())
        at = bisect(ends, (batch.base_offset, True))
        return at < len(ends) and ends[at][1]


def _transactions(files: Iterable[str]) -> _Transactions:
    """Return the transactions that the batches' heads and the markers show."""
    ends: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    begun: dict[int, int] = {}
    unseen = _Rows(-1)
    for batch in (one for file in files for one in _batches(file, unseen, check=False)):
        if not getattr(batch, "is_transactional", False):
            continue
        if not batch.is_control_batch:
            begun.setdefault(batch.producer_id, batch.base_offset)
            continue
        for key, *_ in _records(batch, unseen):
            begun.pop(batch.producer_id, None)
            # A marker's key: a version and its type, 0 for abort and 1 for commit.
            committed = key is not None and key[2:4] == b"\x00\x01"
            ends[batch.producer_id].append((batch.base_offset, committed))
    return _Transactions(ends, min(begun.values(), default=math.inf))


_Record = tuple[bytes | None, bytes | None, int | None, int | None]
"""Key, value, offset, timestamp in milliseconds."""


class _Rows:
    """Rows of `SOURCE` waiting to be handed on."""

    def __init__(self, partition: int) -> None:
        self.source = ""
        self._partition = partition
        self._rows: list[SourceRow] = []
        self._bytes = 0

    @property
    def full(self) -> bool:
        return len(self._rows) >= _AT_ONCE or self._bytes >= _BYTES_AT_ONCE

    def add(self, records: Iterable[_Record], problem: str | None = None) -> None:
        for key, value, offset, time in records:
            micros = None if time is None or time < 0 else time * 1000
            self._rows.append((key, value, self._partition, offset, micros, self.source, problem))
            self._bytes += len(value or b"")

    def skip(self, records: Iterable[_Record], what: str) -> None:
        self.add(((None, None, offset, time) for _, _, offset, time in records), what)

    def take(self) -> pa.RecordBatch:
        rows, self._rows, self._bytes = self._rows, [], 0
        return batch_of(rows)


def _batches(file: str, rows: _Rows, *, check: bool = True) -> Iterator[Any]:
    """Yield a segment's batches, with `check` each with its CRC proven; `rows` gets the rest."""
    with opened(Path(file)) as stream:
        size = stream.seek(0, 2)
        if not size:
            return
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = 0
            while at < size:
                if size - at < _HEAD.size:
                    rows.skip([(None, None, None, None)], CUT_OFF)
                    return
                offset, length, _, magic = _HEAD.unpack_from(data, at)
                end = at + _OVERHEAD + length
                if not length and not offset and not any(data[at : at + 64]):
                    # Preallocated space after the last batch.
                    return
                if magic not in _SMALLEST or end - at < _SMALLEST[magic]:
                    what = f"not a record batch at byte {at} of the segment; its rest is not read"
                    rows.add([(None, data[at : at + 64], None, None)], what)
                    return
                if end > size:
                    rows.skip([(None, None, None, None)], CUT_OFF)
                    return
                raw = data[at:end]
                batch = DefaultRecordBatch(raw) if magic == 2 else LegacyRecordBatch(raw, magic)
                if not check or batch.validate_crc():
                    yield batch
                else:
                    rows.add([(None, raw, offset, None)], "the record batch fails its CRC")
                at = end


def _records(batch: Any, rows: _Rows) -> list[_Record]:
    try:
        return [
            (
                None if record.key is None else bytes(record.key),
                None if record.value is None else bytes(record.value),
                record.offset,
                record.timestamp,
            )
            for record in batch
        ]
    except UnsupportedCodecError as error:
        raise DocumentError(
            f"{rows.source}: its records are compressed ({error}): pip install "
            "'kafka-python[snappy,lz4,zstd]', on the executors too."
        ) from None
    except (KafkaError, OSError, EOFError, ValueError, IndexError, struct.error) as error:
        problem = f"the record batch cannot be unpacked: {error}"
        rows.add([(None, bytes(batch._buffer), batch.base_offset, None)], problem)
        return []


def _logs_in(path: Path) -> list[Path]:
    """Return the segments of a partition's folder, or of those in a broker's log folder."""
    if not path.is_dir():
        raise FileNotFoundError(2, "no such file")
    folders = [path] if _FOLDER.fullmatch(path.name) else [*path.iterdir()]
    return sorted(
        file
        for folder in folders
        if _FOLDER.fullmatch(folder.name) and folder.is_dir()
        for file in folder.iterdir()
        if _LOG.fullmatch(file.name) and file.is_file()
    )
