"""Columns of `groups` that depend on now: made when they are read, never stored.

Now is the end of the time that a scan's sources cover together, so a group without news since an
earlier scan is told as of the last one too. Rates are KIP-429's, over the whole time covered.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from rebal.inspectors.fleet.manifest import Manifest
from rebal.inspectors.fleet.tables.columns import values

if TYPE_CHECKING:
    import pyarrow as pa

NOW: Final = {
    "observed_from": ("first_seen",),
    "observed_until": ("last_seen",),
    "rebalance_rate_per_hour": ("rebalance_total", "first_seen", "last_seen"),
    "failed_rebalance_rate_per_hour": ("failed_rebalance_total", "first_seen", "last_seen"),
    "last_rebalance_seconds_ago": ("last_rebalance_at", "last_seen"),
}
"""Such a column → the stored ones that it is made of."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = 1e6
_HOUR: Final = 3600 * _SECOND


def derive(rows: pa.Table, columns: Sequence[str], manifest: Manifest) -> pa.Table:
    """Return these columns of rows of `groups`; where no source has a time, by the group's own."""
    import pyarrow as pa

    from rebal.inspectors.fleet.schemas import TIME

    made = {name: rows[name] for name in columns if name not in NOW}
    wanted = [name for name in columns if name in NOW]
    if wanted:
        given = {name: rows[name] for name in rows.column_names if name in _STORED}
        held = {name: list(values(column)) for name, column in given.items()}
        told = [
            _now(dict(zip(held, row, strict=True)), manifest)
            for row in zip(*held.values(), strict=True)
        ]
        for name in wanted:
            kind = TIME if name.startswith("observed_") else pa.float64()
            made[name] = _column([row[name] for row in told], kind)
    return pa.Table.from_arrays([made[name] for name in columns], names=list(columns))


_STORED: Final = frozenset(name for names in NOW.values() for name in names)


def _now(row: Mapping[str, int | None], manifest: Manifest) -> dict[str, float | None]:
    """One group's, of the stored columns that were read; times in microseconds since 1970."""
    since = _micros(manifest.observed_from, row.get("first_seen"))
    until = _micros(manifest.observed_until, row.get("last_seen"))
    made: dict[str, float | None] = {"observed_from": since, "observed_until": until}
    hours = 0.0 if since is None or until is None else (until - since) / _HOUR
    for name in ("rebalance", "failed_rebalance"):
        total = row.get(f"{name}_total")
        made[f"{name}_rate_per_hour"] = None if hours <= 0 or total is None else total / hours
    last = row.get("last_rebalance_at")
    ago = None if until is None or last is None else (until - last) / _SECOND
    return made | {"last_rebalance_seconds_ago": ago}


def _micros(at: datetime | None, own: int | None) -> int | None:
    return own if at is None else (at - _EPOCH) // timedelta(microseconds=1)


def _column(found: Sequence[float | None], kind: pa.DataType) -> pa.Array:
    """Not with pa.array, which imports pandas."""
    import pyarrow as pa

    whole = pa.types.is_timestamp(kind)
    numbers = array("q" if whole else "d", [0 if one is None else one for one in found])
    valid = bytearray(-(-len(found) // 8))
    for place, one in enumerate(found):
        if one is not None:
            valid[place // 8] |= 1 << place % 8
    return pa.Array.from_buffers(
        kind, len(found), [pa.py_buffer(bytes(valid)), pa.py_buffer(numbers.tobytes())]
    )
