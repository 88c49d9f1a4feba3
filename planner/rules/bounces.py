"""Rules on the dangers of the two bounces, and (RB3xx) on application code when partitions move.

The dangers are a list without the target, coordinator reloads, static members and surges.
"""

from typing import Final

from rebal.groups.clients import WITHOUT_STATIC
from rebal.groups.model import Knowledge
from rebal.planner.advice.steps import cure_fix, restart_fix
from rebal.planner.clients import cooperative
from rebal.planner.commands import NamedCommand, read_more
from rebal.planner.context import CONSUMER, COOPERATIVE
from rebal.planner.rules.registry import (
    Context,
    Facts,
    Findings,
    Risk,
    Severity,
    Trait,
    Tri,
    ahead,
    classic,
    found,
    goal_is_not_eager,
    goal_needs_lists,
    narrowing_step,
    planning,
    rule,
    stable,
    unfinished,
    upgrade,
)
from rebal.planner.timeouts import in_words, with_family


@rule(
    "RB102",
    Severity.BLOCK,
    "A member lacks the target assignor while others are about to drop the old one",
    reference="Kafka upgrade notes for 2.4; KIP-429, compatibility and migration plan",
    applies=(goal_needs_lists, stable),
    traits={Trait.ADMISSION},
    accepts=Risk.TARGET_MISSING,
)
def forgotten_member(context: Context) -> Findings:
    """The first bounce left out a member: its assignor list lacks the target.

    Why it matters: the coordinator admits a member only if one assignor is in every list. While one
    member lacks cooperative-sticky, each member that restarts with [cooperative-sticky] alone is
    rejected (INCONSISTENT_GROUP_PROTOCOL) and stops for good. The member that lacks it keeps
    running and ends up owning every partition. Java clients below 2.4 have no cooperative assignor
    and must be upgraded in the first bounce.

    How to find out: the members' lists are in the broker's request log (JOIN_GROUP) and in the
    members' own start-up logs. The probe shows that some member lacks the target, but not which
    one.

    How to fix it: restart the member that is named with the list of the first bounce, and make the
    plan again before the second bounce. The coordinator counts a static member that is down, with
    its old list, until its session ends. If its process is gone for good,
    removeMembersFromConsumerGroup of Kafka's Admin API takes its entry out of a classic group
    (kafka-python: `groups remove-members`); a member that runs is fenced by it.

    Does not fire while no member has the target yet: then the first bounce has not begun, and its
    to-do list names every member. Cannot tell: the probe shows that some member lacks the target,
    but the coordinator may have been reloaded since the last rebalance (RB113).
    """
    named = context.lacking
    if named and len(named) < len(context.members):
        yield found(
            _who(context, named),
            members=named,
            evidence=(e for facts in named for e in facts.member.assignors.evidence),
            fix=restart_fix(
                context,
                named,
                tuple(filter(None, [context.target, context.keep])),
                then=f" before any member drops {context.keep or 'the old assignor'}",
            ),
            commands=context.removals(named),
            before_step=context.narrow_step,
        )
    elif not named and context.unsure and context.probed(context.target) is Tri.NO:
        yield found(
            f"each member restarted with [{context.target}] will be rejected and stop: the probe "
            f"shows that {'one or more of ' if len(context.unsure) > 1 else ''}"
            f"{context.named(context.unsure)} does not support it.",
            members=context.unsure,
            fix="Find out which: --client-log of their start, or --request-log across the next "
            "restart.",
            before_step=context.narrow_step,
        )
    elif (
        not named
        and context.unsure
        and context.reloaded is not Tri.NO
        and any(
            answer.assignor == context.target and answer.supported is Tri.NO
            for answer in context.snapshot.probe_answers
        )
    ):
        yield found(
            f"it is not verified that {context.named(context.unsure)} "
            f"{'supports' if len(context.unsure) == 1 else 'support'} {context.target}: the probe "
            "said no, but a coordinator reload since the last rebalance would cause that answer "
            "too (RB113).",
            result=Tri.CANNOT_TELL,
            members=context.unsure,
            fix=f"{cure_fix(context)} Then probe again.",
            before_step=context.narrow_step,
        )


