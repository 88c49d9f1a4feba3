"""Member of a KIP-848 group in the coordinator's memory, and the way to its target.

Source: CurrentAssignmentBuilder and ConsumerGroupMember of Kafka's group coordinator (4.1), KIP-848
"Member State Machine".
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum
from typing import Final

from rebal.groups.assignors import Owned, TopicPartition
from rebal.planner.rehearsal.engine.messages import Client, JoinRequest

LEAVES: Final = -1
"""Member epoch of a heartbeat that leaves the group."""
COMES_BACK: Final = -2
"""Member epoch of a static member that left for a while."""
_NOTHING: Final[frozenset[TopicPartition]] = frozenset()


class MemberState(Enum):
    """The stage that a member has reached on the way to its target."""

    STABLE = "stable"
    UNREVOKED = "unrevoked partitions"
    UNRELEASED = "unreleased partitions"


class ReconcilingMember:
    """One member: `assigned` and `revoking` are what nobody else can get.

    `request` is the last JoinGroup of a member with the classic protocol, None of the others.
    `target` is sorted. Times in seconds.
    """

    __slots__ = (
        "assigned",
        "assignor",
        "client",
        "deadline",
        "epoch",
        "heard",
        "instance_id",
        "member_id",
        "rack",
        "rebalance",
        "request",
        "revoking",
        "session",
        "silent",
        "state",
        "target",
        "timer",
        "topics",
        "wanted",
    )

    def __init__(self, member_id: str, instance_id: str | None, client: Client, now: float) -> None:
        self.member_id, self.instance_id, self.client = member_id, instance_id, client
        self.request: JoinRequest | None = None
        self.epoch = 0
        self.state = MemberState.STABLE
        self.topics: tuple[str, ...] = ()
        self.rack: str | None = None
        self.assignor = ""
        self.assigned = self.revoking = self.wanted = _NOTHING
        self.target: Owned = ()
        self.session = self.rebalance = 0.0
        self.heard = now
        self.silent = False
        self.deadline = 0.0
        self.timer = 0

    @property
    def held(self) -> frozenset[TopicPartition]:
        """Partitions that it has not released."""
        return self.assigned | self.revoking if self.revoking else self.assigned

    def aim(self, target: Owned) -> None:
        """Set the target."""
        if target != self.target:
            self.target, self.wanted = target, frozenset(target)

    def reconciled(self, epoch: int) -> bool:
        """Return whether it has reached the target of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def replaces(self, old: ReconcilingMember) -> None:
        """Take the place of the static member `old`, which has the same instance id."""
        self.state, self.topics, self.rack = old.state, old.topics, old.rack
        self.assigned, self.revoking = old.assigned, old.revoking
        self.target, self.wanted, self.assignor = old.target, old.wanted, old.assignor

    def advance(
        self,
        epoch: int,
        owned: frozenset[TopicPartition] | None,
        taken: Container[TopicPartition],
    ) -> bool:
        """Go on towards the target of `epoch`, and return whether what it holds changed.

        `owned` is what the member says that it owns (None: it says nothing), `taken` what a member
        of the group has not released.
        """
        if self.state is MemberState.UNREVOKED:
            if owned is None or owned & self.revoking:
                return False
            own = self.epoch + 1
        elif self.reconciled(epoch):
            return False
        else:
            own = self.epoch
        kept = self.assigned & self.wanted
        revoking = self.assigned - kept
        missing = self.wanted - kept
        free = frozenset(pair for pair in missing if pair not in taken)
        before = self.assigned, self.revoking
        if revoking and (owned is None or owned & revoking):
            self.state, self.epoch = MemberState.UNREVOKED, own
            self.assigned, self.revoking = kept, revoking
        else:
            waits = len(free) < len(missing)
            self.state = MemberState.UNRELEASED if waits else MemberState.STABLE
            self.epoch = epoch
            self.assigned, self.revoking = kept | free, _NOTHING
        return before != (self.assigned, self.revoking)
