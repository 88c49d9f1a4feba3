"""RB601: a dead consumer in a process that stays ready."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule
from rebal.planner.rules.scope import ahead, narrowing_step


@rule(
    "RB601",
    Severity.ASK,
    "Does the process fail when its consumer dies",
    reference="Kubernetes: rolling updates go on while pods are Ready",
)
def dead_consumer(context: Context) -> Iterator[Finding]:
    """An orchestrator rolls on for as long as the new processes look well.

    Why it matters: a consumer that is refused ends its thread, and often the process stays up and
    Ready. The roll-out then goes on by itself until every member was refused and nobody consumes.

    How to find out: does readiness or liveness depend on the consumer (its thread, its last poll,
    its assignment)?

    How to answer it: restart by hand and look at the gate after each member, or pause the
    roll-out after the first one (kubectl rollout pause).
    """
    if context.planning and context.classic and ahead(context):
        yield found(
            "does the process stop, or become not ready, when its consumer is refused? If not, "
            "an orchestrator rolls on until nobody consumes.",
            before_step=narrowing_step(context),
        )