def _who(context: Context, named: tuple[Facts, ...]) -> str:
    target = context.target
    ready = [facts for facts in context.members if facts not in named]
    causes = ", ".join(f"{facts.name} ({_running(facts, target)})" for facts in named[:6])
    more = f" and {len(named) - 6} more" if len(named) > 6 else ""
    one = len(named) == 1
    return (
        f"{context.named(ready)} will be rejected and stop when restarted with [{target}], because "
        f"{causes}{more} {'does' if one else 'do'} not support it. "
        f"{context.named(named)} {'keeps' if one else 'keep'} running and "
        f"{'ends' if one else 'end'} up owning every partition."
    )


def _running(facts: Facts, target: str) -> str:
    known = facts.member.assignors
    return f"[{', '.join(known.list)}]" if known.knowledge is Knowledge.EXACT else f"no {target}"


@rule(
    "RB107",
    Severity.WARN,
    "The target does not come first in a mixed assignor list",
    reference="Kafka: GroupMetadataManager (what a load restores), consumer configuration "
    "(partition.assignment.strategy); KIP-429; KIP-726",
    applies=(planning, goal_needs_lists),
    traits={Trait.PASSING},
)
def target_not_first(context: Context) -> Findings:
    """A member lists the old assignor before the target.

    Why it matters: when the coordinator reloads the group (a broker restart, a new leader of the
    offsets partition), it remembers only [the elected assignor] for every member until the next
    rebalance. With the target first, the target is elected once every member supports both, and a
    reload keeps it for the next bounce. With the old assignor first, a reload keeps only the old
    one, and a member restarted with the target alone is rejected although every configuration
    allows it. The default of Java 3.0 and later, [range, cooperative-sticky], has this weakness
    (KIP-726).

    Documents with the opposite order: Kafka's documentation of partition.assignment.strategy, whose
    default is [RangeAssignor, CooperativeStickyAssignor], and KIP-726 behind it; versions of the
    pages of KIP-429 and KIP-726 have had both orders. Range comes first there so that a new version
    of the library alone does not change the elected assignor. They do not speak of a reload between
    the last rebalance and the bounce that removes range.

    How to find out: the members' exact lists.

    How to fix it: use [cooperative-sticky, old] in an upgrade and [old, cooperative-sticky] in a
    downgrade. Or, before the bounce that drops the old assignor begins, make sure that a rebalance
    has completed since the coordinator loaded the group (RB113).

    It does not fire while the target is elected anyway: a reload then leaves the target.
    """
    if context.elected == context.target:
        return
    named = []
    for facts in context.members:
        names = facts.member.assignors.list
        olds = [names.index(name) for name in names if context.old(name) is Tri.YES]
        if context.target in names and olds and min(olds) < names.index(context.target):
            named.append(facts)
    if named:
        yield found(
            f"members restarted with [{context.target}] can be rejected after a coordinator "
            f"reload: {context.named(named)} {'lists' if len(named) == 1 else 'list'} the old "
            "assignor first, so it stays elected, and a reload keeps only the elected one.",
            members=named,
            fix="Before you drop the old assignor, make sure that a rebalance has completed since "
            "the coordinator loaded the group (RB113).",
            commands=[read_more("RB113")],
            before_step=context.narrow_step,
        )


