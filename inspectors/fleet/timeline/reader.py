"""GroupMetadataValues as a timeline takes them: each distinct member of them is decoded once.

A group's members say the same value after value, but for the generation in their subscriptions. So
a value is split into its members' bytes, and members are known again by these. What bytes say goes
through the one strict codec in groups/wire, and a value that it refuses is refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from rebal.groups.errors import WireError
from rebal.groups.wire.offsets_topic import (
    GroupMetadata,
    MemberBytes,
    decode_group_metadata,
    member_head_reader,
    split_group_metadata,
)
from rebal.inspectors.fleet.timeline.values import (
    KEPT,
    Identity,
    Member,
    read_assignment,
    subscription,
)

_CONSUMER: Final = "consumer"
_CLASSIC: Final = "classic"
_READ_HEAD: Final = member_head_reader()


class Value(NamedTuple):
    """A classic group's record without its members, and whom it names."""

    group: GroupMetadata
    members: Sequence[Member]


def read_value(data: bytes) -> Value:
    """Return what a value says.

    Raises:
        WireError: as `decode_group_metadata`.
    """
    try:
        nobody, parts = split_group_metadata(data)
        group = decode_group_metadata(nobody)
        consumer = group.protocol_type == _CONSUMER
        return Value(group, [_member(part, consumer) for part in parts])
    except WireError:
        # of another version, or broken: the codec says by itself what is wrong with it
        group = decode_group_metadata(data)
    members = []
    for one in group.members:
        identity = Identity(
            one.member_id, one.instance_id, one.client_id, one.client_host,
            one.rebalance_timeout_ms, one.session_timeout_ms, _CLASSIC,
        )  # fmt: skip
        consumer = group.protocol_type == _CONSUMER
        members.append(_made(identity, one.subscription, one.assignment, consumer))
    return Value(group, members)


@lru_cache(maxsize=KEPT)
def _member(part: MemberBytes, consumer: bool) -> Member:
    return _made(_identity(part.head), part.subscription, part.assignment, consumer)


@lru_cache(maxsize=KEPT)
def _identity(head: bytes) -> Identity:
    return Identity._make((*_READ_HEAD(head), _CLASSIC))


def _made(identity: Identity, sent: bytes, given: bytes, consumer: bool) -> Member:
    if not consumer:
        return Member(identity)
    return Member(identity, subscription(sent), read_assignment(given))
