"""Member ids from the leader's line, for clients that print none when they join (before 2.6.1).

The leader of a generation prints `Finished assignment for group at generation N` with the member id
of every member, between each member's request to join and its answer. A member id is the client
id, or a static member's instance id, and a UUID. Where several members have one client id, that of
a client that has just started is the one that no earlier generation had.
"""

import re
from collections import defaultdict
from datetime import timedelta
from typing import Final, NamedTuple, Self

from rebal.inspectors.logs.client.identity import Lives, Roster
from rebal.inspectors.logs.client.lines import ClientLine
from rebal.inspectors.logs.lines import Stamp

_UUID: Final = r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# Clocks of two hosts differ by less.
_SKEW: Final = timedelta(seconds=2)
_Client = tuple[Lives, str, str, str | None]


class _Moment(NamedTuple):
    """A line of one program, and its time."""

    lives: Lives
    line: int
    stamp: Stamp | None

    def is_before(self, other: Self, skew: timedelta = _SKEW) -> bool:
        """Return whether the line is older than the other, or may be by the clocks of two hosts."""
        if self.lives is other.lives:
            return self.line < other.line
        one, two = self.stamp, other.stamp
        return (
            one is not None
            and two is not None
            and one.local is two.local
            and one.at <= two.at + skew
        )


class _Join(NamedTuple):
    """A join; `begun` is the first request since the client's last answer, `sent` the last one."""

    number: int
    event: ClientLine
    begun: _Moment
    sent: _Moment
    answered: _Moment


class Rosters:
    """The leaders' lines of all logs, and the joins that need one."""

    def __init__(self) -> None:
        self._printed: dict[str, dict[int, list[tuple[_Moment, tuple[str, ...]]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        # The first request since the client's last answer, and the last one.
        self._asked: dict[_Client, tuple[_Moment, _Moment]] = {}
        self._joins: dict[Lives, list[_Join]] = defaultdict(list)
        self._clusters: dict[Lives, set[str]] = defaultdict(set)

    def take(
        self, number: int, event: ClientLine, lives: Lives, line: int, stamp: Stamp | None
    ) -> None:
        """Keep what the event, the one of this number in `lives`, shows of a join."""
        moment = _Moment(lives, line, stamp)
        client = (lives, event.group_id, event.client_id, event.instance_id)
        generation = event.generation_id
        match event.kind:
            case "cluster":
                self._clusters[lives].add(event.cluster_id)
            case "joining":
                begun, _ = self._asked.get(client, (moment, moment))
                self._asked[client] = begun, moment
            case "leader" if event.roster and generation is not None:
                self._printed[event.group_id][generation].append((moment, event.roster))
            case "joined" if not event.member_id and client in self._asked:
                self._joins[lives].append(_Join(number, event, *self._asked.pop(client), moment))

    def bind(self) -> None:
        """Tell each program's joins which member ids they may have."""
        for lives, joins in self._joins.items():
            found = ((join.number, self._roster(join)) for join in joins)
            lives.bind({number: roster for number, roster in found if roster is not None})

    def _roster(self, join: _Join) -> Roster | None:
        """Return the member ids that the join may have got; None if no leader's line is its own."""
        event, lives = join.event, join.sent.lives
        clusters = self._clusters[lives]
        group = self._printed.get(event.group_id, {})
        everyone = {
            members
            for printed, members in group.get(event.generation_id or 0, ())
            if join.sent.is_before(printed) and printed.is_before(join.answered)
            and (printed.lives is lives or self._clusters[printed.lives] == clusters != set())
        }  # fmt: skip
        if len(everyone) != 1:
            return None
        (members,) = everyone
        earlier = {
            name
            for generation, all_printed in group.items()
            if generation < (event.generation_id or 0)
            for printed, before in all_printed
            # A generation that ended before the client had its answer may have its own id.
            if printed.is_before(join.begun, timedelta())
            for name in before
        }
        own = re.compile(re.escape(event.instance_id or event.client_id) + _UUID)
        ids = frozenset(name for name in members if own.fullmatch(name))
        return ids, ids - earlier
