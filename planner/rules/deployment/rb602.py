"""RB602: a deployment that rolls back by itself."""

from rebal.planner.rules.registry import Context, Findings, Severity, found, rule
from rebal.planner.rules.scope import classic, narrowing_step, planning, unfinished


@rule(
    "RB602",
    Severity.ASK,
    "Does the deployment roll back by itself?",
    reference="KIP-429 (downgrade); Argo Rollouts: analysis; Helm: --atomic",
    applies=(planning, classic, unfinished),
)
def automatic_roll_back(context: Context) -> Findings:
    """An automatic rollback restores the old configuration in one go.

    Why it matters: after the second bounce that is a direct downgrade: an eager-only list joins a
    cooperative group and is rejected (RB108), member by member. The rollback stops the service.

    How to find out: look for automatic rollback in the pipeline: analysis runs, helm --atomic,
    deployment circuit breakers, alarms that redeploy.

    How to answer it: switch it off for the roll-out, and use only the rollback that each step of
    the plan names.
    """
    yield found(
        "does a pipeline or an orchestrator roll back by itself when a deployment looks bad? "
        "Members would be rejected, because that is a direct downgrade: switch it off, and use "
        "the rollback of each step.",
        before_step=narrowing_step(context),
    )
