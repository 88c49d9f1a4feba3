"""Rows of `incidents`: unusual events that an operator of a group would want to know.

Short times are measured in the members' own session timeout, which their operator chose.
- storm: at least `STORM_REBALANCES` rebalances, and more than two for each member. Each begins
  within the shortest session timeout of the members after the one before.
- crash loop: one client (client id and host, or instance id) rejected `LOOPS` times with one
  assignor list (librdkafka and franz-go retry for ever, supervisors restart the others). Or it left
  `LOOPS` times in a row within `SHORT_LIFE` session timeouts of its join, and was back within ten
  minutes each time. A member that sent LEAVE_GROUP (closed, scaled in) did not crash. Nor did one
  that was gone before its session could expire, whether a log shows its leave or not.
- duplicate instance id: a member was answered FENCED_INSTANCE_ID after another process joined with
  its `group.instance.id`.
- owns nothing: a member without a partition in `EMPTY_GENERATIONS` generations in a row, while
  others had some.
"""

from collections.abc import Collection, Iterable
from typing import Final, Literal

from msgspec import Struct

from rebal.inspectors.fleet.schemas import Rows
from rebal.inspectors.fleet.timeline.facts import MILLI, NEARLY
from rebal.inspectors.fleet.timeline.rebalances import Generation, MemberSpan, is_slow
from rebal.inspectors.fleet.timeline.values import GenerationMember
from rebal.inspectors.logs.requests.lines import Request

Kind = Literal[
    "storm",
    "crash loop",
    "owns nothing",
    "hidden list",
    "session expired",
    "slow member",
    "duplicate instance id",
    "deleted",
    "recreated",
    "converted to consumer",
    "converted to classic",
]
"""The kinds of incidents, in `incidents.kind`."""

STORM_REBALANCES: Final = 10
LOOPS: Final = 3
SHORT_LIFE: Final = 2
EMPTY_GENERATIONS: Final = 3
_IDLE: Final = 600_000_000
_NAMED: Final = 20
_SPARE: Final = 1024

Key = tuple[str | None, ...]
"""A streak's kind, and the identity of its member or client: an instance id, or a client id and
host, or more."""
# Clients' own session timeout, where the source does not say.
_SESSION_MS: Final = 45_000
# What a streak is an incident of, from which length on, and what is said of it.
_STREAKS: Final = {
    "storm": (
        "storm", STORM_REBALANCES, "{count} rebalances of at most {most} members in {seconds:.0f} s"
    ),
    "empty": (
        "owns nothing", EMPTY_GENERATIONS,
        "no partition in {count} generations in a row while others had some",
    ),
    "short": ("crash loop", LOOPS, "{who}, {count} times in a row"),
    "refused": ("crash loop", LOOPS, "{who} {count} times"),
    "hidden": ("hidden list", 1, "{who}"),
}  # fmt: skip
_STORM: Final[Key] = ("storm",)


class Streak(Struct, array_like=True):
    """Events of one kind that repeat; `members` are the first members affected.

    `who` describes the event and its client. `count` is the number of events. `most` is the largest
    size of the group at a rebalance of a storm (0 for other kinds).
    """

    first_at: int
    last_at: int
    who: str = ""
    count: int = 0
    most: int = 0
    members: dict[str, None] = {}

    def again(self, at: int, member: str | None = None) -> None:
        """Count one more event, at `at`."""
        self.count += 1
        self.last_at = max(at, self.last_at)
        if member is not None and len(self.members) < _NAMED:
            self.members[member] = None


