"""Connect workers: `connect.protocol`, one bounce up or down.

On the wire `default` is eager, `compatible` and `sessioned` are incremental. A worker offers its
own protocol and all below it, so `default` is always common, and the coordinator elects the highest
that all workers offer (KIP-415, KIP-507): what is elected is what every worker runs.
"""

from __future__ import annotations

from typing import Final

from rebal.groups.model import Knowledge, Tri
from rebal.planner.context import EAGER, Context, Facts, ids
from rebal.planner.plan import Cost, Step, StepKind
from rebal.planner.routes.rolling import expected_line, gate_of
from rebal.planner.routes.way import Way
from rebal.planner.settings import program_settings

INCREMENTAL: Final = ("compatible", "sessioned")
_ANSWERS: Final = ("RB905",)


def connect(context: Context) -> Way:
    """The way of a worker group."""
    elected = context.group.assignor
    down = context.goal == EAGER
    if not down and elected in INCREMENTAL:
        return Way(path="finished", answers=_ANSWERS)
    done = [facts for facts in context.members if down and _only_default(facts)]
    if down and len(done) == len(context.members):
        return Way(path="finished", answers=_ANSWERS)
    if elected not in ("default", *INCREMENTAL):
        return Way(path="none", reasons=(f"{elected} is no protocol of Connect workers",))
    return Way(
        path="connect_down" if down else "connect",
        title="Connect workers, one bounce",
        progress=f"the workers run {elected}",
        steps=(_step(context, done, "eager" if down else "sessioned"),),
        next_step=1,
        answers=_ANSWERS,
    )


def _step(context: Context, done: list[Facts], protocol: str) -> Step:
    rest = [facts for facts in context.members if facts not in done]
    up = protocol == "sessioned"
    return Step(
        id=1,
        title=f"Every worker gets connect.protocol={protocol}",
        kind=StepKind.ROLLING,
        precondition="nothing: every worker offers default, so a restarted one is admitted",
        precondition_holds=Tri.YES,
        config=program_settings(
            "connect",
            {"connect.protocol": protocol},
            f"worker configuration, group {context.group.group_id}"
            + (" (needs 2.4 or later; 2.3: compatible)" if up else ""),
        ),
        why=(
            "one bounce is enough: workers follow what is elected, and the highest protocol that "
            "all offer is elected (KIP-415)",
            "as long as one worker is eager all are: it changes with the last worker"
            if up
            else "the first eager worker turns the whole group eager",
            "partition.assignment.strategy has no meaning for workers (RB504); the groups of sink "
            "connectors (connect-NAME) are ordinary consumer groups and have plans of their own",
        ),
        order=(
            f"one worker at a time: {context.named(rest, 20)}",
            "incremental workers hold a lost worker's tasks back for "
            "scheduled.rebalance.max.delay.ms (5 minutes by default): be back before"
            if not up
            else "at each restart an eager group stops all its connectors and tasks",
        ),
        unknown=ids(rest),
        done=ids(done),
        gate=gate_of(
            context,
            shows="exit code 0, and nothing left to do"
            if up
            else "that the workers run default, and every worker's configuration says eager",
            needs=(
                f"the elected protocol: {' or '.join(INCREMENTAL) if up else 'default'}",
                *expected_line(context),
            ),
            holds=Tri.NO,
            aim="by-hand",
            by_hand="each worker's log at its start (DistributedConfig values) names "
            f"connect.protocol = {protocol}",
        ),
        rollback="restore the old connect.protocol, one worker at a time: every protocol is common "
        "in between",
        cost=Cost(
            rebalances=2 * len(rest),
            partitions_stopped=0,
            partitions_moved=0,
            text=f"about {2 * len(rest)} rebalances of connectors and tasks, which this version "
            "does not rehearse",
        ),
    )


def _only_default(facts: Facts) -> bool:
    known = facts.member.assignors
    return known.knowledge is Knowledge.EXACT and known.list == ("default",)
