"""Rules on Kafka Streams programs and Connect workers.

For Streams: upgrade.from, versions that must not share a group, the streams protocol (KIP-1071).
"""

from rebal.groups.model import RebalanceProtocol
from rebal.groups.streams import BRIDGE, COOPERATIVE_SINCE, EAGER_UNTIL, EAGER_VALUES
from rebal.planner.advice.steps import cut_over_fix, restart_fix
from rebal.planner.clients import table
from rebal.planner.commands import read_more
from rebal.planner.context import (
    CONSUMER,
    EAGER,
    INCREMENTAL,
    STREAMS,
    above_eager,
    below_cooperative,
    offers,
    running,
)
from rebal.planner.kip848 import crosses, needed_version, of_brokers, of_clients
from rebal.planner.rules.registry import (
    Context,
    Facts,
    Findings,
    PathKind,
    Severity,
    Trait,
    Tri,
    connect_workers,
    found,
    planning,
    read_brokers,
    rule,
    stable,
    streams_program,
    switching_on,
    unless_allowed,
)
from rebal.planner.rules.version_faults import version_findings


@rule(
    "RB501",
    Severity.BLOCK,
    "Kafka Streams never takes partition.assignment.strategy",
    reference="Kafka Streams upgrade guide (upgrade.from); KIP-429; KIP-1124",
    applies=(planning, streams_program),
    answered_by={
        PathKind.FINISHED,
        PathKind.STREAMS_ONE_BOUNCE,
        PathKind.STREAMS_TWO_BOUNCES,
        PathKind.STREAMS_DOWN,
        PathKind.STREAMS_BACK,
        PathKind.KIP1071,
        PathKind.KIP1071_BACK,
    },
)
def streams(context: Context) -> Findings:
    """The group is a Kafka Streams program, with its own assignor and its own upgrade setting.

    Why it matters: Streams from 2.4 on rebalances cooperatively by itself. Below 2.4, or with
    upgrade.from left at 2.3 or less, it is EAGER; 4.0 and later have no EAGER and do not start with
    such an upgrade.from. Setting partition.assignment.strategy on it is wrong in any version.

    How to find out: the elected assignor is `stream`. Each member's own bytes give bounds for its
    version; the request log or the program's log shows it. upgrade.from is in its configuration.

    How to fix it: from 2.4 on: remove upgrade.from and restart the instances one by one. From below
    2.4: two bounces, first with the new version and upgrade.from set to the old one, then without
    upgrade.from (and, for a jump to 4.x, over a bridge release, 2.4 to 3.9: KIP-1124).
    """
    if context.goal != CONSUMER:
        versions = sorted({facts.version for facts in context.members if facts.version})
        known = f" (runs {', '.join(versions)})" if versions else ""
        yield found(
            f"this Kafka Streams program{known} must not get an assignor list: it rebalances "
            "cooperatively from 2.4 on, unless upgrade.from keeps it EAGER.",
            members=context.members,
            fix="Check that upgrade.from is not set (any value up to 2.3 keeps it EAGER).",
            commands=[read_more("RB501")],
        )


