"""The rebalance protocol that members ran in a generation: groups/protocol.py's answer, asked once.

A fleet has few kinds of members (elected assignor, list, software, what they kept), so each kind,
and each mixture of kinds in a group, is asked for once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

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

_KINDS: Final = 16_384
"""How many kinds of members, and mixtures of them, are remembered."""
_KEPT_ONE: Final = {"": Partitions((0,))}
_RAN: Final = (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)
_NEVER_MIND: Final = datetime.fromtimestamp(0, UTC)
_SAID: Final = (Evidence(source=Source.REQUEST_LOG),)


class Kind(NamedTuple):
    """All of a member that decides which protocol it runs; None: not known.

    `kept` is whether it named partitions it still owned when it joined, `gave_up` whether it was
    seen to name none though it had some.
    """

    type: GroupType
    protocol_type: str | None
    elected: str | None
    assignors: tuple[str, ...] | None
    software_name: str | None
    software_version: str | None
    kept: bool
    gave_up: bool
    speaks: str | None


@lru_cache(maxsize=_KINDS)
def ran(kind: Kind) -> RebalanceProtocol:
    """Return which protocol such a member ran, or that this cannot be told."""
    member = _member(kind, "m")
    return member_protocol(member, _snapshot(kind, (member,))).value


@lru_cache(maxsize=_KINDS)
def group_ran(kinds: frozenset[Kind]) -> str | None:
    """Return EAGER, COOPERATIVE or mixed; None: cannot tell, or nobody is there."""
    ordered = sorted(kinds, key=repr)
    members = tuple(_member(kind, str(n)) for n, kind in enumerate(ordered))
    # a KIP-848 group's coordinator stops nothing, its classic members may on their own
    doubtful = any(kind.type is GroupType.CONSUMER and ran(kind) not in _RAN for kind in kinds)
    if not members or doubtful:
        return None
    answer = group_protocol(_snapshot(ordered[0], members)).value
    return None if answer is RebalanceProtocol.CANNOT_TELL else str(answer)


def _member(kind: Kind, name: str) -> Member:
    family = family_of(kind.software_name, kind.software_version)
    if kind.assignors is not None and "stream" in kind.assignors and family == "java":
        family = "streams"  # the consumers inside Kafka Streams introduce themselves as Java's
    ran = None
    if kind.kept or kind.gave_up:
        value = RebalanceProtocol.COOPERATIVE if kind.kept else RebalanceProtocol.EAGER
        ran = RanProtocol(value=value, evidence=_SAID)
    return Member(
        member_id=name,
        software=None
        if kind.software_name is None
        else Software(
            family=family,
            name=kind.software_name,
            version=kind.software_version,
            evidence=_SAID,
        ),
        assignors=AssignorList()
        if kind.assignors is None
        else AssignorList(knowledge=Knowledge.EXACT, list=kind.assignors, evidence=_SAID),
        ran=ran,
        subscription=Subscription(version=1, owned_partitions=_KEPT_ONE) if kind.kept else None,
        protocol_type=kind.speaks,
    )


def _snapshot(kind: Kind, members: tuple[Member, ...]) -> GroupSnapshot:
    return GroupSnapshot(
        group=Group(
            group_id="g",
            state=GroupState.STABLE,
            type=kind.type,
            protocol_type=kind.protocol_type,
            assignor=kind.elected,
        ),
        captured_at=_NEVER_MIND,
        members=members,
    )
