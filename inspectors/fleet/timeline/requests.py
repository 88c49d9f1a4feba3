"""Lines of a request log, noted for one group: its members' facts, lists, refusals, leaves.

Error 23 is a refused join, error 79 the normal first answer to a dynamic member's first join
(KIP-394); joins with other errors changed nothing, and those with empty metadata are rebal's own
read-only questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rebal.inspectors.errors import error_code
from rebal.inspectors.fleet.timeline import causes
from rebal.inspectors.fleet.timeline.history import History
from rebal.inspectors.fleet.timeline.lists import Lists
from rebal.inspectors.fleet.timeline.log import MILLI, NEARLY, Left, Log, Round, keep_newest
from rebal.inspectors.logs.requests.lines import FENCED, Outcome, join_outcome

_LIST_REJECTED: Final = error_code("INCONSISTENT_GROUP_PROTOCOL")
_IN_GROUP: Final = (Outcome.ACCEPTED, Outcome.ID_GIVEN)
_AWAY: Final = -2
"""The member epoch of a static member's last heartbeat when it closes (KIP-848)."""
_NEEDS_ID: Final = "need to re-join with the given member-id"


class Replacement(NamedTuple):
    """A static member that came back within a generation, with a new member id (KIP-345)."""

    generation: int
    before: str
    now: str
    leader: str | None


