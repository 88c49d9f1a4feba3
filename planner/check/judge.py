"""Judgement of a changed next start's roll-out: the admission check's, on what ran before.

The group "as before" is a snapshot whose members run the earlier declarations, and the later ones
are what they restart with. So planner/admission answers, and no rule of admission is written here.
A live group takes the place of that snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from msgspec.structs import replace

from rebal.groups.brokers import other_brokers
from rebal.groups.clients import older, version_tuple
from rebal.groups.model import (
    GroupSnapshot,
    Member,
    RebalanceProtocol,
    Record,
    Software,
    Tri,
)
from rebal.groups.protocol import group_protocol
from rebal.groups.streams import EAGER_UNTIL, EAGER_VALUES
from rebal.planner.admission.check import Admission, Event, Join, Leave, admitted, restart
from rebal.planner.admission.memory import INCONSISTENT, CoordinatorMemory
from rebal.planner.bridge import STATELESS, read_each_other
from rebal.planner.check.advise import SafePath, assignor_it_lacks, paths_of, plan_of
from rebal.planner.check.before import (
    FIRST,
    has_lists,
    one_of_each,
    planned,
    snapshot_of,
    snapshots_of,
)
from rebal.planner.check.compare import Changed, Pair, World
from rebal.planner.check.starts import BY_BROKERS, PROGRAMS, Start, aspects, is_open, is_unset
from rebal.planner.clients import able, cooperative, is_mixed, refuses_mixed, stops_at_repeats
from rebal.planner.context import CLASSIC, CONSUMER, COOPERATIVE, STREAMS, Context
from rebal.planner.facts import listed
from rebal.planner.plan import Severity
from rebal.planner.risks import with_default_settings
from rebal.planner.rules import Trait, evaluate, has
from rebal.planner.timeouts import waits
from rebal.planner.verdict import answer_of, first_reason

_INCREMENTAL: Final = (2, 4)
# Java's default in ms, of Connect and Kafka Streams too.
_HEARTBEAT: Final = 3_000
# Java's default of session.timeout.ms before 3.0 (KIP-735).
_OLD_SESSION: Final = 10_000
_OF_SESSIONS: Final = ("library", "product", "heartbeat.interval.ms", "session.timeout.ms")
# CONFIGURATION.md of librdkafka has group.protocol from this version on.
_RDKAFKA_READS_PROTOCOL: Final = (2, 4)
# Consumers whose stages are combined in every way; more are rolled out together.
_FREE: Final = 3
_FENCES: Final = (
    "each one that starts fences another (FENCED_INSTANCE_ID). Give each its own, such as the "
    "pod's name"
)
WORST_FIRST: Final = (Tri.NO, Tri.CANNOT_TELL, Tri.YES)


class Stage(Record, frozen=True, kw_only=True):
    """The group before, during or after the roll-out: the assignor it elects (None: none, or not
    known) and the rebalance protocol it runs.
    """

    assignor: str | None
    protocol: RebalanceProtocol


class Hazard(Record, frozen=True, kw_only=True):
    """A hazard of the change that no admission shows; `source` is a rule's id or a product."""

    source: str
    text: str


class Judgement(Record, frozen=True, kw_only=True):
    """The outcome of one group's roll-out with the change.

    `verdict`: every member that starts with it is admitted (yes), one is rejected or does not start
    (no), or it is not known. `error` is Kafka's name of the rejection. `rules` are the ids of rules
    that the change breaks. `hazards` change no verdict. `live`: the coordinator's memory is that of
    the live group.
    """

    group: str
    group_id: str | None
    changes: tuple[Changed, ...]
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


def judge(world: World, kept: Mapping[str, str], live: GroupSnapshot | None = None) -> Judgement:
    """Return what the roll-out of this group's change would do.

    `kept` are the files that both versions have, each with why its consumers are not all known
    (empty: they are). `live` is the group as it runs.
    """
    changed = world.changed
    news = [pair.after for pair in changed if pair.after is not None]
    answers = list(_answers(world, kept, live))
    decisive = next(one for answer in WORST_FIRST for one in answers if one.verdict is answer)
    before = _stage(snapshot_of(world.befores) if live is None else live)
    after = _stage(snapshot_of(world.afters))
    return Judgement(
        group=(world.group_id or f"the groups of {world.folder}")
        + (f" (profile {world.profile})" if world.profile else ""),
        group_id=world.group_id,
        # The pods of one workload change alike.
        changes=tuple(dict.fromkeys(change for pair in changed for change in pair.changes)),
        verdict=decisive.verdict,
        reason=decisive.reason + _unread_code(changed, decisive),
        error=decisive.error,
        before=before,
        during=_stage(snapshot_of([*world.befores, *news])) if live is None else None,
        after=after,
        paths=() if decisive.verdict is Tri.YES else tuple(paths_of(world)),
        rules=_rules(world, live),
        hazards=(*_known_of(news), *(_hazards(world, live) if before != after else ())),
        live=live is not None,
    )


