"""The groups' lag at the time of a scan: `read_lag`.

Lag is the log end offset less the committed offset of a partition. A scan of a live cluster asks
the brokers for the log end offsets; captured files and log segments do not show them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from rebal.groups.model import Record
from rebal.inspectors.fleet.manifest import Manifest
from rebal.inspectors.tables.columns import rows_of
from rebal.inspectors.tables.reader import Tables

_CLOCKS: Final = timedelta(minutes=5)
"""Records' times are the brokers', the time at which they were asked is the scanning machine's."""
_COLUMNS: Final = ("group_id", "topic", "topic_partition", "committed_offset", "committed_at")


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
        TablesError: the table `commits` cannot be read.
    """
    ends = _ends(tables.manifest)
    lags: dict[str, list[int | None]] = defaultdict(list)
    last: dict[str, int | None] = {}
    for group_id, topic, partition, offset, at in rows_of(tables.read("commits", _COLUMNS)):
        if offset is None:
            continue
        of_topic = ends.get(topic, ())
        end = of_topic[partition] if partition < len(of_topic) else None
        lags[group_id].append(None if end is None or end < offset else end - offset)
        last[group_id] = max(filter(None, (at, last.get(group_id))), default=None)
    return {name: _sum(found, last[name]) for name, found in lags.items()}


def _ends(manifest: Manifest) -> Mapping[str, tuple[int | None, ...]]:
    brokers, until = manifest.brokers, manifest.observed_until
    if brokers is None or (until is not None and until > brokers.at + _CLOCKS):
        return {}
    return brokers.ends


def _sum(lags: list[int | None], last: int | None) -> GroupLag:
    known = [lag for lag in lags if lag is not None]
    return GroupLag(
        total=sum(known) if known else None,
        worst=max(known, default=None),
        unknown=len(lags) - len(known),
        last_commit=last,
    )
