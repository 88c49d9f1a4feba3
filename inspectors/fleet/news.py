"""News of a scan by group, and the choice of groups that go on from where the last scan stopped.

A group goes on from its state if its new rows follow on what was told: its records in the order of
offsets and of times, none before the latest of those that were read, its requests after the time up
to which it was told. The rows of any other group that has news are made anew, from all records and
requests that the lake holds of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from rebal.inspectors.fleet.timeline.events import DISORDER

_EPOCH: Final = 0


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


class News:
    """Series of a task's or a scan's new rows, by group and partition."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int | None], list[Series]] = {}

    def add(self, one: Series) -> None:
        """Add what a task found; series that overlap become one, so that few are held."""
        held = self._found.setdefault((one.group_id, one.partition), [])
        over = [other for other in held if other.first <= one.last and one.first <= other.last]
        for other in over:
            held.remove(other)
        held.append(_joined([one, *over]))

    def note(self, one: Series) -> None:
        """Add what was read after all that was added of the group and partition before."""
        held = self._found.setdefault((one.group_id, one.partition), [one])
        if held[0] is not one:
            held[0] = held[0].then(one)

    def __iter__(self) -> Iterator[Series]:
        """One series for each group and partition."""
        for held in self._found.values():
            yield _joined(held)

    @property
    def groups(self) -> frozenset[str]:
        """The groups that have new rows."""
        return frozenset(group_id for group_id, _ in self._found)

    def until(self, *, of_records: bool) -> int | None:
        """Return the last time of new records, or of new requests (microseconds since 1970)."""
        times = [one.until for one in self if (one.partition is not None) == of_records]
        return max((at for at in times if at is not None), default=None)

    def told_until(self) -> int | None:
        """Return up to which time what was read is whole; None: all of it is.

        Where a scan read records and requests, one may go on after the other ends.
        """
        records, requests = self.until(of_records=True), self.until(of_records=False)
        if records is None or requests is None:
            return None
        return min(records, requests) - DISORDER


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
    unnamed: frozenset[str]


@dataclass(frozen=True)
class Choice:
    """Groups with news, of which this scan writes rows.

    Those in `go_on` have a state, by the scan that wrote it; those `anew` start from all that the
    lake has of them, by effective times (clock.settle). `recorded` have records.
    """

    groups: frozenset[str]
    go_on: Mapping[str, int]
    anew: frozenset[str]
    recorded: frozenset[str]


def series_of(
    groups: pa.DictionaryArray, rows: pa.Table, time: str, *, of_records: bool
) -> Iterator[Series]:
    """Rows of a batch with their groups and the column `time` → their series."""
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
        yield Series(
            names[codes[start]],
            int(partitions[start]) if of_records else None,
            int(offsets[start]),
            int(offsets[end - 1]),
            int(mine.min()) if len(mine) else None,
            int(mine.max()) if len(mine) else None,
            bool(whole),
        )


def choose(
    news: News,
    states: Mapping[str, State],
    span: tuple[int, int] | None,
    named: Collection[str],
) -> Choice:
    """Return which groups are to be told, and how.

    `states` are those of the lake by group, of groups with news and of those in which a topic has
    no name; `span` is the time that all sources cover (microseconds since 1970), and `named` are
    the ids of topics whose names are new.
    """
    whole = list(news)
    again = {
        one.group_id
        for one in whole
        if not (_follows(one, states.get(one.group_id)) and _sure(one, span))
    }
    again |= {group_id for group_id, one in states.items() if not one.unnamed.isdisjoint(named)}
    groups = news.groups | again
    recorded = {one.group_id for one in whole if one.partition is not None}
    recorded |= {group_id for group_id in groups & states.keys() if states[group_id].recorded}
    return Choice(
        groups=groups,
        go_on={name: states[name].scan_id for name in (groups & states.keys()) - again},
        anew=frozenset(again),
        recorded=frozenset(recorded),
    )


def _joined(parts: Iterable[Series]) -> Series:
    return reduce(Series.then, sorted(parts, key=attrgetter("first")))


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
    # A time that is before the latest is not the record's effective one (clock.effective).
    return _in_order(state.told_until, one.since) and _in_order(state.latest, one.since)


def _in_order(before: int | None, after: int | None) -> bool:
    return before is None or after is None or before <= after