def _unread_code(changed: Sequence[Pair], answer: Admission) -> str:
    """Return the condition of an answer that rests on lists that no file writes.

    Where the client stays, code that sets its list sets it before and after.
    """
    starts = [start for pair in changed for start in (pair.before, pair.after) if start]
    swapped = len({start.client for start in starts}) > 1
    said = (
        (all(start.writes_list for start in starts), ""),
        (
            answer.verdict is Tri.YES and swapped,
            ". That holds where no code sets the list, which is not read",
        ),
        (answer.error == INCONSISTENT, ". Code that sets the list is not read"),
    )
    return first_reason(said) or ""


def unread(file: str, note: str) -> Judgement:
    """Return the judgement of a file that changed, and whose consumers are not all known."""
    return Judgement(
        group=f"the groups of {file.rpartition('/')[0] or '.'}",
        group_id=None,
        changes=(Changed(what="configuration", before="", after="", file=file),),
        verdict=Tri.CANNOT_TELL,
        reason=note,
    )


def _stage(snapshot: GroupSnapshot) -> Stage:
    shown = snapshot.group.assignor
    named = None if shown is None or is_open(shown) else shown
    return Stage(assignor=named, protocol=group_protocol(snapshot).value)


def _rules(world: World, live: GroupSnapshot | None) -> tuple[str, ...]:
    """Return the ids of the blocking rules that the next starts break, by the declarations."""
    if live is not None:
        return ()
    found = evaluate(Context(planned(world.pairs)))
    blocking = (f for f in found if f.severity is Severity.BLOCK and has(f, Trait.NEXT_START))
    return tuple(dict.fromkeys(finding.rule for finding in blocking))


def _known_of(news: Sequence[Start]) -> Iterator[Hazard]:
    """Yield what products and brokers do under the protocol of these starts."""
    for start in dict.fromkeys(news):
        library, brokers = start.library, other_brokers(start.declared.brokers)
        first = [cooperative(name) for name in start.names[:1]]
        runs = COOPERATIVE if first == [Tri.YES] else start.protocol
        shown = (text for protocol, text in library.faults if protocol == runs)
        yield from (Hazard(source=library.product_title, text=text) for text in shown)
        if brokers is not None:
            said = brokers.under(start.protocol, {start.family}, static=start.is_static)
            yield from (Hazard(source=brokers.name, text=text) for text in said)


def _hazards(world: World, live: GroupSnapshot | None) -> Iterator[Hazard]:
    """Yield what rules say on the code, the clients and the settings of this change."""
    plan = plan_of(world, live or one_of_each(planned(world.pairs)))
    for finding in plan.findings if plan is not None else ():
        if has(finding, Trait.REVIEW):
            yield Hazard(source=finding.rule, text=f"{finding.message} {finding.fix}".strip())


def _answers(
    world: World, kept: Mapping[str, str], live: GroupSnapshot | None
) -> Iterator[Admission]:
    """Yield the answers to every start with the change, at each moment of the roll-out."""
    starts = [*world.befores, *world.afters]
    if len({start.family == "connect" for start in starts}) > 1:
        yield _said(
            Tri.NO,
            f"Connect workers and consumers cannot share a group ({INCONSISTENT}): a sink "
            "connector's group is connect-NAME, or its consumer.override.group.id",
        )
    for pair in world.changed:
        early = _early(pair, kept)
        if early is not None:
            yield early
        elif live is not None:
            context = Context(live)
            members = [entry.member_id for entry in context.memory.everybody]
            for id_ in members:
                yield _asked(context, _live_events(context.memory, id_, pair), live=True)
            if len(members) < 2:
                # A new process may start before the only one has stopped.
                room = Context(with_default_settings(live)) if members else context
                yield _asked(room, _events(pair, ""), live=True)
        else:
            events = _events(pair, "" if pair.before is None else FIRST)
            for number, running in enumerate(dict.fromkeys(_moments(world, pair))):
                for snapshot in snapshots_of(running):
                    # A later moment without a common assignor comes behind a rejection.
                    if number == 0 or snapshot.group.assignor or not has_lists(snapshot):
                        yield _asked(Context(snapshot), events, live=False)
        yield from _fenced(pair)
    yield from _moved(world, live)
    yield from _other_libraries(world)


