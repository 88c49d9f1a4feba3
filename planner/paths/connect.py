"""Connect workers: one bounce of `connect.protocol` up; down all together, because of RB507.

On the wire `default` is eager, `compatible` and `sessioned` are incremental. A worker offers its
own protocol and all below it, so `default` is always common, and the coordinator elects the highest
that all workers offer (KIP-415, KIP-507): every worker runs the elected protocol.
"""

from collections.abc import Sequence

from rebal.groups.clients import worker_list
from rebal.groups.model import Tri
from rebal.planner.advice.wording import (
    AFTER_THE_LAST,
    ONE_WORKER,
    STOP_THEN_START,
)
from rebal.planner.commands import NamedCommand
from rebal.planner.context import EAGER, Context, Facts, ids
from rebal.planner.kinds import PathKind
from rebal.planner.paths.parts import PlannedPath, agreed, everyone, gate_of, stop_all, stopping
from rebal.planner.plan import Aim, Step, StepKind
from rebal.planner.programs import INCREMENTAL, offers, turns_eager
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import by_workers, stop_workers
from rebal.planner.risks import Risk
from rebal.planner.settings import program_settings
from rebal.planner.verdict import reasons


def connect(context: Context) -> PlannedPath:
    """Return the path of a group of workers."""
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
            _step(
                context,
                done=done,
                to_do=incremental[Tri.YES if down else Tri.NO],
                unknown=incremental[Tri.CANNOT_TELL],
                protocol="eager" if down else "sessioned",
            ),
        ),
        next_step=1,
    )


def _step(
    context: Context,
    *,
    done: Sequence[Facts],
    to_do: Sequence[Facts],
    unknown: Sequence[Facts],
    protocol: str,
) -> Step:
    rest = [*to_do, *unknown]
    up, together = protocol == "sessioned", turns_eager(context)
    predict = stop_workers if together else by_workers
    simulation = context.given.simulate(context.group.group_id, "--assignor", "sessioned")
    log = (
        "check in the log of each worker's start (DistributedConfig values) that "
        f"connect.protocol = {protocol}"
    )
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
            + (" (needs 2.4 or later; 2.3: compatible)" if up else ""),
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
        order=_order(context, rest, up=up),
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
            by_hand=log,
        ),
        rollback="the old setting, one by one" + (AFTER_THE_LAST if up else ""),
        commands=(
            *((NamedCommand("simulate the restarts", simulation),) if up else ()),
            *(stopping(context, Risk.STOP_FOR_PROTOCOL) if together else ()),
        ),
        cost=predict(
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


def _order(context: Context, rest: Sequence[Facts], *, up: bool) -> tuple[str, ...]:
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
    return tuple(reasons(((declared, change), (rest, how))))
