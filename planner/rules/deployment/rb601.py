"""RB601: a stopped consumer in a process that stays ready."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule
from rebal.planner.rules.scope import ahead, narrowing_step


@rule(
    "RB601",
    Severity.ASK,
    "Does the process fail when its consumer stops?",
    reference="Kubernetes: rolling updates go on while pods are Ready",
)
def dead_consumer(context: Context) -> Iterator[Finding]:
    """An orchestrator continues a roll-out for as long as the new processes are ready.

    Why it matters: the thread of a rejected consumer ends, but often the process stays up and
    Ready. The roll-out then continues by itself until every member was rejected and nothing is
    consumed.

    How to find out: does readiness or liveness depend on the consumer (its thread, its last poll,
    its assignment)?

    How to answer it: restart by hand and check the gate after each member, or pause the roll-out
    after the first one (kubectl rollout pause).
    """
    if context.planning and context.classic and ahead(context):
        yield found(
            "does the process stop, or become not ready, when its consumer is rejected? If not, an "
            "orchestrator restarts one member after another until nothing is consumed.",
            before_step=narrowing_step(context),
        )
