"""Log segments of `__consumer_offsets`, copied from a broker's disk, read by kafka-python's reader.

Record batches may have format v2 or an older one. Brokers do not compress this topic, unless
`offsets.topic.compression.codec` is set. gzip is read; the other codecs need their libraries. Like
a read_committed consumer, it leaves out aborted transactions, and all records after the begin of a
transaction that has no end in these files (a later scan reads them). These records, control records
and cut-off ends are counted. A batch that fails its CRC is one broken record.
"""

import contextlib
import math
import os
import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from kafka.errors import KafkaError, UnsupportedCodecError
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecordBatch

from rebal.groups.errors import DocumentError
from rebal.inspectors.files import cannot_read, files_in, opened, read_text
from rebal.inspectors.fleet.sources.source import (
    SKIPPED,
    TOPIC,
    RecordSource,
    SourceRow,
    batches_of,
)

_CLUSTER_ID: Final = re.compile(r"(?m)^\s*cluster\.id\s*=\s*(\S+)")
_FOLDER: Final = re.compile(rf"{TOPIC}-(\d+)(?:\.[0-9a-f]+-(?:future|stray))?")
_LOG: Final = re.compile(r"\d{20}\.log")
_HEAD: Final = struct.Struct(">qiib")
_OVERHEAD: Final = 12
_SHOWN: Final = 47
_SMALLEST: Final = {0: 26, 1: 34, 2: 61}

CONTROL: Final = f"{SKIPPED}control records"
ABORTED: Final = f"{SKIPPED}records of aborted transactions"
OPEN: Final = f"{SKIPPED}records since an open transaction"
CUT_OFF: Final = f"{SKIPPED}cut-off ends of segments"

Segments = tuple[int, Sequence[str]]
"""A partition and its segment files, in order."""


def find_segments(paths: Sequence[str]) -> list[Segments]:
    """Return each folder's segment files in order, with the folder's partition.

    A path is a segment file, the folder `__consumer_offsets-N`, or a broker's whole log folder. A
    partition that is in two folders is returned twice.

    Raises:
        DocumentError: a path is missing or holds no segment, or its partition is not known.
    """
    found: dict[tuple[int, Path], set[str]] = defaultdict(set)
    for path in (Path(text).absolute() for text in paths):
        if not os.path.exists(path):
            raise cannot_read(str(path), FileNotFoundError())
        # A broker's log folder has other topics', too.
        files = [
            file
            for file in files_in([path])
            if _LOG.fullmatch(file.name) and (file == path or _FOLDER.fullmatch(file.parent.name))
        ]
        if not files:
            raise DocumentError(
                f"{path}: no segment of {TOPIC} is there; name folders such as {TOPIC}-7, or the "
                "broker's log folder that holds them."
            )
        for file in files:
            match = _FOLDER.fullmatch(file.parent.name)
            if match is None:
                raise DocumentError(
                    f"{file.parent}: the partition is not known; keep the name that the folder has "
                    f"on the broker, such as {TOPIC}-7."
                )
            found[int(match[1]), file.parent].add(str(file))
    return [(partition, sorted(names)) for (partition, _), names in sorted(found.items())]


def find_cluster_id_of(segments: Sequence[Segments]) -> str | None:
    """Return the cluster id from `meta.properties` beside the segments' folders; None: not found.

    Raises:
        DocumentError: the segments are of several clusters.
    """
    ids: dict[str, Path] = {}
    for _, files in segments:
        folder = Path(files[0]).parent
        with contextlib.suppress(OSError):
            for name in _CLUSTER_ID.findall(read_text(folder.with_name("meta.properties"))):
                ids.setdefault(name, folder)
    if len(ids) > 1:
        told = " and ".join(f"{folder} of {name}" for name, folder in ids.items())
        raise DocumentError(f"the segments are of {len(ids)} clusters: {told}; scan one at a time.")
    return next(iter(ids), None)


def read_segments(paths: Sequence[str]) -> RecordSource:
    """Return the record source for segments; each folder is one task.

    Raises:
        DocumentError: as `find_segments` and `find_cluster_id_of` do.
    """
    found = find_segments(paths)
    names = tuple(sorted({f"{TOPIC}-{partition}" for partition, _ in found}))
    return RecordSource(names, lambda *_: found, read_partition, cluster=find_cluster_id_of(found))


