"""What the deployment does by itself, and processes that are missing, too many, or run twice."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Final

from rebal.groups.brokers import other_brokers
from rebal.groups.evidence.exact import when
from rebal.groups.model import GroupType, Member, Refusal
from rebal.planner.advice.steps import start_fix
from rebal.planner.context import CLASSIC, CONSUMER
from rebal.planner.rules.registry import Context, Facts, Findings, Severity, Trait, Tri, found, rule
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


@rule(
    "RB606",
    Severity.BLOCK,
    "Fewer members are in the group than are expected",
    reference="JoinGroup probe and DescribeGroups: both see present members only",
    traits={Trait.HISTORY, Trait.MISSING_MEMBERS},
)
def members_missing(context: Context) -> Findings:
    """A member that belongs to the group is not in it.

    Why it matters: describe and the probe show only present members. A pod in a crash loop, one
    that is scaled down, and one that was rejected are invisible to both, and rejoin with whatever
    list they have: after the second bounce an old list is rejected. So no gate holds below the
    expected count.

    How to find out: compare with the deployment's replicas; look for rejected joins (RB904) and for
    restarts of its containers.

    How to fix it: start the missing members with the list of the current step, or lower
    --expect-members if they are no longer part of the service.
    """
    if context.missing:
        here = len(context.members)
        fix = "Find out why they are missing: they join with the protocol that the group has."
        if context.group.type not in (GroupType.CONSUMER, GroupType.STREAMS):
            fix = start_fix(context, ["the missing members"])
        yield found(
            f"{context.missing} of {context.expected} expected members "
            f"{'is' if context.missing == 1 else 'are'} not in the group ({here} "
            f"{'is' if here == 1 else 'are'}) and may join with an old assignor list.",
            result=Tri.YES,
            fix=f"{fix} If they no longer belong to the service: --expect-members {here}.",
            before_step=narrowing_step(context) if len(context.settled) < here else None,
        )


@rule(
    "RB607",
    Severity.WARN,
    "More members are in the group than are expected",
    reference="PostHog/posthog#60560 (one group shared by two services)",
    traits={Trait.EVERY_LOOK},
)
def members_too_many(context: Context) -> Findings:
    """The group has more members than the service should have.

    Why it matters: a second service on the same group id, an autoscaler at work, or a surge of new
    processes beside old ones all look like this. A service that is not in the plan is a member that
    the first bounce leaves out (RB102).

    How to find out: group the members by client id and host, and ask who runs those hosts.

    How to fix it: give each service its own group, pause the autoscaler during the roll-out, or
    raise --expect-members.
    """
    extra = len(context.members) - (context.expected or len(context.members))
    if extra > 0:
        yield found(
            f"the plan may leave out another service: the group has {len(context.members)} "
            f"members, {extra} more than expected.",
            members=context.members,
            fix="Find out who runs these members before any restart.",
        )


# A supervisor starts a process again after five minutes at most (Kubernetes' back-off).
_LASTS: Final = timedelta(minutes=10)


def _fenced(context: Context, *, again: bool) -> Iterator[tuple[Facts, tuple[Refusal, ...], str]]:
    """Yield the member that has an instance id, the processes that lost it to another one
    (FENCED_INSTANCE_ID), the oldest first, and who was fenced by whom.

    `again`: it was lost twice within ten minutes, the last time not longer ago; else it was not.
    """
    holders = {facts.member.instance_id: facts for facts in context.members if facts.static}
    every = [one for one in context.snapshot.refusals if one.error == "FENCED_INSTANCE_ID"]
    every.sort(key=lambda one: (one.instance_id or "", when(one.at)))
    for instance, group in groupby(every, key=lambda one: one.instance_id):
        lost = tuple(group)
        recent = [
            one
            for one in lost
            if one.at is not None and context.snapshot.captured_at - one.at <= _LASTS
        ]
        if instance in holders and again is (len(recent) > 1):
            yield holders[instance], lost, _fenced_by(holders[instance].member, lost)


def _fenced_by(member: Member, lost: Sequence[Refusal]) -> str:
    """Return who was fenced by this member, with both addresses."""
    last = lost[-1]
    at = "" if last.at is None else f" at {last.at:%H:%M:%SZ}"
    times = f", {len(lost)} times in all" if len(lost) > 1 else ""
    same = last.host.lstrip("/") == member.host.lstrip("/")
    port = f" (connection {last.connection})" if same and last.connection else ""
    where = f" at {last.host.lstrip('/')}{port}" if last.host else " (its own log)"
    return (
        f"{last.client_id}{where} was fenced{at}{times} by {member.client_id} at "
        f"{member.host.lstrip('/')}, which has the instance id {member.instance_id} now"
    )


@rule(
    "RB608",
    Severity.BLOCK,
    "Two processes with one instance id fence each other",
    reference="KIP-345; Kafka protocol: FENCED_INSTANCE_ID (82)",
    traits={Trait.EVERY_LOOK},
)
def twice(context: Context) -> Findings:
    """Two processes run with one group.instance.id, and each takes the place of the other.

    Why it matters: the one that joins last fences the other, which stops; its supervisor starts it
    again, and it fences the first. One of them may never get the list of a step: it joins with its
    old list in the middle of the next bounce.

    How to find out: FENCED_INSTANCE_ID (errorCode 82) in heartbeats and commits of the request log,
    or "fenced" in the members' own logs.

    How to fix it: give each process a group.instance.id of its own, such as the name of its pod in
    a StatefulSet. The finding ends ten minutes after the last time.
    """
    for holder, lost, text in _fenced(context, again=True):
        yield found(
            f"{text}: two processes have one instance id.",
            members=[holder],
            evidence=[each.evidence for each in lost[-2:]],
            fix="Give each of the two processes a group.instance.id of its own.",
        )


@rule(
    "RB609",
    Severity.WARN,
    "A static member was fenced",
    reference="KIP-345; Kafka protocol: FENCED_INSTANCE_ID (82)",
)
def once(context: Context) -> Findings:
    """A process lost its group.instance.id to another process while it still ran.

    Why it matters: either the new process of a restart began before the old one had ended, or two
    processes run with one instance id (RB608). The second kind repeats.

    How to find out: compare the two addresses with the deployment.

    How to fix it: let the old process end before the new one begins (a StatefulSet does that, a
    Deployment with a surge does not), and give each process an instance id of its own.
    """
    for holder, lost, text in _fenced(context, again=False):
        yield found(
            f"{text}: an old process that had not ended, or a second one.",
            members=[holder],
            evidence=[lost[-1].evidence],
            fix="Find out whether both addresses still run it, and give each process a "
            "group.instance.id of its own.",
        )


@rule(
    "RB610",
    Severity.WARN,
    "The brokers are not Apache Kafka's",
    reference="groups/data/brokers.yaml; docs/other-brokers.md",
    applies=(planning,),
)
def not_apache_kafka(context: Context) -> Findings:
    """Azure Event Hubs and Redpanda speak Kafka's protocol, and differ in consumer groups.

    Why it matters: the steps, gates and times of a plan are those of Apache Kafka's group
    coordinator. Another one may keep no Empty group, bound the timeouts, or have no KIP-848.

    How to find out: the bootstrap servers (….servicebus.windows.net; redpanda-0….), or the cluster
    id that the brokers report (redpanda.…). A service behind a name of your own is not recognised.

    How to fix it: read what differs before step 1, and try the plan on a group that matters less.
    These brokers were not run here: the facts are from their public sources.
    """
    other = other_brokers(context.given.brokers, context.snapshot.cluster.cluster_id)
    if other is not None:
        differs = other.under(
            CONSUMER if context.goal == CONSUMER else CLASSIC,
            {facts.family for facts in context.members},
            static=any(facts.static for facts in context.members),
        )
        known = "; ".join(differs) or "nothing that differs is known for this group"
        yield found(
            f"the brokers look like {other.name}: {known}.",
            fix="Try the plan on a group that matters less.",
        )