@rule(
    "RB109",
    Severity.WARN,
    "A static member that restarts in time causes no rebalance",
    reference="KIP-345; KIP-814; KAFKA-10284; GroupMetadataManager: updateStaticMemberAndRebalance",
    applies=(planning, goal_needs_lists, lambda context: context.client not in WITHOUT_STATIC),
    traits={Trait.PASSING},
)
def static_members(context: Context) -> Findings:
    """Members with a group.instance.id rejoin within session.timeout.ms without a rebalance.

    Why it matters: a rebalance happens only if the elected assignor would change. So a new list (or
    a new subscription) can stay unused in the coordinator's memory, no other member rejoins, and
    the request log shows only the restarted member. A check that waits for a rebalance waits in
    vain. A static member gets a new member id at each restart: that is how to see the restart.

    How to find out: describe the group: members with an instance id, a new member id after the
    restart, and the member's JOIN_GROUP line in the request log.

    How to fix it: check after each restart instead of waiting. To make every member show its list,
    restart one dynamic member, call Consumer.enforceRebalance() where the application exposes it
    (KIP-568, Java from 2.5), or keep one static member down for longer than session.timeout.ms (its
    partitions stop for that long). Never start two processes with one instance id: the newer
    one fences the older one.
    """
    named = [facts for facts in context.members if facts.static and facts not in context.settled]
    if named:
        every = " (all members)" if len(named) == len(context.members) else ""
        yield found(
            f"no rebalance follows when {context.named(named)}{every} restarts within "
            "session.timeout.ms, and only the restarted member shows its list: "
            f"{'it is a static member' if len(named) == 1 else 'they are static members'}.",
            members=named,
            fix="After each restart check the new member id and its list; do not wait for a "
            "rebalance.",
        )


# Below that many restarts each step's own cost says enough.
_MANY: Final = 20
# A member that leaves and joins: two rounds; the follow-up round of a cooperative join: one more.
_FIRST: Final = 2
_SECOND: Final = 3


@rule(
    "RB110",
    Severity.WARN,
    "Restarted one by one, these members cause very many rebalances",
    reference="KIP-429; Kafka: group.initial.rebalance.delay.ms, max.poll.interval.ms (arithmetic)",
    applies=(planning, goal_needs_lists, stable),
    traits={Trait.PASSING},
)
def many_rebalances(context: Context) -> Findings:
    """A dynamic member that restarts causes about two rebalances in bounce 1 and three in bounce 2.

    Why it matters: in bounce 1 each of them stops the whole group, in bounce 2 all members that
    were not restarted yet. A rebalance lasts until the slowest member has joined, at most its
    max.poll.interval.ms. A member that is killed, or cannot leave, adds its session timeout.

    How to find out: multiply: members to restart x rebalances x how long one takes today (the
    metric last-rebalance-seconds-ago and the coordinator's log show that).

    How to fix it: restart several members at once, so that they share their rebalances, and make
    sure that each closes properly. Or use static members, which cause none while they rejoin in
    time. The plan's cost of each step assumes one by one.

    It fires from 20 dynamic members on, where a roll-out one by one takes hours.
    """
    ahead = [
        facts for facts in context.members if facts not in context.settled and not facts.static
    ]
    if len(ahead) < _MANY or any(facts.takes_mixed is Tri.NO for facts in ahead):
        return
    first = 0 if len(context.holding) == len(context.members) else _FIRST * len(ahead)
    total = first + (_SECOND if context.goal == COOPERATIVE else _FIRST) * len(ahead)
    own = in_words([with_family(facts.member, facts.family) for facts in ahead])
    yield found(
        f"{len(ahead)} members restarted one by one cause about {total} rebalances. Each member "
        f"that is killed instead of shut down adds its timeout: {own}.",
        members=ahead,
        fix="Use batches, which share rebalances (--batch N shows the cost), and make sure that "
        "each member closes properly.",
    )


