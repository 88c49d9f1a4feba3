"""Connect workers: connect.protocol, and the way to eager."""

from rebal.planner.advice.steps import cut_over_fix, restart_fix
from rebal.planner.programs import INCREMENTAL, offers
from rebal.planner.rules.registry import Context, Findings, Severity, Tri, found, rule
from rebal.planner.rules.scope import connect_workers, downgrade, planning
from rebal.planner.rules.version_faults import version_findings
from rebal.planner.versions import faults_of


@rule(
    "RB504",
    Severity.ASK,
    "Connect workers use connect.protocol, not assignors",
    reference="KIP-415; Kafka: DistributedConfig; KAFKA-12495 (fixed in 3.4.0)",
    applies=(planning, connect_workers),
)
def connect(context: Context) -> Findings:
    """The group is one of Connect workers.

    Why it matters: workers assign connectors and tasks with their own protocols. On the wire
    `default` is eager; `compatible` and `sessioned` are incremental. The setting is
    connect.protocol, and its default has been sessioned since 2.4.

    How to find out: what rebal inspect shows as the assignor in use.

    How to answer it: if it is `default`, some worker has connect.protocol=eager. The request log
    across a rebalance shows which one offers nothing else, as does each worker's own log. Remove
    that setting and restart the workers one by one. The sink tasks' groups (connect-NAME) are
    ordinary consumer groups with plans of their own. Workers before 3.4.0 are named: if they join
    and leave close together, they can cause more rebalances than needed; upgrade them first.
    """
    now = context.group.assignor
    eager = [f for f in context.members if offers(context, f, INCREMENTAL) is Tri.NO]
    runs = {
        "default": "all workers run eager: every rebalance stops all tasks",
        "compatible": "the workers rebalance incrementally, and not every worker offers sessioned",
        "sessioned": "the workers rebalance incrementally",
    }.get(now or "", "the protocol of the workers is unknown")
    asks = (
        f"{context.named(eager)} offers nothing else."
        if eager
        else "Is connect.protocol set on any of them?"
    )
    yield found(
        f"{runs} (connect.protocol on the wire: {now or 'unknown'}). {asks}",
        members=eager,
        fix=restart_fix(context, eager or context.members, change="Remove connect.protocol=eager."),
    )
    yield from version_findings(context, faults_of("RB504"))


@rule(
    "RB507",
    Severity.WARN,
    "Tasks run twice while Connect workers change to eager one by one",
    reference="KAFKA-13816 (open; seen on 4.1.1)",
    applies=(planning, connect_workers, downgrade),
)
def run_twice(context: Context) -> Findings:
    """Workers on compatible or sessioned are to become eager.

    Why it matters: the first eager worker makes the whole group eager at once, and the eager leader
    reassigns all connectors and tasks. A worker that ran incrementally starts what it is assigned,
    and does not stop what it is no longer assigned: until it is restarted itself, those tasks run
    on two workers. Source records are written twice, and so may be what a task writes outside
    Kafka.

    How to find out: the elected protocol is compatible or sessioned now, or it is default while
    some worker offers more (--request-log across a rebalance, or --client-log of its start).

    How to fix it: stop every worker, then start all with connect.protocol=eager. Where some are
    eager already, restart the others as soon as possible, or stop them together.
    """
    if context.group.assignor in INCREMENTAL:
        if len(context.members) > 1:
            yield found(
                "tasks run on two workers if the workers are restarted one by one with eager: "
                "those not restarted yet do not stop the tasks that others are assigned.",
                members=context.members,
                before_step=1,
                fix=cut_over_fix(context, context.members, change="connect.protocol=eager"),
            )
        return
    change = "Check the workers' own logs; set connect.protocol=eager on each."
    more = {
        answer: [f for f in context.members if offers(context, f, INCREMENTAL) is answer]
        for answer in Tri
    }
    if more[Tri.YES]:
        yield found(
            f"{context.named(more[Tri.YES])} may run tasks that other workers run too: a worker "
            "that offers more than eager does not stop all its tasks when the group becomes eager.",
            members=more[Tri.YES],
            before_step=1,
            fix=restart_fix(context, more[Tri.YES], change=change),
        )
    elif more[Tri.CANNOT_TELL]:
        yield found(
            f"{context.named(more[Tri.CANNOT_TELL])} may run tasks that other workers run too, if "
            "the group became eager while they ran: no evidence shows whether they offer more than "
            "eager.",
            members=more[Tri.CANNOT_TELL],
            result=Tri.CANNOT_TELL,
            before_step=1,
            fix=restart_fix(context, more[Tri.CANNOT_TELL], change=change),
        )
