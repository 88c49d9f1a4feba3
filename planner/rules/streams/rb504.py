"""RB504: Connect workers use connect.protocol."""

from rebal.planner.advice.steps import restart_fix
from rebal.planner.programs import INCREMENTAL, offers
from rebal.planner.rules.registry import Context, Findings, Severity, Tri, found, rule
from rebal.planner.rules.scope import connect_workers, planning
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
