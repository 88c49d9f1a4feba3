"""How long a group waits for its members: their own timeouts, or the defaults of Java's clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import older
from rebal.groups.model import Evidence, GroupSnapshot, Member, Record, Source, Timeouts, Tri

# KIP-735 raised session.timeout.ms in 3.0; max.poll.interval.ms is of KIP-62.
_SESSION: Final = 45.0
_SESSION_BEFORE_3: Final = 10.0
_JAVA: Final = ("java", "streams", "connect")
_REBALANCE: Final = 300.0
_BROKERS_SESSION: Final = "group.consumer.session.timeout.ms"


class Waits(Record, frozen=True, kw_only=True):
    """What one member can cost the others, in seconds.

    `session` is how long it still counts when it is gone without leaving, `rebalance` how long a
    rebalance waits for it; `session_by` and `rebalance_by` say where they were read (empty: a
    default).
    """

    session: float
    rebalance: float
    session_by: tuple[Source, ...] = ()
    rebalance_by: tuple[Source, ...] = ()


def waits(member: Member) -> Waits:
    """As it joined, else as its configuration file says, else by default."""
    seen, declared = member.timeouts or Timeouts(), member.declared
    by = tuple(sorted({item.source for item in seen.evidence}))
    session, rebalance = seen.session_ms, seen.rebalance_ms
    session_by, rebalance_by = by if session else (), by if rebalance else ()
    if declared is not None and not session and declared.session_timeout_ms:
        session, session_by = declared.session_timeout_ms, (declared.evidence.source,)
    if declared is not None and not rebalance and declared.max_poll_interval_ms:
        rebalance, rebalance_by = declared.max_poll_interval_ms, (declared.evidence.source,)
    return Waits(
        session=session / 1000 if session else _default_session(member),
        rebalance=rebalance / 1000 if rebalance else _REBALANCE,
        session_by=session_by,
        rebalance_by=rebalance_by,
    )


def _default_session(member: Member) -> float:
    software = member.software
    old = software is not None and software.family in _JAVA and older(software, "3.0") is Tri.YES
    return _SESSION_BEFORE_3 if old else _SESSION


def with_brokers_sessions(snapshot: GroupSnapshot) -> tuple[Member, ...]:
    """The members; with group.protocol=consumer the session timeout is the brokers' (KIP-848)."""
    said = snapshot.cluster.settings.get(_BROKERS_SESSION, "")
    if not said.isdigit():
        return snapshot.members
    by = Evidence(source=Source.DESCRIBE, at=snapshot.captured_at, detail=_BROKERS_SESSION)
    own = Timeouts(session_ms=int(said), evidence=(by,))
    return tuple(
        replace(member, timeouts=own) if member.protocol_type == "consumer" else member
        for member in snapshot.members
    )


def slowest(members: Sequence[Member]) -> float:
    """How long a rebalance of these members may last at most, in seconds."""
    return max((waits(member).rebalance for member in members), default=_REBALANCE)


def back_in_time(member: Member, restart: float) -> bool:
    """Is a restart of so many seconds over before anybody notices: a static member's, in time?"""
    return member.instance_id is not None and restart <= waits(member).session


def in_words(members: Sequence[Member]) -> str:
    """`session timeout 6 s, rebalance timeout up to 300 s (request log)`."""
    found = [waits(member) for member in members]
    sessions = sorted({one.session for one in found}) or [_SESSION]
    span = f"{sessions[0]:g} s" if len(sessions) == 1 else f"{sessions[0]:g} to {sessions[-1]:g} s"
    first, second = f"session timeout {span}", f"rebalance timeout up to {slowest(members):g} s"
    session = _by([one.session_by for one in found])
    rebalance = _by([one.rebalance_by for one in found])
    if session == rebalance:
        return f"{first}, {second} ({session})"
    return f"{first} ({session}), {second} ({rebalance})"


def _by(sources: Sequence[tuple[Source, ...]]) -> str:
    unread = sources.count(())
    if unread == len(sources):
        return "by default of Java's clients: nothing shows the members' own"
    named = ", ".join(sorted({source for each in sources for source in each}))
    if unread:
        return f"{named}; of {unread} not known, and a default of Java's clients"
    return named
