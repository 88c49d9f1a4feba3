"""Logs as evidence: the group's logs (`own`), UTC times (`with_utc_times`), loads (`with_loads`).

A group id is not unique: another cluster may use it too, and an old log shows an earlier time of
the group. A log is the group's own if it shows a member id that is in the group now, or names the
group's cluster or coordinator. A log with rejections alone may show none of these, because a
rejected client is no member. It counts if it ends close to the time of the snapshot and shows no
join of a client that is not in the group. A client's log that ends with a rejection counts for a
day: many clients stop then.

Log4j's default `%d` prints local time without a zone. The offset from UTC follows from moments that
are known in both clocks: a client's start time (printed in milliseconds since 1970), a join that
another log dates, the generation that the offsets topic dates, and the last line of a file that was
written moments ago. Offsets are those of a zone in use, and all moments of one clock must agree.
Where the offset cannot be determined, times are None and nothing is ordered by them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from rebal.groups.evidence.absent import is_after
from rebal.groups.evidence.exact import when
from rebal.groups.evidence.observations import (
    Introduced,
    Joined,
    Left,
    Loaded,
    LogRead,
    Observation,
    Ran,
    Rebalanced,
    Refused,
    Seen,
    by_field,
)
from rebal.groups.model import GroupSnapshot, Member, Record, Software, Source, Tri

# A log that ends so shortly before the group was read, or after it, is of now.
NOW: Final = timedelta(minutes=5)
# So long before that a rejected client may have stopped, and printed nothing more.
_STOPPED: Final = timedelta(days=1)


class LogCoverage(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Ids of the members whose start a client log shows (`covered`), and of the other members."""

    covered: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()


def log_coverage(snapshot: GroupSnapshot) -> LogCoverage:
    """Return the ids of the members that client logs cover, and of those that they do not."""
    at_odds = {
        found.member_id
        for found in snapshot.contradictions
        for item in found.evidence
        if item.source is Source.CLIENT_LOG
    }
    ids: dict[bool, list[str]] = {True: [], False: []}
    for member in snapshot.members:
        ids[member.member_id in at_odds or _in_client_log(member)].append(member.member_id)
    return LogCoverage(covered=tuple(ids[True]), not_covered=tuple(ids[False]))


def _in_client_log(member: Member) -> bool:
    # A client other than Java shows its family alone, where its log does not show its start.
    software = member.software
    named = software if software is not None and software.family and software.name else None
    return any(
        item.source is Source.CLIENT_LOG
        for fact in (member.assignors, named, member.ran)
        if fact is not None
        for item in fact.evidence
    )


def in_order(seen: Sequence[Observation]) -> list[Observation]:
    """Return `seen`, with lines renumbered by time in logs that are not in the order of time.

    In these logs the last line is not the newest (`ends_with_newest`).
    """
    numbers: dict[tuple[str, int], int] = {}
    for log, found in by_field(seen, Seen, "log").items():
        found.sort(key=lambda one: one.line)
        end = found[-1].at
        if log and end and not ends_with_newest([one.at for one in found]):
            found.sort(key=lambda one: one.at or end)
            numbers |= {(log, one.line): number for number, one in enumerate(found)}
    return [
        replace(one, line=numbers.get((one.log, one.line), one.line))
        if isinstance(one, Seen)
        else one
        for one in seen
    ]


def ends_with_newest(times: Sequence[datetime | None]) -> bool:
    """Return whether the last line of a log is its newest, to within 1 s.

    If it is not, the log was exported newest first, or is made of rotated files joined by name. If
    it is, the order of the lines holds even if their times go back: clocks are set back at times,
    and threads of one program print less than a second out of order.
    """
    end = times[-1] if times else None
    return end is None or all(at is None or at - end <= timedelta(seconds=1) for at in times)


def own(
    snapshot: GroupSnapshot, seen: Sequence[Observation]
) -> tuple[list[Observation], tuple[str, ...]]:
    """Return `seen` without the logs that are not the group's own, and notes for the user.

    The notes are on the logs left out and on doubtful logs. Observations of doubtful logs are kept,
    and so are those without an origin, which come from no log.
    """
    origins = by_field(seen, Seen, "origin")
    logs = by_field(seen, LogRead, "origin")
    answers = {
        name: _is_own(snapshot, found, logs.get(name, []))
        for name, found in origins.items()
        if name
    }
    foreign = {name: logs.get(name, []) for name, answer in answers.items() if answer is Tri.NO}
    kept = [one for one in seen if not (isinstance(one, Seen) and one.origin in foreign)]
    unsure = {
        one.log
        for one in kept
        if isinstance(one, Refused) and answers.get(one.origin) is Tri.CANNOT_TELL
    }
    return kept, (
        *_notes(foreign),
        *(
            f"{log} shows rejections, and names no member of this group, nor its cluster or "
            "coordinator alone: leave the log out if they are another cluster's"
            for log in sorted(unsure)
        ),
    )