class Requests:
    """Takes each line when it comes."""

    def __init__(self, log: Log, lists: Lists, history: History) -> None:
        self.log = log
        self.lists = lists
        self.history = history

    def note(self, at: int, request: Mapping[str, Any]) -> Round | Replacement | None:
        """Keep what the line says; what it changed in the group, if it did.

        That is the rebalance that its leader's sync completed, or a static member's restart.
        """
        if self.log.since is None:
            self.log.since = at
        api, error = request["api"], request["error"] or 0
        if api == "JOIN_GROUP":
            return self._join(at, request, error)
        if api == "SYNC_GROUP" and error != FENCED:
            round_ = self.log.synced(request, at)
            return round_ if request["assignments"] else None
        if error:
            if error == FENCED and request["member_id"]:
                self._fenced(request, at)
            return None
        if api == "LEAVE_GROUP":
            for one in request["left"] or ():
                member_id = one["member_id"] or self.log.instances.get(one["instance_id"] or "")
                if member_id:
                    self.log.leave(member_id, at, one["reason"], request["connection"])
        elif api == "CONSUMER_GROUP_HEARTBEAT":
            self._heartbeat(at, request)
        return None

    def says_nothing_new(self, request: Mapping[str, Any]) -> bool:
        """Return whether it is a heartbeat of a known KIP-848 member that changed nothing.

        A log holds the first of each part that a task read, so none of them may tell a time.
        """
        epoch = request["generation"]
        person = self.log.persons.get(request["member_id"] or "")
        return (
            request["api"] == "CONSUMER_GROUP_HEARTBEAT"
            and not request["error"]
            and person is not None
            and epoch is not None
            and epoch > 0
            and epoch == request["member_epoch"] == person.last_epoch
            and request["subscribed_topics"] is None
        )

    def note_untimed(self, request: Mapping[str, Any]) -> None:
        """Keep the list that a line without a time shows."""
        error = request["error"] or 0
        if request["api"] != "JOIN_GROUP":
            return
        outcome = join_outcome(error, request["probe"])
        names = tuple(one["name"] for one in request["protocols"] or ())
        if outcome is Outcome.REJECTED and error == _LIST_REJECTED:
            self.lists.refused(request, None, names)
            self.history.metrics.refused += 1
        elif outcome in _IN_GROUP and request["member_id"]:
            self.lists.joined(request, None, names, None)
            self.log.person(request["member_id"]).assignors = names

    def _join(self, at: int, request: Mapping[str, Any], error: int) -> Replacement | None:
        outcome = join_outcome(error, request["probe"])
        names = tuple(one["name"] for one in request["protocols"] or ())
        if outcome is Outcome.REJECTED and error == _LIST_REJECTED:
            self.lists.refused(request, at, names)
            self.log.refuse(request["instance_id"] or request["client_id"] or "", at)
            self.history.metrics.refused += 1
            self.history.incidents.refused(request, names, at)
            return None
        member_id, instance_id = request["member_id"], request["instance_id"]
        if error == FENCED and member_id and not request["probe"]:
            self._fenced(request, at)
        if outcome not in _IN_GROUP or not member_id:
            return None
        replaced = None
        if instance_id:
            before = self.log.instances.get(instance_id)
            replaced = before if before != member_id else None
            self.log.instances[instance_id] = member_id
        self.lists.joined(request, at, names, replaced)
        person = self.log.person(member_id)
        left = self.log.left_on.pop(request["connection"] or "", None)
        if left is not None and left.member_id != member_id and self._was_slow(left, request):
            person.before = left
        if person.assignors is None:
            person.reason = _said(request["reason"])
        person.saw(request, at)
        person.assignors = names
        person.session_timeout_ms = request["session_timeout_ms"]
        person.rebalance_timeout_ms = request["rebalance_timeout_ms"]
        person.protocol_type = request["protocol_type"]
        person.replaced = replaced or person.replaced
        if error:
            return None
        first = person.joined_at is None
        if first:
            person.joined_at = at
        start, now = _start(at, request), self.history.now
        late = (
            now is not None
            and now.number == request["generation"]
            and start >= now.completed
            and not self.log.cuts(now.completed, start)
            and not self.log.begins_again(request["generation"], start, first)
        )
        if (late or self.log.joined(request, at, start, first) is None) and replaced is not None:
            self._hidden(member_id, replaced, names, at)
            return Replacement(request["generation"], replaced, member_id, request["leader"])
        return None

    def _was_slow(self, left: Left, request: Mapping[str, Any]) -> bool:
        """Return whether a process that left, and now joins again, was past max.poll.interval.ms.

        Clients before KIP-800 do not say so. A client that is closed closes its connection too; one
        that unsubscribes and subscribes again may keep it, at any time. The heartbeat thread sends
        its LEAVE_GROUP no sooner than that interval after the last poll, and a join needs a poll.
        """
        before = self.log.persons.get(left.member_id)
        polled = before.last_at if before is not None else self.log.since
        longest = request["rebalance_timeout_ms"]
        if polled is None or not longest or left.at - polled < NEARLY * longest * MILLI:
            return False
        standing = self.history.roster.members.get(left.member_id)
        left.reason = causes.SLOW
        if standing is None:
            who = request["client_id"] or left.member_id
            self.history.incidents.slow(left.member_id, left.at, f"{who}: {causes.SLOW}")
        return True

    def _fenced(self, request: Mapping[str, Any], at: int) -> None:
        """A member whose instance id another process took is alive: this was no restart."""
        member_id = request["member_id"]
        if member_id not in self.log.fenced:
            keep_newest(self.log.fenced, member_id, at)
            self.history.incidents.fenced(member_id, request["instance_id"], at)

    def _hidden(self, member_id: str, replaced: str, names: tuple[str, ...], at: int) -> None:
        """A static member's restart that was answered within a generation: did its list change."""
        before = self.log.persons.get(replaced)
        if before is None or before.assignors is None or before.assignors == names:
            return
        who = self.log.persons[member_id].instance_id or member_id
        self.history.incidents.hidden(member_id, who, before.assignors, names, at)

    def _heartbeat(self, at: int, request: Mapping[str, Any]) -> None:
        member_id = request["member_id"]
        if not member_id:
            return
        person = self.log.person(member_id)
        person.saw(request, at)
        asked, answered = request["generation"], request["member_epoch"]
        if asked == _AWAY:
            return  # it keeps its place until its session expires or its instance comes back
        if asked is not None and asked < 0:
            self.log.leave(member_id, at, None, None)
            person.goes(at, causes.LEFT)
            return
        in_place = False
        if asked == 0:
            # A member that was fenced, or a static one that was away, comes back with its id.
            self.log.left.pop(member_id, None)
            person.left_at, person.left_reason, person.gone = None, None, False
            person.joined_at = at if person.joined_at is None else person.joined_at
            in_place = self._comes_back(member_id, answered, at)
        if request["subscribed_topics"] is not None:
            person.topics = tuple(request["subscribed_topics"])
        if answered is not None and answered > (person.last_epoch or 0):
            if person.first_epoch is None:
                person.first_epoch, person.first_at = answered, at
                person.era = self.log.era.number
            person.last_epoch = answered
            if in_place:
                return
            self.log.reached(member_id, answered, asked == 0, _start(at, request), at)

    def _comes_back(self, member_id: str, epoch: int | None, at: int) -> bool:
        """Did a static member come back with another id, and get its place without a rebalance."""
        instance_id = self.log.persons[member_id].instance_id
        if instance_id is None:
            return False
        before = self.log.instances.get(instance_id)
        self.log.instances[instance_id] = member_id
        old = self.log.persons.get(before) if before not in (None, member_id) else None
        if old is None or old.gone:
            return False
        if epoch is None or epoch != old.last_epoch:
            # its session may have expired before
            old.goes(None, None)
            return False
        old.goes(at, causes.RESTARTED)
        return True


def _start(at: int, request: Mapping[str, Any]) -> int:
    return at - round((request["total_ms"] or 0) * MILLI)


def _said(reason: str | None) -> str | None:
    """A join's reason, where it says more than that a member id is needed."""
    return None if not reason or reason.startswith(_NEEDS_ID) else reason
