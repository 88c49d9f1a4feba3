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

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rebal.inspectors.fleet.timeline import causes
from rebal.inspectors.fleet.timeline.log import MILLI, NEARLY
from rebal.inspectors.fleet.timeline.members import Standing
from rebal.inspectors.fleet.timeline.rebalances import Generation
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.fleet.timeline.values import Seen

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

_Client = tuple[str | None, ...]


class _Streak:
    """Something that happened again and again."""

    __slots__ = ("count", "detail", "first_at", "last_at", "members")

    def __init__(self, at: int, detail: str = "") -> None:
        self.first_at = at
        self.last_at = at
        self.count = 0
        self.members: dict[str, None] = {}
        self.detail = detail

    def again(self, at: int, member: str | None = None) -> None:
        """Once more."""
        self.count += 1
        self.last_at = max(at, self.last_at)
        if member is not None and len(self.members) < _NAMED:
            self.members[member] = None


class Incidents:
    """The incidents of one group, those that are still going on too."""

    def __init__(self, group_id: str, rows: Rows) -> None:
        self.group_id = group_id
        self.rows = rows
        self._chain: _Streak | None = None
        self._most = 0
        self._empty: dict[str, _Streak] = {}
        self._short: dict[_Client, _Streak] = {}
        self._refused: dict[_Client, _Streak] = {}
        self._hidden: list[tuple[int, str, str]] = []

    def _add(
        self, kind: str, span: tuple[int, int | None], members: Iterable[str], count: int, text: str
    ) -> None:
        row = (self.group_id, kind, *span, tuple(members), count, text)
        self.rows.add("incidents", row)

    def rebalanced(self, new: Generation) -> None:
        """A rebalance was completed."""
        if new.members and new.timed:
            self._in_chain(new.started or new.ended, new)
        self._owners(new)
        for at, member, detail in self._hidden:
            if at <= new.ended:
                self._add(HIDDEN_LIST, (at, new.ended), (member,), 1, detail)
        self._hidden = [one for one in self._hidden if one[0] > new.ended]

    def failed(self, at: int | None) -> None:
        """A rebalance was begun and not completed: it is part of a storm all the same."""
        if self._chain is not None:
            self._chain.again(at or self._chain.last_at)

    def _in_chain(self, started: int, new: Generation) -> None:
        soon = new.sums.session_ms * MILLI
        if self._chain is not None and started - self._chain.last_at > soon:
            self._end_chain()
        if self._chain is None:
            self._chain, self._most = _Streak(started), 0
        self._chain.again(new.ended)
        self._most = max(self._most, len(new.members or ()))

    def _end_chain(self) -> None:
        chain, self._chain = self._chain, None
        if chain is not None and chain.count >= max(STORM_REBALANCES, 2 * self._most + 1):
            seconds = (chain.last_at - chain.first_at) / 1e6
            self._add(
                STORM, (chain.first_at, chain.last_at), (), chain.count,
                f"{chain.count} rebalances of at most {self._most} members in {seconds:.0f} s",
            )  # fmt: skip

    def _owners(self, new: Generation) -> None:
        """Members that own nothing while others do."""
        members = new.members or ()
        empty = {seen.member_id for seen in members if not seen.count} if new.sums.empty else set()
        if not empty and not self._empty:
            return
        for member_id in [key for key in self._empty if key not in empty]:
            self._end_empty(member_id)
        for member_id in sorted(empty) if new.sums.some else ():
            self._empty.setdefault(member_id, _Streak(new.ended)).again(new.ended)

    def _end_empty(self, member_id: str) -> None:
        streak = self._empty.pop(member_id)
        if streak.count >= EMPTY_GENERATIONS:
            detail = f"no partition in {streak.count} generations in a row while others had some"
            self._add(
                OWNS_NOTHING, (streak.first_at, streak.last_at), (member_id,), streak.count, detail
            )

    def left(
        self, gone: Standing, at: int, reason: str | None, others: Iterable[Seen], *, closed: bool
    ) -> None:
        """A member went at `at`; `others` are those who are there with its client id.

        `closed` is whether it was seen to leave.
        """
        seen = gone.seen
        if causes.is_slow(reason):
            self.slow(seen.member_id, at, reason or "")
        client = _client(seen)
        began = gone.joined_at if gone.timed else None
        if closed or (reason is None and began is not None and _left(seen, at - began)):
            return
        short = SHORT_LIFE * seen.session_ms * MILLI
        stayed = began is None or at - began > short
        if client is None or (stayed and client not in self._short):
            return
        if any(other is not seen and _client(other) == client for other in others):
            return
        streak = self._short.get(client)
        if streak is not None and began is not None and began - streak.last_at > _IDLE:
            self._end_short(client)
        if began is None or stayed:
            self._end_short(client)
            return
        who = seen.head.instance_id or seen.head.client_id
        self._short.setdefault(client, _Streak(began, f"{who} left soon after it joined")).again(
            at, seen.member_id
        )
        if len(self._short) > _SPARE:
            for key in [k for k, one in self._short.items() if at - one.last_at > _IDLE]:
                self._end_short(key)

    def slow(self, member_id: str, at: int, detail: str) -> None:
        """A member was past max.poll.interval.ms."""
        self._add(SLOW, (at, at), (member_id,), 1, detail)

    def fenced(self, member_id: str, instance_id: str | None, at: int) -> None:
        """A member was fenced by another process with its instance id."""
        detail = f"{instance_id or member_id} was used by two processes at once"
        self._add(FENCED, (at, at), (member_id,), 1, detail)

    def _end_short(self, client: _Client) -> None:
        streak = self._short.pop(client, None)
        if streak is not None and streak.count >= LOOPS:
            detail = f"{streak.detail}, {streak.count} times in a row"
            self._add(
                CRASH_LOOP, (streak.first_at, streak.last_at), streak.members, streak.count, detail
            )

    def expired(self, gone: Standing, at: int) -> None:
        """A member went without a word: its session expired."""
        seen = gone.seen
        who = seen.head.instance_id or seen.head.client_id or seen.member_id
        self._add(EXPIRED, (at, at), (seen.member_id,), 1, f"{who} left without a LEAVE_GROUP")

    def refused(self, request: Mapping[str, Any], names: tuple[str, ...], at: int) -> None:
        """A join was refused with INCONSISTENT_GROUP_PROTOCOL."""
        key = (request["client_id"], request["instance_id"], request["host"], *names)
        streak = self._refused.get(key)
        if streak is not None and at - streak.last_at > _IDLE:
            self._end_refused(key)
            streak = None
        who = request["instance_id"] or request["client_id"] or ""
        if streak is None:
            text = f"{who} was refused with [{', '.join(names)}]"
            streak = self._refused[key] = _Streak(at, text)
        streak.again(at, who)
        if len(self._refused) > _SPARE:
            for old in [k for k, one in self._refused.items() if at - one.last_at > _IDLE]:
                self._end_refused(old)

    def _end_refused(self, key: _Client) -> None:
        streak = self._refused.pop(key)
        if streak.count >= LOOPS:
            detail = f"{streak.detail} {streak.count} times"
            span = (streak.first_at, streak.last_at)
            self._add(CRASH_LOOP, span, streak.members, streak.count, detail)

    def hidden(
        self, member_id: str, who: str, before: tuple[str, ...], now: tuple[str, ...], at: int
    ) -> None:
        """A static member came back with another list, and no rebalance took notice of it."""
        detail = f"{who} restarted with [{', '.join(now)}] instead of [{', '.join(before)}]"
        self._hidden.append((at, member_id, detail))

    def deleted(self, at: int) -> None:
        """The group was deleted."""
        self._add(DELETED, (at, at), (), 1, causes.DELETED)

    def recreated(self, at: int, incarnation: int) -> None:
        """The group began again from generation 0 or 1."""
        self._add(RECREATED, (at, at), (), 1, f"incarnation {incarnation}")

    def converted(self, kind: str, at: int, members: Iterable[str]) -> None:
        """The group changed its type (KIP-848, "Online Migration"); `kind` says to which."""
        self._add(kind, (at, at), sorted(members)[:_NAMED], 1, kind)

    def finish(self) -> None:
        """The end of the input ends what is going on."""
        self._end_chain()
        for member_id in sorted(self._empty):
            self._end_empty(member_id)
        for client in sorted(self._short, key=repr):
            self._end_short(client)
        for client in sorted(self._refused, key=repr):
            self._end_refused(client)
        for at, member, detail in self._hidden:
            self._add(HIDDEN_LIST, (at, None), (member,), 1, detail)
        self._hidden.clear()


def _left(seen: Seen, lived: int) -> bool:
    """Return whether a member was gone too soon for its session to have expired."""
    return lived < NEARLY * seen.session_ms * MILLI


def _client(seen: Seen) -> _Client | None:
    if seen.head.instance_id is not None:
        return (seen.head.instance_id,)
    return None if not seen.head.client_id else (seen.head.client_id, seen.head.host)