@rule(
    "RB113",
    Severity.BLOCK,
    "The coordinator was reloaded, and no rebalance has completed since",
    reference="Kafka: GroupMetadataManager, replay of GroupMetadataValue; seen on 4.1.1",
    applies=(goal_needs_lists, stable),
    traits={Trait.ADMISSION},
    accepts=Risk.FORGOTTEN_LISTS,
)
def reloaded(context: Context) -> Findings:
    """The coordinator may remember only the elected assignor for every member.

    Why it matters: the members' assignor lists exist in the coordinator's memory only. A
    coordinator reload (the broker restarts, or the group's partition of __consumer_offsets gets
    another leader) reduces every list to [the elected assignor] until that member has rejoined.
    Until then a member restarted with the target alone is rejected, although every configuration
    holds the target, and a "no" of the probe means nothing.

    How to find out: the start time of the coordinator's broker, the leader epoch of the group's
    offsets partition, a generation that has increased since; or --broker-log with the coordinator's
    own log up to now, which shows its loads and the rebalances since. A probe that answers yes for
    the target settles it: then the coordinator does remember.

    How to fix it: force one full rebalance before the bounce that drops the old assignor: restart
    one dynamic member with its CURRENT list, and wait until the group is Stable.

    It does not fire while the target itself is elected, which a reload keeps, nor for a dynamic
    member that is alone: the group is Empty when it has left.
    """
    if (
        context.elected == context.target
        or context.reloaded is Tri.NO
        or context.alone
        or context.probed(context.target) is Tri.YES
    ):
        return
    void = any(answer.supported is Tri.NO for answer in context.snapshot.probe_answers)
    narrowing = context.planning and len(context.holding) == len(context.members)
    if not (narrowing or (void and context.holding and context.ahead)):
        return
    sure = context.reloaded is Tri.YES
    if narrowing:
        risk = (
            f"a member restarted with [{context.target}] {'will' if sure else 'may'} be rejected: "
            f"the coordinator {'remembers' if sure else 'may remember'} only {context.elected}, "
            f"because it {'was' if sure else 'may have been'} reloaded since the last rebalance."
        )
    else:
        risk = (
            'the probe\'s "no" proves nothing about the members: the coordinator '
            f"{'was' if sure else 'may have been'} reloaded since the last rebalance."
        )
    how = "" if sure else f"{_why_unknown(context)} If that settles nothing: "
    yield found(
        risk,
        result=context.reloaded,
        fix=f"{how}{cure_fix(context)} Wait until the group is Stable; then a probe shows what the "
        "coordinator remembers.",
        commands=[NamedCommand("probe", context.given.inspect(context.group.group_id, "--probe"))],
        before_step=context.narrow_step,
    )


def _why_unknown(context: Context) -> str:
    """Return a sentence on the evidence that would show a coordinator reload."""
    coordinator = context.group.coordinator
    if not context.asked:
        return (
            "Probe the live group, which reads the leader epoch of the group's partition of "
            "__consumer_offsets and the records since."
        )
    if coordinator is not None and coordinator.rebalanced_why:
        return f"Not verified: {coordinator.rebalanced_why}."
    return "Add --probe to find out."


@rule(
    "RB116",
    Severity.WARN,
    "The deployment starts new members before the old ones have left",
    reference="Kafka: session.timeout.ms; Kubernetes: Deployment, maxSurge",
    applies=(planning, goal_needs_lists),
    traits={Trait.PASSING},
)
def surge(context: Context) -> Findings:
    """While old and new process are both in the group, the old member's list counts.

    Why it matters: a member that is still there, or was killed and has not timed out, counts with
    its old list. A new one with no assignor in common is rejected, although the old one was about
    to leave. And each such restart causes two more rebalances.

    How to find out: maxSurge of the deployment (the default of a Deployment is 25 %), which an
    --inventory of its manifests shows, and how many members restart at once.

    How to fix it: use maxSurge 0 and one member at a time during the roll-out. Close consumers
    properly. After a kill wait for session.timeout.ms before the next restart.

    It covers dynamic members; RB604 covers static ones. Without manifests it does not fire, and the
    plan lists the deployment as not checked.
    """
    named = [
        facts
        for facts in context.members
        if facts not in context.settled and not facts.static and facts.surges
    ]
    if named:
        said = sorted({str(f.member.declared.max_surge) for f in named if f.member.declared})
        yield found(
            f"the new process of {context.named(named)} can be rejected: the deployment starts it "
            f"(maxSurge {', '.join(said)}) while the old one's list still counts.",
            members=named,
            evidence=(f.member.declared.evidence for f in named if f.member.declared),
            fix="Set maxSurge to 0 during the roll-out.",
            before_step=context.narrow_step,
        )


