"""States of groups in the lake: each group's newest, from which it goes on.

Only what the lake says about a state is read here, and kept as columns: there is one a group.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rebal.inspectors.fleet.files import read_rows
from rebal.inspectors.fleet.lake.run import Run
from rebal.inspectors.fleet.news import State
from rebal.inspectors.fleet.parts import SCAN
from rebal.inspectors.fleet.schemas import STATES
from rebal.inspectors.fleet.timeline.timeline import FORM

NEWEST: Final = ("states", "waiting")
"""Kinds of which a group's newest rows count, whatever else is there."""
_ABOUT: Final = pa.schema([one for one in STATES if one.name != "state"]).append(SCAN)


def newest_states(run: Run) -> pa.Table:
    """Return what the scan before says of each group's newest state, without the state."""
    found = [_ABOUT.empty_table()]
    for file in run.earlier("states"):
        found += read_rows(run.place, file.path, _ABOUT)
    rows = pa.concat_tables(found).combine_chunks().sort_by([(SCAN.name, "descending")])
    groups = rows["group_id"].combine_chunks()
    first = pc.index_in(groups, groups)
    return rows.filter(pc.equal(first, pa.array(range(len(rows)), first.type)))


def states_of(newest: pa.Table, groups: Collection[str]) -> Mapping[str, State]:
    """Return the states of these groups, and of those with a topic that has no name yet."""
    unnamed = pc.fill_null(pc.greater(pc.list_value_length(newest["unnamed"]), 0), False)
    wanted = pc.is_in(newest["group_id"], pa.array(groups, pa.string()))
    return {
        row["group_id"]: State(
            scan_id=row[SCAN.name],
            usable=row["form"] == FORM,
            partition=row["partition"],
            offset=row["offset"],
            told_until=row["told_until"],
            latest=row["latest"],
            recorded=row["recorded"],
            unnamed=frozenset(row["unnamed"] or ()),
        )
        for row in newest.filter(pc.or_(wanted, unnamed)).to_pylist()
    }