def _is_own(snapshot: GroupSnapshot, found: Sequence[Seen], logs: Sequence[LogRead]) -> Tri:
    """Return whether a log is the group's own, not that of another cluster or an earlier time.

    Yes if it shows a member id that is in the group now, or names the group's cluster or
    coordinator. No if it names other clusters alone, `cannot tell` if it names the group's among
    others. Otherwise `cannot tell` if it ends close to the time of the snapshot, or up to a day off
    if a client's log ends with a rejection, and shows no join of a client that is not in the group,
    else no.
    """
    group = snapshot.group
    here = {member.member_id for member in snapshot.members}
    if any(isinstance(o, Joined | Introduced | Ran) and o.member_id in here for o in found) or any(
        (group.group_id, member_id) in log.members for log in logs for member_id in here
    ):
        return Tri.YES
    named = {cluster_id for log in logs for cluster_id in log.cluster_ids}
    if named and snapshot.cluster.cluster_id is not None:
        # A program may also be a client of another cluster.
        among = Tri.CANNOT_TELL if len(named) > 1 else Tri.YES
        return among if snapshot.cluster.cluster_id in named else Tri.NO
    main = group.coordinator
    if main and main.host and any(log.broker == f"{main.host}:{main.port}" for log in logs):
        return Tri.YES
    # Whoever joined and did not leave should be in the group.
    strangers = {one.member_id for one in found if isinstance(one, Joined) and one.accepted}
    strangers -= {one.member_id for one in found if isinstance(one, Left)}
    strangers -= {o.replaced_member_id or "" for o in found if isinstance(o, Joined)}
    last = max(found, key=lambda one: (when(one.at), one.line))
    is_of_now = any(
        log.last_at
        and abs(snapshot.captured_at - log.last_at)
        <= (_STOPPED if log.kind == "client" and isinstance(last, Refused) else NOW)
        for log in logs
    )
    return Tri.CANNOT_TELL if is_of_now and not strangers else Tri.NO


def _notes(foreign: dict[str, list[LogRead]]) -> Iterator[str]:
    kinds = Counter(log.kind for logs in foreign.values() for log in logs[:1])
    for kind, number in sorted(kinds.items(), reverse=True):
        one, whose = number == 1, "member" if kind == "client" else "broker"
        yield (
            f"{number} {kind} log{'' if one else 's'} of this group show{'s' if one else ''} none "
            f"of its members, so {'it is' if one else 'they are'} of another {whose}, cluster or "
            f"time and {'is' if one else 'are'} not used"
        )


_QUARTER: Final = timedelta(minutes=15)
# The zones that are in use (tz database, 2026): whole hours from UTC, and these minutes.
_OFFSETS: Final = frozenset(
    timedelta(minutes=each)
    for each in (
        *range(-720, 841, 60),
        *(-570, -210, -150, 210, 270, 330, 345, 390, 525, 570, 630, 765, 825),
    )
)
# Largest difference between two clocks, and between the two sides of one join.
_TOLERANCE: Final = timedelta(minutes=2)
# A file's last line and its last write are one moment; a longer silence could pass for a zone.
_WRITTEN: Final = timedelta(seconds=2)
_JUST_NOW: Final = timedelta(minutes=10)
# Beyond this, and in the months in which clocks are changed, an offset may not be the same.
_STEADY: Final = timedelta(days=1)
_SEASON: Final = timedelta(days=120)


class _Clock:
    """Clock of one log origin: the broker or client whose log it is.

    `offset` is how far its local time is ahead of UTC (None: not known).
    """

    def __init__(self) -> None:
        self.anchors: set[tuple[datetime, datetime]] = set()
        self.logs: list[LogRead] = []
        # The number of anchors, and the offset that they give.
        self._known: tuple[int, timedelta | None] = (0, None)

    @property
    def offset(self) -> timedelta | None:
        if self._known[0] != len(self.anchors):
            self._known = len(self.anchors), self._offset()
        return self._known[1]

    def _offset(self) -> timedelta | None:
        found = {zone_offset(local - known) for local, known in self.anchors}
        if len(found) != 1:
            return None
        (offset,) = found
        in_future = offset is not None and any(
            log.last_at and log.read_at and log.last_at - offset > log.read_at + _TOLERANCE
            for log in self.logs
        )
        return None if in_future else offset

    def moment(self, local: datetime | None) -> datetime | None:
        """Return the local time in UTC; None where the offset from UTC is not certain."""
        offset = self.offset
        if local is None or offset is None:
            return None
        known = [each for each, _ in self.anchors]
        if min(known) <= local <= max(known):
            return local - offset
        nearest = min(known, key=lambda each: abs(each - local))
        return local - offset if _steady(nearest, local) else None