@rule(
    "RB502",
    Severity.WARN,
    "upgrade.from may still be set on a Streams program",
    reference="Kafka: docs/streams/upgrade-guide (upgrade.from); KIP-429",
    applies=(planning, streams_program, stable),
    handled_by={
        PathKind.STREAMS_ONE_BOUNCE,
        PathKind.STREAMS_TWO_BOUNCES,
        PathKind.STREAMS_DOWN,
        PathKind.STREAMS_BACK,
    },
)
def upgrade_from_left(context: Context) -> Findings:
    """A Streams program that was upgraded in two bounces may never have had the second one.

    Why it matters: with upgrade.from at 2.3 or less Streams stays EAGER and stops all tasks at each
    rebalance, whatever its version (below 4.0, which does not start with it: RB506). With a later
    value it keeps writing old formats. Nothing fails, so nobody notices.

    How to find out: look for upgrade.from in the configuration (--inventory). The log of an
    instance prints it at its start under `StreamsConfig values:`, and from 2.4 to 3.9 which
    rebalance protocol is enabled (--client-log). A member that owned nothing when it rejoined is
    EAGER (--request-log), one that kept some partitions is COOPERATIVE.

    How to fix it: remove upgrade.from and restart the instances one by one.
    """
    change = "Remove upgrade.from from the configuration."
    old = [facts for facts in context.members if below_cooperative(context, facts) is Tri.YES]
    # While somebody is below 2.4, and on the way down, an old value is what the plan asks for.
    wanted = EAGER_VALUES if old or context.goal == EAGER else ()
    declared = [facts for facts in context.members if facts.upgrade_from not in (None, *wanted)]
    if declared:
        values = sorted({str(facts.upgrade_from) for facts in declared})
        yield found(
            f"{context.named(declared)} will run with upgrade.from={', '.join(values)}, as the "
            "configuration says: values up to 2.3 keep an instance EAGER, later ones make "
            "it write old formats.",
            members=declared,
            evidence=[f.member.declared.evidence for f in declared if f.member.declared],
            fix=restart_fix(context, declared, change=change),
        )
    if wanted:
        return
    eager = [f for f in running(context, RebalanceProtocol.EAGER) if f not in declared]
    if eager:
        values = sorted({value for facts in eager if (value := _printed(facts))})
        shown = f" ({', '.join(values)})" if values else ""
        yield found(
            f"{context.named(eager)} still {'runs' if len(eager) == 1 else 'run'} EAGER although "
            f"no instance is below 2.4: upgrade.from was left set{shown}.",
            members=eager,
            fix=restart_fix(context, eager, change=change),
        )
    later = [f for f in context.members if _printed(f) and f not in (*declared, *eager)]
    if later:
        values = sorted({str(_printed(facts)) for facts in later})
        yield found(
            f"{context.named(later)} {'keeps' if len(later) == 1 else 'keep'} writing old formats: "
            f"the log shows upgrade.from={', '.join(values)}. The rebalance protocol is "
            "COOPERATIVE already.",
            members=later,
            evidence=[item for f in later if f.member.ran for item in f.member.ran.evidence],
            fix=restart_fix(context, later, change=change),
        )
    unknown = running(context, RebalanceProtocol.CANNOT_TELL)
    if unknown and len(unknown) == len(context.members) and not declared:
        yield found(
            "all instances may still run EAGER because of upgrade.from: none was seen to keep "
            "partitions across a rebalance.",
            result=Tri.CANNOT_TELL,
            members=unknown,
            fix=restart_fix(
                context, unknown, change="Look for upgrade.from in the configuration; remove it."
            ),
        )


def _printed(facts: Facts) -> str | None:
    """Return upgrade.from as the running instance's log shows it; None if unset or not logged."""
    return facts.member.ran.upgrade_from if facts.member.ran is not None else None


