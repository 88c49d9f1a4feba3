"""Kafka's four client-side assignors as objects with KIP-429's contract.

`sticky` and `cooperative-sticky` are one computation with two sources of owned partitions. A
`sticky` member revokes its partitions before it rejoins, so its user data lists them. A
`cooperative-sticky` member lists them in its subscription. The result of `cooperative-sticky`
leaves out partitions that another member must revoke first.
"""

from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors.client.claims import (
    NO_GENERATION,
    Memories,
    Memory,
    all_alike,
    remembered,
    settle,
)
from rebal.groups.assignors.client.problem import Problem
from rebal.groups.assignors.client.stateless import assign_range, assign_roundrobin
from rebal.groups.assignors.client.sticky import assign_constrained, assign_general
from rebal.groups.assignors.spec import Assignment, Owned, Spec, SpecMember
from rebal.groups.model import RebalanceProtocol
from rebal.groups.wire.user_data import (
    StickyUserData,
    decode_cooperative_sticky,
    encode_cooperative_sticky,
    encode_sticky,
)


def assign_sticky(problem: Problem) -> list[list[int]]:
    """Return each member's codes, in the leader's order.

    Raises:
        LeaderWouldFail: the leader would throw, or never end.
    """
    memories = Memories(problem)
    return _assigned(problem, lambda member: memories.read(member.user_data))


def assign_remembered(problem: Problem) -> list[list[int]]:
    """Return the result of `assign_sticky` if the members' user data lists what they own now.

    Raises:
        LeaderWouldFail: the leader would throw, or never end.
    """

    def memory(member: SpecMember) -> tuple[list[int], int]:
        if member.generation is None:
            return [], NO_GENERATION
        return problem.codes(list(remembered(member))), member.generation

    return _assigned(problem, memory)


def _assigned(problem: Problem, memory: Memory) -> list[list[int]]:
    claims = settle(problem, memory)
    if all_alike(problem):
        return assign_constrained(problem, claims)[0]
    return assign_general(problem, claims)


def assign_cooperative(problem: Problem) -> list[list[int]]:
    """Return each member's codes that `cooperative-sticky` assigns in this round."""
    claims = settle(problem, lambda member: _from_subscription(problem, member))
    if all_alike(problem):
        lists, moving = assign_constrained(problem, claims)
    else:
        lists = assign_general(problem, claims)
        moving = _changing_hands(problem, lists)
    for codes, waits in zip(lists, moving, strict=True):
        if waits:
            codes[:] = _without(codes, waits)
    return lists


def _without(codes: list[int], waits: set[int]) -> Iterator[int]:
    """Yield `codes` without the first occurrence of each that waits."""
    open_ = set(waits)
    for code in codes:
        if code in open_:
            open_.remove(code)
        else:
            yield code


def _from_subscription(problem: Problem, member: SpecMember) -> tuple[list[int], int]:
    generation = member.generation
    if generation is None or generation < 0:
        generation = decode_cooperative_sticky(member.user_data)
    return problem.codes(member.owned), NO_GENERATION if generation is None else generation


def _changing_hands(problem: Problem, lists: list[list[int]]) -> list[set[int]]:
    """Return for each member the codes that it gets and another member loses."""
    gains: dict[int, int] = {}
    losses: set[int] = set()
    for member, codes in enumerate(lists):
        before = set(problem.codes(problem.members[member].owned))
        gains.update((code, member) for code in codes if code not in before)
        losses.update(before.difference(codes))
    moving: list[set[int]] = [set() for _ in lists]
    for code in losses:
        if code in gains:
            moving[gains[code]].add(code)
    return moving


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
    generation = member.generation
    return encode_cooperative_sticky(NO_GENERATION if generation is None else generation)


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
