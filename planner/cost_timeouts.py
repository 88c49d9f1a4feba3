"""How long a group waits for its members: their own timeouts, or the defaults of Java's clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rebal.groups.clients import older
from rebal.groups.model import Member, Record, Source, Tri

# KIP-735 raised session.timeout.ms in 3.0; max.poll.interval.ms is of KIP-62.
_SESSION: Final = 45.0
_SESSION_BEFORE_3: Final = 10.0
_REBALANCE: Final = 300.0


class Waits(Record, frozen=True, kw_only=True):
    """What one member can cost the others, in seconds.

    `session` is how long it still counts when it is gone without leaving, `rebalance` how long a
    rebalance waits for it; `sources` say where both were read (empty: one of them is a default).
    """

    session: float
    rebalance: float
    sources: tuple[Source, ...] = ()


def waits(member: Member) -> Waits:
    """As it joined, else as its configuration file says, else by default."""
    declared = member.declared
    seen = member.timeouts
    session = seen.session_ms if seen is not None else None
    rebalance = seen.rebalance_ms if seen is not None else None
    sources = {item.source for item in seen.evidence} if seen is not None else set()
    if declared is not None and None in (session, rebalance):
        sources.add(declared.evidence.source)
        session = session or declared.session_timeout_ms
        rebalance = rebalance or declared.max_poll_interval_ms
    known = session is not None and rebalance is not None
    old = member.software is not None and older(member.software, "3.0") is Tri.YES
    return Waits(
        session=session / 1000 if session else _SESSION_BEFORE_3 if old else _SESSION,
        rebalance=rebalance / 1000 if rebalance else _REBALANCE,
        sources=tuple(sorted(sources)) if known else (),
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
    text = f"session timeout {span}, rebalance timeout up to {slowest(members):g} s"
    sources = ", ".join(sorted({source for one in found for source in one.sources}))
    unread = sum(not one.sources for one in found)
    if unread == len(found):
        return f"{text} (defaults of Java's clients: nothing shows the members' own)"
    if unread:
        return f"{text} ({sources}; of {unread} not known, and a default of Java's clients)"
    return f"{text} ({sources})"