def _other_libraries(world: World) -> Iterator[Admission]:
    """Yield the answer where a library that is new to the group may misread what others send."""
    # A library that a file names for the first time may have run before.
    sure = (
        pair.before
        for pair in world.pairs
        if pair.before and (pair.before.library.where or not pair.start.library.where)
    )
    old = {start.family for start in sure if start.family is not None}
    new = {start.family for start in world.afters if start.family is not None} - old
    both = snapshots_of([*world.befores, *world.afters])
    elected = {snapshot.group.assignor or "" for snapshot in both}
    with_data = sorted(elected - {"", *STATELESS})
    for one, two in product(sorted(new), sorted(old)):
        if not read_each_other(one, two):
            reason = f"{one} and {two} do not read each other's subscriptions (RB119)"
            yield _said(Tri.NO, reason)
        elif with_data:
            reason = f"{one} and {two} may not read each other's data for {listed(with_data)}"
            yield _said(Tri.CANNOT_TELL, reason)


def _moments(world: World, pair: Pair) -> Iterator[tuple[Start, ...]]:
    """Yield what the group may run when a member of this consumer starts with the change.

    Other consumers are before their change, in the middle of it or behind it: services are rolled
    out in any order. The consumer itself comes first: before its change, or in the middle of it.
    """
    own, others = _stages(pair), [one for one in world.pairs if one is not pair]
    stages = [_stages(one) for one in others]
    free = sum(len(each) > 1 for each in stages)
    together = zip(*(each if len(each) > 1 else each * 3 for each in stages), strict=True)
    for running in product(*stages) if free <= _FREE else together:
        rest = tuple(start for each in running for start in each)
        yield from (mine + rest for mine in own[:2])


def _stages(pair: Pair) -> list[tuple[Start, ...]]:
    """Return what a consumer runs before, in the middle of and behind its change."""
    one, two = (() if start is None else (start,) for start in (pair.before, pair.after))
    if not pair.changes:
        return [one]
    # A static member is one process: it is never in the middle.
    return [one, one if any(start.is_static for start in one) else one + two, two]


def _moved(world: World, live: GroupSnapshot | None) -> Iterator[Admission]:
    """Yield the answer of the plan where a consumer leaves the classic protocol, or the streams
    protocol, or a new one joins a group of another protocol.
    """
    if any(_moves(world, pair) for pair in world.changed):
        plan = plan_of(world, live)
        answer = answer_of(plan.exit_code) if plan is not None else Tri.CANNOT_TELL
        yield _said(answer, plan.summary if plan else "no plan of its protocol can be made")


def _moves(world: World, pair: Pair) -> bool:
    """Return whether this start has another protocol than those before it, and the brokers assign
    under one of them.
    """
    was = [pair.before] if pair.before is not None else world.befores
    kinds = {pair.start.protocol, *(start.protocol for start in was)}
    back = pair.start.protocol == CLASSIC and STREAMS not in kinds
    return len(kinds) > 1 and not back and not kinds.isdisjoint(BY_BROKERS)


def _fenced(pair: Pair) -> Iterator[Admission]:
    """Yield the answer where a group.instance.id is new, and no file counts its processes."""
    was = pair.before.declared.instance_id if pair.before is not None else None
    now = pair.start.declared
    if pair.after is not None and now.instance_id not in (None, was) and now.replicas is None:
        reason = "no file says how many processes have this group.instance.id: of several, "
        yield _said(Tri.CANNOT_TELL, reason + _FENCES)


