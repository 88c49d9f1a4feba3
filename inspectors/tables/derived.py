"""Columns of `groups` that depend on now: made when they are read, never stored.

Now is the end of the time that a scan's sources cover together, so a group without news since an
earlier scan is shown as of the last one too. Rates are KIP-429's, over the whole time covered.
"""

from __future__ import annotations

from array import array
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rebal.inspectors.clock import micros
from rebal.inspectors.fleet.manifest import Manifest
from rebal.inspectors.fleet.schemas import TIME

NOW: Final = {
    "observed_from": ("first_seen",),
    "observed_until": ("last_seen",),
    "rebalance_rate_per_hour": ("rebalance_total", "first_seen", "last_seen"),
    "failed_rebalance_rate_per_hour": ("failed_rebalance_total", "first_seen", "last_seen"),
    "last_rebalance_seconds_ago": ("last_rebalance_at", "last_seen"),
}
"""Such a column → the stored ones that it is made of."""
_SECOND: Final = 1e6
_HOUR: Final = 3600 * _SECOND


def derive(rows: pa.Table, name: str, manifest: Manifest) -> pa.ChunkedArray:
    """Return the column `name` of `NOW` for rows of `groups`.

    Where no source of the scan has a time, the group's own bound what was observed.
    """
    if name == "observed_from":
        return _bound(rows, "first_seen", manifest.observed_from).cast(TIME)
    until = _bound(rows, "last_seen", manifest.observed_until)
    if name == "observed_until":
        return until.cast(TIME)
    if name == "last_rebalance_seconds_ago":
        ago = pc.subtract(until, rows["last_rebalance_at"].cast(pa.int64()))
        return pc.divide(_float(ago), _each(_SECOND, len(rows)))
    since = _bound(rows, "first_seen", manifest.observed_from)
    hours = pc.divide(_float(pc.subtract(until, since)), _each(_HOUR, len(rows)))
    nothing = pa.nulls(len(rows), pa.float64())
    counted = _float(rows[NOW[name][0]])
    return pc.divide(counted, pc.if_else(pc.greater(until, since), hours, nothing))


def _bound(rows: pa.Table, own: str, at: datetime | None) -> pa.ChunkedArray:
    """Return `at` for each group, in microseconds since 1970; None: the group's own time."""
    return rows[own].cast(pa.int64()) if at is None else _each(micros(at), len(rows))


def _each(value: float, size: int) -> pa.ChunkedArray:
    """Return a column of one number. Neither pa.array nor pa.scalar, which import pandas."""
    kind = pa.int64() if isinstance(value, int) else pa.float64()
    numbers = array("q" if isinstance(value, int) else "d", [value]) * size
    found = pa.Array.from_buffers(kind, size, [None, pa.py_buffer(numbers)])
    return pa.chunked_array([found])


def _float(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    return numbers.cast("float64", safe=False)