@rule(
    "RB301",
    Severity.ASK,
    "Does a rebalance listener expect the full set of partitions?",
    reference="Kafka upgrade notes for 2.4; ConsumerRebalanceListener; spring-kafka#1448",
    applies=(planning, classic, goal_is_not_eager, unfinished),
    traits=(Trait.REVIEW,),
)
def listener(context: Context) -> Findings:
    """Under COOPERATIVE, application code that handles rebalances receives only the differences.

    Why it matters: onPartitionsAssigned gets only the NEW partitions, perhaps none.
    onPartitionsRevoked gets only the revoked ones and is never called with an empty set.
    onPartitionsLost calls it by default, and commits fail there. Code that clears its state on
    revoke and rebuilds it on assign loses the partitions that it kept. Code that pauses, seeks or
    commits there acts on the wrong set.

    How to find out: search for ConsumerRebalanceListener, ConsumerAwareRebalanceListener,
    onPartitionsAssigned, setConsumerRebalanceListener, setRebalanceListener (Kafka 4.4); in Go for
    OnPartitionsAssigned; in other languages for the rebalance callback. Before KIP-848 search for
    enforceRebalance() too: there it only logs a warning.

    How to answer it: make the code treat both calls as differences before the bounce that drops the
    old assignor. Without a listener there is nothing to do.
    """
    yield found(
        "does application code handle rebalances (ConsumerRebalanceListener or a callback)? "
        "After the change it receives only new and revoked partitions, not the full set.",
        before_step=narrowing_step(context),
    )


@rule(
    "RB302",
    Severity.ASK,
    "Does a librdkafka rebalance callback call assign()?",
    reference="librdkafka: INTRODUCTION.md; dotnetcore/CAP#1655; confluent-kafka-python#1040",
    applies=(planning, classic, goal_is_not_eager),
    traits=(Trait.REVIEW,),
)
def incremental_assign(context: Context) -> Findings:
    """A binding's own rebalance callback must use the incremental calls under COOPERATIVE.

    Why it matters: with a callback that calls assign() and unassign(), a member joins but owns and
    consumes nothing, and only one log line shows it. It is the most common fault after such a
    change.

    How to find out: search for rebalance_cb, on_assign, on_revoke, SetPartitionsAssignedHandler and
    for assign( in them. The log line is: "Changes to the current assignment must be made using
    incremental_assign() or incremental_unassign() when rebalance protocol type is COOPERATIVE".

    How to answer it: use incremental_assign() and incremental_unassign() when the consumer's
    rebalance protocol is COOPERATIVE, or have no callback.
    """
    for proven, result in ((True, Tri.YES), (False, Tri.CANNOT_TELL)):
        named = [
            facts
            for facts in ahead(context)
            if facts.family == "librdkafka" and facts.family_proven is proven
        ]
        if named:
            yield found(
                f"does a rebalance callback in {context.named(named)} call assign()? After the "
                "change the member would consume nothing: the callback must call "
                "incremental_assign().",
                result=result,
                members=named,
            )


_JAVA = (
    "commitSync may throw RebalanceInProgressException during a rebalance: the code must poll and "
    "commit again."
)
_KIP848 = (
    "a commit may fail with STALE_MEMBER_EPOCH (Java: CommitFailedException) while partitions "
    "move: the code must poll and commit again what it still owns."
)


