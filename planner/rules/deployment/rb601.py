"""RB601: a stopped consumer in a process that stays ready."""

from rebal.planner.rules.registry import Context, Findings, Severity, found, rule
from rebal.planner.rules.scope import classic, narrowing_step, planning, unfinished


@rule(
    "RB601",
    Severity.ASK,
    "Does the process fail when its consumer stops?",
    reference="Kubernetes: rolling updates go on while pods are Ready",
    applies=(planning, classic, unfinished),
)
def dead_consumer(context: Context) -> Findings:
    """An orchestrator continues a roll-out for as long as the new processes are ready.

    Why it matters: the thread of a rejected consumer ends, but often the process stays up and
    Ready. The roll-out then continues by itself until every member was rejected and nothing is
    consumed.

    How to find out: does readiness or liveness depend on the consumer (its thread, its last poll,
    its assignment)?

    How to answer it: restart by hand and check the gate after each member, or pause the roll-out
    after the first one (kubectl rollout pause).
    """
    yield found(
        "does the process stop, or become not ready, when its consumer is rejected? If not, an "
        "orchestrator restarts one member after another until nothing is consumed.",
        before_step=narrowing_step(context),
    )
