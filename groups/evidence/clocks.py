"""Placing the times of logs that print no zone: `placed(snapshot, seen)`; pure.

Log4j's default `%d` is the local time of whoever wrote the log. How far that clock is ahead of UTC
follows from moments that are known twice: a client's start time, which it prints in milliseconds
since 1970; a join that another log dates; the generation that the offsets topic dates; and the last
line of a file that was written moments ago. Zones are whole quarters of an hour, and all moments of
one clock must agree. Where nothing tells, the times are None: nothing is ordered by them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from rebal.groups.evidence.observations import (
    Joined,
    LogRead,
    Observation,
    Rebalanced,
    Seen,
)
from rebal.groups.model import Evidence, GroupSnapshot

_QUARTER: Final = timedelta(minutes=15)
_WEST, _EAST = timedelta(hours=-12), timedelta(hours=14)
# How far apart two clocks, and two sides of one join, may be.
_TOLERANCE: Final = timedelta(minutes=2)
# A file's last line and its last write are one moment; a longer silence could pass for a zone.
_WRITTEN: Final = timedelta(seconds=2)
_JUST_NOW: Final = timedelta(minutes=10)
# Beyond this, and in the months in which clocks are changed, an offset may not be the same.
_STEADY: Final = timedelta(days=1)
_CHANGING: Final = frozenset({2, 3, 4, 9, 10, 11})


class _Clock:
    """One origin's clock. `offset` is how far it is ahead of UTC (None: not known)."""

    def __init__(self) -> None:
        self.anchors: set[tuple[datetime, datetime]] = set()
        self.logs: list[LogRead] = []

    @property
    def offset(self) -> timedelta | None:
        found = {_whole(local - known, _TOLERANCE) for local, known in self.anchors}
        if len(found) != 1:
            return None
        (offset,) = found
        if offset is None or any(_in_future(log, offset) for log in self.logs):
            return None
        return offset

    def moment(self, local: datetime | None) -> datetime | None:
        """The moment of a local time; None where the offset may have been another one."""
        offset = self.offset
        if local is None or offset is None:
            return None
        known = sorted(each for each, _ in self.anchors)
        if known[0] <= local <= known[-1]:
            return local - offset
        nearest = min(known, key=lambda each: abs(each - local))
        return local - offset if _steady(nearest, local) else None


def placed(
    snapshot: GroupSnapshot, seen: Iterable[Observation]
) -> tuple[list[Observation], dict[str, timedelta | None]]:
    """`seen` with all times as moments or None; of each clock without a zone, its offset."""
    found = list(seen)
    clocks: dict[str, _Clock] = {}
    for one in found:
        if isinstance(one, Seen | LogRead) and one.local and one.origin:
            clocks.setdefault(one.origin, _Clock())
    if not clocks:
        return found, {}
    for one in found:
        if isinstance(one, LogRead) and one.origin in clocks:
            clocks[one.origin].logs.append(one)
            clocks[one.origin].anchors |= {*one.anchors, *_just_written(one)}
    known = dict(_dated(snapshot))
    while True:
        before = {name: len(clock.anchors) for name, clock in clocks.items()}
        _tie(found, clocks, known)
        if before == {name: len(clock.anchors) for name, clock in clocks.items()}:
            break
    offsets = {name: clock.offset for name, clock in clocks.items()}
    return [_placed(one, clocks) for one in found], offsets


_Event = tuple[str, str, int]


def _dated(snapshot: GroupSnapshot) -> Iterator[tuple[_Event, datetime]]:
    group = snapshot.group
    if group.generation is not None and group.generation_at is not None:
        yield (group.group_id, "", group.generation), group.generation_at


def _event(one: Observation) -> _Event | None:
    """What another source may date: a member's first join of a generation, or the generation."""
    if isinstance(one, Joined) and one.accepted and one.generation_id is not None:
        return one.group_id, one.member_id, one.generation_id
    if isinstance(one, Rebalanced):
        return one.group_id, "", one.generation_id
    return None


