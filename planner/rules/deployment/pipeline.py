"""What the deployment does by itself: probes, roll-backs, grace periods, surges, syncs."""

from rebal.planner.rules.registry import Context, Findings, Severity, Trait, found, rule
from rebal.planner.rules.scope import ahead, classic, narrowing_step, planning, unfinished
from rebal.planner.timeouts import in_words, of_family


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


@rule(
    "RB603",
    Severity.ASK,
    "Is there time to close the consumer before the process is killed?",
    reference="Kubernetes: terminationGracePeriodSeconds; KafkaConsumer.close",
    applies=(planning, classic),
)
def grace_period(context: Context) -> Findings:
    """A consumer that closes finishes its batch, commits, and leaves the group.

    Why it matters: a process that is killed before that does not leave the group. Its partitions
    stop until session.timeout.ms has passed, its old list counts for as long (RB116), and what it
    had not committed is read again. In a roll-out this happens at every restart.

    How to find out: compare terminationGracePeriodSeconds (default 30 seconds) with how long a
    batch and close take, and look for a LeaveGroup of each stopped member in the broker's log.

    How to answer it: raise the grace period above the longest batch plus the close timeout, and
    stop polling when the signal comes.
    """
    dynamic = [facts for facts in ahead(context) if not facts.static]
    if dynamic:
        yield found(
            "does each process get enough time to finish its batch, commit and leave the group "
            "before it is killed? If not, partitions stop at every restart until the session "
            f"ends: {in_words([of_family(facts.member, facts.family) for facts in dynamic])}.",
            members=dynamic,
        )


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
