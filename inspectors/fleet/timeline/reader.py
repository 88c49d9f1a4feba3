"""GroupMetadataValues as a timeline takes them: each distinct member of them is decoded once.

A group's members say the same value after value, but for the generation in their subscriptions. So
a value is split into its members' bytes, and members are known again by these. What bytes say goes
through the one strict codec in groups/wire, and a value that it refuses is refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rebal.groups.errors import WireError
from rebal.groups.wire.offsets_topic import (
    GroupMetadata,
    MemberBytes,
    decode_group_metadata,
    member_head_reader,
    split_group_metadata,
)
from rebal.inspectors.fleet.timeline.values import Identity, Member, Memo, Values

_CONSUMER: Final = "consumer"
_CLASSIC: Final = "classic"


class Value(NamedTuple):
    """A classic group's record without its members, and whom it names."""

    group: GroupMetadata
    members: Sequence[Member]


class ValueReader:
    """Reads values, remembering members that it has read; what it remembers is bounded."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._identities: Memo[bytes, Identity] = Memo()
        self._members: Memo[tuple[MemberBytes, bool], Member] = Memo()
        self._read_head = member_head_reader()

    def read(self, data: bytes) -> Value:
        """Return what a value says.

        Raises:
            WireError: as `decode_group_metadata`.
        """
        try:
            nobody, members = split_group_metadata(data)
            value = decode_group_metadata(nobody)
            consumer = value.protocol_type == _CONSUMER
            return Value(value, [self._member(one, consumer) for one in members])
        except WireError:
            # of another version, or broken: the codec says by itself what is wrong with it
            return self._read_whole(data)

    def _read_whole(self, data: bytes) -> Value:
        value = decode_group_metadata(data)
        consumer = value.protocol_type == _CONSUMER
        members = []
        for one in value.members:
            identity = Identity(
                one.member_id, one.instance_id, one.client_id, one.client_host,
                one.rebalance_timeout_ms, one.session_timeout_ms, _CLASSIC,
            )  # fmt: skip
            members.append(self._made(identity, one.subscription, one.assignment, consumer))
        return Value(value, members)

    def _member(self, member: MemberBytes, consumer: bool) -> Member:
        found = self._members.get((member, consumer))
        if found is None:
            identity = self._identities.get(member.head)
            if identity is None:
                identity = Identity._make((*self._read_head(member.head), _CLASSIC))
                self._identities.keep(member.head, identity)
            found = self._made(identity, member.subscription, member.assignment, consumer)
            self._members.keep((member, consumer), found)
        return found

    def _made(
        self, identity: Identity, subscription: bytes, assignment: bytes, consumer: bool
    ) -> Member:
        if not consumer:
            return Member(identity)
        values = self._values
        return Member(identity, values.subscription(subscription), values.assignment(assignment))
