"""Scene of a rehearsal: a captured group with its members, assignor lists, timeouts, partitions.

`variant` returns the same group under another rebalance protocol, to compare rehearsals.
`with_parameters` sets times that no evidence shows, or that the user wants to try (`--param`).
"""

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import Spec, SpecMember, get
from rebal.groups.assignors.javatable import hash_order
from rebal.groups.assignors.server import SERVER_NAMES, server_assignor
from rebal.groups.clients import default_list, family, protocols_of, worker_list
from rebal.groups.durations import seconds_of, share_of
from rebal.groups.model import (
    CoordinatorKind,
    GroupSnapshot,
    GroupType,
    Knowledge,
    Member,
    RebalanceProtocol,
    Record,
    Software,
    Tri,
)
from rebal.planner.admission.memory import POLICY, classic_joins, static_restarts_when_full
from rebal.planner.facts import listed, names
from rebal.planner.rehearsal.engine.leaders import EAGER, FOREIGN
from rebal.planner.rehearsal.engine.member import Process, RunningProcess
from rebal.planner.rehearsal.engine.memory import Brokers
from rebal.planner.rehearsal.scripts import Scene, Script
from rebal.planner.rehearsal.spec import start_of, task_spec_of, work_by_worker
from rebal.planner.timeouts import FIRST_DELAY, RECONCILE_INTERVAL, Speed, held_back, waits

_ASSIGNMENT_INTERVAL: Final = "group.consumer.assignment.interval.ms"


