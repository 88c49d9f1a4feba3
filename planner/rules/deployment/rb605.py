"""RB605: automation that changes the deployment during the roll-out."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule
from rebal.planner.rules.scope import ahead


@rule(
    "RB605",
    Severity.ASK,
    "Is an autoscaler or a GitOps sync active during the roll-out?",
    reference="Kubernetes: HorizontalPodAutoscaler; KEDA; Argo CD and Flux sync",
)
def autoscaler(context: Context) -> Iterator[Finding]:
    """Automation that scales or syncs the deployment restarts members on its own.

    Why it matters: lag rises while members restart, so an autoscaler adds members in the middle of
    the roll-out, with whatever image and configuration is current. A sync undoes a canary. An
    automatic rollback after the second bounce is a direct downgrade (RB108).

    How to find out: look for an HPA, KEDA or a sync policy on the deployment.

    How to answer it: pause them during the roll-out.
    """
    if context.planning and context.classic and ahead(context):
        yield found(
            "is an autoscaler, a sync or an automatic rollback active on the deployment? It may "
            "start members with another configuration: pause it during the roll-out.",
        )
