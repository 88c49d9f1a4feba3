"""Files of the scan before that a new one goes on with, without the rows that it replaces.

A file that holds no row of a group that was told is kept as it is. Any other is written again
without these groups, together with others of its kind; so are small files, once there are many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rebal.inspectors.fleet.files import ALL, Wanted, opened, rows_in
from rebal.inspectors.fleet.schemas import SCAN, TEXT
from rebal.inspectors.fleet.spark.tasks import numbers_in
from rebal.inspectors.fleet.writer import WRITTEN, PartWriter, Target

NO_GROUPS: Final = pa.array([], TEXT)
_GROUP: Final = pa.schema([("group_id", TEXT)])


class Load(NamedTuple):
    """Files of a kind that one task looks through.

    With `whole` they are written again in any case. `without` are the groups whose rows go; of
    states, only the rows stay that `staying` wants.
    """

    kind: str
    paths: tuple[str, ...]
    without: pa.Array = NO_GROUPS
    staying: Wanted = ALL
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
        for rows in rows_in(file, WRITTEN[load.kind].append(SCAN), load.staying):
            gone = pc.is_in(rows["group_id"], load.without)
            writer.write(load.kind, rows.filter(pc.invert(gone)))