def _tie(
    seen: Sequence[Observation], clocks: dict[str, _Clock], known: dict[_Event, datetime]
) -> None:
    """Take over each moment that a log with a known clock gives to an event of another."""
    for one in seen:
        event = _event(one)
        if event is None or not isinstance(one, Joined | Rebalanced) or one.at is None:
            continue
        at = clocks[one.origin].moment(one.at) if one.local and one.origin else one.at
        if at is not None:
            known[event] = min(known.get(event, at), at)
    for one in seen:
        event = _event(one)
        if event not in known or not isinstance(one, Joined | Rebalanced):
            continue
        if one.local and one.origin and one.at is not None:
            clock = clocks[one.origin]
            # A rejoin in the same generation is later than the join that the other source dates.
            if clock.offset is None and _whole(one.at - known[event], _TOLERANCE) is not None:
                clock.anchors.add((one.at, known[event]))


def _just_written(log: LogRead) -> Iterator[tuple[datetime, datetime]]:
    if log.last_at is None or log.written_at is None or log.read_at is None:
        return
    fresh = abs(log.read_at - log.written_at) <= _JUST_NOW
    if fresh and _whole(log.last_at - log.written_at, _WRITTEN) is not None:
        yield log.last_at, log.written_at


def _whole(difference: timedelta, tolerance: timedelta) -> timedelta | None:
    """The zone that the difference of two clocks is, if it can be one."""
    offset = round(difference / _QUARTER) * _QUARTER
    possible = _WEST <= offset <= _EAST and abs(difference - offset) <= tolerance
    return offset if possible else None


def _in_future(log: LogRead, offset: timedelta) -> bool:
    if log.last_at is None or log.read_at is None:
        return False
    return log.last_at - offset > log.read_at + _TOLERANCE


def _steady(one: datetime, other: datetime) -> bool:
    """Whether no zone can have changed its offset between the two times."""
    first, last = min(one, other), max(one, other)
    if last - first <= _STEADY:
        return True
    if last - first > timedelta(days=120):
        return False
    months = {(first + timedelta(days=day)).month for day in range((last - first).days + 1)}
    return not (months | {last.month}) & _CHANGING


def _placed(one: Observation, clocks: dict[str, _Clock]) -> Observation:
    if not isinstance(one, Seen | LogRead) or not one.local:
        return one
    clock = clocks.get(one.origin) or _Clock()
    if isinstance(one, LogRead):
        return replace(one, local=False, last_at=clock.moment(one.last_at))
    evidence = getattr(one, "evidence")  # noqa: B009 (each kind of Seen has it)
    changed: dict[str, object] = {"local": False, "evidence": _moved(evidence, clock)}
    for name in ("at", "built_at"):
        if hasattr(one, name):
            changed[name] = clock.moment(getattr(one, name))
    software = getattr(one, "software", None)
    if software is not None:
        said = tuple(_moved(item, clock) for item in software.evidence)
        changed["software"] = replace(software, evidence=said)
    return replace(one, **changed)


def _moved(evidence: Evidence, clock: _Clock) -> Evidence:
    return replace(evidence, at=clock.moment(evidence.at))


def zone_notes(seen: Sequence[Observation], offsets: dict[str, timedelta | None]) -> Iterator[str]:
    """One sentence for each offset that the times of `seen` were read with, one for none."""
    shown = {one.origin for one in seen if isinstance(one, Seen)}
    kinds: dict[timedelta | None, dict[str, bool]] = defaultdict(dict)
    for one in seen:
        if isinstance(one, LogRead) and one.origin in offsets and one.origin in shown:
            kinds[offsets[one.origin]][one.origin] = one.client
    for offset, origins in sorted(kinds.items(), key=lambda each: (each[0] is None, str(each[0]))):
        clients = sum(origins.values())
        counted = [
            f"{number} {name} log{'' if number == 1 else 's'}"
            for number, name in ((len(origins) - clients, "request"), (clients, "client"))
            if number
        ]
        named = " and ".join(counted)
        if offset is None:
            yield (
                f"times of {named} are not used: no zone is printed, and none could be determined; "
                "add --log-timezone ZONE"
            )
        else:
            yield f"times of {named} are read as {_named(offset)}: no zone is printed"


def _named(offset: timedelta) -> str:
    if not offset:
        return "UTC"
    minutes = abs(int(offset.total_seconds())) // 60
    return f"UTC{'-' if offset < timedelta(0) else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
