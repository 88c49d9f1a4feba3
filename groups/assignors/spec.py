"""Input and contract of assignors: KIP-429's assignor interface in Python.

An assignor gets a read-only `Spec` and returns the partitions of each member. The order of
`Spec.members` is the order of the JoinGroup response (the leader's client builds its map from it),
and the order of the returned lists is part of the result.

`Guarded` wraps a custom assignor so that it raises only rebal's errors. `violations` lists the
rules of the contract that its result breaks.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from rebal.groups.errors import CustomAssignorError, LeaderWouldFail
from rebal.groups.jvmhash import utf16
from rebal.groups.model import RebalanceProtocol, Record

TopicPartition = tuple[str, int]
Owned = Sequence[TopicPartition]
Assignment = dict[str, list[TopicPartition]]


class SpecMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member as the assignor sees it.

    `owned` are the subscription's `ownedPartitions`, in its order. `generation` is None or negative
    if the subscription has none (below v2). `user_data` is the subscription's raw user data. A
    `rack` of None or "" means that the member has no rack.
    """

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    rack: str | None = None
    owned: Owned = ()
    generation: int | None = None
    user_data: bytes | None = None


def by_instance(members: Sequence[SpecMember]) -> list[int]:
    """Return the indexes of `members` sorted: static members by instance id, then dynamic by id.

    Members with equal ids keep their order.
    """
    keys = [
        (1, utf16(m.member_id)) if m.instance_id is None else (0, utf16(m.instance_id))
        for m in members
    ]
    return sorted(range(len(keys)), key=keys.__getitem__)


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """Input of an assignor: the members, and the facts about topics and brokers.

    `partitions[topic]` is the partition count; `replicas[topic][partition]` are broker ids (empty
    or absent: not known); `racks[broker id]` is a broker's rack.
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
        """The supported protocols: EAGER, COOPERATIVE or both.

        A member runs the highest protocol that all assignors of its list support.
        """

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
        """Return the member after it received `assigned`: what it owns, and its next user data.

        `user_data` is the user data of the assignment; Kafka's own assignors ignore it.
        """


class PartitionRule(StrEnum):
    """The rules about partitions that an assignor's result must not break."""

    TWICE = "given to two members, or twice to one"
    LEFT_OUT = "left without an owner though its topic is subscribed to"
    NOT_SUBSCRIBED = "given to a member that did not subscribe to its topic"
    NO_SUCH_PARTITION = "given out though it does not exist"
    NO_SUCH_MEMBER = "given to a member that is not in the group"
    TAKEN_TOO_EARLY = "given away while another member still owns it (KIP-429: it must be revoked)"


class Violation(Record, frozen=True, kw_only=True):
    """One rule that a result breaks: the number of partitions that break it, and an example."""

    rule: PartitionRule
    partitions: int
    topic: str = ""
    partition: int = 0
    member_id: str | None = None


def violations(spec: Spec, result: Assignment, *, cooperative: bool) -> tuple[Violation, ...]:
    """Return the rules that `result` breaks for the input `spec`; empty if it breaks none.

    With `cooperative`, a partition that a member still owns may be left out of the result, and must
    not be assigned to another member.
    """
    found = defaultdict[PartitionRule, list[tuple[str, int, str | None]]](list)
    owner = {owned: m.member_id for m in spec.members for owned in m.owned} if cooperative else {}
    subscribed = {member.member_id: set(member.topics) for member in spec.members}
    given: set[tuple[str, int]] = set()
    for member_id, owned in result.items():
        topics = subscribed.get(member_id)
        for each in owned:
            topic, partition = each
            broken = (
                (PartitionRule.NO_SUCH_MEMBER, topics is None),
                (PartitionRule.TWICE, each in given),
                (
                    PartitionRule.NO_SUCH_PARTITION,
                    not 0 <= partition < spec.partitions.get(topic, 0),
                ),
                (PartitionRule.NOT_SUBSCRIBED, topic not in (topics or ())),
                (PartitionRule.TAKEN_TOO_EARLY, owner.get(each, member_id) != member_id),
            )
            given.add(each)
            if (rule := next((rule for rule, holds in broken if holds), None)) is not None:
                found[rule].append((topic, partition, member_id))
    for topic in sorted(set().union(*subscribed.values())):
        for partition in range(spec.partitions.get(topic, 0)):
            if (topic, partition) not in given and (topic, partition) not in owner:
                found[PartitionRule.LEFT_OUT].append((topic, partition, None))
    return tuple(
        Violation(
            rule=rule,
            partitions=len(found[rule]),
            topic=found[rule][0][0],
            partition=found[rule][0][1],
            member_id=found[rule][0][2],
        )
        for rule in PartitionRule
        if rule in found
    )