@rule(
    "RB303",
    Severity.ASK,
    "Does the code handle commits that fail while partitions move?",
    reference="Kafka upgrade notes for 2.5; KafkaConsumer.commitSync; KIP-848 (OffsetCommit); "
    "getsentry/arroyo#419; Blizzard/node-rdkafka#1146",
    applies=(planning, classic, goal_is_not_eager),
    traits=(Trait.REVIEW,),
)
def commit_in_rebalance(context: Context) -> Findings:
    """Under COOPERATIVE and KIP-848 members consume during a rebalance, and their commits may fail.

    Why it matters: under COOPERATIVE Java's commitSync may throw RebalanceInProgressException.
    Under KIP-848 the coordinator rejects a commit with an older member epoch (STALE_MEMBER_EPOCH,
    113), which Java reports as CommitFailedException. The member is still in the group, and the
    commit may be retried after the next poll. Code that treats every failed commit as fatal stops
    at the first rebalance.

    How to find out: search for commitSync, commitAsync and the exceptions caught around them; in
    Spring for the container's error handlers; in bindings of librdkafka for commit() and the
    commit callback.

    How to answer it: call poll, and commit again what is still owned.
    """
    kip848 = context.goal == CONSUMER
    families = ("java", "librdkafka", None) if kip848 else ("java", None)
    asked = [facts for facts in ahead(context) if facts.family in families]
    if asked:
        yield found(
            "does the code of these members commit offsets itself? Then "
            f"{_KIP848 if kip848 else _JAVA}",
            members=asked,
            before_step=None if kip848 else context.narrow_step,
        )


@rule(
    "RB304",
    Severity.ASK,
    "Is state rebuilt whenever partitions are assigned?",
    reference="line/decaton#98; ConsumerRebalanceListener",
    applies=(planning, classic, goal_is_not_eager, unfinished),
    traits=(Trait.REVIEW,),
)
def state_per_assignment(context: Context) -> Findings:
    """Code with a producer, cache or worker for each partition must keep those of partitions that
    stay.

    Why it matters: under EAGER every rebalance revokes and assigns everything, so code may rebuild
    all its state each time. Under COOPERATIVE and KIP-848 it receives only the new partitions:
    state that is rebuilt as a whole is lost for the partitions that stayed, while their records
    keep coming. A transactional.id made from the assignment changes under a running producer.

    How to find out: search the assigned callback for what it creates (producers with a
    transactional.id, caches, thread pools, open files) and for what it clears first.

    How to answer it: keep state by partition: add it on assigned, drop it on revoked and on lost,
    and change nothing else.
    """
    yield found(
        "does the code build producers, caches or workers when partitions are assigned? After "
        "the change it receives only new partitions, and must keep the state of the others.",
        before_step=narrowing_step(context),
    )


@rule(
    "RB305",
    Severity.ASK,
    "Does the custom assignor place more than partitions?",
    reference="KIP-429 (ConsumerPartitionAssignor: cooperative assignors of one's own)",
    applies=(planning, upgrade, unfinished),
)
def other_resources(context: Context) -> Findings:
    """A custom assignor may assign standbys, locks or shards beside the partitions.

    Why it matters: the consumer revokes partitions before another member gets them, but it knows
    nothing of other resources. A cooperative assignor must apply the same rule to them itself:
    first take them from the old owner, then give them to the new one in the next rebalance.

    How to find out: read the assignor's code and what its user data carries. User data in an
    assignment is a sign of it.

    How to answer it: let the assignor give such a resource away only after its owner has reported
    that it is free, or leave the resource where it is.
    """
    name = context.elected
    if name is None or cooperative(name) is not Tri.CANNOT_TELL:
        return
    yield found(
        f"does {name} assign anything beside partitions (standbys, locks, shards)? Two members "
        "may then own it at once, unless the new assignor takes it from the old owner first.",
        members=[facts for facts in context.members if facts.member.assignment_user_data],
    )
