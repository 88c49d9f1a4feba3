"""RB507: tasks run twice while Connect workers change to eager one by one."""

from rebal.planner.advice.steps import cut_over_fix, restart_fix
from rebal.planner.programs import INCREMENTAL, offers
from rebal.planner.rules.registry import Context, Findings, Severity, Tri, found, rule
from rebal.planner.rules.scope import connect_workers, downgrade, planning


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
