"""A captured group's timeline as a script, and its recorded ids and polls in place of chance."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from rebal.planner.rehearsal.engine.agenda import Chance
from rebal.planner.rehearsal.engine.member import Process
from rebal.planner.rehearsal.scripts import Deed, ScriptEvent
from tests.planner.rehearsal.captures.capture import (
    BEAT,
    REJECTIONS,
    Capture,
    Group,
    Request,
    family,
)

_FENCED = 82
_NOT_YET = frozenset({14, 15, 16})
_ENDS = frozenset({"stop", "kill", "died"})
# The captures' members send a heartbeat about six times in a session, every 3 s at the most.
_BEATS, _LONGEST_BEAT = 6.0, 3.0
# A member joins again within a heartbeat, a poll and what a busy machine adds to it.
_LATE = 2.0
_AFTER = 0.001
_NEVER = 1e12
_AT_ONCE = 0.5


@dataclass(frozen=True)
class Start:
    """One start of one consumer; times in seconds since the story began.

    `until` is its client's next action. `errors` are the rejections it received, `reached` whether
    it reached the broker.
    """

    client_id: str
    at: float
    until: float
    process: Process
    errors: frozenset[int]
    reached: bool


class Story:
    """One group: its starts, the events of its script, and its requests by client."""

    def __init__(self, group: Group, capture: Capture) -> None:
        self.group = group
        self.begin = min([capture.begin, *(one.came for one in group.requests)])
        self.end = capture.end - self.begin
        self._topics = self._usual_topics()
        self.own_joins = list(self._joins_of_their_own())
        self.starts: list[Start] = []
        self.events: list[ScriptEvent] = []
        for number, event in enumerate(group.timeline):
            self._take(event, group.timeline[number + 1 :])
        told = list(self._busy())
        self.events += [*told, *self._left_while_running(told)]
        self.events += self._grown(capture)
        self.events.sort(key=lambda event: event.at or 0.0)

    def chance(self, seed: int) -> "Recorded":
        return Recorded(self, Random(seed))

    def since(self, t_ms: float) -> float:
        return t_ms / 1000 - self.begin

    def of(self, client_id: str) -> list[Request]:
        """The requests of one process, whose consumers may have longer client ids."""
        others = {event.get("client_id") for event in self.group.timeline} - {client_id}
        return [
            one
            for one in self.group.requests
            if one.client_id == client_id
            or (one.client_id.startswith(f"{client_id}-") and one.client_id not in others)
        ]

    def _take(self, event: dict[str, Any], later: list[dict[str, Any]]) -> None:
        action, client_id = event["action"], event.get("client_id") or ""
        at = self.since(event["t_ms"])
        mine = [one for one in later if one.get("client_id") == client_id]
        until = self.since(mine[0]["t_ms"]) if mine else self.end
        if action == "start":
            self._start(event, client_id, at, until)
        elif action in _ENDS:
            back = next((one for one in mine if one["action"] == "start"), None)
            gone = self.since(back["t_ms"]) if back else self.end
            self._stop(event, client_id, at, gone)
        elif action == "enforce rebalance":
            self.events.append(ScriptEvent(do=Deed.ENFORCE_REBALANCE, at=at, members=(client_id,)))
        elif action == "group deleted":
            self.events.append(ScriptEvent(do=Deed.DELETE_GROUP, at=at))
        elif "broker" in action or "coordinator" in action:
            self.events.append(ScriptEvent(do=Deed.COORDINATOR, at=at, seconds=1.0))
        else:
            assert action in ("commit", "remark"), action

    def _start(self, event: dict[str, Any], client_id: str, at: float, until: float) -> None:
        # A stop takes effect later than it is asked for: joins go on until then.
        ids: dict[str, list[Request]] = {}
        for one in self.of(client_id):
            if one.joins and at <= one.came - self.begin < until:
                ids.setdefault(one.client_id, []).append(one)
        ends = [
            one
            for one in self.group.timeline
            if one.get("client_id") == client_id and self.since(one["t_ms"]) == until
        ]
        if not ids and any(one["action"] == "died" for one in ends):
            process = self._process(event, client_id, None)
            self.starts.append(Start(client_id, at, until, process, frozenset(), reached=False))
            self._launch(process, (at + until) / 2)
        for name, joins in ids.items():
            real = [one for one in joins if one.error not in _NOT_YET]
            if not real:
                continue
            fenced = any(
                one.error == _FENCED and one.client_id == name
                for one in self.of(client_id)
                if at <= one.came - self.begin <= until
            )
            errors = frozenset(one.error for one in real) & REJECTIONS
            # It may have been told by an OffsetCommit, of which no line is kept.
            if fenced or any("FencedInstanceId" in (one.get("error") or "") for one in ends):
                errors |= {_FENCED}
            process = self._process(event, name, real[0])
            self.starts.append(Start(name, at, until, process, errors, reached=True))
            self._launch(process, real[0].came - self.begin)

    def _launch(self, process: Process, at: float) -> None:
        self.events.append(ScriptEvent(do=Deed.START, at=at, processes=(process,)))

    def _process(self, event: dict[str, Any], name: str, join: Request | None) -> Process:
        asked = join.asked if join is not None else {}
        session = asked.get("sessionTimeoutMs", 45000) / 1000
        rebalance = asked.get("rebalanceTimeoutMs") or -1
        beats = join.answered.get("heartbeatIntervalMs") if join is not None else None
        version = event.get("version")
        return Process(
            name=name,
            client_id=name,
            instance_id=event.get("instance_id") or asked.get("groupInstanceId"),
            family=family(event.get("software") or "", version, join),
            version=version,
            protocol=event.get("group_protocol") or "classic",
            assignors=join.assignors if join is not None else tuple(event.get("assignors") or ()),
            topics=(join.topics if join is not None else ()) or self._topics,
            session=session,
            rebalance=rebalance / 1000 if rebalance > 0 else session,
            heartbeat=beats / 1000 if beats else min(session / _BEATS, _LONGEST_BEAT),
            poll=0.1,
        )

    def _stop(self, event: dict[str, Any], client_id: str, at: float, until: float) -> None:
        requests = self.of(client_id)
        names = {one.client_id for one in requests} or {client_id}
        if event["action"] != "stop":
            self.events.append(ScriptEvent(do=Deed.KILL, at=at, members=tuple(sorted(names))))
            return
        gone = self.since(event["gone_ms"]) if event.get("gone_ms") else at
        # It commits its offsets when it gives up its partitions, and is silent from then on.
        gave_up = (
            self.since(one["t_ms"])
            for one in self.group.printed
            if one["client_id"] == client_id and one["event"] in ("REVOKED", "LOST")
        )
        ended = next((when for when in gave_up if at <= when <= gone), gone)
        for name in sorted(names):
            left = next(
                (
                    one.came - self.begin
                    for one in requests
                    if one.leaves and one.client_id == name and at <= one.came - self.begin < until
                ),
                ended,
            )
            self.events.append(ScriptEvent(do=Deed.STOP, at=left, members=(name,)))

    def _busy(self) -> Iterator[ScriptEvent]:
        """The times in which an application was too busy to poll."""
        began: dict[str, float] = {}
        for one in self.group.printed:
            at = self.since(one["t_ms"])
            if one["event"] == "SLOW_BEGIN":
                began[one["client_id"]] = at
            elif one["event"] == "SLOW_END" and one["client_id"] in began:
                start = began.pop(one["client_id"])
                yield ScriptEvent(
                    do=Deed.BUSY, at=start, members=(one["client_id"],), seconds=at - start
                )

    def _left_while_running(self, told: list[ScriptEvent]) -> Iterator[ScriptEvent]:
        """The times without a poll that nobody printed: a running member leaves by itself."""
        for one in self.group.requests:
            left, who = one.came - self.begin, one.client_id
            known = any(
                who in event.members
                and (event.at or 0.0) <= left <= (event.at or 0.0) + event.seconds
                for event in told
                if event.seconds
            )
            before = [e for e in self.group.timeline if self.since(e["t_ms"]) <= left]
            mine = [e["action"] for e in before if e.get("client_id") == who][-1:]
            if one.api != "LEAVE_GROUP" or known or mine != ["start"]:
                continue
            joins = [join for join in self.group.joins() if join.client_id == who]
            back = next((join.came for join in joins if join.came > one.came), None)
            if back is not None:
                allowed = joins[0].asked["rebalanceTimeoutMs"] / 1000
                began = left - allowed
                seconds = back - self.begin - began
                yield ScriptEvent(do=Deed.BUSY, at=began, members=(who,), seconds=seconds)

    def _grown(self, capture: Capture) -> Iterator[ScriptEvent]:
        """The topics that grew; it was noticed when one joined again by itself, or before."""
        for one in capture.grown:
            at = one.at - self.begin
            noticed = [join - _AFTER for join, _ in self.own_joins if join > at]
            noticed += [join - _AFTER / 2 for join in self._assigned(one.topic, one.before)]
            after = min((when for when in noticed if when > at), default=self.end) - at
            yield ScriptEvent(
                do=Deed.PARTITIONS, at=at, topic=one.topic, count=one.count, seconds=after
            )

    def _assigned(self, topic: str, number: int) -> Iterator[float]:
        """The leaders' joins before the records in which somebody has this partition."""
        for record in self.group.records:
            value = record.value
            if value is None or value.protocol_type != "consumer":
                continue
            if not any((topic, number) in owned for owned in record.partitions().values()):
                continue
            led = [
                one.came - self.begin
                for one in self.group.joins()
                if one.member_id == value.leader and one.done <= record.at + _AT_ONCE / 10
            ]
            yield from led[-1:]

    def _joins_of_their_own(self) -> Iterator[tuple[float, str]]:
        """The joins of members that nobody told to: when, and whose (client id)."""
        told: set[str] = set()
        synced: dict[str, float] = {}
        for one in sorted(self.group.requests, key=lambda each: each.came):
            who, reason = one.client_id, one.asked.get("reason") or ""
            if one.error:
                told.add(who)
            elif one.api == "SYNC_GROUP":
                synced[who] = one.done
            elif one.api == "JOIN_GROUP":
                # A member that has to revoke something joins again at once.
                cooperative = one.assignors == ("cooperative-sticky",)
                again = "revok" in reason if reason else cooperative
                free = who not in told and not (
                    again and one.came < synced.get(who, 0.0) + _AT_ONCE
                )
                told.discard(who)
                if free and one.asked.get("memberId") and "enforced" not in reason:
                    yield one.came - self.begin, who

    def _usual_topics(self) -> tuple[str, ...]:
        return next((join.topics for join in self.group.joins() if join.topics), ())


