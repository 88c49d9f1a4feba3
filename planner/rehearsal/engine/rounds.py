"""Rebalances without a clock: what members send, what is assigned, what they remember of it.

The timed members and their world use the same functions; `Rounds` is a group whose members all join
at once with one assignor, so that only the assignments take part in the result.
"""

from collections.abc import Callable

from msgspec.structs import replace

from rebal.groups.assignors import Assignment, Assignor, Owned, Spec, SpecMember
from rebal.groups.assignors.client.kafka import KafkaAssignor
from rebal.groups.assignors.server import ServerAssignor, Undecided
from rebal.groups.model import RebalanceProtocol

_REMEMBERS = "sticky"


def sent(assignor: Assignor, member: SpecMember, *, eager: bool) -> SpecMember:
    """Return what the leader reads of a member: an EAGER one owns nothing when it joins (KIP-429).

    User data is what the assignor made of its last assignment. Kafka's own assignors compute it
    when they assign; `sticky` computes it from `owned`, which stays for it.
    """
    if isinstance(assignor, KafkaAssignor):
        forgets = eager and member.owned and assignor.name != _REMEMBERS
        return replace(member, owned=()) if forgets else member
    data = assignor.subscription_user_data(member)
    return replace(member, owned=() if eager else member.owned, user_data=data)


def assigned(assignor: Assignor, spec: Spec) -> tuple[Assignment, Undecided]:
    """Return what the leader, or a KIP-848 coordinator, assigns to members that sent `spec`.

    Raises:
        LeaderWouldFail: the real leader throws or never ends.
        CustomAssignorError: a custom assignor fails.
    """
    if isinstance(assignor, KafkaAssignor):
        return assignor.assign_remembered(spec), Undecided()
    if isinstance(assignor, ServerAssignor):
        return assignor.assign_and_tell(spec)
    return assignor.assign(spec), Undecided()


def received(
    assignor: Assignor | None, member: SpecMember, partitions: Owned, generation: int
) -> SpecMember:
    """Return the member with its assignment of this generation (None: as most assignors do)."""
    if assignor is None or isinstance(assignor, KafkaAssignor):
        return replace(member, owned=tuple(partitions), generation=generation)
    return assignor.on_assignment(member, partitions, None, generation)


def rejoins(protocol: str, revoked: int) -> bool:
    """Return whether members that revoked so many partitions join again (KIP-429).

    EAGER members revoke before they join, and need no second rebalance.
    """
    return protocol == RebalanceProtocol.COOPERATIVE and revoked > 0


class Rounds:
    """A group whose members join at once.

    `spec` is the group as its members joined the last time. `undecided` are topics and members
    whose order in a KIP-848 coordinator's tables decides, and is not known.
    """

    def __init__(self, spec: Spec, assignor: Assignor, protocol: RebalanceProtocol) -> None:
        self.spec = spec
        self._assignor = assignor
        self._eager = protocol is RebalanceProtocol.EAGER
        self._result: Assignment | None = None
        self.undecided = Undecided()

    def change(self, apply: Callable[[Spec], Spec]) -> tuple[SpecMember, ...]:
        """Let members or topics come and go; return the members before."""
        self._receive()
        before = self.spec.members
        self.spec = apply(self.spec)
        return before

    def rebalance(self) -> tuple[Spec, Assignment]:
        """Rebalance once, and return what the members sent and what was assigned.

        Raises:
            LeaderWouldFail: the real leader throws or never ends.
            CustomAssignorError: a custom assignor fails.
        """
        read, self._result = self.next()
        return read, self._result

    def next(self) -> tuple[Spec, Assignment]:
        """Return what `rebalance` would, without doing it."""
        self._receive()
        spec, assignor = self.spec, self._assignor
        if not isinstance(assignor, ServerAssignor):
            members = (sent(assignor, member, eager=self._eager) for member in spec.members)
            spec = replace(spec, members=tuple(members))
        result, undecided = assigned(assignor, spec)
        self.undecided = Undecided(
            self.undecided.topics | undecided.topics, self.undecided.members | undecided.members
        )
        return spec, result

    def _receive(self) -> None:
        """Take over the last assignment; all members are of one generation then."""
        result, self._result = self._result, None
        if result is None:
            return
        members = self.spec.members
        generation = max((member.generation or 0 for member in members), default=0) + 1
        self.spec = replace(
            self.spec,
            members=tuple(
                received(
                    self._assignor, member, sorted(result.get(member.member_id, ())), generation
                )
                for member in members
            ),
        )
