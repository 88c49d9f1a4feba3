"""Small groups and stories in a line each, and a coordinator whose clients send single requests."""

from random import Random
from typing import Any

from msgspec.structs import replace

from rebal.groups.assignors import Assignment, Owned, Spec, SpecMember, get
from rebal.groups.model import CoordinatorKind
from rebal.planner.rehearsal.engine.agenda import Agenda, Chance
from rebal.planner.rehearsal.engine.coordinator import ClassicGroup
from rebal.planner.rehearsal.engine.member import Process, RunningProcess
from rebal.planner.rehearsal.engine.memory import Brokers, JoinAnswer, JoinRequest, SyncAnswer
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scripts import Deed, Scene, Script, ScriptEvent

RANGE = ("range",)
BOTH = ("cooperative-sticky", "range")
DONE = ("cooperative-sticky",)


def scene(
    *lists: tuple[str, ...],
    partitions: int = 12,
    elected: str = "",
    static: bool = False,
    **more: Any,
) -> Scene:
    """A Stable group: a member for each list, m0 (it leads), m1, …, with the elected assignor's.

    Keywords that a `Process` has are for each of them, the others for the scene.
    """
    usual = {key: more.pop(key) for key in Process.__struct_fields__ if key in more}
    elected = elected or lists[0][0]
    processes = [
        Process(
            name=f"m{number}",
            client_id=f"m{number}",
            instance_id=f"i{number}" if static else None,
            assignors=list_,
            topics=("orders",),
            **usual,
        )
        for number, list_ in enumerate(lists)
    ]
    ids = [f"{one.instance_id or one.client_id}-{'0' * 8}" for one in processes]
    members = tuple(SpecMember(member_id=id_, topics=("orders",)) for id_ in ids)
    given = get(elected).assign(Spec(members=members, partitions={"orders": partitions}))
    return Scene(
        topics={"orders": partitions},
        running=tuple(
            RunningProcess(process=process, member_id=id_, owned=tuple(given[id_]), generation=7)
            for process, id_ in zip(processes, ids, strict=True)
        ),
        assignor=elected,
        generation=7,
        **{"brokers": Brokers(), **more},
    )


def with_processes(where: Scene, *names: str, **fields: Any) -> Scene:
    """Return the scene whose members (those named, or all) have these fields of their processes."""
    running = (
        replace(one, process=replace(one.process, **fields))
        if not names or one.process.name in names
        else one
        for one in where.running
    )
    return replace(where, running=tuple(running))


def restart(*members: str, to: tuple[str, ...] = (), **more: Any) -> ScriptEvent:
    return ScriptEvent(do=Deed.RESTART, members=members, assignors=to, **more)


def event(do: str, *members: str, **more: Any) -> ScriptEvent:
    return ScriptEvent(do=Deed(do), members=members, **more)


def starts(*processes: Process, **more: Any) -> ScriptEvent:
    return ScriptEvent(do=Deed.START, processes=processes, **more)


def play(where: Scene, *events: ScriptEvent, seed: int = 0) -> Rehearsal:
    return rehearse(where, Script(events=events), seed=seed)


def told(run: Rehearsal, what: str) -> list[tuple[str, str]]:
    """Who it happened to, and the detail."""
    return [(note.who, note.detail) for note in run.notes if note.what == what]


def assignors(run: Rehearsal) -> list[str | None]:
    return [one.assignor for one in run.rebalances]


class Counting:
    """A custom assignor: each member's user data is how many assignments it has received."""

    name = "counting"

    def __init__(self, *protocols: str) -> None:
        self.supported_protocols = frozenset(protocols)
        self.seen: list[tuple[tuple[str, bytes | None, int], ...]] = []

    def subscription_user_data(self, member: SpecMember) -> bytes | None:
        return member.user_data

    def assign(self, spec: Spec) -> Assignment:
        self.seen.append(tuple((m.member_id, m.user_data, len(m.owned)) for m in spec.members))
        return get("range").assign(spec)

    def on_assignment(
        self, member: SpecMember, assigned: Owned, user_data: bytes | None, generation: int
    ) -> SpecMember:
        count = int(member.user_data or b"0") + 1
        return replace(
            member, owned=tuple(assigned), generation=generation, user_data=b"%d" % count
        )


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
