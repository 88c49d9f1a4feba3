"""The rebalance protocol that members ran in a generation: groups/protocol.py's answer, asked once.

A fleet has few kinds of members (elected assignor, list, software, what they kept), so each kind,
and each mixture of kinds in a group, is asked for once.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from rebal.groups.clients import family_of
from rebal.groups.compact import Partitions
from rebal.groups.model import (
    AssignorList,
    Evidence,
    Group,
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    RanProtocol,
    RebalanceProtocol,
    Software,
    Source,
    Subscription,
)
from rebal.groups.protocol import group_protocol, member_protocol

# How many kinds of members, and mixtures of them, are remembered.
_KINDS: Final = 16_384
_KEPT_ONE: Final = {"": Partitions((0,))}
_RAN: Final = (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)
_NEVER_MIND: Final = datetime.fromtimestamp(0, UTC)
_SAID: Final = (Evidence(source=Source.REQUEST_LOG),)


Era = tuple[GroupType, str | None, str | None]
"""What decides for all members of a generation: types of the group and of its protocol, and the
elected assignor."""
Logged = tuple[tuple[str, ...] | None, str | None, str | None]
"""A member's list, its software, and the version of that; None: not known."""
UNLOGGED: Final = (None, None, None)
Kind = tuple[Logged, bool, bool, str | None]
"""All of a member that decides which protocol it runs: what is logged of it, whether it named
partitions it still owned when it joined, whether it was seen to name none though it had some, and
the protocol that it speaks."""


@lru_cache(maxsize=_KINDS)
def ran(era: Era, kind: Kind) -> RebalanceProtocol:
    """Return the protocol that such a member ran; CANNOT_TELL where nothing shows it."""
    member = _member(era, kind, "m")
    return member_protocol(member, _snapshot(era, (member,))).value


@lru_cache(maxsize=_KINDS)
def group_ran(era: Era, kinds: frozenset[Kind]) -> str | None:
    """Return EAGER, COOPERATIVE or mixed; None: cannot tell, or nobody is there."""
    ordered = sorted(kinds, key=repr)
    members = tuple(_member(era, kind, str(n)) for n, kind in enumerate(ordered))
    # a KIP-848 group's coordinator stops nothing, its classic members may on their own
    consumer = era[0] is GroupType.CONSUMER
    doubtful = consumer and any(ran(era, kind) not in _RAN for kind in kinds)
    if not members or doubtful:
        return None
    answer = group_protocol(_snapshot(era, members)).value
    return None if answer is RebalanceProtocol.CANNOT_TELL else str(answer)


def _member(era: Era, kind: Kind, name: str) -> Member:
    (assignors, software, version), kept, gave_up, speaks = kind
    family = family_of(software, version)
    if assignors is not None and "stream" in assignors and family == "java":
        family = "streams"  # the consumers inside Kafka Streams introduce themselves as Java's
    ran = None
    if kept or gave_up:
        value = RebalanceProtocol.COOPERATIVE if kept else RebalanceProtocol.EAGER
        ran = RanProtocol(value=value, evidence=_SAID)
    return Member(
        member_id=name,
        software=None
        if software is None
        else Software(family=family, name=software, version=version, evidence=_SAID),
        assignors=AssignorList()
        if assignors is None
        else AssignorList(knowledge=Knowledge.EXACT, list=assignors, evidence=_SAID),
        ran=ran,
        subscription=Subscription(version=1, owned_partitions=_KEPT_ONE) if kept else None,
        protocol_type=speaks if era[0] is GroupType.CONSUMER else None,
    )


def _snapshot(era: Era, members: tuple[Member, ...]) -> GroupSnapshot:
    group_type, protocol_type, assignor = era
    return GroupSnapshot(
        group=Group(
            group_id="g",
            state=GroupState.STABLE,
            type=group_type,
            protocol_type=protocol_type,
            assignor=assignor,
        ),
        captured_at=_NEVER_MIND,
        members=members,
    )
