"""News of a scan, by group, and the choice of groups that go on from where the last scan stopped.

A group goes on from its state if its new rows follow on what was told: its records in the order of
offsets and of times, none before the latest of those that were read, its requests after the time up
to which it was told. Any other group that has
news is told anew, from all records and requests that the lake holds of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from rebal.inspectors.fleet.parts import PartWriter
from rebal.inspectors.fleet.timeline.order import DISORDER

_EPOCH: Final = 0
SERIES: Final = "series"
_ORDERED: Final = "in order"


class Series(NamedTuple):
    """A group's new records in one partition, or its new requests (`partition` is None).

    `first` and `last` bound the offsets, `since` and `until` the times (microseconds since 1970;
    None: nothing has a time). `ordered` is whether times follow the offsets.
    """

    group_id: str
    partition: int | None
    first: int
    last: int
    since: int | None
    until: int | None
    ordered: bool = True

    def then(self, later: Series) -> Series:
        """The two as one; `later` has the higher offsets, if they do not overlap."""
        times = [at for at in (self.since, self.until, later.since, later.until) if at is not None]
        follows = self.last < later.first and _in_order(self.until, later.since)
        return self._replace(
            last=max(self.last, later.last),
            since=min(times, default=None),
            until=max(times, default=None),
            ordered=self.ordered and later.ordered and (self.partition is None or follows),
        )


class State(NamedTuple):
    """A group's state as the lake describes it: the scan that wrote it, and where it stopped.

    `usable` is whether this rebal can go on from it; the others are as in `schemas.STATES`.
    """

    scan_id: int
    usable: bool
    partition: int | None
    offset: int | None
    told_until: int
    latest: int | None
    recorded: bool
    unnamed: tuple[str, ...]


@dataclass(frozen=True)
class News:
    """Groups with news, of which this scan writes rows.

    Those in `go_on` have a state, by the scan that wrote it; `anew` are told from all that the lake
    has of them, by effective times (clock.settle). `recorded` have records.
    """

    groups: frozenset[str]
    go_on: Mapping[str, int]
    anew: frozenset[str]
    recorded: frozenset[str]


class Places:
    """Notes a task's new rows of groups; `report` them to the driver."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int | None], Series] = {}

    def note(
        self, groups: pa.DictionaryArray, rows: pa.Table, time: str, *, of_records: bool
    ) -> None:
        """Rows with their groups and the column `time`."""
        at = rows[time].combine_chunks().cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        told = at.is_valid().to_numpy(zero_copy_only=False)
        times = at.fill_null(_EPOCH).to_numpy(zero_copy_only=False)
        codes = groups.indices.to_numpy(zero_copy_only=False)
        partitions = offsets = np.zeros(len(rows), np.int64)
        if of_records:
            partitions, offsets = (
                rows[name].combine_chunks().fill_null(-1).to_numpy(zero_copy_only=False)
                for name in ("partition", "offset")
            )
        order = np.lexsort((offsets, partitions, codes))
        codes, partitions, offsets = codes[order], partitions[order], offsets[order]
        told, times = told[order], times[order]
        starts = np.flatnonzero((np.diff(codes) != 0) | (np.diff(partitions) != 0)) + 1
        names = groups.dictionary.to_pylist()
        for start, end in zip([0, *starts.tolist()], [*starts.tolist(), len(rows)], strict=True):
            mine = times[start:end][told[start:end]]
            whole = not of_records or (len(mine) == end - start and not (np.diff(mine) < 0).any())
            self._add(
                Series(
                    names[codes[start]],
                    int(partitions[start]) if of_records else None,
                    int(offsets[start]),
                    int(offsets[end - 1]),
                    int(mine.min()) if len(mine) else None,
                    int(mine.max()) if len(mine) else None,
                    bool(whole),
                )
            )

    def report(self, writer: PartWriter) -> None:
        """Say what was noted, in rows of `parts.REPORT`."""
        for one in self._found.values():
            partition = "" if one.partition is None else str(one.partition)
            times = (None if at is None else str(at) for at in (one.since, one.until))
            kind = _ORDERED if one.ordered else ""
            writer.say(SERIES, one.group_id, f"{kind}/{partition}", one.first, one.last, *times)

    def _add(self, one: Series) -> None:
        key = (one.group_id, one.partition)
        before = self._found.get(key)
        self._found[key] = one if before is None else before.then(one)


def read_series(row: Any) -> Series:
    """Return the series that a row of `parts.REPORT` says."""
    _, group_id, file, first, last, *times = row
    kind, partition = file.split("/")
    since, until = (None if at is None else int(at) for at in times)
    number = int(partition) if partition else None
    return Series(group_id, number, first, last, since, until, kind == _ORDERED)


def told_until(found: Iterable[Series]) -> int | None:
    """Return up to which time what was read is whole; None: all of it is.

    Where a scan read records and requests, one may go on after the other ends.
    """
    last: dict[bool, int] = {}
    for one in found:
        if one.until is not None:
            of_records = one.partition is not None
            last[of_records] = max(one.until, last.get(of_records, one.until))
    return min(last.values()) - DISORDER if len(last) > 1 else None


def find_news(
    found: Iterable[Series],
    states: Mapping[str, State],
    span: tuple[int, int] | None,
    named: Collection[str],
) -> News:
    """Return which groups are to be told, and how.

    `found` are the tasks' series, `states` those of the lake by group, `span` the time that all
    sources cover (microseconds since 1970), and `named` the ids of topics whose names are new.
    """
    whole: dict[tuple[str, int | None], Series] = {}
    for one in sorted(found, key=lambda one: one.first):
        key = (one.group_id, one.partition)
        before = whole.get(key)
        whole[key] = one if before is None else before.then(one)
    news = {group_id for group_id, _ in whole}
    again = {
        one.group_id
        for one in whole.values()
        if not (_follows(one, states.get(one.group_id)) and _sure(one, span))
    }
    ids = frozenset(named)
    if ids:
        renamed = {group_id for group_id, one in states.items() if ids & set(one.unnamed)}
        news, again = news | renamed, again | renamed
    recorded = {group_id for group_id, partition in whole if partition is not None}
    recorded |= {group_id for group_id in news & states.keys() if states[group_id].recorded}
    return News(
        groups=frozenset(news),
        go_on={name: states[name].scan_id for name in (news & states.keys()) - again},
        anew=frozenset(again),
        recorded=frozenset(recorded),
    )


def _sure(one: Series, span: tuple[int, int] | None) -> bool:
    """Return whether its times are those of its records."""
    if not one.ordered:
        return False
    if one.partition is None or span is None or one.since is None or one.until is None:
        return True
    return span[0] <= one.since and one.until <= span[1]


def _follows(one: Series, state: State | None) -> bool:
    """Return whether these rows come after all that the state has been told."""
    if state is None:
        return True
    if not state.usable:
        return False
    if one.partition is None:
        return one.since is None or one.since > state.told_until
    if not state.recorded or state.partition not in (None, one.partition):
        return False
    if state.offset is not None and one.first <= state.offset:
        return False
    # Which of the times up to the latest are believed stays the same only if none of the new ones
    # is before it (clock.believed).
    return _in_order(state.told_until, one.since) and _in_order(state.latest, one.since)


def _in_order(before: int | None, after: int | None) -> bool:
    return before is None or after is None or before <= after
