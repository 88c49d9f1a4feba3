"""Judgement of a change's roll-out: whether the coordinator admits the members that start with it.

The group before the change is a snapshot whose members run the earlier declarations; they restart
with the later ones. `planner.admission` gives the answers, and no rule of admission is written
here. A snapshot of the live group, if there is one, takes the place of the first snapshot.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import version_tuple
from rebal.groups.model import (
    GroupSnapshot,
    GroupType,
    RebalanceProtocol,
    Record,
    Tri,
)
from rebal.groups.protocol import group_protocol
from rebal.groups.streams import BRIDGE, COOPERATIVE_SINCE, EAGER_VALUES
from rebal.planner.admission.check import Admission, Event, JoinEvent, LeaveEvent, Needs, admitted
from rebal.planner.admission.memory import INCONSISTENT, CoordinatorMemory
from rebal.planner.check.advise import (
    Hazard,
    SafePath,
    hazards_of,
    paths_of,
    plan_of,
    why_not_started,
)
from rebal.planner.check.starts import (
    BY_BROKERS,
    FIRST,
    GroupWorld,
    Pair,
    StartChange,
    aspects,
    is_open,
    is_unset,
    runnings,
    snapshot_of,
    snapshots_of,
)
from rebal.planner.context import CLASSIC, CONSUMER, STREAMS, Context
from rebal.planner.facts import STATELESS, listed, read_each_other
from rebal.planner.plan import Severity
from rebal.planner.rules import Trait, evaluate, has
from rebal.planner.verdict import answer_of, first_reason

# Versions of Kafka Streams with another format of internal topics (its upgrade guide; KIP-904).
_FORMATS: Final = ((3, 3), (3, 5))
# Settings for starts beside others, whose old members leave: they are asked for their lists alone.
_NO_LIMITS: Final = {
    "group.max.size": str(2**31 - 1),
    "group.consumer.max.size": str(2**31 - 1),
    "group.min.session.timeout.ms": "0",
    "group.max.session.timeout.ms": str(2**31 - 1),
}
# Java's default of session.timeout.ms before 3.0 (KIP-735).
_OLD_SESSION: Final = 10_000
_OF_SESSIONS: Final = ("library", "product", "heartbeat.interval.ms", "session.timeout.ms")
_FENCES: Final = (
    "each one that starts fences another (FENCED_INSTANCE_ID). Give each its own, such as the name "
    "of a StatefulSet's pod"
)
WORST_FIRST: Final = (Tri.NO, Tri.CANNOT_TELL, Tri.YES)


class Stage(Record, frozen=True, kw_only=True):
    """The group before, during or after the roll-out.

    `assignor` is the one that it elects (None: none, or not known), `protocol` the rebalance
    protocol that it runs.
    """

    assignor: str | None
    protocol: RebalanceProtocol


class Judgement(Record, frozen=True, kw_only=True):
    """The outcome of a change's roll-out in one group.

    `verdict` is yes if every member that starts with the change is admitted, no if one is rejected
    or does not start, else cannot tell. `error` is Kafka's name of the rejection. `rules` are the
    ids of the rules that block the change, by the declarations. `hazards` do not change the
    verdict. `live` is True if the group was read live: the coordinator's memory is then that of the
    live group.
    """

    group: str
    group_id: str | None
    changes: tuple[StartChange, ...]
    verdict: Tri
    reason: str
    error: str | None = None
    before: Stage | None = None
    during: Stage | None = None
    after: Stage | None = None
    paths: tuple[SafePath, ...] = ()
    rules: tuple[str, ...] = ()
    hazards: tuple[Hazard, ...] = ()
    live: bool = False


def judge(
    world: GroupWorld, kept: Mapping[str, str], live: GroupSnapshot | None = None
) -> Judgement:
    """Return the outcome of this group's change when it is rolled out.

    `kept` are the files that both versions have: file → reason why its consumers are not all known
    (empty: they are). `live` is the group as it runs, if it was read.
    """
    world = replace(
        world,
        pairs=tuple(replace(one, never_ran="" if live else _never_ran(one)) for one in world.pairs),
    )
    news = [pair.start for pair in world.changed if not pair.gone]
    decisive = _decisive(world, kept, live)
    unknown = [note for pair in world.changed if (note := kept.get(pair.start.file))]
    if decisive.verdict is Tri.YES and unknown:
        decisive = Admission(verdict=Tri.CANNOT_TELL, reason=unknown[0])
    # An answer may rest on lists that no file writes. Where the client stays, code that sets its
    # list sets it before and after.
    starts = [each for pair in world.changed for each in (pair.before, pair.start) if each]
    unwritten = (
        (all(start.writes_list for start in starts), ""),
        (
            decisive.verdict is Tri.YES and len({start.client for start in starts}) > 1,
            ". That holds where no code sets the list, which is not read",
        ),
        (decisive.error == INCONSISTENT, ". Code that sets the list is not read"),
    )
    before = _stage(live or snapshot_of(world.befores))
    after = _stage(snapshot_of(world.afters))
    return Judgement(
        group=world.name,
        group_id=world.group_id,
        # The pods of one workload change alike.
        changes=tuple(dict.fromkeys(each for pair in world.pairs for each in pair.changes())),
        verdict=decisive.verdict,
        reason=decisive.reason + (first_reason(unwritten) or ""),
        error=decisive.error,
        before=before,
        during=None if live else _stage(snapshot_of([*world.befores, *news])),
        after=after,
        paths=() if decisive.verdict is Tri.YES else tuple(paths_of(world)),
        rules=tuple(
            dict.fromkeys(
                found.rule
                for found in evaluate(Context(world.planned()))
                if live is None
                and found.severity is Severity.BLOCK
                and has(found, Trait.NEXT_START)
            )
        ),
        hazards=tuple(hazards_of(world, live, moves=before != after)),
        live=live is not None,
    )


def unread(file: str, note: str) -> Judgement:
    """Return the judgement of a changed file whose consumers are not all known: cannot tell.

    `note` is the reason.
    """
    return Judgement(
        group=f"the groups of {file.rpartition('/')[0] or '.'}",
        group_id=None,
        changes=(StartChange(what="configuration", before="", after="", file=file),),
        verdict=Tri.CANNOT_TELL,
        reason=note,
    )


def _stage(snapshot: GroupSnapshot) -> Stage:
    elected, runs = snapshot.group.assignor, group_protocol(snapshot).value
    return Stage(assignor=None if elected is None or is_open(elected) else elected, protocol=runs)


def _decisive(world: GroupWorld, kept: Mapping[str, str], live: GroupSnapshot | None) -> Admission:
    """Return the worst of the answers to all starts with the change.

    A rejection becomes cannot tell if only consumers with entirely different bootstrap servers
    cause it: they may belong to another cluster.
    """
    worst = _worst(_answers(world, kept, live))
    of_one_cluster = (
        _worst(_answers(replace(world, pairs=near), kept, live)).verdict
        for pair in world.changed
        for near in [tuple(p for p in world.pairs if not p.start.is_apart(pair.start))]
    )
    if worst.verdict is not Tri.NO or live or Tri.NO in of_one_cluster:
        return worst
    return Admission(
        verdict=Tri.CANNOT_TELL,
        reason=f"{worst.reason}. They name other bootstrap servers: those of two clusters are two "
        "groups. Ask the live group: add -b HOST:PORT",
    )


def _worst(answers: Iterator[Admission]) -> Admission:
    return min(answers, key=lambda each: WORST_FIRST.index(each.verdict))


def _never_ran(pair: Pair) -> str:
    """Return why the client cannot have started with the files before the change; else empty.

    Empty too if the change leaves this start as it is. Empty too if the earlier files name no
    library and the later client is another one: the library that ran is then not known.
    """
    was = pair.before
    sure = was and (was.library.where or was.same_client(pair.start)) and any(pair.changes())
    return (sure and was and why_not_started(was)) or ""


def _first(*rows: tuple[object, Tri, str]) -> list[Admission]:
    return [Admission(verdict=verdict, reason=text) for holds, verdict, text in rows if holds][:1]


def _answers(
    world: GroupWorld, kept: Mapping[str, str], live: GroupSnapshot | None
) -> Iterator[Admission]:
    """Yield the answer to every start with the change, at each moment of the roll-out."""
    workers = {start.family == "connect" for start in (*world.befores, *world.afters)}
    yield from _first(
        (
            len(workers) > 1,
            Tri.NO,
            f"Connect workers and consumers cannot share a group ({INCONSISTENT}): a sink "
            "connector's group is connect-NAME, or its consumer.override.group.id",
        )
    )
    early = {pair: _early(pair, kept) for pair in world.changed}
    asked = [pair for pair, answers in early.items() if not answers]
    for pair, answers in early.items():
        yield from answers or (
            _coordinator_answer(context, events, live=live is not None)
            for context, events in _moments(world, pair, live, asked)
        )
        yield from _extra_answers(pair)
    yield from _protocol_change_answers(world, live)
    yield from _other_libraries(world)


def _other_libraries(world: GroupWorld) -> Iterator[Admission]:
    """Yield an answer for each pair of a new and an old client library that may not work together.

    It is no if they do not read each other's subscriptions, and cannot tell if they may not read
    each other's user data for an assignor that the group may elect.
    """
    # A library that a file names for the first time may have run before.
    old = {
        was.family
        for was, now in ((pair.before, pair.start) for pair in world.pairs)
        if was and was.family is not None and (was.library.where or not now.library.where)
    }
    new = {start.family for start in world.afters if start.family is not None} - old
    with_data = sorted(
        {each.group.assignor or "" for each in snapshots_of([*world.befores, *world.afters])}
        - {"", *STATELESS}
    )
    for one, two in product(sorted(new), sorted(old)):
        yield from _first(
            (
                not read_each_other(one, two),
                Tri.NO,
                f"{one} and {two} do not read each other's subscriptions (RB119)",
            ),
            (
                with_data,
                Tri.CANNOT_TELL,
                f"{one} and {two} may not read each other's data for {listed(with_data)}",
            ),
        )


def _moments(
    world: GroupWorld, pair: Pair, live: GroupSnapshot | None, asked: Sequence[Pair]
) -> Iterator[tuple[Context, tuple[Event, ...]]]:
    """Yield (group, events) for each state of the group in which the consumer's change may start.

    `events` are what the coordinator sees when a member of this consumer starts with the change.
    `asked` are the changed consumers that are judged by the coordinator's answers; in a live group
    members of the others among them may have started with their changes before.
    """
    if live is None:
        for number, running in enumerate(dict.fromkeys(runnings(world, pair))):
            for context in map(Context, snapshots_of(running)):
                by_lists = context.group.type is GroupType.CLASSIC and context.members
                # A later moment without a common assignor comes behind a rejection.
                if number == 0 or context.group.assignor or not by_lists:
                    yield context, tuple(_events(context.memory, pair, FIRST if pair.ran else ""))
        return
    now, settings = Context(live), {**live.cluster.settings, **_NO_LIMITS}
    unlimited = Context(replace(live, cluster=replace(live.cluster, settings=settings)))
    members = [entry.member_id for entry in now.memory.everybody]
    others = {one.start.names: one for one in asked if one.start.names != pair.start.names}
    beside = [event for one in others.values() for event in _events(now.memory, one, "")]
    # A consumer that a file names for the first time may have run before.
    starts = [(now, member_id) for member_id in members]
    if pair.ran is None or len(members) < 2:
        # A new process may start before the only one has stopped.
        starts.append((now if pair.before is None or not members else unlimited, ""))
    for context, member_id in starts:
        events = tuple(_events(context.memory, pair, member_id))
        yield context, events
        if beside:
            yield unlimited, (*beside, *events)


def _protocol_change_answers(world: GroupWorld, live: GroupSnapshot | None) -> Iterator[Admission]:
    """Yield a plan's verdict if a start moves to KIP-848 or KIP-1071, or away from KIP-1071.

    A move from KIP-848 back to the classic protocol yields nothing here: it is answered like any
    other start.
    """
    for pair in world.changed:
        befores = world.befores if pair.ran is None else [pair.ran]
        kinds = {start.protocol for start in (pair.start, *befores)}
        if (
            len(kinds) > 1
            and not (pair.start.protocol == CLASSIC and STREAMS not in kinds)
            and not kinds.isdisjoint(BY_BROKERS)
        ):
            plan = plan_of(world, live)
            yield Admission(
                verdict=answer_of(plan.exit_code) if plan is not None else Tri.CANNOT_TELL,
                reason=plan.summary if plan is not None else "no plan of its protocol can be made",
            )
            return


def _extra_answers(pair: Pair) -> list[Admission]:
    """Return the first risk of a changed configuration that the coordinator does not answer.

    That is none or one of: another group id; a new group.instance.id if no file shows the number of
    processes; a new one that is a pod's name, which changes at each restart.
    """
    was = pair.before.declared if pair.before is not None else None
    now, workload = pair.start.declared, pair.start.declared.evidence.workload
    return _first(
        (
            was is not None and was.group_id != now.group_id,
            Tri.CANNOT_TELL,
            "the group of the new name has no committed offsets: auto.offset.reset decides "
            "where it reads from, and the lag of the old group stays",
        ),
        (
            now.instance_id not in (None, was and was.instance_id) and now.replicas is None,
            Tri.CANNOT_TELL,
            f"no file says how many processes have this group.instance.id: of several, {_FENCES}",
        ),
        (
            now.by_pod
            and not (was and was.by_pod)
            and (workload is None or workload.kind != "StatefulSet"),
            Tri.CANNOT_TELL,
            "group.instance.id is the name of a pod, which is another one after each restart: the "
            "old one keeps its partitions until its session ends. Set none, or use a StatefulSet",
        ),
    )


def _early(pair: Pair, kept: Mapping[str, str]) -> list[Admission]:
    """Return the answer if the files alone decide; empty if the coordinator must be asked."""
    one, two = pair.before, pair.start
    failing = why_not_started(two) or ""
    unknown = kept.get(two.file) or (
        "" if two.declared.group_id else "no file names its group, which may run already"
    )
    streams = one is not None and one.family == two.family == "streams"
    versions = (one and one.library.version, two.library.version, COOPERATIVE_SINCE)
    old, new, edge = (version_tuple(each) or () for each in versions)
    return _first(
        (
            pair.gone and two.file in kept,
            Tri.CANNOT_TELL,
            kept.get(two.file) or "its file declares it no more, and may start it",
        ),
        (pair.gone, Tri.YES, "it is declared no more, and its members leave the group"),
        (
            not two.library.group_protocol,
            Tri.YES,
            f"{two.library.product} joins no group: no list is compared",
        ),
        (failing, Tri.NO, failing),
        (
            two.declared.instance_id and (two.declared.replicas or 1) > 1,
            Tri.NO,
            f"all its processes have one group.instance.id: {_FENCES}",
        ),
        (
            pair.never_ran,
            Tri.CANNOT_TELL,
            f"what runs is not known, as the earlier version does not start: {pair.never_ran}. "
            "Ask the live group: add -b HOST:PORT",
        ),
        (
            two.protocol not in (CLASSIC, *BY_BROKERS),
            Tri.CANNOT_TELL,
            f"group.protocol is {two.protocol}, and that is not known"
            if two.protocol
            else "group.protocol is not set, and its default in "
            f"{two.family} {two.library.version} is not known",
        ),
        (
            STREAMS in (two.protocol, one.protocol if one is not None else None),
            Tri.YES,
            "it is held against no list",
        ),
        (one is None and unknown, Tri.CANNOT_TELL, unknown),
        (
            one is not None and one.is_apart(two),
            Tri.CANNOT_TELL,
            "no bootstrap server stays: another cluster has no committed offsets of this group",
        ),
        (
            two.family in ("java", "streams")
            and two.protocol == CLASSIC
            and not new
            and not two.declared.session_timeout_ms
            and (two.declared.heartbeat_ms or 0) >= _OLD_SESSION
            # What started before starts again.
            and (
                one is None
                or any(aspects(one)[name] != aspects(two)[name] for name in _OF_SESSIONS)
            ),
            Tri.CANNOT_TELL,
            f"Java before 3.0 does not start with a heartbeat.interval.ms of {_OLD_SESSION} or "
            "more where no session.timeout.ms is set, and no file names the version",
        ),
        (
            streams and old != new and not (old and new),
            Tri.CANNOT_TELL,
            "the version of Kafka Streams is not known on both sides",
        ),
        (
            streams
            and (old < edge) != (new < edge)
            and two.declared.upgrade_from not in EAGER_VALUES,
            Tri.NO,
            "Kafka Streams 2.4 and later runs COOPERATIVE, which instances before 2.4 do not "
            "understand: two roll-outs are needed, the first with upgrade.from and a version up to "
            f"{BRIDGE}",
        ),
        (
            streams
            and any((old < each) != (new < each) for each in _FORMATS)
            and not (one if one and old > new else two).declared.upgrade_from,
            Tri.CANNOT_TELL,
            "an older instance does not read what a newer one writes to internal topics, where the "
            "topology groups a KTable (since 3.5, KIP-904) or joins by foreign key (since 3.3). "
            "Then two roll-outs are needed, the first with upgrade.from",
        ),
    )


def _events(memory: CoordinatorMemory, pair: Pair, member_id: str) -> Iterator[Event]:
    """Yield the coordinator's events of a start with the later declaration.

    The start is the restart of the member with id `member_id`, or one more member if there is none.
    A static member does not leave. If its instance id changes, its old entry stays until its
    session ends.
    """
    one, two = pair.ran, pair.start
    running = next((each for each in memory.everybody if each.member_id == member_id), None)
    own = running.instance_id if running is not None else None
    if running is not None and own is None:
        yield LeaveEvent(member_id=member_id)
    changed = one is not None and one.declared.instance_id != two.declared.instance_id
    sessions = [
        None if each is None or each.protocol == CONSUMER else each.declared.session_timeout_ms
        for each in (one, two)
    ]
    yield JoinEvent(
        assignors=two.names,
        name=two.declared.where,
        # A member that runs may have an id that the files do not show.
        instance_id=two.declared.instance_id if changed or own is None else own,
        protocol_type="connect" if two.family == "connect" else "consumer",
        # One that stays was admitted before, and one of a KIP-848 member is the brokers'.
        session_ms=None if sessions[0] == sessions[1] else sessions[1],
        kip848=two.protocol == CONSUMER,
    )


def _coordinator_answer(context: Context, events: Sequence[Event], *, live: bool) -> Admission:
    """Return the coordinator's answer to the events of a start.

    Unless the group is `live`, the reason is put in terms of the files. A rejection that rests on
    an assignor name that is not known becomes cannot tell.
    """
    answer, members = admitted(context.memory, events), context.snapshot.members
    names = [
        *dict.fromkeys(
            name
            for event in events
            if isinstance(event, JoinEvent)
            for name in event.assignors or ()
        )
    ]
    blamed = [m.assignors.list for m in members if not answer.blame or m.member_id in answer.blame]
    sure = any(not any(map(is_open, each)) for each in blamed)
    met = [names] if sure else [names, *blamed]
    open_ = sorted({name for each in met for name in each if is_open(name)})
    if open_ and answer.verdict is not Tri.YES and answer.error in (None, INCONSISTENT):
        classes = listed([name for name in open_ if not is_unset(name)])
        return Admission(
            verdict=Tri.CANNOT_TELL,
            reason=f"the assignor name of {classes} is not known: it may be a common one"
            if classes
            else "the default list is not known: no file names the version, or nobody looked it up",
        )
    if answer.needs is Needs.BROKER and not context.snapshot.cluster.settings:
        return replace(answer, reason=f"{answer.reason}: allow DESCRIBE_CONFIGS on the cluster")
    elected, shown = context.group.assignor, f"[{', '.join(n for n in names if not is_unset(n))}]"
    lists = dict.fromkeys(", ".join(each) for each in blamed if not any(map(is_unset, each)))
    common = [name for name in names if all(name in each.assignors.list for each in members)]
    rows = (
        (live, answer.reason),
        (
            answer.error == INCONSISTENT and answer.blame and lists,
            f"a member that joins with {shown} is rejected ({INCONSISTENT}) while one with "
            f"[{'] or ['.join(lists)}] runs: no assignor in common",
        ),
        (
            answer.verdict is Tri.YES and elected and is_unset(elected),
            "the assignor list stays as it is",
        ),
        (
            answer.elected and elected,
            f"old and new members have {elected} in common, which stays elected until all are new",
        ),
        (
            answer.verdict is Tri.CANNOT_TELL and common and elected,
            f"old and new members have {listed(common)} in common, but {elected} is elected: since "
            f"its last load the coordinator may know {elected} alone, and reject {shown}. "
            "Ask the live group: add -b HOST:PORT",
        ),
    )
    return replace(answer, reason=first_reason(rows) or answer.reason)
