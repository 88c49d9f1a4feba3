"""Custom assignors: a wrapper that guards against their errors, and a check of their results.

`Guarded` wraps a custom assignor so that it raises only rebal's errors. `violations` lists the
rules of the contract (KIP-429) that its result breaks.
"""

from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from rebal.groups.assignors.spec import Assignment, Owned, Spec, SpecMember
from rebal.groups.errors import CustomAssignorError, LeaderWouldFail
from rebal.groups.model import RebalanceProtocol, Record


class PartitionRule(StrEnum):
    """The rules about partitions that an assignor's result must not break."""

    TWICE = "given to two members, or twice to one"
    LEFT_OUT = "left without an owner though its topic is subscribed to"
    NOT_SUBSCRIBED = "given to a member that did not subscribe to its topic"
    NO_SUCH_PARTITION = "given out though it does not exist"
    NO_SUCH_MEMBER = "given to a member that is not in the group"
    TAKEN_TOO_EARLY = "given away while another member still owns it (KIP-429: it must be revoked)"


class Violation(Record, frozen=True, kw_only=True):
    """One rule that a result breaks, the number of partitions that break it, and one as an
    example.
    """

    rule: PartitionRule
    partitions: int
    topic: str = ""
    partition: int = 0
    member_id: str | None = None


def violations(spec: Spec, result: Assignment, *, cooperative: bool) -> tuple[Violation, ...]:
    """Return the rules that `result` breaks for the input `spec`; empty if it breaks none.

    A COOPERATIVE assignor may leave out a partition that its owner must revoke first, and must not
    assign it to another member.
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
    """A custom assignor under control: its results are checked, and it raises only rebal's errors.

    `where` names its origin, for messages.
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
        """Return the assignor's user data; None where it has no such method."""
        if not hasattr(self._inner, "subscription_user_data"):
            return None
        made = self._call("subscription_user_data", member)
        if made is not None and not isinstance(made, bytes):
            raise self._wrong("subscription_user_data", "bytes or None", made)
        return made

    def assign(self, spec: Spec) -> Assignment:
        """Return the assignor's result; members that it leaves out get nothing.

        Raises:
            CustomAssignorError: it raised something, or returned something else.
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
        """Return the member after it received `assigned`: by default, `assigned` is all that it
        owns.
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