def _early(pair: Pair, kept: Mapping[str, str]) -> Admission | None:
    """Return the answer where the coordinator is not asked; None where it is."""
    one, two = pair.before, pair.after
    if two is None:
        why = kept.get(pair.start.file)
        if why is not None:
            return _said(Tri.CANNOT_TELL, why or "its file declares it no more, and may start it")
        return _said(Tri.YES, "it is declared no more, and its members leave the group")
    failing = _fails(two)
    default = f"not set, and its default in {two.family} {two.library.version}"
    protocol = f"{two.protocol}, and that" if two.protocol else default
    hidden = "" if two.group_id else "no file names its group, which may run already"
    was, now = one.declared.brokers if one is not None else None, two.declared.brokers
    streams = one is not None and one.family == two.family == "streams"
    old, new = (version_tuple(each.library.version) if each else None for each in (one, two))
    crosses = old and new and (old < _INCREMENTAL) != (new < _INCREMENTAL)
    rows = (
        (
            not two.library.group_protocol,
            Tri.YES,
            f"{two.library.product} joins no group: no list is compared",
        ),
        (failing, Tri.NO, failing or ""),
        (
            two.protocol not in (CLASSIC, *BY_BROKERS),
            Tri.CANNOT_TELL,
            f"group.protocol is {protocol} is not known",
        ),
        (
            STREAMS in (two.protocol, one.protocol if one is not None else None),
            Tri.YES,
            "it is held against no list",
        ),
        (
            one is None and (kept.get(two.file) or hidden),
            Tri.CANNOT_TELL,
            kept.get(two.file) or hidden,
        ),
        (
            one is not None and one.group_id != two.group_id,
            Tri.CANNOT_TELL,
            "the group of the new name has no committed offsets: auto.offset.reset decides where "
            "it reads from, and the lag of the old group stays",
        ),
        (
            was and now and {*was.split(",")}.isdisjoint(now.split(",")),
            Tri.CANNOT_TELL,
            "no bootstrap server stays: another cluster has no committed offsets of this group",
        ),
        (
            two.family in ("java", "streams")
            and two.protocol == CLASSIC
            and new is None
            and not two.declared.session_timeout_ms
            and (two.declared.heartbeat_ms or 0) >= _OLD_SESSION
            # What started before starts again.
            and (one is None or any(aspects(one)[n] != aspects(two)[n] for n in _OF_SESSIONS)),
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
            streams and crosses and two.declared.upgrade_from is None,
            Tri.NO,
            "Kafka Streams 2.4 and later runs COOPERATIVE, which instances before 2.4 do not "
            "understand: two roll-outs are needed, the first with upgrade.from",
        ),
    )
    return next((_said(verdict, reason) for holds, verdict, reason in rows if holds), None)


def _fails(start: Start) -> str | None:
    """Return why the client does not start with this configuration; None where it does."""
    declared, names = start.declared, start.names
    can = able(start.family or "", start.library.version)
    online = start.protocol == CONSUMER
    left = [*(["an assignor list"] if declared.list else []), *declared.classic_only]
    software = Software(family=start.family, version=start.library.version)
    brokers = other_brokers(declared.brokers)
    without = brokers.name if brokers is not None and brokers.kip848 is False else None
    lacks = assignor_it_lacks(start)
    rdkafka, have = start.family == "librdkafka", version_tuple(start.library.version)
    times = waits(Member(member_id="", software=software, declared=declared))
    session, beat = int(times.session * 1000), declared.heartbeat_ms or _HEARTBEAT
    # A version that is not known, and a product's image, may have another default.
    sure = declared.session_timeout_ms or (have and start.library.ecosystem != "docker")
    rows = (
        (
            lacks is not None,
            f"{start.family or 'the client'} has no assignor {lacks}, and does not start with it",
        ),
        (
            online and without,
            f"the brokers are {without}'s, without KIP-848 groups",
        ),
        (
            online and left,
            f"with group.protocol=consumer the client does not start while {', '.join(left)} is "
            "set",
        ),
        (
            refuses_mixed(start.family) and is_mixed(names),
            f"{start.family} does not start with eager and cooperative assignors in one list",
        ),
        (
            can.cooperative is Tri.NO and any(cooperative(name) is Tri.YES for name in names),
            f"{' '.join(filter(None, (start.family, start.library.version)))} has no cooperative "
            "assignor",
        ),
        (
            rdkafka and declared.group_protocol and have and have < _RDKAFKA_READS_PROTOCOL,
            f"librdkafka {start.library.version} has no group.protocol, and does not start with it",
        ),
        (
            rdkafka and not online and sure and times.rebalance < times.session,
            "librdkafka does not start with a max.poll.interval.ms below its session.timeout.ms "
            f"({session})",
        ),
        (
            start.family in ("java", *PROGRAMS) and not online and beat >= session,
            f"Java does not start with a heartbeat.interval.ms ({beat}) that is not below its "
            f"session.timeout.ms ({session})",
        ),
        (
            start.family == "streams"
            and declared.upgrade_from in EAGER_VALUES
            and older(software, EAGER_UNTIL) is Tri.NO,
            f"Kafka Streams {EAGER_UNTIL} and later does not start with "
            f"upgrade.from={declared.upgrade_from} (RB506)",
        ),
        (
            stops_at_repeats(start.family, software) and len(names) > len({*names}),
            "the list names an assignor twice: Java of 3.1 to 4.1 does not start with it (RB122)",
        ),
        (
            declared.instance_id and (declared.replicas or 1) > 1,
            f"all its processes have one group.instance.id: {_FENCES}",
        ),
    )
    return first_reason(rows)