_Event = tuple[str, str, int]


def with_utc_times(
    snapshot: GroupSnapshot, seen: Iterable[Observation]
) -> tuple[list[Observation], dict[str, timedelta | None]]:
    """Return `seen` with all local times converted to UTC, and origin → offset from UTC.

    Times and offset are None where the offset is unknown, and where a log of a known zone would end
    later than it was read: its zone or a clock is wrong.
    """
    found = [_by_brokers(snapshot, one) if isinstance(one, LogRead) else one for one in seen]
    wrong: dict[str, timedelta | None] = {
        log.origin: None
        for log in found
        if isinstance(log, LogRead) and not log.local and log.last_at and log.read_at
        if log.last_at > log.read_at + _TOLERANCE
    }
    found = [
        _placed(replace(one, local=True), {})
        if isinstance(one, Seen) and one.origin in wrong
        else one
        for one in found
    ]
    local = {one.origin for one in found if isinstance(one, Seen | LogRead) and one.local}
    clocks = {name: _Clock() for name in local if name}
    if not clocks:
        return found, wrong
    for one in found:
        if isinstance(one, LogRead) and one.origin in clocks:
            clocks[one.origin].logs.append(one)
            clocks[one.origin].anchors |= {*one.anchors, *_just_written(one)}
    group = snapshot.group
    known: dict[_Event, datetime] = {}
    if group.generation is not None and group.generation_at is not None:
        known[group.group_id, "", group.generation] = group.generation_at
    events = list(_events(found))
    while _add_anchors(events, clocks, known):
        pass
    return (
        [_placed(one, clocks) for one in found],
        {name: clock.offset for name, clock in clocks.items()} | wrong,
    )


def _by_brokers(snapshot: GroupSnapshot, log: LogRead) -> LogRead:
    """Return `log` with `read_at` and `written_at` converted to the brokers' clock.

    The machine that reads the group also reads the log, so `read_at` is ahead by `clock_ahead_ms`.
    The file may be written by another machine: `written_at` is converted too only if it is nearer
    to `read_at` before the conversion than after it. A log that was read more than 10 minutes
    before or after the group stays as it is.
    """
    ahead = timedelta(milliseconds=snapshot.clock_ahead_ms)
    if not ahead or log.read_at is None:
        return log
    read_at, written_at = log.read_at - ahead, log.written_at
    if abs(read_at - snapshot.captured_at) > _JUST_NOW:
        return log
    if written_at is not None and abs(log.read_at - written_at) < abs(read_at - written_at):
        written_at -= ahead
    return replace(log, read_at=read_at, written_at=written_at)


def _events(
    seen: Iterable[Observation],
) -> Iterator[tuple[_Event, datetime, Joined | Rebalanced]]:
    for one in seen:
        if isinstance(one, Rebalanced) and one.at is not None:
            yield (one.group_id, "", one.generation_id), one.at, one
        elif isinstance(one, Joined) and one.accepted and one.at and one.generation_id is not None:
            yield (one.group_id, one.member_id, one.generation_id), one.at, one


def _add_anchors(
    events: Sequence[tuple[_Event, datetime, Joined | Rebalanced]],
    clocks: dict[str, _Clock],
    known: dict[_Event, datetime],
) -> bool:
    """Anchor unknown clocks by events that known clocks date; return whether any was anchored.

    An anchor is one moment in the clock's local time and in UTC. `known` is event → time in UTC,
    and gets the events that known clocks date. If a clock was anchored, another call may date more
    events.
    """
    before = sum(len(clock.anchors) for clock in clocks.values())
    for event, printed, one in events:
        at = clocks[one.origin].moment(printed) if one.local and one.origin else printed
        if at is not None:
            known[event] = min(known.get(event, at), at)
    for event, printed, one in events:
        if event in known and one.local and one.origin:
            clock = clocks[one.origin]
            # A rejoin in the same generation is later than the join that the other source dates.
            if clock.offset is None and zone_offset(printed - known[event]) is not None:
                clock.anchors.add((printed, known[event]))
    return sum(len(clock.anchors) for clock in clocks.values()) > before


def _just_written(log: LogRead) -> Iterator[tuple[datetime, datetime]]:
    if (
        log.last_at is not None
        and log.written_at is not None
        and log.read_at is not None
        and abs(log.read_at - log.written_at) <= _JUST_NOW
        and zone_offset(log.last_at - log.written_at, _WRITTEN) is not None
    ):
        yield log.last_at, log.written_at


def zone_offset(difference: timedelta, tolerance: timedelta = _TOLERANCE) -> timedelta | None:
    """Return the time zone offset nearest to `difference`, the difference of two clocks.

    None if no zone in use has this offset, to within `tolerance`.
    """
    offset = round(difference / _QUARTER) * _QUARTER
    return offset if offset in _OFFSETS and abs(difference - offset) <= tolerance else None


