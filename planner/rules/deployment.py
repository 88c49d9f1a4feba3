"""Rules on the deployment's own actions, and on processes missing, too many, or run twice.

A departed member is one that a log shows in the group, that is not in it now, and that no other
client replaced. RB120 asks about those whose return is admitted, RB121 about those whose return a
step has rejected.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Final

from rebal.groups.clients import assignor_of, other_brokers
from rebal.groups.commands import options
from rebal.groups.evidence.exact import when
from rebal.groups.model import Departed, GroupType, Member, Refusal
from rebal.groups.protocol import borrowed_in
from rebal.planner.admission.check import JoinEvent, admitted, unresolved_rejections
from rebal.planner.advice.steps import start_fix
from rebal.planner.commands import NamedCommand
from rebal.planner.context import CLASSIC, CONSUMER
from rebal.planner.rules.registry import (
    Context,
    Facts,
    Findings,
    Severity,
    Trait,
    Tri,
    ahead,
    classic,
    found,
    goal_needs_lists,
    narrowing_step,
    planning,
    rule,
    unfinished,
    with_lists,
)
from rebal.planner.timeouts import in_words, with_family


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
            f"ends: {in_words([with_family(facts.member, facts.family) for facts in dynamic])}.",
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
    """Yield each static member that took its instance id from another process (FENCED_INSTANCE_ID).

    Each item is (member, its fenced processes, the oldest first, a text on who fenced whom). With
    `again` the ids are those lost twice or more in the last ten minutes, without it all others.
    """
    holders = {facts.member.instance_id: facts for facts in context.members if facts.static}
    every = sorted(
        (one for one in context.snapshot.refusals if one.error == "FENCED_INSTANCE_ID"),
        key=lambda one: (one.instance_id or "", when(one.at)),
    )
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


NAMED: Final = 3
"""Largest number of departed members that a text names."""


def unexplained(context: Context) -> list[Departed]:
    """Return the departed members whose client is not rejected now, the newest first.

    The list is empty if the number of members of the service was given (`context.counted`).
    """
    if context.counted:
        return []
    gone = list(context.snapshot.departed)[::-1]
    for out in unresolved_rejections(context.snapshot):
        earlier = next((one for one in gone if _is_same(one, out)), None)
        if earlier is not None:
            gone.remove(earlier)
    return gone


def _is_same(one: Departed, out: Refusal) -> bool:
    if one.instance_id or out.instance_id:
        return one.instance_id == out.instance_id
    return bool(out.client_id) and (one.client_id, one.host) == (out.client_id, out.host)


def endangering_step(one: Departed, context: Context) -> int | None:
    """Return the number of the step that gets this member's return rejected; None if no step does.

    The return is admitted after every step if its list holds the target. If it holds the old
    assignor, or is not known, a step that brings the target alone gets it rejected. Any other list
    that is admitted now is rejected from step 1 on.
    """
    if (
        context.goal == CONSUMER
        or not context.classic
        or not unfinished(context)
        or context.target in one.list
    ):
        return None
    kept = not one.list or context.keep is None or context.keep in one.list
    if kept or admitted(context.memory, [JoinEvent(assignors=one.list)]).verdict is Tri.NO:
        return context.leaving_step
    return 1


def said(one: Departed, context: Context) -> str:
    """Return what a log shows of a departed member: `a2 left 4 min ago with [range]`."""
    name = _name(one)
    at = one.left_at if one.left else one.last_seen
    shown = f" with [{', '.join(one.list)}]" if one.list else ""
    custom = [each for each in one.classes if assignor_of(each) is None]
    shown += f" (class {', '.join(custom)})" if custom else ""
    if at is not None and at > context.snapshot.captured_at:
        return f"{name} {'left' if one.left else 'joined'}{shown} after this look at the group"
    ago = "" if at is None else f" {_time(context.snapshot.captured_at - at)} ago"
    if one.left:
        return f"{name} left{ago}{shown}"
    seen = f"was last seen{ago}" if ago else "was in the group before"
    return f"{name} {seen}{shown} and is not in the group"


def said_of_all(gone: list[Departed], context: Context) -> str:
    """Return what logs show of the departed members, the newest first."""
    more = f" and {len(gone) - NAMED} more" if len(gone) > NAMED else ""
    return ", ".join(said(one, context) for one in gone[:NAMED]) + more


def departed_answers(
    gone: list[Departed], context: Context
) -> tuple[str, tuple[NamedCommand, ...]]:
    """Return both possible answers on departed members, as a text and as commands.

    One states that they belong to the service, the other that they left for good.
    """
    here, one = context.expected or len(context.members), len(gone) == 1
    names = [_name(each) for each in gone]
    unique = names if len({*names}) == len(names) else [each.member_id for each in gone]
    few = len(gone) <= NAMED
    left = options("--departed", unique) if few else ("--expect-members", str(here))
    who, whose = ("it", "belongs") if one else ("they", "belong")
    uses = f"if {who} {whose} to the service", f"if {who} left for good"
    return f"Add --expect-members {here + len(gone)} {uses[0]}, {' '.join(left)} {uses[1]}.", (
        context.answering(uses[0], expected=here + len(gone)),
        context.answering(uses[1], *left),
    )


def _name(one: Departed) -> str:
    return one.instance_id or one.client_id or one.member_id


def _time(passed: timedelta) -> str:
    minutes = round(passed.total_seconds() / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = round(minutes / 60)
    return f"{hours} h" if hours < 48 else f"{round(hours / 24)} days"


@rule(
    "RB114",
    Severity.ASK,
    "Does anything else join this group from time to time?",
    reference="Kafka: group coordinator (only present members count)",
    applies=(planning, goal_needs_lists, unfinished),
)
def absent_members(context: Context) -> Findings:
    """No source of evidence shows members that are not in the group now; only people know them.

    Why it matters: a deployment scaled to zero, a standby site, a nightly job, a canary, or an old
    image that a rollback starts joins later with the old list. After the second bounce it is
    rejected. If it is the first to join after a full stop, its list decides for the group.

    How to find out: search for the group id in every repository, deployment and scheduler, in the
    other sites too.

    How to answer it: change those configurations with the first bounce, and drop the old assignor
    there with the second one.
    """
    yield found(
        "does anything else use this group id (a deployment scaled to zero, a standby site, a "
        "scheduled job, a canary, an old image)? It would rejoin with the old list and be "
        "rejected.",
        before_step=context.narrow_step,
    )


@rule(
    "RB120",
    Severity.ASK,
    "Does a member that left belong to the service?",
    reference="Kafka: group coordinator (only present members count); JOIN_GROUP and LEAVE_GROUP "
    "in the request log",
    applies=(with_lists,),
    traits={Trait.FACT},
)
def departed_members(context: Context) -> Findings:
    """A log shows members that are not in the group now, and no client that replaced them.

    Why it matters: a plan counts the members that it sees. One that crashed, is scaled down or is
    being moved rejoins with its old list: it stops the whole group at each rebalance again, or it
    makes the group elect the old assignor. After a move to KIP-848 it is a classic member again.

    How to find out: look for the named client in its deployment. A member that was killed leaves
    without a request; one that was shut down sends LEAVE_GROUP.

    How to answer it: if it belongs to the service, start it again, or plan with --expect-members so
    that no gate holds before it is there. If it left for good, name it with --departed.

    It does not fire where the number of members is given on the command line or in a file, and
    not for a member whose client is rejected now: that client is counted already. Where
    all present members are done, it asks only about members whose last list was another one, or
    whose class behind the target's name is not, or may not be, Kafka's own; in a move to KIP-848
    about all that had a list. RB121 asks where a step of the plan has the return rejected.
    """
    gone = unexplained(context)
    if not unfinished(context):
        gone = [one for one in gone if not _is_done(one, context)]
    if not gone or (context.planning and any(endangering_step(one, context) for one in gone)):
        return
    text, commands = departed_answers(gone, context)
    yield found(
        f"{said_of_all(gone, context)}: {'does it' if len(gone) == 1 else 'do they'} belong to the "
        "service?",
        result=Tri.YES,
        evidence=[each.evidence for each in gone[:NAMED]],
        fix=text if context.planning else "",
        commands=commands if context.planning else (),
    )


def _is_done(one: Departed, context: Context) -> bool:
    """Return whether its last list is the target alone (Kafka's; no KIP-848 goal), or not known."""
    if not one.list:
        return not one.classes
    own = context.borrowed | borrowed_in(one)
    return context.goal != CONSUMER and one.list == (context.target,) and context.target not in own


@rule(
    "RB121",
    Severity.BLOCK,
    "A member that left is rejected when it returns",
    reference="Kafka: group coordinator (only present members count); JOIN_GROUP and LEAVE_GROUP "
    "in the request log; KIP-429",
    applies=(planning, classic, unfinished),
)
def returning_members(context: Context) -> Findings:
    """A log shows a member that left, and a step of the plan drops what its list holds.

    Why it matters: a plan counts the members that it sees. One that crashed, is scaled down or is
    being moved rejoins with its old list. Once another member has dropped the old assignor, the
    coordinator rejects it (INCONSISTENT_GROUP_PROTOCOL): a Java or kafka-python client stops.

    How to find out: look for the named client in its deployment. A member that was killed leaves
    without a request; one that was shut down sends LEAVE_GROUP.

    How to answer it: if it belongs to the service, give --expect-members, so that no gate holds
    before it is there. If it left for good, name it with --departed. `verify` takes both
    answers as well, and its journal keeps them.

    It does not fire for a member whose list holds the target, which is admitted after every step
    (RB120 asks about it), nor where the number of members is given on the command line or in a
    file. A list that is not known may hold the old assignor alone.
    """
    gone = unexplained(context)
    steps = [step for one in gone if (step := endangering_step(one, context)) is not None]
    if not steps:
        return
    one = len(gone) == 1
    text, commands = departed_answers(gone, context)
    yield found(
        f"{said_of_all(gone, context)}: {'does it' if one else 'do they'} belong to the service? "
        f"{'Its' if one else 'A'} return is rejected once step {min(steps)} has begun.",
        result=Tri.CANNOT_TELL,
        evidence=[each.evidence for each in gone[:NAMED]],
        fix=text,
        commands=commands,
        before_step=min(steps),
    )