def read_partition(share: Segments) -> Iterator[pa.RecordBatch]:
    """Yield the records of one folder's segments, in order, as batches of `SOURCE`."""
    partition, files = share
    aborted, open_since = _transactions(files)
    rows = partial(_rows, partition=partition, aborted=aborted, open_since=open_since)
    return batches_of(chain.from_iterable(map(rows, files)))


def _rows(file: str, partition: int, aborted: Set[int], open_since: float) -> Iterator[SourceRow]:
    """Yield a segment's records as rows; skipped records and damaged batches have a `problem`."""
    source = Path(file).name
    for batch, packed, wrong in _batches(file):
        records, problem = [packed], wrong
        if batch is not None and not batch.validate_crc():
            problem = "the record batch fails its CRC"
        elif batch is not None:
            records, problem = _records(batch, source)
            problem = problem or _left_out(batch, aborted, open_since)
        for key, value, place, time in records:
            at = None if time is None or time < 0 else time * 1000
            # What comes after the begin of an open transaction is for a later scan.
            yield key, value, partition, (None if problem is OPEN else place), at, source, problem


def _left_out(batch: Any, aborted: Set[int], open_since: float) -> str | None:
    """Return why a batch's records are skipped, as their `problem`; None: they are read."""
    if batch.base_offset >= open_since:
        return OPEN
    if batch.magic == 2 and batch.is_control_batch:
        return CONTROL
    return ABORTED if batch.base_offset in aborted else None


def _transactions(files: Sequence[str]) -> tuple[Set[int], float]:
    """Return the base offsets of aborted batches, and where the first open transaction begins.

    The second item is an offset, infinite if no transaction is open.
    """
    aborted: set[int] = set()
    begun: dict[int, list[int]] = defaultdict(list)
    for batch, _packed, _problem in chain.from_iterable(map(_batches, files)):
        if batch is None or batch.magic < 2 or not batch.is_transactional:
            continue
        if not batch.is_control_batch:
            begun[batch.producer_id].append(batch.base_offset)
            continue
        for key, *_ in _records(batch, files[0])[0]:
            # A marker's key: a version and its type, 0 for abort and 1 for commit.
            if key is not None:
                ended = begun.pop(batch.producer_id, ())
                aborted.update(() if key[2:4] == b"\x00\x01" else ended)
    return aborted, min((offsets[0] for offsets in begun.values()), default=math.inf)


# Key, value, offset, timestamp in milliseconds.
_Record = tuple[bytes | None, bytes | None, int | None, int | None]
_NOTHING: Final[_Record] = (None, None, None, None)


def _batches(file: str) -> Iterator[tuple[Any, _Record, str | None]]:
    """Yield (batch, a record of its raw bytes, None) for each record batch of a segment.

    If no whole batch follows, the last item is (None, a record of the bytes there, the problem); at
    a cut-off end that record is empty.
    """
    with opened(Path(file)) as stream:
        # After the last batch may be preallocated space.
        while any(head := stream.read(_HEAD.size)):
            if len(head) < _HEAD.size:
                yield None, _NOTHING, CUT_OFF
                return
            offset, length, _, magic = _HEAD.unpack(head)
            size = _OVERHEAD + length
            if size < _SMALLEST.get(magic, math.inf):
                at = stream.tell() - len(head)
                what = f"not a record batch at byte {at} of the segment; its rest is not read"
                yield None, (None, head + stream.read(_SHOWN), None, None), what
                return
            data = head + stream.read(size - len(head))
            if len(data) < size:
                yield None, _NOTHING, CUT_OFF
                return
            batch = DefaultRecordBatch(data) if magic == 2 else LegacyRecordBatch(data, magic)
            yield batch, (None, data, offset, None), None


def _records(batch: Any, source: str) -> tuple[list[_Record], str | None]:
    """Return a batch's records and None; or one record of its raw bytes, and the problem."""
    try:
        return [(one.key, one.value, one.offset, one.timestamp) for one in batch], None
    except UnsupportedCodecError as error:
        raise DocumentError(
            f"{source}: its records are compressed ({error}): pip install "
            "'kafka-python[snappy,lz4,zstd]', on the executors too."
        ) from None
    except (KafkaError, OSError, EOFError, ValueError, IndexError, struct.error) as error:
        packed: _Record = (None, bytes(batch._buffer), batch.base_offset, None)
        return [packed], f"the record batch cannot be unpacked: {error}"
