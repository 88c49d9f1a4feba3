"""What a rebalance cost: which protocol each member ran, and the partitions that it stopped."""

from __future__ import annotations

from rebal.groups.model import GroupType, RebalanceProtocol
from rebal.inspectors.fleet.timeline.log import Log, Person, Round
from rebal.inspectors.fleet.timeline.members import Standing
from rebal.inspectors.fleet.timeline.protocol import Kind, Profile, Protocols
from rebal.inspectors.fleet.timeline.rebalances import (
    Change,
    Generation,
    client_of,
    may_be_slow,
)
from rebal.inspectors.fleet.timeline.values import NOTHING, Places, Seen


class Cost:
    """The rebalance from `old` (None: not known) to `new`.

    `protocol` is the group's after it, None: cannot tell. `stopped` counts the partitions that
    members which stayed had to stop (KIP-429): all that an EAGER one had, and of a COOPERATIVE one
    those it gave up; None where a member had some and its protocol is not known. By the records
    each had got its assignment; the log of the generation before may show that one had not yet.
    """

    __slots__ = (
        "_log",
        "_places",
        "_protocols",
        "_round",
        "protocol",
        "stopped",
    )

    def __init__(
        self,
        old: Generation | None,
        new: Generation,
        change: Change,
        log: Log,
        *,
        protocols: Protocols,
        before: Round | None,
        places: Places,
    ) -> None:
        self._log, self._protocols, self._round = log, protocols, before
        self._places = places
        same = (
            old is not None
            and old.assignor == new.assignor
            and old.type is new.type
            and old.protocol_type == new.protocol_type
        )
        stopped: int | None = 0
        profiles: set[Profile] = set()
        for standing, seen in change.stayed():
            profile = self._profile(old, new, standing, seen, same)
            profiles.add(profile)
            if stopped is not None and standing.seen.count:
                ran = profile
                if not same and old is not None:
                    ran = protocols.profile(_kind(seen, log, old, *profile.kind[6:8]))
                now = self._stopped(ran, standing, seen)
                stopped = None if now is None else stopped + now
        for seen in change.new:
            owned = seen.sent.owned
            profiles.add(self._of_kind(seen, new, owned is not None and owned.count > 0, False))
            revoked = self._revoked_late(old, new, seen, change)
            stopped = None if stopped is None or revoked is None else stopped + revoked
        self.protocol = protocols.of_group(frozenset(profiles))
        told = old.members is not None if old is not None else new.number == 1
        self.stopped = stopped if told else None

    def _profile(
        self, old: Generation | None, new: Generation, standing: Standing, seen: Seen, same: bool
    ) -> Profile:
        """The member's, the one of the generation before where nothing of it changed."""
        profile = standing.profile
        persons = self._log.persons
        usable = profile is not None and same
        if usable and profile is not None and persons:
            usable = _tells(persons.get(seen.member_id), profile.kind)
        if usable and profile is not None and _goes_on(profile, standing.seen, seen):
            return profile
        kept, gave_up = self._showed(old, standing, seen)
        if usable and profile is not None and profile.kind[6:8] == (kept, gave_up):
            return profile
        standing.profile = profile = self._of_kind(seen, new, kept, gave_up)
        return profile

    def _of_kind(self, seen: Seen, new: Generation, kept: bool, gave_up: bool) -> Profile:
        """The profile of the member's kind."""
        return self._protocols.profile(_kind(seen, self._log, new, kept, gave_up))

    def _showed(self, old: Generation | None, standing: Standing, seen: Seen) -> tuple[bool, bool]:
        """Whether the member kept what it had when it rejoined, whether it was seen to give up."""
        owned = seen.sent.owned
        if owned is not None and owned.count:
            return True, False
        had, before = standing.seen.given.partitions, standing.seen.sent
        if old is None or had is None or not had.count or seen.sent.says_the_same(before):
            return standing.profile is not None and standing.profile.kind.kept, False
        synced = self._round is not None and seen.member_id in self._round.synced
        return False, synced and owned is not None and seen.sent.generation == old.number

    def _revoked_late(
        self, old: Generation | None, new: Generation, seen: Seen, change: Change
    ) -> int | None:
        """How many partitions a new member revokes that was past max.poll.interval.ms before.

        Java before 2.4 revokes what it had when it polls again and joins under a new member id; 2.4
        and later call it lost (KIP-429). None where no log tells that from a restart.
        """
        person = self._log.persons.get(seen.member_id)
        if person is not None and person.software_name is not None:
            return 0
        before = person.before if person is not None else None
        if before is not None:
            for gone in change.gone:
                if gone.seen.member_id == before.member_id:
                    return None if gone.seen.count < 0 else gone.seen.count
            return before.had
        name = client_of(seen)
        may_be = self._log.away.pop(name, False) or any(
            client_of(gone.seen) == name and may_be_slow(gone, self._log, old, new)
            for gone in change.gone
        )
        return None if may_be else 0

    def _stopped(self, ran: Profile, standing: Standing, seen: Seen) -> int | None:
        """How many partitions one member stopped; `ran` is how it ran as it rejoined."""
        had = standing.seen.given.partitions
        if had is None or ran.protocol is None:
            return None
        round_ = self._round
        if round_ is not None and seen.member_id in round_.unsynced - round_.synced:
            had = seen.sent.owned or NOTHING
        if ran.protocol is RebalanceProtocol.EAGER:
            return had.count
        given = seen.given
        if given.partitions is None:
            return None
        if given is standing.seen.given:
            return 0
        return (had.bits(self._places) & ~given.partitions.bits(self._places)).bit_count()


def _goes_on(profile: Profile, before: Seen, seen: Seen) -> bool:
    """Does what a member's records say leave it of its kind."""
    if not profile.holds:
        return False
    owned = seen.sent.owned
    if owned is not None and owned.count:
        return profile.kind.kept
    return seen.sent.says_the_same(before.sent)


def _tells(person: Person | None, kind: Kind) -> bool:
    """Does the log tell of the member what its kind holds."""
    if person is None:
        return kind.assignors is None and kind.software_name is None
    return person.assignors == kind.assignors and person.software_name == kind.software_name


def _kind(seen: Seen, log: Log, generation: Generation, kept: bool, gave_up: bool) -> Kind:
    """The member's kind in a generation."""
    person = log.persons.get(seen.member_id)
    return Kind(
        generation.type,
        generation.protocol_type,
        generation.assignor,
        person.assignors if person is not None else None,
        person.software_name if person is not None else None,
        person.software_version if person is not None else None,
        kept,
        gave_up,
        seen.head.protocol_type if generation.type is GroupType.CONSUMER else None,
    )