def _events(pair: Pair, member_id: str) -> tuple[Event, ...]:
    """Return the events of one member's restart with the later declaration.

    A static member does not leave; where its id changes, the old one stays until its session ends.
    """
    one, two = pair.before, pair.start
    stays = not member_id or (one is not None and one.is_static)
    leave = () if stays else (Leave(member_id=member_id),)
    join = Join(
        assignors=two.names,
        name=two.where,
        instance_id=two.declared.instance_id,
        protocol_type="connect" if two.family == "connect" else "consumer",
        session_ms=_new_session(pair),
        kip848=two.protocol == CONSUMER,
    )
    return (*leave, join)


def _live_events(memory: CoordinatorMemory, member_id: str, pair: Pair) -> tuple[Event, ...]:
    """Return the events of a live member's restart with the later declaration."""
    if pair.start.protocol == CONSUMER:
        return (Leave(member_id=member_id), Join(assignors=(), kip848=True))
    return restart(memory, member_id, pair.start.names, session_ms=_new_session(pair))


def _new_session(pair: Pair) -> int | None:
    """Return the session timeout where it changes; one that stays was admitted before, and one of a
    KIP-848 member is the brokers'.
    """
    was, now = (
        None if start is None or start.protocol == CONSUMER else start.declared.session_timeout_ms
        for start in (pair.before, pair.after)
    )
    return None if was == now else now


def _asked(context: Context, events: Sequence[Event], *, live: bool) -> Admission:
    """Return the coordinator's answer; a name that is not known proves no rejection."""
    answer = admitted(context.memory, events)
    names = [n for event in events if isinstance(event, Join) for n in event.assignors or ()]
    members = context.snapshot.members
    blamed = [m for m in members if not answer.blame or m.member_id in answer.blame]
    held = [name for m in blamed for name in m.assignors.list]
    sure = [m for m in blamed if not any(map(is_open, m.assignors.list))]
    unsure = sorted({name for name in (*names, *([] if sure else held)) if is_open(name)})
    if unsure and answer.verdict is not Tri.YES and answer.error in (None, INCONSISTENT):
        return _said(Tri.CANNOT_TELL, _unsure(unsure))
    return answer if live else replace(answer, reason=_by_files(context, answer, names))


def _unsure(names: Sequence[str]) -> str:
    classes = [name for name in names if not is_unset(name)]
    if classes:
        return f"the assignor name of {listed(classes)} is not known: it may be a common one"
    return "the default list is not known: no file names the version, or nobody looked it up"


def _by_files(context: Context, answer: Admission, names: Sequence[str]) -> str:
    """Return the reason of an answer that rests on files alone."""
    names = [name for name in dict.fromkeys(names) if not is_unset(name)]
    elected, shown = context.group.assignor, f"[{', '.join(names)}]"
    blamed = [context.by_id[id_].member for id_ in answer.blame if id_ in context.by_id]
    lists = dict.fromkeys(
        ", ".join(member.assignors.list)
        for member in blamed
        if not any(map(is_unset, member.assignors.list))
    )
    held = [member.assignors.list for member in context.snapshot.members]
    common = [
        name
        for name in names
        if name in context.memory.in_all or all(name in each for each in held)
    ]
    rows = (
        (
            answer.error == INCONSISTENT and blamed,
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
    return first_reason(rows) or answer.reason


def _said(verdict: Tri, reason: str) -> Admission:
    return Admission(verdict=verdict, reason=reason)
