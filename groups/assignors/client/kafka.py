"""Kafka's four client-side assignors as objects with KIP-429's contract."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors.client.claims import NO_GENERATION, remembered
from rebal.groups.assignors.client.problem import Problem
from rebal.groups.assignors.client.stateless import assign_range, assign_roundrobin
from rebal.groups.assignors.client.sticky import (
    assign_cooperative,
    assign_remembered,
    assign_sticky,
)
from rebal.groups.assignors.spec import Assignment, Owned, Spec, SpecMember
from rebal.groups.model import RebalanceProtocol
from rebal.groups.wire.user_data import StickyUserData, encode_cooperative_sticky, encode_sticky

EAGER: Final = frozenset({RebalanceProtocol.EAGER})
_BOTH: Final = frozenset({RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE})


class KafkaAssignor:
    """A client's own assignor, computed as its leader does.

    Kafka's four have the results of `org.apache.kafka:kafka-clients:4.1.1`, list order included.
    """

    def __init__(
        self,
        name: str,
        supported_protocols: frozenset[RebalanceProtocol],
        lists: Callable[[Problem], Assignment],
        user_data: Callable[[SpecMember], bytes | None],
        remembered: Callable[[Problem], Assignment] | None = None,
    ) -> None:
        self.name = name
        self.version = 0
        self.supported_protocols = supported_protocols
        self._lists = lists
        self._user_data = user_data
        self._remembered = remembered or lists

    def subscription_user_data(self, member: SpecMember) -> bytes | None:
        """Return the user data that this member sends with its next JoinGroup."""
        return self._user_data(member)

    def assign(self, spec: Spec) -> Assignment:
        """Return member id → `(topic, partition)` list; nothing without members.

        Raises:
            LeaderWouldFail: the real leader throws or never ends on this input.
        """
        return self._lists(Problem(spec)) if spec.members else {}

    def assign_remembered(self, spec: Spec) -> Assignment:
        """Return the result of `assign` if every member sends user data about what it owns now.

        It equals `assign` with `subscription_user_data` of each member as its `user_data` (here
        None), without encoding and decoding the bytes.

        Raises:
            LeaderWouldFail: the real leader throws or never ends on this input.
        """
        return self._remembered(Problem(spec)) if spec.members else {}

    def on_assignment(
        self,
        member: SpecMember,
        assigned: Owned,
        user_data: bytes | None,  # noqa: ARG002 - KIP-429 hands it over, Kafka's own ignore it
        generation: int,
    ) -> SpecMember:
        """Return the member after it received `assigned`, with what it sends next."""
        after = replace(member, owned=tuple(assigned), generation=generation)
        return replace(after, user_data=self._user_data(after))


def _remember_partitions(member: SpecMember) -> bytes | None:
    """Return StickyAssignor's user data: null before the first assignment."""
    if member.generation is None:
        return None
    previous = tuple(remembered(member))
    return encode_sticky(StickyUserData(previous=previous, generation=member.generation))


def _remember_generation(member: SpecMember) -> bytes:
    return _generation(NO_GENERATION if member.generation is None else member.generation)


# All members of a group send the same, at each of many rebalances.
_generation: Final = lru_cache(maxsize=64)(encode_cooperative_sticky)


ASSIGNORS: Final = {
    assignor.name: assignor
    for assignor in (
        KafkaAssignor("range", EAGER, lambda p: p.assignment(assign_range(p)), lambda _: None),
        KafkaAssignor(
            "roundrobin", EAGER, lambda p: p.assignment(assign_roundrobin(p)), lambda _: None
        ),
        KafkaAssignor(
            "sticky",
            EAGER,
            lambda p: p.from_codes(assign_sticky(p)),
            _remember_partitions,
            lambda p: p.from_codes(assign_remembered(p)),
        ),
        KafkaAssignor(
            "cooperative-sticky",
            _BOTH,
            lambda p: p.from_codes(assign_cooperative(p)),
            _remember_generation,
        ),
    )
}