class Recorded(Chance):
    """The captured group's own member ids, and the times at which its members joined again."""

    def __init__(self, story: Story, random: Random) -> None:
        super().__init__(random)
        self._ids: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self._own_ids: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self._polls: dict[str, list[float]] = defaultdict(list)
        self._retries: dict[str, list[float]] = defaultdict(list)
        self._syncs: dict[str, list[float]] = defaultdict(list)
        self._own_joins = story.own_joins
        self._failed = {id_: at - story.begin for id_, at in story.group.failed.items()}
        for event in story.events:
            if event.do is Deed.STOP:
                # A member that was told and closed before it joined did not poll in between.
                for name in event.members:
                    self._polls[name].append((event.at or 0.0) + _AFTER)
        for event in story.group.timeline:
            if "FencedInstanceId" in (event.get("error") or ""):
                self._polls[event["client_id"]].append(story.since(event["t_ms"]) - _AFTER)
        for one in story.group.requests:
            who, came = one.client_id, one.came - story.begin
            if one.error == _FENCED:
                self._polls[who].append(came)
            if one.api == "SYNC_GROUP" and one.asked["assignments"]:
                self._syncs[who].append(came)
            if one.api == BEAT and one.asked.get("topicPartitions") and not one.leaves:
                # What a member has taken over or given up in a poll, it says at once.
                self._polls[who].append(came - _AFTER)
            if one.api == BEAT and one.joins:
                known = self._own_ids[who]
                if one.asked["memberId"] not in {id_ for _, id_ in known}:
                    known.append((came, one.asked["memberId"]))
        for join in story.group.joins():
            who, came = join.client_id, join.came - story.begin
            self._retries[who].append(came)
            if join.asked.get("memberId"):
                self._polls[who].append(came)
            elif join.error in (0, 79):
                self._ids[who].append((came, join.answered["memberId"]))
        for times in (*self._polls.values(), *self._syncs.values()):
            times.sort()

    def member_id(self, client_id: str, instance_id: str | None, now: float) -> str:
        found = _nearest(now, self._ids[client_id])
        return found or super().member_id(client_id, instance_id, now)

    def kip848_member_id(self, client_id: str, now: float) -> str:
        # Members with the classic protocol get theirs from the coordinator here too.
        mine, issued = self._own_ids[client_id], self._ids[client_id]
        found = _nearest(now, mine, issued)
        return found or super().kip848_member_id(client_id, now)

    def last_beat(self, member_id: str, usual: float, session: float) -> float:
        failed = self._failed.get(member_id)
        return usual if failed is None else failed - session

    def retry(self, client_id: str, after: float, now: float) -> float:
        found = _next(self._retries[client_id], now, 2 * after + _LATE)
        return super().retry(client_id, after, now) if found is None else found

    def assigned(self, client_id: str, after: float, now: float) -> float:
        found = _next(self._syncs[client_id], now, after + _LATE)
        return super().assigned(client_id, after, now) if found is None else found

    def metadata(self, client_id: str, within: float, now: float) -> float:
        read = (at for at, who in self._own_joins if who == client_id and at > now)
        return next(read, _NEVER) - _AFTER

    def poll(self, client_id: str, beat: float, every: float, now: float) -> float:
        joined = _next(self._polls[client_id], now, beat - now + every + _LATE)
        return super().poll(client_id, beat, every, now) if joined is None else joined


def _next(times: list[float], now: float, within: float) -> float | None:
    """Return the next of these times, if it comes soon enough."""
    return next((at for at in times if now < at <= now + within), None)


def _nearest(now: float, *lists: list[tuple[float, str]]) -> str | None:
    """Take the id that was given at about this time off its list."""
    left = [(abs(at - now), at, id_, some) for some in lists for at, id_ in some]
    if not left:
        return None
    _, at, id_, some = min(left, key=lambda one: one[:3])
    some.remove((at, id_))
    return id_
