"""Input and contract of assignors: KIP-429's assignor interface in Python.

An assignor gets a read-only `Spec` and returns the partitions of each member. The order of
`Spec.members` is the order of the JoinGroup response (the leader's client builds its map from it),
and the order of the returned lists is part of the result.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from rebal.groups.jvmhash import utf16
from rebal.groups.model import RebalanceProtocol

TopicPartition = tuple[str, int]
Owned = Sequence[TopicPartition]
Assignment = dict[str, list[TopicPartition]]


class SpecMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member as the assignor sees it.

    `owned` is the subscription's `ownedPartitions` in order; `generation` is None or negative when
    absent (below subscription v2); `user_data` is the subscription's raw user data; a `rack` of
    None or "" counts as none.
    """

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    rack: str | None = None
    owned: Owned = ()
    generation: int | None = None
    user_data: bytes | None = None


def by_instance(members: Sequence[SpecMember]) -> list[int]:
    """Return the places of static members by instance id, then of dynamic ones by member id; equal
    ids keep their order.
    """
    keys = [
        (1, utf16(m.member_id)) if m.instance_id is None else (0, utf16(m.instance_id))
        for m in members
    ]
    return sorted(range(len(keys)), key=keys.__getitem__)


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """The whole input. `replicas[topic][partition]` are broker ids (empty or absent: not known).

    `partitions[topic]` is the partition count; `racks[broker id]` is a broker's rack.
    """

    members: tuple[SpecMember, ...]
    partitions: Mapping[str, int]
    replicas: Mapping[str, Sequence[Sequence[int]]] = {}
    racks: Mapping[int, str | None] = {}


class Assignor(Protocol):
    """The contract of every assignor (KIP-429, "ConsumerPartitionAssignor")."""

    @property
    def name(self) -> str:
        """The name that goes over the wire, e.g. `cooperative-sticky`."""

    @property
    def supported_protocols(self) -> frozenset[RebalanceProtocol]:
        """EAGER, COOPERATIVE or both; a member runs the highest that all of its list support."""

    def subscription_user_data(self, member: SpecMember) -> bytes | None:
        """Return the user data that this member sends with its next JoinGroup."""

    def assign(self, spec: Spec) -> Assignment:
        """Return member id → `(topic, partition)` list, in the order of the Java client's leader.

        The result of a COOPERATIVE assignor is for this rebalance alone: it leaves out a partition
        that another member must revoke first.

        Raises:
            LeaderWouldFail: the real leader throws or never ends on this input.
        """

    def on_assignment(
        self, member: SpecMember, assigned: Owned, user_data: bytes | None, generation: int
    ) -> SpecMember:
        """Return the member after it received `assigned`: what it owns and remembers.

        `user_data` is that of the assignment; Kafka's own assignors ignore it.
        """
