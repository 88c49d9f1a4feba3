"""Advice on a changed consumer start: paths, hazards, and reasons why a client does not start.

A path makes the change without a rejected member and has the settings that it needs. A hazard is an
effect of the change that the admission check does not cover.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from rebal.groups.clients import family, older, other_brokers, version_tuple
from rebal.groups.model import GroupSnapshot, GroupType, Member, Record, Software, Tri
from rebal.groups.streams import EAGER_UNTIL, EAGER_VALUES
from rebal.planner.check.starts import BY_BROKERS, PROGRAMS, GroupWorld, Start, is_unset
from rebal.planner.clients import cooperative, is_mixed, refuses_mixed, stops_at_repeats
from rebal.planner.commands import Given
from rebal.planner.context import (
    CLASSIC,
    CONSUMER,
    COOPERATIVE,
    COOPERATIVE_STICKY,
    EAGER,
    STREAMS,
)
from rebal.planner.facts import STATELESS, read_each_other
from rebal.planner.goals import NotPlannedError
from rebal.planner.paths.choose import make_plan
from rebal.planner.plan import PathKind, Plan
from rebal.planner.rules import Trait, has
from rebal.planner.settings import java_class, settings_for
from rebal.planner.timeouts import waits
from rebal.planner.verdict import BLOCKED, first_reason

# Java's default in ms, of Connect and Kafka Streams too.
_HEARTBEAT: Final = 3_000


class PathStep(Record, frozen=True, kw_only=True):
    """One roll-out of a path.

    `brings` is the assignor list that it gives to the members, `setting` the lines that configure
    it.
    """

    brings: str
    setting: tuple[str, ...] = ()


class SafePath(Record, frozen=True, kw_only=True):
    """A path that makes the change without a rejected member; `name` describes it in words."""

    name: str
    steps: tuple[PathStep, ...] = ()


class Hazard(Record, frozen=True, kw_only=True):
    """A hazard of the change that the admission check does not cover.

    `source` is the id of a rule, or the name of a product or of the brokers' service.
    """

    source: str
    text: str


def plan_of(world: GroupWorld, live: GroupSnapshot | None = None) -> Plan | None:
    """Return the plan that leads from the earlier declarations to the later ones.

    With `live` it leads from the running group instead. Return None if no consumer keeps its client
    and changes its list or protocol, or if no plan can be made.
    """
    moves = [
        (one, two)
        for one, two in world.both
        if one.same_client(two) and not one.same_list(two) and _know_lists(one, two)
    ]
    snapshot = live or world.planned()
    if not moves or (snapshot.group.type, snapshot.group.assignor) == (GroupType.CLASSIC, None):
        return None
    one, two = moves[0]
    first, *_ = (*two.names, EAGER)
    kinds = {name: cooperative(name) for name in two.names}
    # No name may show the goal.
    goals = (
        (two.protocol in BY_BROKERS, str(two.protocol)),
        (one.protocol == STREAMS, CLASSIC),
        (is_mixed(two.names) and not is_mixed(one.names), COOPERATIVE),
        (one.protocol == CONSUMER, first),
        ({*kinds.values()} == {Tri.YES}, COOPERATIVE if COOPERATIVE_STICKY in kinds else first),
        *((kind is Tri.NO, name) for name, kind in kinds.items()),
    )
    given = Given(brokers=two.declared.brokers)
    with suppress(NotPlannedError):
        return make_plan(snapshot, first_reason(goals) or "", pricing=None, given=given)
    return None


def paths_of(world: GroupWorld) -> Iterator[SafePath]:
    """Yield the paths that make this change without a rejected member, least interruption first."""
    differ = [
        (one, two)
        for one, two in world.both
        if not (one.same_client(two) and one.same_list(two)) and two.protocol is not None
    ]
    if not differ:
        return
    one, two = differ[0]
    # What leads one service through its change leads no other one that changes otherwise.
    alike = len({(old.client, new.client, new.names[:1]) for old, new in differ}) == 1
    same = all(old.same_client(new) for old, new in differ)
    plan = plan_of(world) if alike else None
    by_lists = BY_BROKERS.keys().isdisjoint((one.protocol, two.protocol))
    known = by_lists and alike and _know_lists(one, two)
    read = same or read_each_other(one.family or "", two.family or "")
    kept = not two.declared.list if same else read and {*one.names[:1]} <= {*STATELESS}
    shared = [name for name in STATELESS if name in two.names and not same and read]
    bridging = tuple(dict.fromkeys((*shared[:1], *one.names)))
    path = plan.path if plan is not None else PathKind.NONE
    planned = [step.target_list for step in plan.steps] if plan is not None and by_lists else []
    begins = by_lists or path.stops_the_group or (plan and plan.exit_code != BLOCKED)
    rows: tuple[tuple[object, str, list[tuple[Start, Sequence[str]]]], ...] = (
        (
            known and kept and _runs(two, one.names),
            "one roll-out with the old list written; its change later",
            [(two, one.names)],
        ),
        (
            known and shared and _setting(one, bridging),
            f"two roll-outs, the first with {one.client}",
            [(one, bridging), (two, two.names)],
        ),
        (
            path.label and begins and all(_runs(two, names) for names in planned if names),
            path.label,
            [(two, names) for names in planned if names],
        ),
        (
            by_lists and path is not PathKind.CUT_OVER,
            "cut-over: no member of the old version runs when the first new one joins"
            + (f". {two.library.refuses}" if two.library.refuses else ""),
            [],
        ),
        (not same, "a new group id, with the offsets of the old group copied before it starts", []),
    )
    yield from (
        SafePath(
            name=name,
            steps=tuple(
                PathStep(brings=f"[{', '.join(names)}]", setting=_setting(start, names))
                for start, names in taken
            ),
        )
        for holds, name, taken in rows
        if holds
    )


def _know_lists(one: Start, two: Start) -> bool:
    return not any(map(is_unset, (*one.names, *two.names)))


def _runs(start: Start, names: Sequence[str]) -> bool:
    """Return whether the start's client is known to accept the assignor list `names`.

    A product that contains the client may accept a single assignor only (`library.refuses`).
    """
    return (
        bool(_setting(start, names))
        and (start.library.refuses is None or len(names) == 1)
        and not (refuses_mixed(start.family) and is_mixed(names))
        and ({*names} <= {*start.names} or {*names} <= {*family(start.family).assignors})
    )


def _setting(start: Start, names: Sequence[str]) -> tuple[str, ...]:
    """Return the lines that configure the assignor list for this client; empty if not known."""
    if start.library.product and start.library.list_key:
        # Java takes the names of its classes alone, through any product, and .NET an enumeration's.
        key = start.library.list_key
        enum = f"{key.rpartition('.')[2]}."
        package = "org.apache.kafka." if start.family == "java" else enum
        own = [(java_class(name, package) or name).removeprefix(enum) for name in names]
        return (f"{key}: {', '.join(own)}",)
    settings = settings_for(start.family or "", names, start.declared.group_id or "")
    # The first line is a comment that names the members, which files do not.
    return tuple("".join(one.text for one in settings[:1]).splitlines()[1:])


def hazards_of(world: GroupWorld, live: GroupSnapshot | None, *, moves: bool) -> Iterator[Hazard]:
    """Yield the known faults of products and brokers under the protocol of the changed starts.

    If the group `moves` to another assignor or protocol, yield also the findings of rules on the
    code, the clients and the settings.
    """
    for start in dict.fromkeys(pair.start for pair in world.changed if not pair.gone):
        runs = COOPERATIVE if Tri.YES in map(cooperative, start.names[:1]) else start.protocol
        yield from (
            Hazard(source=start.library.product_title, text=text)
            for by, text in start.library.faults
            if by == runs
        )
        if (brokers := other_brokers(start.declared.brokers)) is not None:
            yield from (
                Hazard(source=brokers.name, text=text)
                for text in brokers.under(
                    start.protocol, {start.family}, static=start.declared.instance_id is not None
                )
            )
    # Rules name a consumer by its file alone.
    plan = plan_of(world, live or world.planned(copies=1)) if moves else None
    yield from (
        Hazard(source=one.rule, text=f"{one.message} {one.fix}".strip())
        for one in (plan.findings if plan is not None else ())
        if has(one, Trait.REVIEW)
    )


def why_not_started(start: Start) -> str | None:
    """Return the reason why the client does not start with this configuration; None if it does."""
    declared, names = start.declared, start.names
    online = start.protocol == CONSUMER
    left = [*(["an assignor list"] if declared.list else []), *declared.classic_only]
    software = Software(family=start.family, version=start.library.version)
    brokers = other_brokers(declared.brokers)
    rdkafka, have = start.family == "librdkafka", version_tuple(start.library.version)
    # Nobody adds to Kafka's package.
    lacks = next(
        (
            name
            for name in names
            if name.startswith(("org.apache.kafka.clients.consumer.", "class "))
            or (family(start.family).starts_with(name) is Tri.NO and not is_unset(name))
        ),
        None,
    )
    times = waits(Member(member_id="", software=software, declared=declared))
    session, beat = int(times.session * 1000), declared.heartbeat_ms or _HEARTBEAT
    rows = (
        (
            lacks,
            f"{start.family or 'the client'} has no assignor {lacks}, and does not start with it",
        ),
        (
            online and brokers is not None and brokers.kip848 is False,
            f"the brokers are {brokers and brokers.name}'s, without KIP-848 groups",
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
            family(start.family).cooperative(start.library.version) is Tri.NO
            and any(cooperative(name) is Tri.YES for name in names),
            f"{' '.join(filter(None, (start.family, start.library.version)))} has no cooperative "
            "assignor",
        ),
        (
            # CONFIGURATION.md of librdkafka has it from 2.4 on.
            rdkafka and declared.group_protocol and have and have < (2, 4),
            f"librdkafka {start.library.version} has no group.protocol, and does not start with it",
        ),
        (
            # A version that is not known, and a product's image, may have another default.
            rdkafka
            and not online
            and (declared.session_timeout_ms or (have and start.library.ecosystem != "docker"))
            and times.rebalance < times.session,
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
            online
            and start.family not in PROGRAMS
            and family(start.family).kip848(start.library.version) is Tri.NO,
            f"{start.library.title} cannot use group.protocol=consumer (RB412)",
        ),
    )
    return first_reason(rows)