def _steady(one: datetime, other: datetime) -> bool:
    """Return whether no zone can have changed its offset between the two times (daylight saving).

    True up to one day, and up to 120 days if no month in which clocks are changed lies between.
    """
    first, last = min(one, other), max(one, other)
    if not _STEADY < last - first <= _SEASON:
        return last - first <= _STEADY
    months = {(first + timedelta(days=day)).month for day in range((last - first).days + 1)}
    return {*months, last.month} <= {1, 5, 6, 7, 8, 12}


def _placed(one: Observation, clocks: dict[str, _Clock]) -> Observation:
    if not isinstance(one, Seen | LogRead) or not one.local:
        return one
    clock = clocks.get(one.origin) or _Clock()
    if isinstance(one, LogRead):
        return replace(one, local=False, last_at=clock.moment(one.last_at))
    changed: dict[str, object] = {
        "local": False,
        "at": clock.moment(one.at),
        "evidence": replace(one.evidence, at=clock.moment(one.evidence.at)),
    }
    if isinstance(one, Joined):
        changed["built_at"] = clock.moment(one.built_at)
    software: Software | None = getattr(one, "software", None)
    if software is not None:
        said = tuple(replace(item, at=clock.moment(item.at)) for item in software.evidence)
        changed["software"] = replace(software, evidence=said)
    return replace(one, **changed)


def zone_notes(seen: Sequence[Observation], used: dict[str, timedelta | None]) -> Iterator[str]:
    """Yield a note for each offset from UTC that was used, and one for logs of unknown offset.

    `used` is origin → offset (None: not known).
    """
    kinds: dict[timedelta | None, dict[str, str]] = defaultdict(dict)
    for one in seen:
        if isinstance(one, LogRead) and one.origin in used:
            kinds[used[one.origin]][one.origin] = one.kind
    for offset, origins in sorted(kinds.items(), key=lambda each: (each[0] is None, str(each[0]))):
        named = " and ".join(
            f"{number} {name} log{'' if number == 1 else 's'}"
            for name, number in sorted(Counter(origins.values()).items(), reverse=True)
        )
        if offset is None:
            yield (
                f"times of {named} are not used: no zone that fits is printed or given, and none "
                "could be determined; --log-timezone ZONE gives one"
            )
        else:
            yield f"times of {named} are read as {zone_name(offset)}: no zone is printed"


def zone_name(offset: timedelta) -> str:
    """Return an offset from UTC as people write it: `UTC-05:00`."""
    if not offset:
        return "UTC"
    minutes = abs(int(offset.total_seconds())) // 60
    return f"UTC{'-' if offset < timedelta(0) else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def with_loads(snapshot: GroupSnapshot, seen: Sequence[Observation]) -> GroupSnapshot:
    """Return `snapshot` with the last load of the group, as the coordinator's own log shows it.

    After a load the coordinator remembers only the elected assignor of each member, until the
    member rejoins. If the records of `__consumer_offsets` answer whether a rebalance has completed
    since the load, their answer stays. Otherwise the log of the broker that is the coordinator now
    may answer it, because each load and each completed rebalance is a line there. The log must end
    close to the time at which the group was read, else it could miss a load. Of several files the
    newest that shows the answer counts. A rebalance counts only if the same file also names a
    member that is in the group now.
    """
    coordinator = snapshot.group.coordinator
    if coordinator is None or coordinator.rebalanced_since_load is not Tri.CANNOT_TELL:
        return snapshot
    here = {(snapshot.group.group_id, member.member_id) for member in snapshot.members}
    for log in sorted(
        (one for one in seen if isinstance(one, LogRead)),
        key=lambda one: when(one.last_at),
        reverse=True,
    ):
        if not (
            log.broker_id == coordinator.broker_id
            and log.last_at is not None
            and abs(snapshot.captured_at - log.last_at) <= NOW
        ):
            continue
        shown = [one for one in seen if isinstance(one, Seen) and one.log == log.log]
        loads = [one for one in shown if isinstance(one, Loaded)]
        load = max(loads, key=lambda one: one.line, default=None)
        rebalanced = any(
            isinstance(one, Rebalanced) and (load is None or is_after(one, load)) for one in shown
        )
        named = log.members | {(o.group_id, o.member_id) for o in shown if isinstance(o, Joined)}
        if not here.isdisjoint(named) if rebalanced else load is not None:
            made = replace(
                coordinator,
                rebalanced_since_load=Tri.YES if rebalanced else Tri.NO,
                rebalanced_why=(
                    f"{log.log} shows {'a' if rebalanced else 'no'} rebalance after the last load"
                ),
                loaded_at=load.at if load is not None else coordinator.loaded_at,
            )
            return replace(snapshot, group=replace(snapshot.group, coordinator=made))
    return snapshot
