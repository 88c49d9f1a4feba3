"""RB604: old and new process with one instance id at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule
from rebal.planner.rules.scope import ahead

_NONE: Final = (None, "0", "0%")


@rule(
    "RB604",
    Severity.BLOCK,
    "A surge would run two processes with one instance id",
    reference="KIP-345 (fencing of duplicate instance ids); Kubernetes: Deployment, maxSurge",
)
def surge_of_static_members(context: Context) -> Iterator[Finding]:
    """Static members whose deployment starts the new process before it stops the old one.

    Why it matters: two processes with one group.instance.id fence each other: in the classic
    protocol the newer one wins and the older one dies in the middle of its work, uncommitted; under
    KIP-848 the newer one is refused (RB407).

    How to find out: maxSurge of the deployment (a Deployment that does not say has 25 %), which an
    --inventory of its manifests shows.

    How to fix it: maxSurge 0, the strategy Recreate, or a StatefulSet, which never runs two pods of
    one name.

    Without manifests that name the deployment of a static member it is silent, and the plan says
    that the deployment was not looked at.
    """
    if not context.planning:
        return
    named = [
        facts
        for facts in ahead(context)
        if facts.member.instance_id is not None
        and facts.member.declared is not None
        and facts.member.declared.max_surge not in _NONE
    ]
    if named:
        yield found(
            f"{context.named(named)}: static, and the deployment starts the new process before the "
            "old one has stopped.",
            members=named,
            evidence=(f.member.declared.evidence for f in named if f.member.declared),
            fix="Set maxSurge to 0, or use Recreate or a StatefulSet.",
        )
