"""A coordinator of its own, and clients that send it one request at a time."""

from __future__ import annotations

from random import Random

from rebal.groups.assignors import SpecMember
from rebal.groups.model import CoordinatorKind
from rebal.planner.rehearsal.engine.agenda import Agenda, Chance
from rebal.planner.rehearsal.engine.coordinator import ClassicGroup
from rebal.planner.rehearsal.engine.memory import Brokers, JoinAnswer, JoinRequest, SyncAnswer


class Named(Chance):
    """Members are called as their clients."""

    def member_id(self, client_id: str, instance_id: str | None, now: float) -> str:
        return client_id


class Member:
    """A client that writes down its answers and asks for nothing by itself."""

    skips_assignment = True

    def __init__(self, name: str, instance_id: str | None = None) -> None:
        self.name, self.instance_id = name, instance_id
        self.joins: list[JoinAnswer] = []
        self.syncs: list[SyncAnswer] = []
        self.woken = 0

    def joined(self, answer: JoinAnswer) -> None:
        self.joins.append(answer)

    def synced(self, answer: SyncAnswer) -> None:
        self.syncs.append(answer)

    def wake(self) -> None:
        self.woken += 1

    def request(self, known: bool = True, **other: object) -> JoinRequest:
        request = JoinRequest(
            self.name if known else "",
            self.name,
            self.instance_id,
            ("range",),
            SpecMember(member_id=self.name, topics=("orders",)),
            eager=True,
            stamp=None,
            session=45.0,
            rebalance=60.0,
        )
        return request._replace(**other)  # type: ignore[arg-type]


class Table:
    """A group, what its coordinator reports, and short ways to send it requests."""

    def __init__(
        self, *members: Member, kind: CoordinatorKind = CoordinatorKind.JAVA, **brokers: float
    ) -> None:
        self.agenda = Agenda()
        self.seen: list[str] = []
        settings = Brokers(kind=kind, **brokers)  # type: ignore[arg-type]
        self.group = ClassicGroup(self.agenda, settings, self, Named(Random(0)))
        if members:
            stable = [(one.request(), one, ()) for one in members]
            self.group.seat(stable, "range", members[0].name)

    def preparing(self, why: str) -> None:
        self.seen.append(f"preparing: {why}")

    def generation(self, number: int, assignor: str | None, members: int) -> None:
        self.seen.append(f"generation {number} of {members}")

    def stable(self, number: int) -> None:
        self.seen.append(f"stable {number}")

    def removed(self, member_id: str, why: str) -> None:
        self.seen.append(f"removed {member_id}: {why}")

    def join(self, *members: Member) -> None:
        for one in members:
            self.group.join(one.request(stamp=object()), one)

    def sync(self, leader: Member, *others: Member) -> None:
        for one in (*others, leader):
            given = {one.name: ()} if one is leader else None
            self.group.sync(one.name, self.group.number, one, given)

    def later(self, seconds: float) -> None:
        self.agenda.run(self.agenda.now + seconds)
