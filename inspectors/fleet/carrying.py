"""Files of the scan before that a new one goes on with, without the rows that it replaces.

A file that holds no row of a group that was told is kept as it is. Any other is written again
without these groups, together with others of its kind; so are small files, once there are many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rebal.inspectors.fleet.parts import SCAN, WRITTEN, PartWriter, Target
from rebal.inspectors.fleet.schemas import in_columns

_ROWS: Final = 65_536


@dataclass(frozen=True)
class Load:
    """Files of a kind that one task looks through.

    With `whole` they are written again in any case. `without` are the groups whose rows go; of
    states, `newest` says which scan's row of a group stays (None: all do).
    """

    kind: str
    paths: tuple[str, ...]
    without: frozenset[str] = frozenset()
    newest: Mapping[str, int] | None = None
    whole: bool = False


def carry(
    batches: Iterable[pa.RecordBatch], target: Target, loads: Sequence[Load]
) -> Iterator[pa.RecordBatch]:
    """The loads whose numbers the batches hold → files in the lake, and reports."""
    writer = PartWriter(target)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for path in loads[number].paths:
                _carry(loads[number], path, target, writer)
    yield from writer.report()


def _carry(load: Load, path: str, target: Target, writer: PartWriter) -> None:
    with target.place.files().open_input_file(path) as opened:
        file = pq.ParquetFile(opened)
        if not load.whole:
            names = file.read(columns=["group_id"])["group_id"]
            if not pc.any(pc.is_in(names, _array(load.without))).as_py():
                return
        writer.say("gone", load.kind, path, 0, 0, None, None)
        columns = WRITTEN[load.kind].append(SCAN)
        for batch in file.iter_batches(_ROWS, columns=columns.names):
            writer.write_again(load.kind, _staying(in_columns(batch, columns), load))


def _staying(rows: pa.Table, load: Load) -> pa.Table:
    if load.without:
        gone = pc.is_in(rows["group_id"], _array(load.without))
        rows = rows.filter(pc.invert(gone))
    if load.newest is not None:
        newest = [load.newest.get(name, -1) for name in rows["group_id"].to_pylist()]
        rows = rows.filter(pc.equal(rows[SCAN.name], pa.array(newest, pa.int64())))
    return rows


def _array(names: Iterable[str]) -> pa.Array:
    return pa.array(list(names), pa.string())