@rule(
    "RB505",
    Severity.BLOCK,
    "A COOPERATIVE Streams instance runs beside one below 2.4",
    reference="KIP-429; Kafka Streams upgrade guide (upgrade.from); seen with 2.3.1 and 3.9.1",
    applies=(planning, streams_program, stable),
    traits=(Trait.STATED,),
)
def cooperative_beside_old(context: Context) -> Findings:
    """An instance below 2.4 shares the group with one that keeps its partitions at a rebalance.

    Why it matters: while the old one leads, it assigns partitions to new owners before a
    COOPERATIVE instance has given them up. Both process them until the old owner has stopped; no
    join is rejected and nothing is logged. This was seen with 2.3.1 leading and 3.9.1 without
    upgrade.from; with upgrade.from set it did not happen.

    How to find out: an instance's own bytes show its version. Its rebalance protocol is in its
    start-up log (2.4 to 3.9, --client-log), or shows at a rebalance (--request-log): what it still
    owned when it rejoined.

    How to fix it: set upgrade.from on the new instance to the old one's version and restart it.
    Instances of 4.0 and later do not start with such a value: run a bridge release (2.4 to 3.9)
    instead.
    """
    old = [facts for facts in context.members if below_cooperative(context, facts) is Tri.YES]
    new = [facts for facts in context.members if old and facts not in old]
    late = context.named([facts for facts in new if above_eager(context, facts) is Tri.YES])
    change = (
        f"{f'Give {late} a version from {COOPERATIVE_SINCE} to {BRIDGE}. ' if late else ''}"
        f"On each instance from {COOPERATIVE_SINCE} to {BRIDGE}, set "
        f"upgrade.from to the version of {context.named(old)}."
    )
    kept = running(context, RebalanceProtocol.COOPERATIVE, new)
    if kept:
        yield found(
            f"a partition can have two owners for a moment at a rebalance: {context.named(kept)} "
            f"{'runs' if len(kept) == 1 else 'run'} COOPERATIVE beside {context.named(old)} "
            f"(below {COOPERATIVE_SINCE}).",
            members=kept,
            fix=restart_fix(context, kept, change=change),
        )
    unknown = running(context, RebalanceProtocol.CANNOT_TELL, new)
    if unknown and not kept:
        who = context.named(unknown)
        yield found(
            f"a partition may have two owners for a moment at a rebalance: {who} may run "
            f"COOPERATIVE beside {context.named(old)} (below {COOPERATIVE_SINCE}).",
            result=Tri.CANNOT_TELL,
            members=unknown,
            fix=f"Look whether {who} {'was' if len(unknown) == 1 else 'were'} started with "
            "upgrade.from (the start-up log shows it, --client-log), and say so. If not: "
            f"{restart_fix(context, unknown, change=change)}",
            commands=[context.accepting("RB505", "every new instance has upgrade.from set")],
        )


@rule(
    "RB506",
    Severity.BLOCK,
    "This Kafka Streams version does not start with its upgrade.from",
    reference="KIP-1124; Kafka: AssignorConfiguration; seen with 4.1.1",
    applies=(streams_program,),
)
def rejected_upgrade_from(context: Context) -> Findings:
    """Kafka Streams 4.0 and later have no EAGER, and stop at start with upgrade.from 2.3 or less.

    Why it matters: the instance does not survive its next restart: the consumer is not built
    (ConfigException), the stream thread stops, and its partitions go to the others, until each of
    them has been restarted too.

    How to find out: the version is in the request log or in the program's own log; upgrade.from is
    in its configuration (--inventory). A configuration or version that is not known gives no
    finding.

    How to fix it: remove upgrade.from before the restart. To upgrade from below 2.4, or to go back
    there, use a bridge release (2.4 to 3.9).
    """
    hit = [
        facts
        for facts in context.members
        if facts.upgrade_from in EAGER_VALUES and above_eager(context, facts) is Tri.YES
    ]
    if hit:
        values = sorted({str(facts.upgrade_from) for facts in hit})
        yield found(
            f"{context.named(hit)} will not start again: Kafka Streams {EAGER_UNTIL} and later do "
            f"not accept upgrade.from={', '.join(values)}.",
            members=hit,
            evidence=[f.member.declared.evidence for f in hit if f.member.declared],
            fix=f"Remove upgrade.from, or run {BRIDGE} for as long as it must be set.",
        )


@rule(
    "RB504",
    Severity.ASK,
    "Connect workers use connect.protocol, not assignors",
    reference="KIP-415; Kafka: DistributedConfig; KAFKA-12495 (fixed in 3.4.0)",
    applies=(planning, connect_workers),
)
def connect(context: Context) -> Findings:
    """The group is one of Connect workers.

    Why it matters: workers assign connectors and tasks with their own protocols. On the wire
    `default` is eager; `compatible` and `sessioned` are incremental. The setting is
    connect.protocol, and its default has been sessioned since 2.4.

    How to find out: what rebal inspect shows as the assignor in use.

    How to answer it: if it is `default`, some worker has connect.protocol=eager. The request log
    across a rebalance shows which one offers nothing else, as does each worker's own log. Remove
    that setting and restart the workers one by one. The sink tasks' groups (connect-NAME) are
    ordinary consumer groups with plans of their own. Workers before 3.4.0 are named: if they join
    and leave close together, they can cause more rebalances than needed; upgrade them first.
    """
    now = context.group.assignor
    eager = [f for f in context.members if offers(context, f, INCREMENTAL) is Tri.NO]
    runs = {
        "default": "all workers run eager: every rebalance stops all tasks",
        "compatible": "the workers rebalance incrementally, and not every worker offers sessioned",
        "sessioned": "the workers rebalance incrementally",
    }.get(now or "", "the protocol of the workers is unknown")
    asks = (
        f"{context.named(eager)} offers nothing else."
        if eager
        else "Is connect.protocol set on any of them?"
    )
    yield found(
        f"{runs} (connect.protocol on the wire: {now or 'unknown'}). {asks}",
        members=eager,
        fix=restart_fix(context, eager or context.members, change="Remove connect.protocol=eager."),
    )
    (known,) = (one for one in table().sets if one.id == "RB504")
    yield from version_findings(context, known)


