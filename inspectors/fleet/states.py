"""States of groups in the lake: `read_states` finds each group's newest, from which it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from rebal.inspectors.fleet.lake.run import Run
from rebal.inspectors.fleet.news import State
from rebal.inspectors.fleet.parts import SCAN
from rebal.inspectors.fleet.schemas import STATES, in_columns
from rebal.inspectors.fleet.timeline.state import form

NEWEST: Final = ("states", "waiting")
"""Kinds of which a group's newest rows count, whatever else is there.

The state of a group that was deleted stays: without it, a later group of that name would be told
anew, for which a scan reads all records of the lake.
"""
_ABOUT: Final = pa.schema([one for one in STATES if one.name != "state"]).append(SCAN)


def read_states(run: Run) -> Mapping[str, State]:
    """Return the groups' newest states that the scan before has, by group."""
    found: dict[str, State] = {}
    for file in run.earlier("states"):
        with run.place.errors(), run.place.files().open_input_file(file.path) as opened:
            rows = pq.ParquetFile(opened).read(columns=_ABOUT.names)
        for row in in_columns(rows, _ABOUT).to_pylist():
            before = found.get(row["group_id"])
            if before is None or before.scan_id < row[SCAN.name]:
                found[row["group_id"]] = State(
                    scan_id=row[SCAN.name],
                    usable=row["form"] == form(),
                    partition=row["partition"],
                    offset=row["offset"],
                    told_until=row["told_until"],
                    latest=row["latest"],
                    recorded=row["recorded"],
                    unnamed=tuple(row["unnamed"] or ()),
                )
    return found