def scene_of(
    snapshot: GroupSnapshot,
    *,
    speed: Speed | None = None,
    families: Mapping[str, str | None] | None = None,
    lists: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[Scene, tuple[str, ...]]:
    """Return the scene of a captured group for a rehearsal, and its assumptions, one sentence each.

    `speed` says how long restarts take. `families` and `lists` are by member id: a client family in
    `families` replaces the captured one, and an assignor list in `lists` is used if the evidence
    for the member's list is not exact.

    Raises:
        CannotSimulateError: the snapshot lacks data that a rehearsal needs; the message says which.
    """
    speed = (speed or Speed()).at(snapshot.cluster)
    streams = snapshot.group.type is GroupType.STREAMS
    kip848 = streams or snapshot.group.type is GroupType.CONSUMER
    spec = task_spec_of(snapshot) or start_of(snapshot, server_side=kip848)[0]
    called, elected = names(snapshot.members), snapshot.group.assignor or ""
    assumed: dict[str, list[str]] = {"list": [], "offers": [], "family": []}
    running = []
    for member, sent in zip(snapshot.members, spec.members, strict=True):
        name = called[member.member_id]
        usual = "consumer" if member.protocol_type == "consumer" else "classic"
        protocol = "streams" if streams else usual
        given = (lists or {}).get(member.member_id)
        list_, known = list_of(member, "" if kip848 else elected, given)
        if protocol == "classic" and not known:
            assumed["offers" if _is_worker(member) else "list"].append(name)
        process = replace(
            process_of(member, sent.topics, speed, sent.rack),
            name=name,
            assignors=list_,
            protocol=protocol,
            remote_assignor="" if protocol == "classic" else elected,
        )
        family = (families or {}).get(member.member_id)
        if family:
            process = replace(process, family=family)
        elif member.software is None or member.software.family is None:
            assumed["family"].append(name)
        running.append(
            RunningProcess(
                process=process,
                member_id=member.member_id,
                owned=tuple(sent.owned),
                generation=snapshot.group.group_epoch if kip848 else sent.generation,
            )
        )
    generation = snapshot.group.group_epoch if kip848 else snapshot.group.generation
    scene = Scene(
        topics=spec.partitions,
        connectors=connectors_of(snapshot),
        replicas=spec.replicas,
        racks=spec.racks,
        topic_ids={t.name: t.topic_id for t in snapshot.topics if t.topic_id is not None},
        user_data=(elected,) if any(m.assignment_user_data for m in snapshot.members) else (),
        brokers=replace(brokers_of(snapshot), consumer_heartbeat=speed.reconcile),
        running=tuple(running),
        assignor=elected,
        leader=leader_of(snapshot),
        generation=1 if generation is None else generation,
        restart=speed.restart,
    )
    said = {
        "list": "the assignor list of {} is not known: its client's default, or the elected "
        "assignor alone, stands in for it",
        "offers": "what {} offers is not known: the elected protocol and those below it stand in "
        "for it",
        "family": "the client of {} is not known: it is taken for a Java consumer",
    }
    assumes = (said[key].format(listed(found, 3)) for key, found in assumed.items() if found)
    return scene, tuple(assumes)


def connectors_of(snapshot: GroupSnapshot) -> dict[str, int]:
    """Return the connectors that the Connect workers run, each with its number of tasks.

    Empty if the snapshot does not show the connectors and tasks of every worker.
    """
    tasks: dict[str, int] = {}
    for name, number in chain(*(work_by_worker(snapshot) or {}).values()):
        tasks[name] = max(tasks.get(name, 0), number + 1)
    return tasks


def leader_of(snapshot: GroupSnapshot) -> str | None:
    """Return the member id of the Connect worker that reports itself as leader.

    If none does, return the worker that a coordinator would choose when it loads the group; None if
    the group has no Connect workers.
    """
    workers = {m.member_id: m.worker for m in snapshot.members if m.worker is not None}
    leads = [id_ for id_, worker in workers.items() if worker.leader]
    return next(iter(leads or hash_order(workers)), None)


def brokers_of(snapshot: GroupSnapshot) -> Brokers:
    """Return the brokers' settings that were read, and Kafka's defaults for the others."""
    coordinator = snapshot.group.coordinator
    kind = coordinator.kind if coordinator is not None else CoordinatorKind.UNKNOWN
    read, usual = snapshot.cluster.settings, Brokers()

    def number(key: str, default: float, unit: float) -> float:
        text = read.get(key, "")
        return int(text) / unit if text.isdigit() else default

    return Brokers(
        kind=CoordinatorKind.JAVA if kind is CoordinatorKind.UNKNOWN else kind,
        initial_delay=number(FIRST_DELAY, usual.initial_delay, 1000),
        max_size=int(number("group.max.size", usual.max_size, 1)),
        min_session=number("group.min.session.timeout.ms", usual.min_session, 1000),
        max_session=number("group.max.session.timeout.ms", usual.max_session, 1000),
        consumer_heartbeat=number(RECONCILE_INTERVAL, usual.consumer_heartbeat, 1000),
        consumer_session=number("group.consumer.session.timeout.ms", usual.consumer_session, 1000),
        consumer_max_size=int(number("group.consumer.max.size", usual.consumer_max_size, 1)),
        consumer_assignor=default_server_side(snapshot),
        migration=read.get(POLICY, usual.migration).lower(),
        classic_joins=classic_joins(snapshot.cluster) is not Tri.NO,
        static_restarts_when_full=static_restarts_when_full(snapshot.cluster) is Tri.YES,
        streams_delay=number("group.streams.initial.rebalance.delay.ms", usual.streams_delay, 1000),
        assignment_interval=number(_ASSIGNMENT_INTERVAL, usual.assignment_interval, 1000),
        # Brokers with this setting begin at 1.
        first_epoch=int(_ASSIGNMENT_INTERVAL in read),
    )


def list_of(
    member: Member, elected: str, given: tuple[str, ...] | None = None
) -> tuple[tuple[str, ...], bool]:
    """Return the member's assignor list, and whether exact evidence or the user (`given`) gave it.

    Otherwise the list is assumed: the client's default list if it has the assignor `elected`, else
    `elected` alone; for a Connect worker the elected protocol and those below it. `elected` is
    empty in a KIP-848 group; then the client's default list is assumed, or if that is not known,
    the Java client's.
    """
    if member.assignors.knowledge is Knowledge.EXACT:
        return member.assignors.list, True
    if given:
        return given, True
    if _is_worker(member):
        return worker_list("eager" if elected == EAGER else elected) or (EAGER,), False
    software = member.software
    default = default_list(software.family, software.version) if software is not None else None
    if not elected:
        return default or ("range", "cooperative-sticky"), False
    return (default if default and elected in default else (elected,)), False


def _is_worker(member: Member) -> bool:
    return member.software is not None and member.software.family == "connect"


def process_of(
    member: Member, topics: tuple[str, ...], speed: Speed, rack: str | None = None
) -> Process:
    """Return the process that a rehearsal simulates for a captured member.

    Its session and rebalance timeouts are those with which the member joined, else those of its
    configuration file, else its client's defaults. Its heartbeat interval is `speed.rebalance`, but
    at most a third of the session timeout. `version` is None if the member uses KIP-848 although
    its client's version does not support it, or only as a preview.
    """
    patience, software = waits(member), member.software or Software()
    key = software.family or "java"
    preview = member.protocol_type == "consumer" and family(key).kip848(software.version) is Tri.NO
    return Process(
        name=member.member_id,
        client_id=member.client_id,
        instance_id=member.instance_id,
        family=key,
        version=None if preview else software.version,
        topics=topics,
        rack=rack,
        session=patience.session,
        rebalance=patience.rebalance,
        heartbeat=min(speed.rebalance, patience.session / 3),
        held_back=held_back(member),
    )


def default_server_side(snapshot: GroupSnapshot) -> str:
    """Return the server-side assignor of a KIP-848 group whose members ask for none.

    It is the first of group.consumer.assignors, or `uniform` if the snapshot lacks that setting.
    """
    first = snapshot.cluster.settings.get("group.consumer.assignors", "").split(",")[0].strip()
    named = {"UniformAssignor": "uniform", "RangeAssignor": "range"}
    return named.get(first.rpartition(".")[2], first) or SERVER_NAMES[0]


PLAN: Final = "plan"
NOW: Final = "now"
VARIANTS: Final[Mapping[str, str]] = {
    "eager": "every member runs EAGER",
    "cooperative": "every member runs COOPERATIVE, cooperative-sticky alone",
    "consumer": "every member uses KIP-848 (group.protocol=consumer)",
    PLAN: "the group as the plan changes it, step by step",
    NOW: "the group as it runs now",
}
"""Value of `--compare` → description of the variant."""


def variant(scene: Scene, script: Script, name: str) -> tuple[Scene, Script]:
    """Return the scene and the script under the variant `name` of `VARIANTS`.

    Every member, and every process that the script starts, gets the variant's protocol and (not for
    `consumer`) its assignor list; the group begins with the assignment computed under it. `eager`
    keeps the current assignor if that is eager, and uses range otherwise. `now` and `plan` leave
    the group as it is. Under every variant the events no longer change lists or protocols.
    """
    keeps = name == "eager" and protocols_of(scene.assignor) == frozenset({RebalanceProtocol.EAGER})
    usual = {"eager": "range", "cooperative": "cooperative-sticky", "consumer": "uniform"}
    assignor = scene.assignor if keeps else usual.get(name)
    events = [replace(e, assignors=(), protocol="", remote_assignor="") for e in script.events]
    if assignor is None:
        return scene, replace(script, events=tuple(events))
    protocol = "consumer" if name == "consumer" else "classic"
    sent = tuple(
        SpecMember(
            member_id=one.member_id,
            topics=one.process.topics,
            instance_id=one.process.instance_id,
            rack=one.process.rack,
        )
        for one in scene.running
    )
    others = {"uniform": server_assignor("uniform", scene.topic_ids), **FOREIGN}
    by = others.get(assignor) or get(assignor)
    given = by.assign(
        Spec(members=sent, partitions=scene.topics, replicas=scene.replicas, racks=scene.racks)
    )

    def started(process: Process) -> Process:
        names = process.assignors if protocol == "consumer" else (assignor,)
        return replace(process, assignors=names, protocol=protocol)

    running = tuple(
        replace(
            one,
            process=started(one.process),
            owned=tuple(given[one.member_id]),
            generation=scene.generation,
        )
        for one in scene.running
    )
    made = tuple(replace(e, processes=tuple(map(started, e.processes))) for e in events)
    return replace(scene, running=running, assignor=assignor), replace(script, events=made)


METADATA_AGE: Final = 300.0
"""Seconds until a leader notices new partitions: the default of metadata.max.age.ms."""
MOST_DAYS: Final = 7
"""Longest duration of a rehearsal, in days."""
_SHORTEST: Final = 0.01


class Parameter(Record, frozen=True, kw_only=True):
    """One parameter of a rehearsal that the user can set (`--param NAME=TIME`).

    `values` returns its values in a scene, `put` a scene with a new value. `share` is True if the
    value is a share and not a time. `least` is the smallest value that is allowed.
    """

    about: str
    values: Callable[[Scene], list[float]]
    put: Callable[[Scene, float], Scene]
    share: bool = False
    least: float = 0.0


class Used(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The smallest and largest value of one parameter in a rehearsal, over all members.

    Values are in seconds (`spread`: a share). `given` is True if the user set the value; otherwise
    it comes from the group's evidence or is a default.
    """

    name: str
    least: float
    most: float
    given: bool


def value_of(name: str, text: str | float) -> float:
    """Return the value that `text` gives the parameter `name`: seconds, or a fraction of 1.

    Raises:
        ValueError: `text` is no duration or share, or less than the parameter's `least`.
    """
    parameter = PARAMETERS[name]
    value = share_of(text) if parameter.share else seconds_of(text, days=MOST_DAYS)
    if value < parameter.least:
        raise ValueError(f"expected at least {parameter.least:g} s")
    return value


def with_parameters(scene: Scene, given: Mapping[str, float]) -> Scene:
    """Return the scene with the parameter values `given`, by name.

    If `session` is given and `heartbeat` is not, the heartbeat interval becomes at most a third of
    the session timeout.
    """
    for name, value in given.items():
        scene = PARAMETERS[name].put(scene, value)
    if "session" in given and "heartbeat" not in given:
        scene = _each(
            scene, lambda one: replace(one, heartbeat=min(one.heartbeat, given["session"] / 3))
        )
    return scene


def parameter_values(scene: Scene, given: Mapping[str, float]) -> tuple[Used, ...]:
    """Return the values of every parameter in `scene`; `given` are the values that the user set."""
    found = {name: one.values(scene) for name, one in PARAMETERS.items()}
    found |= {name: [value] for name, value in given.items()}
    return tuple(
        Used(name=name, least=min(values), most=max(values), given=name in given)
        for name, values in found.items()
        if values
    )


def _each(scene: Scene, change: Callable[[Process], Process]) -> Scene:
    running = (replace(one, process=change(one.process)) for one in scene.running)
    return replace(scene, running=tuple(running))


def _of_members(field: str, about: str, *, least: float = 0.0) -> Parameter:
    return Parameter(
        about=about,
        least=least,
        values=lambda scene: [getattr(one.process, field) for one in scene.running],
        put=lambda scene, value: _each(scene, lambda one: replace(one, **{field: value})),
    )


PARAMETERS: Final[Mapping[str, Parameter]] = {
    "restart": Parameter(
        about="from the stop of a process until its consumer joins again",
        values=lambda scene: [scene.restart],
        put=lambda scene, value: replace(scene, restart=value),
    ),
    "spread": Parameter(
        about="the share by which the restart time varies, evenly, to both sides",
        values=lambda scene: [scene.spread],
        put=lambda scene, value: replace(scene, spread=value),
        share=True,
    ),
    "session": _of_members("session", "session.timeout.ms of each member", least=_SHORTEST),
    "max-poll": _of_members("rebalance", "max.poll.interval.ms of each member", least=_SHORTEST),
    "heartbeat": _of_members("heartbeat", "heartbeat.interval.ms of each member", least=_SHORTEST),
    "poll": _of_members("poll", "the longest time between two polls of a member"),
    "on-revoked": _of_members("on_revoked", "the time that onPartitionsRevoked takes"),
    "on-assigned": _of_members("on_assigned", "the time that onPartitionsAssigned takes"),
    "on-lost": _of_members("on_lost", "the time that onPartitionsLost takes"),
    "metadata": Parameter(
        about="until a leader notices new partitions or a deleted topic (metadata.max.age.ms)",
        values=lambda _: [METADATA_AGE],
        put=lambda scene, _: scene,
    ),
    "initial-delay": Parameter(
        about="group.initial.rebalance.delay.ms of the brokers",
        values=lambda scene: [scene.brokers.initial_delay],
        put=lambda scene, value: replace(
            scene, brokers=replace(scene.brokers, initial_delay=value)
        ),
    ),
}
"""Name of a parameter → the parameter."""
