"""The broker's request log: who joined with which assignors, who was refused, who left.

Reads the JSON lines of `kafka.request.logger` at DEBUG (KIP-673; brokers >= 2.8) in any layout:
`Completed request:{…}` with whatever stands before and after it, or that line inside a JSON
wrapper. A join answered with error 0 or 79 (MEMBER_ID_REQUIRED, KIP-394: the normal first answer)
binds an exact, ordered assignor list to a member id; errors 23, 26, 81 and 82 are rejections.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from rebal.groups.evidence.observations import LogRead, Observation
from rebal.groups.model import Record
from rebal.inspectors.logs.lines import Stamp, Zone, stamp_of
from rebal.inspectors.logs.requests import events
from rebal.inspectors.logs.requests.kept import kept, remember_given
from rebal.inspectors.logs.requests.lines import (
    BROKEN,
    MARK,
    NOT_JSON,
    OTHER,
    Request,
    origin,
    parse,
    present,
)
from rebal.inspectors.logs.text_input import Source, TextInput

_NO_ERROR: Final = 0
_MEMBER_ID_REQUIRED: Final = 79


class RequestLogCounts(Record, frozen=True, kw_only=True):
    """What was in the log. `requests` are lines of the request logger; the others are parts of it.

    `joins` succeeded or got their member id, `refusals` are rejections, `retries` other errors,
    `probes` joins with empty metadata (rebal's own question, no member); `not_json` lines are the
    format of brokers before 2.8; `broken` lines were cut off or are no valid JSON; `other` are
    requests of other kinds or groups. `first_at` and `last_at` bound the time that the log covers.
    """

    lines: int = 0
    requests: int = 0
    joins: int = 0
    refusals: int = 0
    retries: int = 0
    probes: int = 0
    syncs: int = 0
    leaves: int = 0
    consumer_heartbeats: int = 0
    other: int = 0
    not_json: int = 0
    broken: int = 0
    cut_off_sources: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None


class RequestLogReading(Record, frozen=True, kw_only=True):
    """What a request log shows of members, in the order of time, and how much was read.

    `logs` are observations too: of the brokers that wrote it.
    """

    observations: tuple[Observation, ...] = ()
    logs: tuple[LogRead, ...] = ()
    counts: RequestLogCounts = RequestLogCounts()


def read_request_log(
    sources: Sequence[Source],
    groups: Container[str] | None = None,
    tz_offset: Zone = None,
) -> RequestLogReading:
    """The joins, rejections, leaves and completed rebalances in one or several request logs.

    Times are those of the lines: when the request was COMPLETED (a join waits for the rebalance).
    A line without a zone is taken as of `tz_offset`; where that is not known its time is the log's
    own, written as UTC, and the observation is `local`. Sources may be given in any order; what
    they say is put in the order of time.

    Raises:
        DocumentError: a source cannot be read. Lines that make no sense are counted, never raised.
    """
    tally: dict[str, int] = {}
    logs = [_Log(TextInput(source)) for source in sources]
    requests: list[Request] = []
    for log in logs:
        requests += log.read(groups, tz_offset, tally)
    if len(sources) > 1 and all(r.at is not None for r in requests):
        requests.sort(key=_completed)
    history = events.History()
    found: list[Observation] = []
    for request in requests:
        found += _observe(request, history, tally)
    times = [stamp.at for log in logs for stamp in log.stamps]
    times += [r.at for r in requests if r.at is not None]
    return RequestLogReading(
        observations=tuple(found),
        logs=tuple(one for log in logs for one in log.origins()),
        counts=RequestLogCounts(
            first_at=min(times, default=None), last_at=max(times, default=None), **tally
        ),
    )


def _completed(request: Request) -> datetime:
    assert request.at is not None
    return request.at


class _Log:
    """One source: `read` gives its requests, then `origins` the brokers that wrote it."""

    def __init__(self, source: TextInput) -> None:
        self._source = source
        self._brokers: dict[str, bool] = {}
        self._present: dict[str, set[tuple[str, str]]] = {}
        # Those of its first and of its last line.
        self.stamps: list[Stamp] = []

    def read(
        self, groups: Container[str] | None, tz_offset: Zone, tally: dict[str, int]
    ) -> list[Request]:
        """The requests of these groups (None: of all); all lines are counted."""
        source = self._source
        requests: list[Request] = []
        lines = marked = 0
        first = last = b""
        for raw in source.lines():
            lines += 1
            if MARK not in raw:
                continue
            marked += 1
            last = raw
            first = first or raw
            heartbeat = present(raw)
            if heartbeat is not None:
                group_id, member_id, broker = heartbeat
                if groups is None or group_id in groups:
                    self._present.setdefault(broker, set()).add((group_id, member_id))
            parsed = parse(raw, f"{source.name}:{lines}", tz_offset)
            if isinstance(parsed, Request):
                if groups is None or parsed.group_id in groups:
                    requests.append(parsed)
                    self._brokers[parsed.broker] = parsed.local
                else:
                    _count(tally, "other")
            else:
                _count(tally, _TALLY[parsed])
        _count(tally, "lines", lines)
        _count(tally, "requests", marked)
        _count(tally, "cut_off_sources", int(source.cut_off))
        ends = (stamp_of(raw[:400].decode("utf-8", "replace"), tz_offset) for raw in (first, last))
        self.stamps = [stamp for stamp in ends if stamp is not None]
        return requests

    def origins(self) -> Iterator[LogRead]:
        """The brokers whose requests it holds."""
        name = self._source.name
        for broker in dict.fromkeys([*self._brokers, *self._present]):
            local = self._brokers.get(broker, any(stamp.local for stamp in self.stamps))
            yield LogRead(
                log=name,
                origin=origin(name, broker),
                local=local,
                last_at=max((stamp.at for stamp in self.stamps), default=None),
                written_at=self._source.written_at,
                read_at=datetime.now(UTC),
                broker=broker,
                members=frozenset(self._present.get(broker, ())),
            )


_TALLY: Final[Mapping[str, str]] = {BROKEN: "broken", NOT_JSON: "not_json", OTHER: "other"}


def _observe(
    request: Request, history: events.History, tally: dict[str, int]
) -> Sequence[Observation]:
    if request.api == "JOIN_GROUP":
        if request.error in events.REJECTIONS:
            if request.is_probe:
                _count(tally, "probes")
                return ()
            _count(tally, "refusals")
            return (events.refused(request),)
        if request.error in (_NO_ERROR, _MEMBER_ID_REQUIRED) and not request.is_probe:
            _count(tally, "joins")
            return (*events.joined(request, history), *kept(request, history))
        _count(tally, "probes" if request.is_probe else "retries")
        return ()
    if request.api == "SYNC_GROUP":
        _count(tally, "syncs")
        remember_given(request, history)
        return events.synced(request, history)
    if request.api == "LEAVE_GROUP":
        left = events.left(request, history)
        _count(tally, "leaves", len(left))
        return left
    _count(tally, "consumer_heartbeats")
    return events.introduced(request, history)


def _count(tally: dict[str, int], what: str, by: int = 1) -> None:
    tally[what] = tally.get(what, 0) + by
