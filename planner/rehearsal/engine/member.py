"""What the world needs of a member's process, whichever protocol it speaks."""

from __future__ import annotations

from typing import Protocol

from rebal.planner.rehearsal.engine.agenda import Latency
from rebal.planner.rehearsal.engine.messages import Beat, Client, Error, JoinRequest
from rebal.planner.rehearsal.engine.process import Process, Running


class Member(Client, Protocol):
    """One consumer object from the start of its process to its end, and what can happen to it."""

    process: Process
    member_id: str
    last_id: str
    alive: bool
    rejected: bool
    owned: frozenset[int]
    rebalances: Latency
    revoked: Latency
    assigned: Latency
    lost: Latency
    failed: int

    @property
    def protocol(self) -> str:
        """EAGER or COOPERATIVE, or CONSUMER with group.protocol=consumer."""

    def seat(self, running: Running, elected: str) -> JoinRequest | Beat:
        """Be a member already, with its partitions; return the request that it came by."""

    def start(self) -> None:
        """Begin to join."""

    def stop(self) -> None:
        """Close cleanly."""

    def kill(self) -> None:
        """End without a word: the coordinator counts it until its session is over."""

    def busy(self, seconds: float) -> None:
        """Process records for so long without a poll; heartbeats go on."""

    def freeze(self, seconds: float) -> None:
        """Do nothing at all for so long, no heartbeat either."""

    def enforce_rebalance(self) -> bool:
        """KIP-568: ask for a rebalance, and return whether there will be one."""

    def commit(self) -> Error:
        """Commit offsets now."""

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Subscribe to other topics from now on."""


class Reporter(Protocol):
    """Whoever writes down what happens to members."""

    def tell(self, consumer: Member, what: str, detail: str = "") -> None:
        """Something happened to this member now."""

    def unrest(self, consumer: Member, *, moving: bool) -> None:
        """The member is not at rest any more, or it is again."""
