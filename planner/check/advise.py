"""Paths on which a change of the next start rejects no member, with the settings they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rebal.groups.model import GroupSnapshot, GroupType, Record, Tri
from rebal.planner.bridge import STATELESS, read_each_other
from rebal.planner.check.before import planned
from rebal.planner.check.compare import World
from rebal.planner.check.starts import BY_BROKERS, Start, is_unset
from rebal.planner.clients import cooperative, is_mixed, refuses_mixed
from rebal.planner.commands import Given
from rebal.planner.context import (
    CLASSIC,
    CONSUMER,
    COOPERATIVE,
    COOPERATIVE_STICKY,
    EAGER,
    STREAMS,
)
from rebal.planner.goals import NotPlannedError
from rebal.planner.kinds import PathKind
from rebal.planner.paths.choose import make_plan
from rebal.planner.plan import Plan
from rebal.planner.settings import settings_for
from rebal.planner.verdict import BLOCKED

_JAVAS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
# CONFIGURATION.md of librdkafka; tulios/kafkajs, src/consumer/assigners.
_BRINGS: Final = {
    "librdkafka": _JAVAS - {"sticky"},
    "kafkajs": frozenset({"RoundRobinAssigner"}),
    "segmentio": frozenset({"range", "roundrobin"}),
    "aiokafka": frozenset({"range", "roundrobin", "sticky"}),
}
_KAFKAS: Final = "org.apache.kafka.clients.consumer."
_COMMENT: Final = ("#", "//")
_STOP: Final = "cut-over: no member of the old version runs when the first new one joins"
_NEW_GROUP: Final = "a new group id, with the offsets of the old group copied before it starts"
_AS_BEFORE: Final = "one roll-out with the old list written; its change later"


class PathStep(Record, frozen=True, kw_only=True):
    """One roll-out of a path: the assignor list that it brings, and the setting's lines."""

    brings: str
    setting: tuple[str, ...] = ()


class SafePath(Record, frozen=True, kw_only=True):
    """A way to make the change without a rejected member; `name` is in words."""

    name: str
    steps: tuple[PathStep, ...] = ()


def assignor_it_lacks(start: Start) -> str | None:
    """Return the first name in the list that this client has no assignor for and cannot be given
    one: librdkafka takes none of the application's own, and nobody else adds to Kafka's package.
    """
    brings = _BRINGS["librdkafka"] if start.family == "librdkafka" else start.names
    named = (name for name in start.names if not is_unset(name))
    return next((n for n in named if n.startswith((_KAFKAS, "class ")) or n not in brings), None)


def plan_of(world: World, live: GroupSnapshot | None = None) -> Plan | None:
    """Return the plan from the earlier declarations, or the live group, to the later ones; None
    where there is none.
    """
    moves = [
        (one, two)
        for one, two in world.both
        if one.same_client(two) and not one.same_list(two) and _are_known(one, two)
    ]
    if not moves:
        return None
    one, two = moves[0]
    snapshot = live or planned(world.pairs)
    if snapshot.group.type is GroupType.CLASSIC and snapshot.group.assignor is None:
        return None
    try:
        given = Given(brokers=two.declared.brokers)
        return make_plan(snapshot, _goal(one, two), pricing=None, given=given)
    except NotPlannedError:
        return None


def _are_known(one: Start, two: Start) -> bool:
    """Return whether both assignor lists are known."""
    return not any(map(is_unset, (*one.names, *two.names)))


def paths_of(world: World) -> Iterator[SafePath]:
    """Yield the paths of this change, the one that interrupts least first."""
    differ = [
        (one, two)
        for one, two in world.both
        if not (one.same_client(two) and one.same_list(two)) and two.protocol is not None
    ]
    if not differ:
        return
    one, two = differ[0]
    same = one.same_client(two)
    known = _are_known(one, two)
    classic = BY_BROKERS.keys().isdisjoint((one.protocol, two.protocol))
    plan = plan_of(world)
    read = same or read_each_other(one.family or "", two.family or "")
    kept = same or (read and {*one.names[:1]} <= {*STATELESS})
    written = two.declared.list and same
    if classic and known and kept and not written and _runs(two, one.names):
        yield SafePath(name=_AS_BEFORE, steps=(_step(two, one.names),))
    if classic and known and read and not same:
        yield from _bridge(one, two)
    shown = plan is not None and (classic or plan.path.stops_the_group or plan.exit_code != BLOCKED)
    if plan is not None and plan.path.label and shown:
        lists = [step.target_list for step in plan.steps if step.target_list and classic]
        if all(_runs(two, names) for names in lists):
            yield SafePath(name=plan.path.label, steps=tuple(_step(two, each) for each in lists))
    if classic and (plan is None or plan.path is not PathKind.CUT_OVER):
        yield SafePath(name=". ".join(filter(None, (_STOP, two.library.refuses))))
    if not same:
        yield SafePath(name=_NEW_GROUP)


def _bridge(one: Start, two: Start) -> Iterator[SafePath]:
    """Yield the path on which the old library takes an assignor of the new one first."""
    shared = [name for name in STATELESS if name in two.names]
    names = tuple(dict.fromkeys((*shared[:1], *one.names)))
    if shared and _setting(one, names):
        yield SafePath(
            name=f"two roll-outs, the first with {one.client}",
            steps=(_step(one, names), _step(two, two.names)),
        )


def _goal(one: Start, two: Start) -> str:
    if two.protocol in BY_BROKERS:
        return two.protocol
    if one.protocol == STREAMS:
        return CLASSIC
    if is_mixed(two.names) and not is_mixed(one.names):
        return COOPERATIVE
    if one.protocol == CONSUMER:
        return two.names[0]
    if all(cooperative(name) is Tri.YES for name in two.names):
        return COOPERATIVE if COOPERATIVE_STICKY in two.names else two.names[0]
    return next((name for name in two.names if cooperative(name) is Tri.NO), EAGER)


def _step(start: Start, names: Sequence[str]) -> PathStep:
    return PathStep(brings=f"[{', '.join(names)}]", setting=_setting(start, names))


def _runs(start: Start, names: Sequence[str]) -> bool:
    """Return whether this client is known to run this list, and its product to take it."""
    brings = _BRINGS.get(start.family or "", _JAVAS)
    return (
        bool(_setting(start, names))
        and (start.library.refuses is None or len(names) == 1)
        and not (refuses_mixed(start.family) and is_mixed(names))
        and ({*names} <= {*start.names} or {*names} <= brings)
    )


def _setting(start: Start, names: Sequence[str]) -> tuple[str, ...]:
    """Return the setting that gives this client the list; empty where it is not known how."""
    if start.library.product and start.library.list_key:
        return (f"{start.library.list_key}: {', '.join(names)}",)
    for one in settings_for(start.family or "", names, start.group_id or ""):
        lines = one.text.splitlines()
        # The first comment names the members, which files do not.
        return tuple(lines[1:] if lines[0].startswith(_COMMENT) else lines)
    return ()
