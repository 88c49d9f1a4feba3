"""The groups' lag at the time of a scan: `read_lag`.

Lag is the log end offset less the committed offset of a partition. A scan of a live cluster asks
the brokers for the log end offsets (the table `log_ends`, of each kept scan); captured files and
log segments do not show them.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from rebal.groups.model import Record
from rebal.inspectors.clock import micros
from rebal.inspectors.tables.columns import rows_of
from rebal.inspectors.tables.reader import Tables

# Records' times are the brokers', the time at which they were asked is the scanning machine's; in
# microseconds.
_CLOCKS: Final = 300_000_000
_COLUMNS: Final = ("group_id", "topic", "topic_partition", "committed_offset", "committed_at")
_ENDS: Final = ("topic", "topic_partition", "log_end_offset", "at")


class GroupLag(Record, frozen=True, kw_only=True):
    """The lag of one group in records: of all its partitions together, and of the worst one.

    Both are None where no partition's log end offset is known; `unknown` is the number of
    partitions with a committed offset whose log end offset is not known. `last_commit` is
    microseconds since 1970.
    """

    total: int | None = None
    worst: int | None = None
    unknown: int = 0
    last_commit: int | None = None


def read_lag(tables: Tables) -> dict[str, GroupLag]:
    """Return the lag of each group that has a committed offset.

    A scan of brokers reads the commits up to a point before it asks for the log end offsets, so a
    committed offset beyond the end contradicts it (the topic was made anew): its lag is unknown.
    All lag is unknown where a later scan read newer records from files.

    Raises:
        TablesError: a table cannot be read.
    """
    ends = _ends(tables)
    lags: dict[str, list[int | None]] = defaultdict(list)
    last: dict[str, int | None] = {}
    for group_id, topic, partition, offset, at in rows_of(tables.read("commits", _COLUMNS)):
        if offset is None:
            continue
        end = ends.get((topic, partition))
        lags[group_id].append(None if end is None or end < offset else end - offset)
        last[group_id] = max(filter(None, (at, last.get(group_id))), default=None)
    return {name: _sum(found, last[name]) for name, found in lags.items()}


def _ends(tables: Tables) -> Mapping[tuple[str, int], int | None]:
    """Return the log end offsets by topic and partition."""
    until = tables.manifest.observed_until
    last = 0 if until is None else micros(until)
    return {
        (topic, partition): end
        for topic, partition, end, at in rows_of(tables.read("log_ends", _ENDS))
        if last <= at + _CLOCKS
    }


def _sum(lags: list[int | None], last: int | None) -> GroupLag:
    known = [lag for lag in lags if lag is not None]
    return GroupLag(
        total=sum(known) if known else None,
        worst=max(known, default=None),
        unknown=len(lags) - len(known),
        last_commit=last,
    )
