"""Files of the scan before that a new one goes on with, without the rows that it replaces.

A file that holds no row of a group that was told is kept as it is. Any other is written again
without these groups, together with others of its kind; so are small files, once there are many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rebal.inspectors.fleet.files import Wanted, opened, rows_in
from rebal.inspectors.fleet.parts import SCAN, WRITTEN, PartWriter, Target
from rebal.inspectors.fleet.schemas import TEXT
from rebal.inspectors.fleet.spark.tasks import numbers_in

_GROUP: Final = pa.schema([("group_id", TEXT)])


@dataclass(frozen=True)
class Load:
    """Files of a kind that one task looks through.

    With `whole` they are written again in any case. `without` are the groups whose rows go; of
    states, only the rows stay that `newest` names by `group_id` and `scan_id` (None: all do).
    """

    kind: str
    paths: tuple[str, ...]
    without: frozenset[str] = frozenset()
    newest: pa.Table | None = None
    whole: bool = False


def carry(
    batches: Iterable[pa.RecordBatch], target: Target, loads: Sequence[Load]
) -> Iterator[pa.RecordBatch]:
    """The loads whose numbers the batches hold → files in the lake, and reports."""
    writer = PartWriter(target)
    for number in numbers_in(batches):
        for path in loads[number].paths:
            _carry(loads[number], path, target, writer)
    yield from writer.report()


def _carry(load: Load, path: str, target: Target, writer: PartWriter) -> None:
    with opened(target.place, path) as file:
        if not load.whole and next(rows_in(file, _GROUP, Wanted(load.without)), None) is None:
            return
        writer.said.gone.add(path)
        for rows in rows_in(file, WRITTEN[load.kind].append(SCAN)):
            writer.write(load.kind, _staying(rows, load))


def _staying(rows: pa.Table, load: Load) -> pa.Table:
    if load.without:
        gone = pc.is_in(rows["group_id"], pa.array(load.without, pa.string()))
        rows = rows.filter(pc.invert(gone))
    if load.newest is not None:
        place = pc.index_in(rows["group_id"], load.newest["group_id"])
        rows = rows.filter(pc.equal(rows[SCAN.name], load.newest[SCAN.name].take(place)))
    return rows
