"""RB605: automation that changes the deployment during the roll-out."""

from rebal.planner.rules.registry import Context, Findings, Severity, found, rule
from rebal.planner.rules.scope import classic, planning, unfinished


@rule(
    "RB605",
    Severity.ASK,
    "Is an autoscaler or a GitOps sync active during the roll-out?",
    reference="Kubernetes: HorizontalPodAutoscaler; KEDA; Argo CD and Flux sync",
    applies=(planning, classic, unfinished),
)
def autoscaler(_: Context) -> Findings:
    """Automation that scales or syncs the deployment restarts members on its own.

    Why it matters: lag rises while members restart, so an autoscaler adds members in the middle of
    the roll-out, with whatever image and configuration is current. A sync undoes a canary. An
    automatic rollback after the second bounce is a direct downgrade (RB108).

    How to find out: look for an HPA, KEDA or a sync policy on the deployment.

    How to answer it: pause them during the roll-out.
    """
    yield found(
        "is an autoscaler, a sync or an automatic rollback active on the deployment? It may "
        "start members with another configuration: pause it during the roll-out.",
    )
