"""RB604: the old and the new process run at once with one instance id."""

from rebal.planner.rules.registry import Context, Findings, Severity, Trait, found, rule
from rebal.planner.rules.scope import ahead, planning


@rule(
    "RB604",
    Severity.BLOCK,
    "A surge would run two processes with one instance id",
    reference="KIP-345 (fencing of duplicate instance ids); Kubernetes: Deployment, maxSurge",
    applies=(planning,),
    traits=(Trait.REVIEW,),
)
def surge_of_static_members(context: Context) -> Findings:
    """The deployment of static members starts the new process before it stops the old one.

    Why it matters: two processes with one group.instance.id conflict. In the classic protocol the
    newer one fences the older one, which stops in the middle of its work, uncommitted. Under
    KIP-848 the newer one is rejected (RB407).

    How to find out: maxSurge of the deployment (the default of a Deployment is 25 %), which an
    --inventory of its manifests shows.

    How to fix it: use maxSurge 0, the strategy Recreate, or a StatefulSet, which never runs two
    pods with one name.

    Without manifests that name the deployment of a static member it does not fire, and the plan
    lists the deployment as not checked.
    """
    named = [facts for facts in ahead(context) if facts.static and facts.surges]
    if named:
        yield found(
            f"{context.named(named)} would run twice with one instance id at its restart, and one "
            "of the two processes stops: the deployment starts the new one before the old one has "
            "stopped.",
            members=named,
            evidence=(f.member.declared.evidence for f in named if f.member.declared),
            fix="Set maxSurge to 0, or use Recreate or a StatefulSet.",
        )