class Incidents(Struct, array_like=True):
    """The incidents of one group that are still in progress.

    `streaks` also has one streak, of one event, for each restart of a static member with another
    assignor list that no rebalance has followed yet.
    """

    streaks: dict[Key, Streak] = {}

    def rebalanced(
        self, new: Generation, members: Collection[GenerationMember], rows: Rows
    ) -> None:
        """Note that a rebalance to these members was completed."""
        if members and new.timed:
            began = new.started or new.ended
            soon = min([one.session_timeout_ms or _SESSION_MS for one in members]) * MILLI
            storm = self._again(_STORM, Streak(began, began), new.ended, None, rows, soon=soon)
            storm.most = max(storm.most, len(members))
        self._owners(new.ended, members, rows)
        for key, one in [*self.streaks.items()]:
            if key[0] == "hidden" and one.first_at <= new.ended:
                one.last_at = new.ended
                self._end(key, rows)

    def failed(self, at: int | None) -> None:
        """Note that a rebalance began and failed, at `at` (None: not known).

        It counts as one more event of a storm that is in progress, but begins none.
        """
        storm = self.streaks.get(_STORM)
        if storm is not None:
            storm.again(at or storm.last_at)

    def _owners(self, at: int, members: Collection[GenerationMember], rows: Rows) -> None:
        """Note members that own nothing while others do."""
        empty = {one.member_id for one in members if one.assignment.count == 0}
        for key in [key for key in self.streaks if key[0] == "empty" and key[1] not in empty]:
            self._end(key, rows)
        if empty and any(one.assignment.count > 0 for one in members):
            for member_id in sorted(empty):
                self.streaks.setdefault(("empty", member_id), Streak(at, at)).again(at, member_id)

    def left(
        self,
        gone: MemberSpan,
        at: int,
        reason: str | None,
        others: Iterable[GenerationMember],
        rows: Rows,
        *,
        closed: bool,
    ) -> None:
        """Note that a member left at `at`; `others` are the members that are still present.

        `closed` is True if it sent LEAVE_GROUP, and also if it is not known when it left. Such a
        leave is no part of a crash loop.
        """
        member, client = gone.member, _client(gone.member)
        if is_slow(reason):
            add(rows, "slow member", at, reason or "", members=(member.member_id,))
        began = gone.joined_at if gone.timed else None
        session = (member.session_timeout_ms or _SESSION_MS) * MILLI
        # Who is gone too soon for its session to have expired left, too.
        if closed or (reason is None and began is not None and at - began < NEARLY * session):
            return
        is_short = began is not None and at - began <= SHORT_LIFE * session
        if (
            client is None
            or not (is_short or client in self.streaks)
            or client in map(_client, others)
        ):
            return
        if began is None or not is_short:
            self._end(client, rows)
            return
        who = f"{member.instance_id or member.client_id} left soon after it joined"
        self._again(client, Streak(began, began, who), at, member.member_id, rows)

    def rejected(self, request: Request, names: tuple[str, ...], at: int, rows: Rows) -> None:
        """Note that a join with the assignors `names` got INCONSISTENT_GROUP_PROTOCOL."""
        client = request.client_id, request.instance_id, request.host
        who = request.instance_id or request.client_id
        new = Streak(at, at, f"{who} was rejected with [{', '.join(names)}]")
        self._again(("refused", *client, *names), new, at, who, rows)

    def _again(
        self,
        key: Key,
        new: Streak,
        at: int,
        member: str | None,
        rows: Rows,
        *,
        soon: int = _IDLE,
    ) -> Streak:
        """Count one more event of a streak and return the streak.

        The streak begins as `new` unless the last event was at most `soon` microseconds earlier.
        """
        streak = self.streaks.get(key)
        if streak is not None and new.first_at - streak.last_at > soon:
            self._end(key, rows)
        streak = self.streaks.setdefault(key, new)
        streak.again(at, member)
        if len(self.streaks) > _SPARE:
            for old in [k for k, one in self.streaks.items() if at - one.last_at > _IDLE]:
                if old[0] in ("short", "refused"):
                    self._end(old, rows)
        return streak

    def _end(self, key: Key, rows: Rows, *, lasts: bool = False) -> None:
        """End a streak and write its incident if it was long enough.

        With `lasts`, the incident has no end time: it still goes on.
        """
        streak = self.streaks.pop(key, None)
        if streak is None:
            return
        kind, least, text = _STREAKS[key[0] or ""]
        if streak.count >= max(least, 2 * streak.most + 1):
            detail = text.format(
                who=streak.who, count=streak.count, most=streak.most,
                seconds=(streak.last_at - streak.first_at) / 1e6,
            )  # fmt: skip
            rows.add(
                "incidents", kind=kind, started_at=streak.first_at,
                ended_at=None if lasts else streak.last_at,
                members=tuple(streak.members), count=streak.count, detail=detail,
            )  # fmt: skip

    def note_hidden_list(
        self, member_id: str, who: str, before: tuple[str, ...], now: tuple[str, ...], at: int
    ) -> None:
        """Note a static member that restarted with another assignor list, without a rebalance.

        `who` is the name of the member in the incident's text. `before` and `now` are its assignor
        lists before and after the restart.
        """
        detail = f"{who} restarted with [{', '.join(now)}] instead of [{', '.join(before)}]"
        self.streaks["hidden", str(at), member_id] = Streak(at, at, detail, 1, 0, {member_id: None})

    def finish(self, rows: Rows, *, ended: bool) -> None:
        """Write the incidents that still go on, because the input has ended.

        In a deleted group (`ended`) none goes on.
        """
        for key in sorted(self.streaks, key=repr):
            self._end(key, rows, lasts=not ended and key[0] in ("hidden", "empty"))


def add(rows: Rows, kind: Kind, at: int, detail: str, *, members: Iterable[str] = ()) -> None:
    """Add a row of `incidents` of something that happened once, at `at`."""
    rows.add(
        "incidents", kind=kind, started_at=at, ended_at=at,
        members=tuple(members), count=1, detail=detail,
    )  # fmt: skip


def _client(member: GenerationMember) -> Key | None:
    if member.instance_id is not None:
        return "short", member.instance_id
    return ("short", *member.process) if member.client_id else None
