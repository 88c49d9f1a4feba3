"""Raw inputs in the lake, in buckets by group, so that a task reads the groups it is to tell.

A task that reads the source writes each kind of input to one file, whose row groups hold the rows
of one part of all buckets (column `bucket`, the group's CRC-32). A later task is given a range of
buckets and reads, of all files, the row groups in it: the records pass no shuffle.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rebal.inspectors.fleet import schemas
from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.parts import WRITTEN, PartWriter
from rebal.inspectors.fleet.timeline.clock import settle, with_times

Ints = np.ndarray[Any, np.dtype[Any]]

BUCKET: Final = schemas.BUCKET.name
_SPACE: Final = 1 << 32
_PARTS: Final = 64
"""Row groups end where one of so many equal parts of all buckets does."""
_HELD: Final = 128 << 20
"""Bytes that a task gathers before it writes them: fewer make many small row groups."""
_READ: Final = 256 << 20
"""Bytes of row groups that a task keeps in memory while it puts rows in order."""
_RANGE: Final = 192 << 20
"""Bytes of a range, about; a range of one bucket may be larger."""
_ROWS: Final = 8192
_BATCH: Final = 32 << 20
"""Rows and bytes of a batch of rows in order, about, whichever is less."""
_RUN: Final = 16
"""Rows that follow each other in their piece are handed on as they are, where so many do."""


@dataclass(frozen=True)
class Piece:
    """A row group of an input file, with its first and last bucket and its bytes in memory."""

    kind: str
    path: str
    number: int
    first: int
    last: int
    size: int


@dataclass(frozen=True)
class Range:
    """Buckets from `first` up to, not including, `end`, and the pieces that may hold them."""

    first: int
    end: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Shape:
    """How a kind's rows become those to be put in order; `needed` are the columns for sorting, and
    `heavy` is one whose values may be large."""

    needed: list[str]
    make: Callable[[pa.Table], pa.Table]
    heavy: str | None = None


def bucket_of(group: bytes) -> int:
    """The bucket of a group, 0 to 2**32 - 1, the same in every process."""
    return zlib.crc32(group)


class BucketWriter:
    """Gathers one kind of input and writes it sorted; `finish` before the task reports."""

    def __init__(self, writer: PartWriter, kind: str) -> None:
        self._writer = writer
        self._kind = kind
        self._held: list[pa.Table] = []
        self._bytes = 0

    def add(self, rows: pa.Table) -> None:
        """Rows with their `bucket`, in the columns of the kind's schema."""
        self._held.append(_by_bucket(rows))
        self._bytes += rows.nbytes
        if self._bytes >= _HELD:
            self.finish()

    def finish(self) -> None:
        """Write what is left."""
        held, self._held, self._bytes = self._held, [], 0
        if len(held) > _PARTS:
            held = [_by_bucket(pa.concat_tables(held).combine_chunks())]
        edges = np.arange(1, _PARTS, dtype=np.int64) * (_SPACE // _PARTS)
        cuts = [
            [0, *np.searchsorted(rows[BUCKET].to_numpy(), edges).tolist(), len(rows)]
            for rows in held
        ]
        for part in range(_PARTS):
            found = [
                rows.slice(cut[part], cut[part + 1] - cut[part])
                for rows, cut in zip(held, cuts, strict=True)
                if cut[part + 1] > cut[part]
            ]
            if found:
                self._writer.write(self._kind, pa.concat_tables(found))


def _by_bucket(rows: pa.Table) -> pa.Table:
    buckets = rows[BUCKET].to_numpy()
    if (buckets[1:] >= buckets[:-1]).all():
        return rows
    return rows.take(pa.array(np.argsort(buckets, kind="stable")))


def find_pieces(kind: str, place: Place, paths: Iterable[str]) -> list[Piece]:
    """The row groups of these input files of one kind; only their footers are read."""
    found: list[Piece] = []
    files = place.files()
    for path in paths:
        with files.open_input_file(path) as opened:
            metadata = pq.read_metadata(opened)
        names = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
        column = names.index(BUCKET)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            seen = group.column(column).statistics
            found.append(Piece(kind, path, number, seen.min, seen.max, group.total_byte_size))
    return found


def make_ranges(pieces: Sequence[Piece], least: int) -> list[Range]:
    """All buckets in ranges of about the same size: `least`, or a multiple of it."""
    sizes = [0] * _PARTS
    for piece in pieces:
        sizes[piece.first * _PARTS // _SPACE] += piece.size
    total = sum(sizes)
    wanted = least * max(1, -(-total // (_RANGE * least)))
    ends: list[int] = []
    held = 0
    for part, size in enumerate(sizes):
        held += size
        full = total and held * wanted >= total * (len(ends) + 1)
        if full or part == _PARTS - 1:
            ends.append((part + 1) * (_SPACE // _PARTS))
    return [
        Range(first, end, tuple(one for one in pieces if one.first < end and one.last >= first))
        for first, end in zip([0, *ends], ends, strict=False)
    ]


def read_range(place: Place, within: Range, kind: str) -> list[pa.Table]:
    """All rows of one kind in a range, as they come."""
    files = _Files(place)
    return [
        _inside(piece, within, files.read(piece, None))
        for piece in within.pieces
        if piece.kind == kind
    ]


def in_order(
    place: Place,
    within: Range,
    shapes: Mapping[str, Shape],
    order: Sequence[str],
    *,
    span: tuple[int, int] | None = None,
    recorded: set[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, of all kinds in `shapes`, sorted by `order` (nulls last).

    Records come in the order of their offsets: where their times are not, `at` is the effective
    time (timeline/clock.py; `span` is the time that all sources cover) and `told_at` their own.
    The groups that have records are added to `recorded`, before the first batch.
    Only what they are sorted by is in memory of all of them, and a bounded part of the rows.
    """
    pieces = [piece for piece in within.pieces if piece.kind in shapes]
    cache = _Cache(place, pieces, shapes)
    keys = []
    for number, piece in enumerate(pieces):
        read = cache.keys(number)
        rows = read.select([*order, BUCKET])
        rows = rows.append_column("bytes", pa.array(cache.sizes(number, read)))
        rows = rows.append_column("piece", pa.array(np.full(len(rows), number, np.int32)))
        rows = rows.append_column("row", pa.array(np.arange(len(rows), dtype=np.int32)))
        keys.append(_inside(piece, within, rows))
    if not keys:
        return
    whole = pa.concat_tables(keys, promote_options="default").combine_chunks()
    settled = settle(whole, span) if "offset" in order else whole
    if recorded is not None:
        of_records = whole["group_id"].filter(pc.is_valid(whole["offset"]))
        recorded.update(pc.unique(of_records).to_pylist())
    by = [(name, "ascending") for name in order]
    ordered = pc.sort_indices(settled, sort_keys=by)
    places = whole.select(["piece", "row", "bytes"]).take(ordered)
    batches = cache.rows(*(column.to_numpy() for column in places.columns))
    if settled is whole:
        yield from batches
    else:
        yield from with_times(batches, settled["at"].take(ordered))


class _Files:
    """Input files, each opened once."""

    def __init__(self, place: Place) -> None:
        self._files = place.files()
        self._open: dict[str, pq.ParquetFile] = {}

    def read(self, piece: Piece, columns: list[str] | None) -> pa.Table:
        """These columns of a piece, all that the kind has where None."""
        file = self._open.get(piece.path)
        if file is None:
            opened = self._files.open_input_file(piece.path)
            file = self._open[piece.path] = pq.ParquetFile(opened)
        wanted = columns or WRITTEN[piece.kind].names
        return file.read_row_group(piece.number, columns=wanted, use_threads=False)


class _Cache:
    """Whole pieces, the last used of them in memory."""

    def __init__(self, place: Place, pieces: Sequence[Piece], shapes: Mapping[str, Shape]) -> None:
        self._pieces = pieces
        self._shapes = shapes
        self._files = _Files(place)
        self._held: OrderedDict[int, pa.Table] = OrderedDict()
        self._bytes = 0
        self._small = sum(piece.size for piece in pieces) <= _READ

    def keys(self, number: int) -> pa.Table:
        """At least the columns of a piece by which rows are sorted."""
        if self._small:
            return self._piece(number)
        shape = self._shapes[self._pieces[number].kind]
        heavy = [] if shape.heavy is None else [shape.heavy]
        return shape.make(self._files.read(self._pieces[number], [*shape.needed, *heavy, BUCKET]))

    def sizes(self, number: int, rows: pa.Table) -> Ints:
        """About how many bytes each of these rows of a piece takes in memory."""
        piece = self._pieces[number]
        heavy = self._shapes[piece.kind].heavy
        if heavy is None:
            return np.full(len(rows), piece.size // max(1, len(rows)), np.int64)
        lengths = pc.fill_null(pc.binary_length(rows[heavy]), 0)
        return np.asarray(lengths.to_numpy(), np.int64)

    def rows(self, piece: Ints, row: Ints, size: Ints) -> Iterator[pa.RecordBatch]:
        """These rows of these pieces, in this order, and their sizes."""
        if not len(piece):
            return
        runs = np.flatnonzero((np.diff(piece) != 0) | (np.diff(row) != 1)) + 1
        take = self._mixed if len(runs) * _RUN > len(piece) else self._in_runs
        full = np.flatnonzero(np.diff(np.cumsum(size) // _BATCH)) + 1
        starts = np.union1d(full, np.arange(0, len(piece), _ROWS)).tolist()
        for start, end in zip(starts, [*starts[1:], len(piece)], strict=True):
            yield from take(piece[start:end], row[start:end])

    def _in_runs(self, piece: Ints, row: Ints) -> list[pa.RecordBatch]:
        """As `_mixed`, where many rows follow each other in their piece."""
        cuts = (np.flatnonzero((np.diff(piece) != 0) | (np.diff(row) != 1)) + 1).tolist()
        spans = zip([0, *cuts], [*cuts, len(piece)], strict=True)
        return _batches(
            self._piece(int(piece[start])).slice(int(row[start]), end - start)
            for start, end in spans
        )

    def _mixed(self, piece: Ints, row: Ints) -> list[pa.RecordBatch]:
        tables: list[pa.Table] = []
        places = np.empty(len(row), np.int64)
        size = 0
        for number in np.unique(piece).tolist():
            here = np.flatnonzero(piece == number)
            tables.append(self._piece(number).take(pa.array(row[here])))
            places[here] = np.arange(size, size + len(here))
            size += len(here)
        whole = pa.concat_tables(tables, promote_options="default")
        return _batches([whole.take(pa.array(places))])

    def _piece(self, number: int) -> pa.Table:
        held = self._held.pop(number, None)
        if held is None:
            piece = self._pieces[number]
            held = self._shapes[piece.kind].make(self._files.read(piece, None))
            self._bytes += held.nbytes
            while self._held and self._bytes > _READ:
                self._bytes -= self._held.popitem(last=False)[1].nbytes
        self._held[number] = held
        return held


def _batches(tables: Iterable[pa.Table]) -> list[pa.RecordBatch]:
    """These rows, in one batch where it can hold them."""
    whole = pa.concat_tables(tables, promote_options="default").combine_chunks()
    made: list[pa.RecordBatch] = whole.to_batches()
    return made


def _inside(piece: Piece, within: Range, rows: pa.Table) -> pa.Table:
    if within.first <= piece.first and piece.last < within.end:
        return rows
    return rows.filter(_mask(rows, within))


def _mask(rows: pa.Table, within: Range) -> pa.ChunkedArray:
    buckets = rows[BUCKET]
    return pc.and_(pc.greater_equal(buckets, within.first), pc.less(buckets, within.end))
