"""Timeouts of members (their own, or their clients' defaults), and the speed of restarts."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final, Self

from msgspec.structs import replace

from rebal.groups.clients import DefaultTimeouts, families, family, older
from rebal.groups.model import (
    Cluster,
    Evidence,
    GroupSnapshot,
    Member,
    Record,
    Software,
    Source,
    Timeouts,
    Tri,
)

_UNKNOWN_FAMILY: Final = "java"
_CALLED: Final = {
    "java": "Java's clients",
    "streams": "Kafka Streams",
    "connect": "Connect's workers",
}
_BROKERS_SESSION: Final = "group.consumer.session.timeout.ms"
_HELD_BACK_MS: Final = 300_000
# Rejected clients that retry do so within seconds; a container's crash loop waits up to minutes.
_RECENT: Final = timedelta(seconds=60)
# The brokers' own default of group.max.session.timeout.ms.
MOST_SESSION: Final = timedelta(minutes=30)
FIRST_DELAY: Final = "group.initial.rebalance.delay.ms"
RECONCILE_INTERVAL: Final = "group.consumer.heartbeat.interval.ms"


class Speed(Record, frozen=True, kw_only=True):
    """The speed of a roll-out; times in seconds.

    `restart` is the time from the stop of a process until its consumer joins. `rebalance` is the
    length of one rebalance, mostly until the last member notices it at its next heartbeat. `first`
    is how long the coordinator waits for more members in a group that was Empty
    (group.initial.rebalance.delay.ms). `reconcile` is the time between two heartbeats of a member
    of a KIP-848 group (group.consumer.heartbeat.interval.ms, by default 5 s). `batch` members
    restart at a time (0: all).
    """

    restart: float = 30.0
    rebalance: float = 3.0
    first: float = 3.0
    reconcile: float = 5.0
    batch: int = 1

    def at(self, cluster: Cluster) -> Self:
        """Return this speed with the brokers' own `first` and `reconcile`, if they were read."""
        said = {
            field: int(text) / 1000
            for field, key in (("first", FIRST_DELAY), ("reconcile", RECONCILE_INTERVAL))
            if (text := cluster.settings.get(key, "")).isdigit()
        }
        return replace(self, **said)


class Waits(Record, frozen=True, kw_only=True):
    """The times for which a group waits for one member, in seconds.

    `session` is how long the member still counts after a crash. `rebalance` is how long a rebalance
    waits for it. `session_by` and `rebalance_by` are the sources of these values (empty: the
    default of the client family `default_of`).
    """

    session: float
    rebalance: float
    session_by: tuple[Source, ...] = ()
    rebalance_by: tuple[Source, ...] = ()
    default_of: str = ""


def waits(member: Member) -> Waits:
    """Return the session and rebalance timeout of this member.

    They are the values that it joined with, else those of its configuration file, else the defaults
    of its client.
    """
    seen, declared = member.timeouts or Timeouts(), member.declared
    by = tuple(sorted({item.source for item in seen.evidence}))
    session, rebalance = seen.session_ms, seen.rebalance_ms
    session_by, rebalance_by = by if session else (), by if rebalance else ()
    if declared is not None and not session and declared.session_timeout_ms:
        session, session_by = declared.session_timeout_ms, (declared.evidence.source,)
    if declared is not None and not rebalance and declared.max_poll_interval_ms:
        rebalance, rebalance_by = declared.max_poll_interval_ms, (declared.evidence.source,)
    key, unset = _defaults(member.software)
    return Waits(
        session=(session or unset.session) / 1000,
        rebalance=(rebalance or unset.rebalance) / 1000,
        session_by=session_by,
        rebalance_by=rebalance_by,
        default_of=key,
    )


def _defaults(software: Software | None) -> tuple[str, DefaultTimeouts]:
    """Return the client family and its default timeouts; Java's for an unknown family.

    If the version is not known, the defaults are those of the newest version.
    """
    known = family(software.family if software is not None else None)
    if software is None or not known.key:
        return _UNKNOWN_FAMILY, families()[_UNKNOWN_FAMILY].timeouts[0]
    new = (each for each in known.timeouts if older(software, each.since) is not Tri.YES)
    return known.key, next(new, known.timeouts[-1])


def held_back(member: Member) -> float:
    """Return a Connect worker's scheduled.rebalance.max.delay.ms in seconds, or its default."""
    read = _held_back_read(member)
    return (_HELD_BACK_MS if read is None else read) / 1000


def held_back_in_words(members: Sequence[Member]) -> str:
    """Return a clause on the effect of the workers' scheduled.rebalance.max.delay.ms.

    It names the longest delay of these workers, and says if it is only the default.
    """
    longest = f"{max(map(held_back, members)):g} s"
    if all(_held_back_read(member) is None for member in members):
        longest += " by default: nothing shows the workers' own"
    return (
        "while compatible or sessioned is elected, what a restarted worker ran waits until "
        f"scheduled.rebalance.max.delay.ms is over ({longest}), also where it is back before; only "
        "of a restarted leader it is given out at once"
    )