@rule(
    "RB507",
    Severity.WARN,
    "Tasks run twice while Connect workers change to eager one by one",
    reference="KAFKA-13816 (open; seen on 4.1.1)",
    applies=(planning, connect_workers, lambda context: context.goal == EAGER),
)
def run_twice(context: Context) -> Findings:
    """Workers on compatible or sessioned are to become eager.

    Why it matters: the first eager worker makes the whole group eager at once, and the eager leader
    reassigns all connectors and tasks. A worker that ran incrementally starts what it is assigned,
    and does not stop what it is no longer assigned: until it is restarted itself, those tasks run
    on two workers. Source records are written twice, and so may be what a task writes outside
    Kafka.

    How to find out: the elected protocol is compatible or sessioned now, or it is default while
    some worker offers more (--request-log across a rebalance, or --client-log of its start).

    How to fix it: stop every worker, then start all with connect.protocol=eager. Where some are
    eager already, restart the others as soon as possible, or stop them together.
    """
    if context.group.assignor in INCREMENTAL:
        if len(context.members) > 1:
            yield found(
                "tasks run on two workers if the workers are restarted one by one with eager: "
                "those not restarted yet do not stop the tasks that others are assigned.",
                members=context.members,
                before_step=1,
                fix=cut_over_fix(context, context.members, change="connect.protocol=eager"),
            )
        return
    change = "Check the workers' own logs; set connect.protocol=eager on each."
    more = {
        answer: [f for f in context.members if offers(context, f, INCREMENTAL) is answer]
        for answer in Tri
    }
    if more[Tri.YES]:
        yield found(
            f"{context.named(more[Tri.YES])} may run tasks that other workers run too: a worker "
            "that offers more than eager does not stop all its tasks when the group becomes eager.",
            members=more[Tri.YES],
            before_step=1,
            fix=restart_fix(context, more[Tri.YES], change=change),
        )
    elif more[Tri.CANNOT_TELL]:
        yield found(
            f"{context.named(more[Tri.CANNOT_TELL])} may run tasks that other workers run too, if "
            "the group became eager while they ran: no evidence shows whether they offer more than "
            "eager.",
            members=more[Tri.CANNOT_TELL],
            result=Tri.CANNOT_TELL,
            before_step=1,
            fix=restart_fix(context, more[Tri.CANNOT_TELL], change=change),
        )


@rule(
    "RB508",
    Severity.BLOCK,
    "The brokers do not allow this move to the streams protocol, or back",
    reference="KIP-1071; KAFKA-20254; Kafka: docs/streams/developer-guide (rebalance protocol)",
    applies=(planning, crosses),
    traits=(Trait.STATED,),
)
def brokers_without_streams(context: Context) -> Findings:
    """The streams protocol needs brokers from 4.2 and the feature streams.version.

    Why it matters: without them an instance with group.protocol=streams fails at its first
    heartbeat, after every instance has stopped. Brokers of 4.2.0 take the group, and cannot load it
    again when the coordinator moves (KAFKA-20254). Brokers before 4.4 reject a static member
    (INVALID_REQUEST), which stops it. A group above group.streams.max.size (on the way back:
    group.max.size) rejects its last members.

    How to find out: the brokers' version, finalised features and settings, all of which a live
    snapshot holds; the patch release is in the broker's own log.

    How to fix it: upgrade the brokers to 4.2.1, 4.3 or later, then the feature streams.version to 1
    with kafka-features.sh (the finding has the command); a cluster that was upgraded from below 4.2
    has it at 0. Remove group.instance.id, or upgrade brokers and clients to 4.4. Where only the
    brokers' patch release is unknown, look and record it: --ignore RB508 --reason "brokers 4.2.2".

    Cannot tell: version, features or settings were not read, or 4.2 is known without its patch
    release.
    """
    fix = (
        "Upgrade the brokers to 4.2.1, 4.3 or later, then the feature streams.version to 1; remove "
        "group.instance.id before 4.4."
    )
    *protocol, size = of_brokers(context)
    for answer in protocol:
        yield from unless_allowed(
            answer,
            fix if context.asked else read_brokers(context),
            switching_on(context, "streams.version"),
        )
    raised = "Raise that limit, or scale the program down during the change."
    yield from unless_allowed(
        size, raised if context.snapshot.cluster.settings else read_brokers(context)
    )


