"""Paths of Kafka Streams programs and Connect workers, which do not change by assignor lists.

Kafka Streams: `upgrade.from` chooses EAGER or COOPERATIVE. Streams 2.4 to 3.9 is COOPERATIVE unless
upgrade.from is 0.10.0 to 2.3; its assignor accepts EAGER and COOPERATIVE members together while all
run 2.4 or later (KIP-429). Versions below 2.4 have no COOPERATIVE, 4.0 and later no EAGER: they do
not start with such an upgrade.from.

Connect workers: an upgrade is one bounce of `connect.protocol`; in a downgrade all workers stop
together (RB507). On the wire `default` is eager, `compatible` and `sessioned` are incremental. A
worker offers its own protocol and all below it, so `default` is always common, and the coordinator
elects the highest that all workers offer (KIP-415, KIP-507): every worker runs that protocol.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import worker_list
from rebal.groups.model import RebalanceProtocol, Tri
from rebal.groups.streams import BRIDGE, EAGER_VALUES
from rebal.planner.advice.wording import (
    AFTER_THE_LAST,
    ONE_INSTANCE,
    ONE_WORKER,
    STOP_THEN_START,
)
from rebal.planner.commands import NamedCommand
from rebal.planner.context import (
    EAGER,
    INCREMENTAL,
    Context,
    Facts,
    above_eager,
    below_cooperative,
    comes_from,
    ids,
    offers,
    running,
    turns_eager,
)
from rebal.planner.paths.parts import (
    PlannedPath,
    agreed,
    everyone,
    gate_of,
    roll_cost,
    stop_all,
    stopping,
)
from rebal.planner.plan import Aim, PathKind, Risk, Step, StepKind
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import by_workers, stop_workers
from rebal.planner.settings import program_settings
from rebal.planner.verdict import exit_code, reasons

_JOINS: Final = (
    f"versions that can share a group: below 2.4 and 2.4 to {BRIDGE}, with upgrade.from on the "
    f"newer ones; 2.4 to {BRIDGE} and 4.0 or later, without upgrade.from of 2.3 or less; never "
    "below 2.4 and 4.0 or later, which have no EAGER and do not start with upgrade.from=2.3",
    f"from below 2.4 to 4.0 or later use a bridge release, 2.4 to {BRIDGE}: do both steps of this "
    "plan with the bridge release, then one rolling restart with the newer one (from 3.4 or "
    "earlier set upgrade.from to it in between: KIP-904; KIP-1124)",
)
_GO_BACK: Final = (
    "the instances ran this version when the plan was made that is left here; Streams' assignor "
    "is the same, so none is rejected",
)
_LIST: Final = ("stream",)
_LOG: Final = "check in the log of each instance's start (StreamsConfig values): "
_EVIDENCE: Final = (
    "--client-log of each instance's start (2.4 to 3.9 log the enabled rebalance protocol), or "
    "--request-log across a rebalance (the partitions that each kept or revoked on rejoining)"
)


def streams(context: Context, before: Context | None = None) -> PlannedPath:
    """Return the path of a Kafka Streams program to COOPERATIVE or EAGER by upgrade.from.

    In a rollback `before` is the program as it ran before the upgrade: its version is restored too.
    """
    path = _down(context) if context.goal == EAGER else _up(context)
    return path if before is None else _back(context, before, path)


def _up(context: Context) -> PlannedPath:
    old = _below(context, Tri.YES)
    unknown = _below(context, Tri.CANNOT_TELL)
    kept = running(context, RebalanceProtocol.COOPERATIVE)
    if old:
        return _two_bounces(context, old, unknown, kept)
    if len(kept) == len(context.members):
        return PlannedPath(name=PathKind.FINISHED)
    unread = (
        f"the versions of {context.named(unknown)} are not known: below 2.4 upgrade.from must be "
        "set first (--client-log, or --request-log across a restart, shows them)",
    )
    return PlannedPath(
        name=PathKind.STREAMS_ONE_BOUNCE,
        progress=f"{len(kept)} of {len(context.members)} proven COOPERATIVE",
        steps=(_remove(context, 1, blocked=bool(unknown)),),
        next_step=1,
        reasons=unread if unknown else (),
    )


def _two_bounces(
    context: Context,
    old: Sequence[Facts],
    unknown: Sequence[Facts],
    kept: Sequence[Facts],
) -> PlannedPath:
    value = min((comes_from(facts) for facts in old), key=EAGER_VALUES.index)
    new = [facts for facts in context.members if facts not in (*old, *unknown)]
    unset = [
        facts
        for facts in context.members
        if facts.member.declared is not None and facts.upgrade_from not in EAGER_VALUES
    ]
    set_it = (
        f"the configuration of {context.named(unset)} does not set upgrade.from yet: set it there "
        "before the new version starts"
    )
    proven_eager = not running(context, RebalanceProtocol.CANNOT_TELL, new)
    first = Step(
        id=1,
        title="Every instance gets the new version, with upgrade.from set to the old one",
        kind=StepKind.ROLLING,
        precondition="no instance of the new version runs without upgrade.from",
        precondition_holds=Tri.NO if kept else Tri.YES if proven_eager else Tri.CANNOT_TELL,
        config=program_settings(
            "streams",
            {"upgrade.from": value},
            f"group {context.group.group_id}; new version: 2.4 to {BRIDGE}, not 4.0 or later",
        ),
        why=(
            "a leader below 2.4 would assign partitions to others before their owners have revoked "
            "them: upgrade.from keeps all instances EAGER until all run the new version (KIP-429)",
            f"upgrade.from is the version you upgrade from: {', '.join(EAGER_VALUES)}",
            *_JOINS,
            "never give Streams an assignor list (RB501)",
        ),
        order=(*((set_it,) if unset else ()), ONE_INSTANCE),
        to_do=ids(old),
        done=ids(new),
        unknown=ids(unknown),
        gate=gate_of(
            context,
            shows=f"{everyone(context)} runs 2.4 or later",
            needs=("every instance's version, which its subscription bytes show",),
            holds=Tri.NO,
            aim=Aim.STREAMS_NEW,
            by_hand=f"{_LOG}upgrade.from={value}, and the new version",
        ),
        rollback="put the old version back, without upgrade.from, one instance at a time",
        cost=roll_cost(context, [*old, *unknown], context.members, _LIST, after=True),
        exit_code=exit_code(Tri.NO if kept else Tri.YES),
    )
    return PlannedPath(
        name=PathKind.STREAMS_TWO_BOUNCES,
        progress=f"{len(new)} of {len(context.members)} on 2.4 or later",
        steps=(first, _remove(context, 2, blocked=True)),
        next_step=1,
    )


def _remove(context: Context, number: int, *, blocked: bool) -> Step:
    done = running(context, RebalanceProtocol.COOPERATIVE)
    eager = [
        facts
        for facts in running(context, RebalanceProtocol.EAGER)
        if below_cooperative(context, facts) is Tri.NO
    ]
    rest = [facts for facts in context.members if facts not in done]
    declared = [facts for facts in rest if facts.upgrade_from in EAGER_VALUES]
    first = (
        f"the configuration of {context.named(declared)} sets upgrade.from to 2.3 or less: remove "
        "it there",
    )
    return Step(
        id=number,
        title="No instance sets upgrade.from to 2.3 or less",
        kind=StepKind.ROLLING,
        precondition="every instance runs 2.4 or later",
        precondition_holds=Tri.CANNOT_TELL if blocked else Tri.YES,
        config=program_settings(
            "streams", {}, f"group {context.group.group_id}: remove upgrade.from"
        ),
        why=(
            "upgrade.from 0.10.0 to 2.3 keeps an instance EAGER; 2.4 and later values do not "
            "(RB502): where it is not set, or is 2.4 or later, there is nothing to do",
            "Streams' assignor accepts EAGER and COOPERATIVE members together once all run 2.4 or "
            "later, so this is one bounce (KIP-429)",
            *(_JOINS if number == 1 else ()),
        ),
        order=(*(first if declared else ()), *_order(rest)),
        to_do=ids(eager),
        done=ids(done),
        unknown=ids(facts for facts in rest if facts not in eager),
        gate=gate_of(
            context,
            shows=f"{everyone(context)} is proven COOPERATIVE",
            needs=(_EVIDENCE,),
            holds=Tri.NO if eager else Tri.CANNOT_TELL,
            aim=Aim.STREAMS_COOPERATIVE,
            by_hand=f"{_LOG}no upgrade.from, or one of 2.4 and later",
        ),
        rollback="set upgrade.from back to what it was, one instance at a time",
        cost=roll_cost(context, rest, rest, _LIST, after=False),
        exit_code=exit_code(Tri.CANNOT_TELL if blocked else Tri.YES),
    )


def _down(context: Context) -> PlannedPath:
    eager = running(context, RebalanceProtocol.EAGER)
    if len(eager) == len(context.members):
        return PlannedPath(name=PathKind.FINISHED)
    old = _below(context, Tri.YES)
    kept = running(context, RebalanceProtocol.COOPERATIVE)
    new = [facts for facts in context.members if above_eager(context, facts) is Tri.YES]
    unknown = [
        facts
        for facts in context.members
        if Tri.CANNOT_TELL in (below_cooperative(context, facts), above_eager(context, facts))
        and facts not in (*old, *eager)
    ]
    mixed = bool(old and kept)
    bridge = (_bridge(context, new),) if new else ()
    steps = (
        *bridge,
        _eager(context, len(bridge) + 1, blocked=mixed, waits=bool(new), unknown=unknown),
        _old(context, len(bridge) + 2, kept),
    )
    rows = (
        (mixed, f"{context.named(old)} runs below 2.4 beside members that are COOPERATIVE"),
        (
            unknown,
            f"the versions of {context.named(unknown)} are not known: 4.0 and later do not start "
            "with upgrade.from=2.3 (--client-log, or --request-log across a restart, shows them)",
        ),
    )
    return PlannedPath(
        name=PathKind.STREAMS_DOWN,
        progress=f"{len(eager)} of {len(context.members)} proven EAGER",
        steps=steps,
        next_step=1,
        reasons=reasons(*rows)[:1],
    )


def _back(context: Context, before: Context, path: PlannedPath) -> PlannedPath:
    """Return `path` with a last step that restores the version that instances ran in `before`.

    There is such a step only if that version decides the protocol: below 2.4, or 4.0 or later.
    """
    below = {below_cooperative(before, facts) for facts in before.members}
    above = {above_eager(before, facts) for facts in before.members}
    steps = path.steps
    if below in ({Tri.YES}, {Tri.NO}):
        # Whether they go below 2.4 is known here, and no choice of the operator.
        steps = tuple(step for step in steps if step.aim is not Aim.STREAMS_OLD)
    if below == {Tri.YES}:
        has = {f.member.member_id: below_cooperative(context, f) for f in context.members}
        last = _old(context, len(steps) + 1, running(context, RebalanceProtocol.COOPERATIVE))
        last = replace(last, title="Every instance gets the old version", why=_GO_BACK)
    elif above == {Tri.YES}:
        has = {f.member.member_id: above_eager(context, f) for f in context.members}
        last = _latest(context, len(steps) + 1)
    else:
        return replace(path, steps=steps)
    who = {
        answer: [f for f in context.members if has[f.member.member_id] is answer] for answer in Tri
    }
    if len(who[Tri.YES]) == len(context.members):
        return replace(path, steps=steps)
    said = (
        (who[Tri.NO], "on the plan's version"),
        (who[Tri.YES], "on the old version"),
        (who[Tri.CANNOT_TELL], "of an unknown version"),
    )
    return replace(
        path,
        name=PathKind.STREAMS_BACK if path.name is PathKind.FINISHED else path.name,
        progress="; ".join(f"{where}: {context.named(each)}" for each, where in said if each),
        steps=(*steps, last),
        next_step=1,
    )


def _latest(context: Context, number: int) -> Step:
    """Return the step that moves instances from a bridge release back to 4.0 or later."""
    rest = [facts for facts in context.members if above_eager(context, facts) is not Tri.YES]
    return Step(
        id=number,
        title="Every instance gets its old version of 4.0 or later",
        kind=StepKind.ROLLING,
        precondition="every instance runs COOPERATIVE, as 4.0 and later always do",
        precondition_holds=Tri.YES if number == 1 else Tri.NO,
        config=program_settings(
            "streams", {}, f"group {context.group.group_id}: the old version, no upgrade.from"
        ),
        why=_GO_BACK,
        order=_order(rest),
        to_do=ids(f for f in rest if above_eager(context, f) is Tri.NO),
        done=ids(f for f in context.members if f not in rest),
        unknown=ids(f for f in rest if above_eager(context, f) is Tri.CANNOT_TELL),
        gate=gate_of(
            context,
            shows=f"{everyone(context)} runs 4.0 or later",
            needs=(
                "every instance's exact version (--client-log, or --request-log across a restart)",
            ),
            holds=Tri.NO,
            aim=Aim.STREAMS_LATEST,
            by_hand=f"{_LOG}the old version",
        ),
        rollback="put the bridge release back, one instance at a time",
        cost=roll_cost(
            context, rest, running(context, RebalanceProtocol.EAGER), _LIST, after=False
        ),
    )


def _bridge(context: Context, new: Sequence[Facts]) -> Step:
    return Step(
        id=1,
        title=f"Every instance of 4.0 or later goes back to {BRIDGE}",
        kind=StepKind.ROLLING,
        precondition=f"2.4 to {BRIDGE} and 4.0 or later can share a group: all are COOPERATIVE",
        precondition_holds=Tri.YES,
        config=program_settings(
            "streams", {}, f"group {context.group.group_id}: version {BRIDGE}, no upgrade.from"
        ),
        why=(
            "4.0 and later have only COOPERATIVE: with upgrade.from=2.3 they do not start",
            *_JOINS,
        ),
        order=_order(new),
        to_do=ids(new),
        done=ids(facts for facts in context.members if above_eager(context, facts) is Tri.NO),
        unknown=ids(f for f in context.members if above_eager(context, f) is Tri.CANNOT_TELL),
        gate=gate_of(
            context,
            shows=f"{everyone(context)} runs {BRIDGE} or earlier",
            needs=(
                "every instance's exact version (--client-log, or --request-log across a restart)",
            ),
            holds=Tri.NO,
            aim=Aim.STREAMS_BRIDGE,
            by_hand=f"{_LOG}a version below 4.0",
        ),
        rollback="put the new version back, one instance at a time",
        cost=roll_cost(context, new, running(context, RebalanceProtocol.EAGER), _LIST, after=False),
    )


def _eager(
    context: Context,
    number: int,
    *,
    blocked: bool,
    waits: bool,
    unknown: Sequence[Facts],
) -> Step:
    done = running(context, RebalanceProtocol.EAGER)
    kept = running(context, RebalanceProtocol.COOPERATIVE)
    rest = [facts for facts in context.members if facts not in done]
    holds = Tri.NO if blocked or waits else Tri.CANNOT_TELL if unknown else Tri.YES
    return Step(
        id=number,
        title="Every instance gets upgrade.from=2.3",
        kind=StepKind.ROLLING,
        precondition=f"every instance runs 2.4 to {BRIDGE}: its assignor accepts EAGER and "
        "COOPERATIVE members together, and it starts with upgrade.from=2.3",
        precondition_holds=holds,
        config=program_settings(
            "streams", {"upgrade.from": "2.3"}, f"group {context.group.group_id}"
        ),
        why=(
            "an instance with upgrade.from 2.3 or less runs EAGER (RB502)",
            "keep the version in this bounce: an instance below 2.4 that leads COOPERATIVE ones "
            "may assign a partition twice",
            "you may set the version you go back to instead of 2.3",
            *(() if waits else _JOINS[:1]),
        ),
        order=_order(rest),
        to_do=ids(kept),
        unknown=ids(facts for facts in rest if facts not in kept),
        done=ids(done),
        gate=gate_of(
            context,
            shows=f"{everyone(context)} is proven EAGER",
            needs=(_EVIDENCE,),
            holds=Tri.NO if kept else Tri.CANNOT_TELL,
            aim=Aim.STREAMS_EAGER,
            by_hand=f"{_LOG}upgrade.from=2.3, or the version you go back to",
        ),
        rollback="remove upgrade.from again, one instance at a time",
        cost=roll_cost(context, rest, done, _LIST, after=True),
        exit_code=exit_code(holds),
    )


def _old(context: Context, number: int, kept: Sequence[Facts]) -> Step:
    rest = [f for f in context.members if below_cooperative(context, f) is not Tri.YES]
    eager = len(running(context, RebalanceProtocol.EAGER)) == len(context.members)
    holds = Tri.NO if kept else Tri.YES if eager else Tri.CANNOT_TELL
    return Step(
        id=number,
        title="Every instance gets the old version (only to go below 2.4)",
        kind=StepKind.ROLLING,
        precondition="every instance runs with upgrade.from 2.3 or less",
        precondition_holds=holds,
        config=program_settings(
            "streams", {}, f"group {context.group.group_id}: the old version, no upgrade.from"
        ),
        why=(
            "to stay on this version and run EAGER, the step before is enough: do this one only to "
            "go below 2.4",
        ),
        order=_order(rest),
        to_do=ids(f for f in rest if below_cooperative(context, f) is Tri.NO),
        done=ids(f for f in context.members if f not in rest),
        unknown=ids(f for f in rest if below_cooperative(context, f) is Tri.CANNOT_TELL),
        gate=gate_of(
            context,
            shows=f"{everyone(context)} runs a version below 2.4",
            needs=("every instance's version, which its subscription bytes show",),
            holds=Tri.NO,
            aim=Aim.STREAMS_OLD,
            by_hand=f"{_LOG}the old version",
        ),
        rollback="put the new version back with upgrade.from=2.3",
        cost=roll_cost(context, rest, context.members, _LIST, after=True),
        exit_code=exit_code(holds),
    )


def _below(context: Context, answer: Tri) -> list[Facts]:
    """Return the members that are (yes), are not (no) or may be (cannot tell) older than 2.4."""
    return [facts for facts in context.members if below_cooperative(context, facts) is answer]


def _order(rest: Sequence[Facts]) -> tuple[str, ...]:
    return (ONE_INSTANCE,) if rest else ()


def connect(context: Context) -> PlannedPath:
    """Return the path of a group of Connect workers to another connect.protocol."""
    elected = context.group.assignor
    down = context.goal == EAGER
    if elected not in ("default", *INCREMENTAL):
        return PlannedPath(
            name=PathKind.NONE, reasons=(f"{elected} is not a protocol of Connect workers",)
        )
    if not down and elected in INCREMENTAL:
        return PlannedPath(name=PathKind.FINISHED)
    incremental = {
        answer: [f for f in context.members if offers(context, f, INCREMENTAL) is answer]
        for answer in Tri
    }
    done = incremental[Tri.NO if down else Tri.YES]
    if down and len(done) == len(context.members):
        return PlannedPath(name=PathKind.FINISHED)
    seen = f", {len(done)} of {len(context.members)} workers changed" if done else ""
    return PlannedPath(
        name=PathKind.CONNECT_DOWN if turns_eager(context) else PathKind.CONNECT,
        progress=f"the workers run {elected}{seen}",
        steps=(
            _connect_step(
                context,
                done=done,
                to_do=incremental[Tri.YES if down else Tri.NO],
                unknown=incremental[Tri.CANNOT_TELL],
                protocol="eager" if down else incremental_value(context),
            ),
        ),
        next_step=1,
    )


def incremental_value(context: Context) -> str:
    """Return the highest incremental value of connect.protocol that every worker's version has.

    2.3 has `compatible` alone. Workers below 2.3 have no such setting, and are upgraded.
    """
    known = {(f.older_than("2.3"), f.older_than("2.4")) for f in context.members}
    return "compatible" if known & {(Tri.NO, Tri.YES), (Tri.CANNOT_TELL, Tri.YES)} else "sessioned"


def _connect_step(
    context: Context,
    *,
    done: Sequence[Facts],
    to_do: Sequence[Facts],
    unknown: Sequence[Facts],
    protocol: str,
) -> Step:
    rest = [*to_do, *unknown]
    up, together = protocol != "eager", turns_eager(context)
    old = context.named(facts for facts in rest if facts.older_than("2.3") is Tri.YES)
    since = {"compatible": "2.3 or later"}.get(protocol, "2.4 or later; 2.3: compatible")
    since += f"; upgrade in this restart: {old}" if old else ""
    simulation = context.given.simulate(context.group.group_id, "--assignor", protocol)
    return Step(
        id=1,
        title=STOP_THEN_START.format(whom="worker", how=f"with connect.protocol={protocol}")
        if together
        else f"Every worker gets connect.protocol={protocol}",
        kind=StepKind.CUT_OVER if together else StepKind.ROLLING,
        precondition=agreed(Risk.STOP_FOR_PROTOCOL)
        if together
        else "nothing: every worker offers default, so a restarted one is admitted",
        precondition_holds=Tri.NO if together else Tri.YES,
        config=program_settings(
            "connect",
            {"connect.protocol": protocol},
            f"worker configuration, group {context.group.group_id}"
            + (f" (needs {since})" if up else ""),
        ),
        why=(
            "all workers run the elected protocol: the highest one that all offer "
            f"(KIP-415){'' if together else ': one bounce is enough'}",
            "while one worker is eager all are: the protocol changes with the last worker"
            if up
            else "the first eager worker turns the whole group eager, so an elected default proves "
            "nothing about the others",
            *(
                (
                    "all together, because workers that turn eager one by one run tasks twice: a "
                    "task that the first eager rebalance moves is not stopped on its old worker "
                    "(RB507, KAFKA-13816)",
                )
                if together
                else ()
            ),
            *(
                (
                    "sessioned signs the REST requests between workers (KIP-507); signing is off "
                    "while one worker offers less",
                    "from then on the tasks of a restarted worker, unless it leads, wait for "
                    "scheduled.rebalance.max.delay.ms (5 minutes by default), even if it is back "
                    "earlier: a simulation shows the cost",
                )
                if up
                else (
                    "eager turns that signing off: any client that reaches a worker's REST port "
                    "can send requests that only workers should send (KIP-507)",
                )
            ),
            "partition.assignment.strategy has no meaning for workers (RB504); the groups of sink "
            "connectors (connect-NAME) are ordinary consumer groups and have plans of their own",
        ),
        order=_orders(context, rest, up=up),
        to_do=ids(to_do),
        unknown=ids(unknown),
        done=ids(done),
        gate=gate_of(
            context,
            shows=f"{' or '.join(INCREMENTAL)} is elected, {everyone(context)} present"
            if up
            else f"{everyone(context)} joins with default alone",
            needs=()
            if up
            else ("--client-log of each worker's start, or --request-log across a rebalance",),
            holds=Tri.NO,
            aim=Aim.CONNECT_INCREMENTAL if up else Aim.CONNECT_EAGER,
            by_hand="check in the log of each worker's start (DistributedConfig values) that "
            f"connect.protocol = {protocol}",
        ),
        rollback="the old setting, one by one" + (AFTER_THE_LAST if up else ""),
        commands=(
            *((NamedCommand("simulate the restarts", simulation),) if up else ()),
            *(stopping(context, Risk.STOP_FOR_PROTOCOL) if together else ()),
        ),
        cost=(stop_workers if together else by_workers)(
            Roll(
                snapshot=context.snapshot,
                eager_after=not up,
                order=ids(rest),
                target=worker_list(protocol) or (),
                speed=context.speed,
                pricing=context.pricing,
            )
        ),
    )


def _orders(context: Context, rest: Sequence[Facts], *, up: bool) -> tuple[str, ...]:
    declared = [
        facts
        for facts in rest
        if facts.member.declared is not None
        and facts.member.declared.list
        and (set(facts.member.declared.list) & set(INCREMENTAL) == set()) is up
    ]
    now = "eager" if up else "an incremental protocol"
    change = f"the configuration of {context.named(declared)} still sets {now}: change it there"
    how = stop_all(context.snapshot.members) if turns_eager(context) else ONE_WORKER
    return reasons((declared, change), (rest, how))