def _held_back_read(member: Member) -> int | None:
    seen = (member.timeouts or Timeouts()).held_back_ms
    return member.declared.held_back_ms if seen is None and member.declared is not None else seen


def with_family(member: Member, key: str | None) -> Member:
    """Return the member with its client family replaced by `key`, so that its defaults apply.

    Return it unchanged if `key` is None or already its family.
    """
    known = member.software.family if member.software is not None else None
    return member if key in (None, known) else replace(member, software=Software(family=key))


def with_families(snapshot: GroupSnapshot, families: Mapping[str, str | None]) -> GroupSnapshot:
    """Return the snapshot with the client family of each member replaced.

    `families` is member id → family (None: unchanged), including families that the user states.
    """
    return replace(
        snapshot,
        members=tuple(with_family(one, families.get(one.member_id)) for one in snapshot.members),
    )


def with_brokers_sessions(snapshot: GroupSnapshot) -> tuple[Member, ...]:
    """Return the members, with the brokers' session timeout for those that use KIP-848.

    Members with group.protocol=consumer have that timeout from the brokers. All members are
    unchanged if the brokers' setting was not read.
    """
    said = snapshot.cluster.settings.get(_BROKERS_SESSION, "")
    if not said.isdigit():
        return snapshot.members
    known = Timeouts(
        session_ms=int(said),
        evidence=(Evidence(source=Source.DESCRIBE, detail=_BROKERS_SESSION),),
    )
    return tuple(
        replace(member, timeouts=known) if member.protocol_type == "consumer" else member
        for member in snapshot.members
    )


def back_in_time(member: Member, restart: float) -> bool:
    """Return whether the member is static and its session outlasts `restart` seconds."""
    return member.instance_id is not None and restart <= waits(member).session


def leaves(member: Member) -> bool:
    """Return whether the member leaves the group when its client is closed.

    Static members do not, and neither do Kafka Streams instances of the classic protocol. Dynamic
    members of the newer protocols, which have a member epoch, do.
    """
    client = family(member.software.family if member.software is not None else None)
    return member.instance_id is None and (
        client.leaves_on_close or member.member_epoch is not None
    )


def in_words(members: Sequence[Member]) -> str:
    """Return the timeouts of these members as a clause with their sources.

    Example: `session timeout 6 s, rebalance timeout up to 300 s (request log)`.
    """
    found = [waits(member) for member in members]
    _, unset = _defaults(None)
    sessions = sorted({one.session for one in found}) or [unset.session / 1000]
    span = f"{sessions[0]:g} s" if len(sessions) == 1 else f"{sessions[0]:g} to {sessions[-1]:g} s"
    longest = max((one.rebalance for one in found), default=unset.rebalance / 1000)
    first, second = f"session timeout {span}", f"rebalance timeout up to {longest:g} s"
    session = _by([(one.session_by, one.default_of) for one in found])
    rebalance = _by([(one.rebalance_by, one.default_of) for one in found])
    if session == rebalance:
        return f"{first}, {second} ({session})"
    return f"{first} ({session}), {second} ({rebalance})"


def at_worst(members: Sequence[Member]) -> str:
    """Return a clause on the worst case of restarts, with the members' timeouts that it assumes."""
    return (
        "worst case: members are killed instead of stopped and count until their sessions end, and "
        f"each rebalance waits as long as the timeouts allow: {in_words(members)}"
    )


def _by(sources: Sequence[tuple[tuple[Source, ...], str]]) -> str:
    unread = [key for read, key in sources if not read]
    whose = " and ".join(_CALLED.get(key, key) for key in sorted({*unread} or {_UNKNOWN_FAMILY}))
    if len(unread) == len(sources):
        return f"by default of {whose}: nothing shows the members' own"
    named = ", ".join(sorted({source for read, _ in sources for source in read}))
    return f"{named}; of {len(unread)} not known, and a default of {whose}" if unread else named


def known_session(member: Member) -> timedelta | None:
    """Return the session timeout that evidence shows; None if none does."""
    known = (member.timeouts or Timeouts()).session_ms
    return None if known is None else timedelta(milliseconds=known)


def longest_session(members: Iterable[Member]) -> timedelta:
    """Return the longest session timeout that these members may have, at least 60 seconds.

    An unknown one counts as 30 minutes for a static member, the most that brokers admit by default:
    static members get a long one to outlast a restart. For a dynamic member it counts as 60
    seconds.
    """
    return max(
        [
            _RECENT,
            *(
                known_session(member)
                or (MOST_SESSION if member.instance_id is not None else _RECENT)
                for member in members
            ),
        ]
    )


def until_session_ends(static: Iterable[Member]) -> str:
    """Return the end of a clause "a stopped static member counts …": `until its session ends`.

    If the session timeout of one of the members is not known, the text adds "30 min at most".
    """
    known = None not in map(known_session, static)
    return "until its session ends" + ("" if known else " (not known: 30 min at most)")
