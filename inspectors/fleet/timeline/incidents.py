"""Rows of `incidents`: what an operator would want to have been told of a group.

A member's own session timeout is the measure of what is soon: it is what its operator chose.
- storm: at least `STORM_REBALANCES` rebalances, and more than two for each member, each begun
  within the session timeout (the shortest of the members') of the one before.
- crash loop: one client (client id and host, or instance) refused `LOOPS` times with one list
  (librdkafka and franz-go try for ever, supervisors restart the others); or gone `LOOPS` times in a
  row within `SHORT_LIFE` session timeouts of its join, back within ten minutes each time. A member
  that left (LEAVE_GROUP: closed, scaled in) did not crash, and one that was gone before its session
  could expire left, whether a log shows it or not.
- duplicate instance id: a member was answered FENCED_INSTANCE_ID after another process joined with
  its `group.instance.id`.
- owns nothing: a member without a partition in `EMPTY_GENERATIONS` generations in a row, while
  others had some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from rebal.inspectors.fleet.timeline import causes
from rebal.inspectors.fleet.timeline.facts import MILLI, NEARLY
from rebal.inspectors.fleet.timeline.members import MemberSpan
from rebal.inspectors.fleet.timeline.rebalances import Generation
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.fleet.timeline.values import Member

STORM: Final = "storm"
CRASH_LOOP: Final = "crash loop"
OWNS_NOTHING: Final = "owns nothing"
HIDDEN_LIST: Final = "hidden list"
EXPIRED: Final = "session expired"
SLOW: Final = "slow member"
FENCED: Final = "duplicate instance id"
DELETED: Final = "deleted"
RECREATED: Final = "recreated"
TO_CONSUMER: Final = "converted to consumer"
TO_CLASSIC: Final = "converted to classic"

STORM_REBALANCES: Final = 10
LOOPS: Final = 3
SHORT_LIFE: Final = 2
EMPTY_GENERATIONS: Final = 3
_IDLE: Final = 600_000_000
_NAMED: Final = 20
_SPARE: Final = 1024

Client = tuple[str | None, ...]
"""What is known again of a process: its instance id, or its client id and host, or more."""


class Streak(Struct, array_like=True):
    """Something that happened again and again; `members` are the first ones it happened to."""

    first_at: int
    last_at: int
    detail: str = ""
    count: int = 0
    members: dict[str, None] = {}

    def again(self, at: int, member: str | None = None) -> None:
        """Once more."""
        self.count += 1
        self.last_at = max(at, self.last_at)
        if member is not None and len(self.members) < _NAMED:
            self.members[member] = None


class Incidents(Struct, array_like=True):
    """The incidents of one group that are still going on.

    `storm` are rebalances soon one after another, of at most `most` members; `empty` members that
    own nothing, by id; `short` clients that were gone soon, `refused` those that were refused;
    `hidden` are restarts with another list that no rebalance noticed yet: when, who, and how.
    """

    storm: Streak | None = None
    most: int = 0
    empty: dict[str, Streak] = {}
    short: dict[Client, Streak] = {}
    refusals: dict[Client, Streak] = {}
    hidden: list[tuple[int, str, str]] = []

    def rebalanced(self, new: Generation, members: Sequence[Member], rows: Rows) -> None:
        """A rebalance to these members was completed."""
        if members and new.timed:
            self._in_storm(new, members, rows)
        self._owners(new.ended, members, rows)
        for at, member, detail in self.hidden:
            if at <= new.ended:
                _add(rows, HIDDEN_LIST, (at, new.ended), detail, members=(member,))
        self.hidden = [one for one in self.hidden if one[0] > new.ended]

    def failed(self, at: int | None) -> None:
        """A rebalance was begun and not completed: it is part of a storm all the same."""
        if self.storm is not None:
            self.storm.again(at or self.storm.last_at)

    def _in_storm(self, new: Generation, members: Sequence[Member], rows: Rows) -> None:
        started = new.started or new.ended
        soon = min(one.session_ms for one in members) * MILLI
        if self.storm is not None and started - self.storm.last_at > soon:
            self._end_storm(rows)
        if self.storm is None:
            self.storm, self.most = Streak(started, started), 0
        self.storm.again(new.ended)
        self.most = max(self.most, len(members))

    def _end_storm(self, rows: Rows) -> None:
        storm, self.storm = self.storm, None
        if storm is not None and storm.count >= max(STORM_REBALANCES, 2 * self.most + 1):
            seconds = (storm.last_at - storm.first_at) / 1e6
            detail = f"{storm.count} rebalances of at most {self.most} members in {seconds:.0f} s"
            _add(rows, STORM, (storm.first_at, storm.last_at), detail, count=storm.count)

    def _owners(self, at: int, members: Sequence[Member], rows: Rows) -> None:
        """Members that own nothing while others do."""
        empty = {one.member_id for one in members if one.assignment.count == 0}
        if not empty and not self.empty:
            return
        for member_id in [key for key in self.empty if key not in empty]:
            self._end_empty(member_id, rows)
        if any(one.assignment.count > 0 for one in members):
            for member_id in sorted(empty):
                self.empty.setdefault(member_id, Streak(at, at)).again(at)

    def _end_empty(self, member_id: str, rows: Rows) -> None:
        streak = self.empty.pop(member_id)
        if streak.count >= EMPTY_GENERATIONS:
            detail = f"no partition in {streak.count} generations in a row while others had some"
            span = streak.first_at, streak.last_at
            _add(rows, OWNS_NOTHING, span, detail, members=(member_id,), count=streak.count)

    def left(
        self, gone: MemberSpan, at: int, reason: str | None, others: Iterable[Member], rows: Rows,
        *, closed: bool,
    ) -> None:  # fmt: skip
        """A member went at `at`; `others` are those who are there with its client id.

        `closed` is whether it was seen to leave.
        """
        member = gone.member
        if causes.is_slow(reason):
            self.slow(member.member_id, at, reason or "", rows)
        client = _client(member)
        began = gone.joined_at if gone.timed else None
        if closed or (reason is None and began is not None and _left(member, at - began)):
            return
        short = SHORT_LIFE * member.session_ms * MILLI
        stayed = began is None or at - began > short
        if client is None or (stayed and client not in self.short):
            return
        if any(other is not member and _client(other) == client for other in others):
            return
        streak = self.short.get(client)
        if streak is not None and began is not None and began - streak.last_at > _IDLE:
            self._end_short(client, rows)
        if began is None or stayed:
            self._end_short(client, rows)
            return
        who = member.identity.instance_id or member.identity.client_id
        streak = Streak(began, began, f"{who} left soon after it joined")
        self.short.setdefault(client, streak).again(at, member.member_id)
        for key in _idle(self.short, at):
            self._end_short(key, rows)

    def slow(self, member_id: str, at: int, detail: str, rows: Rows) -> None:
        """A member was past max.poll.interval.ms."""
        _add(rows, SLOW, (at, at), detail, members=(member_id,))

    def fenced(self, member_id: str, instance_id: str | None, at: int, rows: Rows) -> None:
        """A member was fenced by another process with its instance id."""
        detail = f"{instance_id or member_id} was used by two processes at once"
        _add(rows, FENCED, (at, at), detail, members=(member_id,))

    def _end_short(self, client: Client, rows: Rows) -> None:
        streak = self.short.pop(client, None)
        if streak is not None:
            _add_loop(rows, streak, f"{streak.detail}, {streak.count} times in a row")

    def expired(self, gone: Member, at: int, rows: Rows) -> None:
        """A member went without a word: its session expired."""
        who = gone.identity.instance_id or gone.identity.client_id or gone.member_id
        detail = f"{who} left without a LEAVE_GROUP"
        _add(rows, EXPIRED, (at, at), detail, members=(gone.member_id,))

    def refused(
        self, request: Mapping[str, Any], names: tuple[str, ...], at: int, rows: Rows
    ) -> None:
        """A join was refused with INCONSISTENT_GROUP_PROTOCOL."""
        key = (request["client_id"], request["instance_id"], request["host"], *names)
        streak = self.refusals.get(key)
        if streak is not None and at - streak.last_at > _IDLE:
            self._end_refused(key, rows)
        who = request["instance_id"] or request["client_id"] or ""
        streak = Streak(at, at, f"{who} was refused with [{', '.join(names)}]")
        self.refusals.setdefault(key, streak).again(at, who)
        for old in _idle(self.refusals, at):
            self._end_refused(old, rows)

    def _end_refused(self, key: Client, rows: Rows) -> None:
        streak = self.refusals.pop(key)
        _add_loop(rows, streak, f"{streak.detail} {streak.count} times")

    def hide(
        self, member_id: str, who: str, before: tuple[str, ...], now: tuple[str, ...], at: int
    ) -> None:
        """A static member came back with another list, and no rebalance took notice of it."""
        detail = f"{who} restarted with [{', '.join(now)}] instead of [{', '.join(before)}]"
        self.hidden.append((at, member_id, detail))

    def finish(self, rows: Rows) -> None:
        """The end of the input ends what is going on."""
        self._end_storm(rows)
        for member_id in sorted(self.empty):
            self._end_empty(member_id, rows)
        for client in sorted(self.short, key=repr):
            self._end_short(client, rows)
        for client in sorted(self.refusals, key=repr):
            self._end_refused(client, rows)
        for at, member, detail in self.hidden:
            _add(rows, HIDDEN_LIST, (at, None), detail, members=(member,))
        self.hidden.clear()


def deleted(at: int, rows: Rows) -> None:
    """The group was deleted."""
    _add(rows, DELETED, (at, at), causes.DELETED)


def recreated(at: int, incarnation: int, rows: Rows) -> None:
    """The group began again from generation 0 or 1."""
    _add(rows, RECREATED, (at, at), f"incarnation {incarnation}")


def converted(kind: str, at: int, members: Iterable[str], rows: Rows) -> None:
    """The group changed its type (KIP-848, "Online Migration"); `kind` says to which."""
    _add(rows, kind, (at, at), kind, members=sorted(members)[:_NAMED])


def _add(
    rows: Rows, kind: str, span: tuple[int, int | None], detail: str,
    *, members: Iterable[str] = (), count: int = 1,
) -> None:  # fmt: skip
    started_at, ended_at = span
    rows.add(
        "incidents", kind=kind, started_at=started_at, ended_at=ended_at,
        members=tuple(members), count=count, detail=detail,
    )  # fmt: skip


def _add_loop(rows: Rows, streak: Streak, detail: str) -> None:
    """A crash loop, if it was one."""
    if streak.count >= LOOPS:
        span = streak.first_at, streak.last_at
        _add(rows, CRASH_LOOP, span, detail, members=streak.members, count=streak.count)


def _idle(streaks: Mapping[Client, Streak], at: int) -> list[Client]:
    """Those that will hardly go on, once there are many."""
    if len(streaks) <= _SPARE:
        return []
    return [key for key, one in streaks.items() if at - one.last_at > _IDLE]


def _left(member: Member, lived: int) -> bool:
    """Return whether a member was gone too soon for its session to have expired."""
    return lived < NEARLY * member.session_ms * MILLI


def _client(member: Member) -> Client | None:
    if member.identity.instance_id is not None:
        return (member.identity.instance_id,)
    return member.process if member.identity.client_id else None