class Guarded:
    """Wrapper of a custom assignor: it checks the types of results and raises only rebal's errors.

    `where` names the assignor's origin, for error messages.
    """

    def __init__(self, assignor: Any, where: str) -> None:
        self._inner = assignor
        self._where = where
        for attribute in ("name", "supported_protocols", "assign"):
            if not hasattr(assignor, attribute):
                raise CustomAssignorError(
                    f"{where}: an assignor needs {attribute}; see rebal.groups.assignors.spec."
                )
        self.name = str(assignor.name)
        try:
            self.supported_protocols = frozenset(
                map(RebalanceProtocol, assignor.supported_protocols)
            )
        except ValueError as error:
            raise CustomAssignorError(f"{where}: supported_protocols: {error}.") from None

    def subscription_user_data(self, member: SpecMember) -> bytes | None:
        """Return the member's user data; None if the custom assignor has no method for it."""
        if not hasattr(self._inner, "subscription_user_data"):
            return None
        made = self._call("subscription_user_data", member)
        if made is not None and not isinstance(made, bytes):
            raise self._wrong("subscription_user_data", "bytes or None", made)
        return made

    def assign(self, spec: Spec) -> Assignment:
        """Return the assignor's result; members that the assignor leaves out get no partitions.

        Raises:
            CustomAssignorError: the assignor raised any error but LeaderWouldFail, or did not
                return a mapping of member ids to (topic, partition) lists.
            LeaderWouldFail: the assignor itself raised it.
        """
        made = self._call("assign", spec)
        if not isinstance(made, Mapping):
            raise self._wrong("assign", "a mapping of member ids to (topic, partition) lists", made)
        result: Assignment = {member.member_id: [] for member in spec.members}
        for member_id, owned in made.items():
            try:
                result[str(member_id)] = [(str(topic), int(number)) for topic, number in owned]
            except (TypeError, ValueError):
                raise self._wrong("assign", "(topic, partition) lists", owned) from None
        return result

    def on_assignment(
        self, member: SpecMember, assigned: Owned, user_data: bytes | None, generation: int
    ) -> SpecMember:
        """Return the member after it received `assigned`.

        If the custom assignor does not define this method, the member owns exactly `assigned` and
        has no user data.
        """
        if not hasattr(self._inner, "on_assignment"):
            return replace(member, owned=tuple(assigned), generation=generation, user_data=None)
        made = self._call("on_assignment", member, assigned, user_data, generation)
        if not isinstance(made, SpecMember):
            raise self._wrong("on_assignment", "the member as a SpecMember", made)
        return made

    def _call(self, method: str, *args: object) -> Any:
        try:
            return getattr(self._inner, method)(*args)
        except (LeaderWouldFail, CustomAssignorError):
            raise
        except Exception as error:
            said = " ".join(str(error).split())
            raise CustomAssignorError(
                f"{self._where}: {method} failed with {type(error).__name__}"
                + (f": {said.rstrip('.')}." if said else ".")
            ) from error

    def _wrong(self, method: str, wanted: str, got: object) -> CustomAssignorError:
        return CustomAssignorError(
            f"{self._where}: {method} must return {wanted}, not {type(got).__name__}."
        )