@rule(
    "RB509",
    Severity.BLOCK,
    "This Kafka Streams version has no streams protocol",
    reference="KIP-1071; Kafka: docs/streams/upgrade-guide, 4.2",
    applies=(planning, crosses),
    traits=(Trait.STATED,),
)
def streams_too_old(context: Context) -> Findings:
    """The streams protocol is ready for production in Kafka Streams 4.2 and later.

    Why it matters: an older version ignores group.protocol=streams or rejects it, and the instance
    that starts first with the classic protocol makes the group classic again. 4.1 has an early form
    of the protocol. A static member (group.instance.id) needs 4.4: earlier versions do not start
    with it.

    How to find out: the version is in the broker's request log and in the program's own start-up
    log (--request-log, --client-log). The bytes of a classic member show 3.4 or later at most.

    How to fix it: upgrade the library first, in a rolling restart that changes nothing else. Where
    no log can be had, look at the build and record it:
    --ignore RB509 --reason "every instance runs 4.3.1".

    Cannot tell: no evidence shows the exact version of an instance.
    """
    since = needed_version(context)
    word = context.accepting("RB509", f"every instance runs Kafka Streams {since} or later")
    for answer in of_clients(context):
        yield from unless_allowed(
            answer,
            f"Upgrade to Kafka Streams {since} or later first, in a rolling restart that changes "
            "nothing else. Where no log shows the version, look at the build and record it.",
            (word,) if answer.allows is Tri.CANNOT_TELL else (),
        )


@rule(
    "RB510",
    Severity.ASK,
    "The streams protocol has no regular expressions, and ignores settings of the program",
    reference="KIP-1071; Kafka: docs/streams/developer-guide (rebalance protocol)",
    applies=(planning, crosses),
)
def without_some_features(context: Context) -> Findings:
    """Some programs cannot run with group.protocol=streams, and some settings move to the group.

    Why it matters: a topology that subscribes by a regular expression is not supported, and a
    topology that changes needs a new group. The broker's sticky assignor replaces the program's:
    max.warmup.replicas, probing.rebalance.interval.ms, acceptable.recovery.lag,
    rack.aware.assignment.* and task.assignor.class are ignored. num.standby.replicas,
    session.timeout.ms and heartbeat.interval.ms are ignored too, without an error: a program with
    one standby replica starts with none, and a failure then restores its state from the topics.

    How to find out: search the program for Pattern, and its configuration for these settings. The
    classic protocol shows the group neither.

    How to answer it: leave a program with regular expressions on the classic protocol. Give the
    group its settings before the start, with kafka-configs.sh, entity type groups (the step has
    the commands): streams.num.standby.replicas, streams.session.timeout.ms (the brokers allow
    45000 to 60000 by default) and streams.heartbeat.interval.ms (5000 to 15000).
    """
    if context.goal == STREAMS:
        yield found(
            "does the program subscribe by a regular expression, change its topology, or rely on "
            "warm-up replicas? And does it set num.standby.replicas, session.timeout.ms or "
            "heartbeat.interval.ms, which the streams protocol ignores?",
            fix="Give those settings to the group before the start (the step has the commands).",
            before_step=1,
        )
