"""Rules on the move to KIP-848 and back: what members and brokers allow, and the stop otherwise.

A member may not start with group.protocol=consumer, be rejected, or see a change.
"""

from collections.abc import Iterator

from rebal.groups.clients import NEVER, UNKNOWN, family
from rebal.groups.model import GroupType
from rebal.planner.admission.memory import POLICY
from rebal.planner.clients import exact_version
from rebal.planner.commands import COOPERATIVE, NamedCommand
from rebal.planner.context import STREAMS, turns_eager
from rebal.planner.facts import topics_of
from rebal.planner.kip848 import brokers, closed_online, crosses, fits, policy, room, user_data
from rebal.planner.rules.registry import (
    Context,
    Facts,
    Findings,
    PathKind,
    Risk,
    Severity,
    Trait,
    Tri,
    classic,
    found,
    planning,
    read_brokers,
    rule,
    still_classic,
    switching_on,
    to_consumer,
    to_or_from_consumer,
    unless_allowed,
)
from rebal.planner.settings import KEY


@rule(
    "RB404",
    Severity.BLOCK,
    "Connect workers and Streams programs cannot use group.protocol=consumer",
    reference="KIP-848; KIP-1071; Kafka: docs/getting-started/upgrade",
)
def no_consumer_protocol(context: Context) -> Findings:
    """The path to KIP-848 is for plain consumers only.

    Why it matters: Connect's worker groups are not consumer groups and have no KIP-848 form. Kafka
    Streams has a protocol of its own (KIP-1071, group.protocol=streams) and does not accept
    group.protocol=consumer.

    How to find out: the group's protocol type (connect), or the elected assignor (stream).

    How to fix it: leave Connect workers on connect.protocol=sessioned. The groups of sink
    connectors (connect-NAME) are consumer groups and may move. For Streams plan with --to streams.
    """
    if context.goal != "consumer":
        return
    if context.group.protocol_type == "connect":
        yield found(
            "this group cannot move to KIP-848: it is a group of Connect workers, which has no "
            "KIP-848 form.",
            fix="Leave the workers on connect.protocol=sessioned, which is incremental.",
        )
    elif context.streams:
        yield found(
            "this group cannot use group.protocol=consumer: it is a Kafka Streams program, whose "
            "protocol is KIP-1071 (group.protocol=streams).",
            fix="Plan it with --to cooperative in the classic protocol, or with --to streams.",
            commands=[
                NamedCommand("plan the streams protocol", context.replan(to=STREAMS)),
            ],
        )


@rule(
    "RB405",
    Severity.BLOCK,
    "A configuration with group.protocol=consumer still has classic settings",
    reference="KIP-848; Kafka: docs/operations/consumer-rebalance-protocol; Wolverine#3486",
    traits={Trait.NEXT_START},
)
def classic_settings(context: Context) -> Findings:
    """A client with group.protocol=consumer does not start while any of three settings is set.

    Why it matters: in KIP-848 the broker decides partition.assignment.strategy, session.timeout.ms
    and heartbeat.interval.ms, and clients fail at start when they are set. A restarted member then
    crashes in a loop.

    How to find out: read the configuration of the next start (--inventory), and what frameworks and
    defaults of the service set beside it.

    How to fix it: remove the three settings in the same change that sets group.protocol=consumer.
    group.remote.assignor replaces the assignor list. The timeouts belong to the group now:
    consumer.session.timeout.ms and consumer.heartbeat.interval.ms of the group's own configuration
    (kafka-configs.sh, entity type groups), else the broker's group.consumer.session.timeout.ms and
    group.consumer.heartbeat.interval.ms.

    Does not fire while the configuration does not say consumer: there the settings are right.
    """
    for facts in context.members:
        declared = facts.member.declared
        if declared is None or declared.group_protocol != "consumer":
            continue
        left = [*([KEY] if declared.list else []), *declared.classic_only]
        moved = [f"consumer.{name}" for name in left if name != KEY]
        now = f" The group's own configuration has {' and '.join(moved)} instead"
        show = NamedCommand(
            "show the group's own configuration",
            context.given.kafka(
                "kafka-configs.sh",
                "--describe",
                "--entity-type",
                "groups",
                "--entity-name",
                context.group.group_id,
            ),
        )
        if left:
            yield found(
                f"{facts.name} will not start again: its configuration has "
                f"group.protocol=consumer and still sets {', '.join(left)}.",
                members=(facts,),
                evidence=(declared.evidence,),
                fix=f"Remove {', '.join(left)}."
                + (f"{now} (kafka-configs.sh, entity type groups)." if moved else ""),
                commands=[show] if moved else [],
            )


@rule(
    "RB407",
    Severity.WARN,
    "Under KIP-848 a new process with an instance id in use is rejected",
    reference="KIP-848; Kafka upgrade notes for 4.0 (UnreleasedInstanceIdException)",
    applies=(to_consumer,),
    traits=(Trait.REVIEW,),
)
def instance_id_in_use(context: Context) -> Findings:
    """KIP-848 rejects the newer of two processes with one instance id; classic fences the older.

    Why it matters: a roll-out that starts the new process before the old one has left (a surge, or
    an old one that hangs) worked because the old one was fenced. Under KIP-848 the new one fails at
    start, and the roll-out stops or loops.

    How to find out: members with an instance id, and how the deployment replaces them.

    How to fix it: stop the old process before the new one starts (a StatefulSet, Recreate, or
    maxSurge 0), and let it close properly: the new one may start when the group no longer shows the
    id (rebal inspect). A process that was killed holds its id until its session ends.
    """
    static = [f for f in still_classic(context) if f.static]
    if static:
        yield found(
            f"the new process of {context.named(static)} is rejected under KIP-848 if it starts "
            "before the old one with its instance id has left.",
            members=static,
            fix="Stop the old process first, and use no surge. The group shows its id until it has "
            "left.",
        )


@rule(
    "RB406",
    Severity.WARN,
    "A regular expression may match other topics under KIP-848",
    reference="KIP-848; librdkafka: INTRODUCTION.md (subscription by regular expression)",
    applies=(to_consumer,),
    traits=(Trait.REVIEW,),
)
def regular_expression(context: Context) -> Findings:
    """KIP-848 brokers match regular expressions with RE2/J against the whole topic name.

    Why it matters: librdkafka in the classic protocol matched a part of the name, so ^orders
    matched orders-eu too. Under KIP-848 it matches orders alone, and the other topics are silently
    not consumed. RE2/J has no look-around and no back-references.

    How to find out: search the code for subscribe calls with a pattern (in librdkafka: a topic that
    begins with ^). The classic protocol shows only the topics that were found.

    How to fix it: write the expression for the whole name (^orders.*), and compare the subscribed
    topics before and after the first member.

    Cannot tell: for librdkafka members that still use the classic protocol. Fires: for a member
    whose expression the broker already has, while other members are still classic.
    """
    classic = still_classic(context)
    ahead = [facts for facts in context.members if facts.member.subscribed_regex]
    if context.group.type is GroupType.CONSUMER and ahead and classic:
        yield found(
            f"{context.named(ahead)} may consume fewer topics than the members that are still "
            "classic: the broker matches its regular expression against whole topic names.",
            members=ahead,
            fix="Compare the topics of converted and classic members before the next restart.",
        )
        return
    unseen = [facts for facts in classic if facts.family == "librdkafka"]
    if unseen:
        yield found(
            f"{context.named(unseen)} may consume fewer topics after the change: a regular "
            "expression must then match the whole topic name, and no evidence shows whether the "
            "subscription has one.",
            result=Tri.CANNOT_TELL,
            members=unseen,
            fix="Search the code for topics that begin with ^, and append .* where a part of the "
            "name was meant.",
        )


@rule(
    "RB408",
    Severity.WARN,
    "Under KIP-848 range is not kept: the broker's default assignor applies",
    reference="KIP-848; Kafka: docs/operations/consumer-rebalance-protocol; group.remote.assignor",
    applies=(to_consumer,),
    traits=(Trait.REVIEW,),
    accepts=Risk.NOT_RANGE,
)
def assignor_not_kept(context: Context) -> Findings:
    """A KIP-848 group takes over nothing from partition.assignment.strategy.

    Why it matters: the group gets the first of the broker's group.consumer.assignors, by default
    `uniform`. Joins and caches that rely on range to keep equal partition numbers of two topics
    together give wrong results silently (RB115).

    How to find out: the elected assignor, the topics of each member, and what the code looks up.

    How to fix it: set group.remote.assignor=range on every member in the same change that sets
    group.protocol=consumer. Where nothing relies on range, leave it out and say so, or `verify`
    waits for range: --ignore RB408 --reason TEXT.

    Cannot tell: the topics of a member are not known. It does not fire where the group is not on
    range, where each member has one topic only, or where the broker's default is range.
    """
    default = context.snapshot.cluster.settings.get("group.consumer.assignors", "uniform")
    first = default.split(",")[0].strip()
    if context.elected != "range" or first == "range":
        return
    several = [facts for facts in context.members if len(topics_of(facts.member)) > 1]
    unknown = [facts for facts in context.members if not topics_of(facts.member)]
    for named, result in ((several, Tri.YES), (unknown, Tri.CANNOT_TELL)):
        if named:
            yield found(
                f"equal partitions of two topics {'will' if result is Tri.YES else 'may'} no "
                f"longer be together in {context.named(named)}: the group runs range now and "
                f"{first} after the change"
                + ("." if result is Tri.YES else ", and the topics of these members are unknown."),
                result=result,
                members=named,
                fix="Set group.remote.assignor=range on every member.",
            )


@rule(
    "RB409",
    Severity.WARN,
    "Under KIP-848 the assignment does not follow racks as before",
    reference="KAFKA-19387; Kafka: docs/operations/consumer-rebalance-protocol",
    applies=(to_consumer,),
)
def racks(context: Context) -> Findings:
    """The broker's assignors do not yet handle client.rack as the clients' assignors do.

    Why it matters: members that read from a replica in their own rack may get partitions that have
    none there. That means more traffic between racks and more cost, and nothing fails.

    How to find out: members that send a rack (their subscription, or client.rack).

    How to fix it: measure the traffic with the first members; stay on the classic protocol where
    racks matter.
    """
    named = [
        facts
        for facts in context.members
        if facts.member.rack or (facts.member.subscription and facts.member.subscription.rack_id)
    ]
    if named:
        yield found(
            f"{context.named(named)} may read from replicas in other racks: the broker's assignors "
            "do not fully follow client.rack.",
            members=named,
            fix="Measure the traffic between racks after the first members.",
        )


@rule(
    "RB412",
    Severity.BLOCK,
    "This client cannot use group.protocol=consumer",
    reference="KIP-848; the clients' own change logs (groups/data/clients.yaml)",
    applies=(to_consumer,),
    traits=(Trait.STATED,),
    accepts=Risk.OLD_CLIENT,
)
def no_kip848_client(context: Context) -> Findings:
    """A member's client library, or this version of it, does not support KIP-848.

    Why it matters: the client ignores the setting or rejects it, and the member stays on the
    classic protocol or does not start. A group with classic and KIP-848 members works, but the move
    is not complete, and the broker keeps the classic members' lists and timeouts.

    How to find out: the client software in the broker's request log or in the members' own logs.

    How to fix it: upgrade the library first, in a rolling restart that changes nothing else (Java
    4.0, librdkafka 2.12, franz-go 1.22), or leave the group on the classic protocol.

    Cannot tell: the member's version, or the first version of its client that supports KIP-848, is
    not known. RB906 covers members whose client is unknown.
    """
    for answer, what in (
        (Tri.NO, "cannot use group.protocol=consumer"),
        (Tri.CANNOT_TELL, "may be unable to use group.protocol=consumer"),
    ):
        named = [facts for facts in still_classic(context) if _can(facts) is answer]
        if named:
            clients = sorted(
                {" ".join(filter(None, [facts.family, facts.version])) for facts in named}
            )
            yield found(
                f"{context.named(named)} ({', '.join(clients)}) {what}.",
                result=Tri.YES if answer is Tri.NO else Tri.CANNOT_TELL,
                members=named,
                fix=_fix(named),
                commands=()
                if answer is Tri.NO
                else (
                    context.accepting(
                        Risk.OLD_CLIENT, "every client is of a version that supports it"
                    ),
                ),
            )


def _can(facts: Facts) -> Tri:
    known = family(facts.family)
    if not known.key:
        return Tri.YES
    if not facts.family_proven:
        return Tri.CANNOT_TELL
    if known.kip848_since == NEVER:
        return Tri.NO
    # The numbers of a vendor's build that rebal does not know are not Apache's.
    return known.kip848(facts.version if exact_version(facts.version) else None)


def _fix(named: list[Facts]) -> str:
    known = [family(facts.family) for facts in named]
    first = {o.title: o.kip848_since for o in known if o.kip848_since not in (NEVER, UNKNOWN)}
    if not first:
        return (
            "Move these members to a client that supports it, or leave the group on the classic "
            "protocol."
        )
    wanted = ", ".join(f"{title} {since}" for title, since in sorted(first.items()))
    return f"First upgrade to {wanted} or later, in a rolling restart that changes nothing else."


@rule(
    "RB416",
    Severity.ASK,
    "Do the tools that watch this group know KIP-848?",
    reference="KIP-848 (ConsumerGroupDescribe); redpanda-data/console#1815; tchiotludo/akhq#2720; "
    "IBM/sarama#3746; redpanda-data/kminion#352",
    applies=(to_consumer,),
    traits=(Trait.REVIEW,),
)
def tools(context: Context) -> Findings:
    """A user interface, an exporter or an alert that knows classic groups alone shows this one as
    Dead.

    Why it matters: DescribeGroups answers GROUP_ID_NOT_FOUND for a KIP-848 group, with the state
    Dead and no members; only ConsumerGroupDescribe shows it. The lag disappears from dashboards,
    and somebody may restart, reset or delete a group that works.

    How to find out: which tools read this group (AKHQ, Redpanda Console, kminion, tools on sarama,
    your own on an Admin client before 4.0), and whether their version calls ConsumerGroupDescribe.

    How to answer it: upgrade them first, and move a group that matters less before this one.
    Kafka's own kafka-consumer-groups.sh of 4.0 and later shows such groups, as rebal inspect does.
    """
    if context.group.type is not GroupType.CONSUMER:
        yield found(
            "do the tools that watch this group (a user interface, a lag exporter, alerts) know "
            "KIP-848? Others show it as Dead, without members or lag.",
        )


@rule(
    "RB401",
    Severity.BLOCK,
    "The brokers do not convert this group to or from KIP-848",
    reference="KIP-848; Kafka: docs/operations/consumer-rebalance-protocol; group.version",
    applies=(to_or_from_consumer,),
    traits=(Trait.REVIEW,),
    answered_by={PathKind.KIP848_OFFLINE, PathKind.KIP848_BACK_OFFLINE},
)
def brokers_do_not_move(context: Context) -> Findings:
    """KIP-848 needs brokers from 4.0, the feature group.version, and a policy that allows the move.

    Why it matters: without brokers and feature, a member with group.protocol=consumer is rejected
    at its first heartbeat and stops. With group.consumer.migration.policy=disabled (or the wrong
    direction) it is rejected for as long as the group has classic members. In a downgrade the group
    then stays a KIP-848 group, on the broker's assignor, after the last other member has left.
    With the policy disabled, brokers 4.2.2, 4.3.1 and 4.4.0 also reject every classic join to a
    KIP-848 group (KAFKA-20640). Each rebalance makes its classic members join again: half-way, the
    next restart, crash or new partition ends all of them.

    How to find out: the broker's version, its finalised features and its settings, all of which a
    live snapshot holds; reading settings needs DESCRIBE_CONFIGS on the cluster.

    How to fix it: upgrade the brokers, then the feature group.version to 1 with kafka-features.sh
    (the finding has the command), and set group.consumer.migration.policy on every broker: it is no
    dynamic setting, so each broker restarts. Where the policy cannot be changed, the plan takes the
    offline path: a group without members may change in any direction, and the rule then ignores the
    policy. Half-way there is no such path: restart nothing until the policy is back.

    Cannot tell: version, features or settings were not read. A scan of the offsets topic has no
    settings; where it saw groups of the new type, the brokers do have the feature.
    """
    up = to_consumer(context)
    if up:
        answer = brokers(context)
        if answer.allows is Tri.CANNOT_TELL and not context.asked:
            yield from unless_allowed(answer, read_brokers(context))
        else:
            fix = "Use brokers of Kafka 4.0 or later, with the feature group.version at 1."
            yield from unless_allowed(answer, fix, switching_on(context, "group.version"))
    answer = policy(context, up=up)
    # What such brokers lack is no setting that was not read.
    without = up and brokers(context).allows is Tri.NO and answer.allows is Tri.CANNOT_TELL
    if context.members and not without:
        fix = (
            f"Set {POLICY}=bidirectional in every broker's configuration file. It is no dynamic "
            "setting: a broker reads it when it starts."
        )
        if not (up and context.group.type is GroupType.CONSUMER):
            fix += " Or use the offline path: an Empty group may change whatever the policy is."
        if answer.allows is Tri.CANNOT_TELL:
            fix = read_brokers(context)
        yield from unless_allowed(answer, fix, _setting(context))


def _setting(context: Context) -> Iterator[NamedCommand]:
    coordinator = context.group.coordinator
    if coordinator is not None:
        where = ("--entity-type", "brokers", "--entity-name", str(coordinator.broker_id))
        yield NamedCommand(
            "show the broker's settings",
            context.given.kafka("kafka-configs.sh", "--describe", "--all", *where),
        )


@rule(
    "RB402",
    Severity.BLOCK,
    "The group has as many members as a KIP-848 group may have, or more",
    reference="Kafka: group.consumer.max.size; GroupMetadataManager: validateOnlineUpgrade",
    applies=(to_consumer,),
    answered_by={PathKind.KIP848_OFFLINE},
)
def too_many_members(context: Context) -> Findings:
    """group.consumer.max.size limits the members of a KIP-848 group; group.max.size does not.

    Why it matters: with more members than that, the last one to join is rejected with
    GROUP_MAX_SIZE_REACHED and stops. Online that is the first member that asks for the new
    protocol; after a stop of all members it is the last one to start. At exactly the limit a member
    is rejected unless the one it replaces has left first: a static member does not leave when it
    stops (brokers from 4.4.0 admit it all the same, KAFKA-20601), and a surge starts the new one
    before.

    How to find out: count the members; the limit is in the broker's settings.

    How to fix it: raise group.consumer.max.size on the brokers, or scale the group down during the
    change. At exactly the limit: use maxSurge 0, stop each member cleanly before it starts again,
    and, before 4.4.0, keep a static one down for longer than its session. If neither is possible,
    the plan stops all members first.

    Cannot tell: the settings were not read; or the group is exactly full, where it depends on
    whether each old member has left before the new one joins.
    """
    classic = still_classic(context)
    if not classic:
        return
    answer = fits(context, GroupType.CONSUMER)
    if answer.allows is Tri.YES:
        answer = room(context, classic)
    fix = "Raise group.consumer.max.size, or scale the group down during the change."
    if not context.snapshot.cluster.settings:
        fix = read_brokers(context)
    yield from unless_allowed(answer, fix)


@rule(
    "RB403",
    Severity.BLOCK,
    "The assignor adds user data to the members' assignments",
    reference="KAFKA-18134; apache/kafka#18046; Kafka: ConsumerGroup.fromClassicGroup",
    applies=(to_consumer, classic),
    answered_by={PathKind.KIP848_OFFLINE},
)
def assignment_user_data(context: Context) -> Findings:
    """A custom assignor sends its members more than partitions, and KIP-848 has no field for it.

    Why it matters: the coordinator does not convert a group in which any member's assignment holds
    user data: it rejects the first member with group.protocol=consumer. An application that reads
    that data would get none.

    How to find out: describing the group returns the bytes of every assignment. The assignors of
    Kafka's own clients add none.

    How to fix it: move the classic group to one of Kafka's own assignors first (two bounces), check
    that the application works without the data, and then move to KIP-848. Or stop all members
    first: an empty group has no assignments, and is replaced.

    Cannot tell: the bytes of a member were not read.
    """
    answer = user_data(context)
    if answer.allows is Tri.CANNOT_TELL:
        yield from unless_allowed(
            answer, "Take the snapshot again, live, with DESCRIBE on the group."
        )
        return
    yield from unless_allowed(
        answer,
        "Move to one of Kafka's own assignors first.",
        [NamedCommand("plan that move", context.replan(to=COOPERATIVE))],
    )


@rule(
    "RB413",
    Severity.BLOCK,
    "This move stops every member of the group",
    reference="KIP-848; KIP-1071; Kafka: GroupMetadataManager",
    applies=(planning,),
    accepts=Risk.STOP_FOR_PROTOCOL,
    handled_by={
        PathKind.KIP848_ONLINE,
        PathKind.KIP848_OFFLINE,
        PathKind.KIP848_BACK,
        PathKind.KIP848_BACK_OFFLINE,
        PathKind.KIP1071,
        PathKind.KIP1071_BACK,
        PathKind.CONNECT_DOWN,
    },
)
def every_member_stops(context: Context) -> Findings:
    """The online path is closed, so every member stops before the first one starts again.

    Kafka Streams has no online path to the streams protocol (KIP-1071), nor back, and Connect
    workers have none from an incremental protocol to eager (RB507).

    Why it matters: nothing of the group is consumed from the last stop until the first rebalance of
    the new members has completed. Whether that is acceptable, and when, only its owners can say.

    How to find out: the plan's step names the condition that closes the online path (RB401 to
    RB403), and the cost of the stop.

    How to fix it: cure that condition and plan again, which gives the online path. Or agree on the
    interruption and record it: --ignore RB413 --reason "who agreed, and for when". The plan keeps
    it, and `verify` advises the stop only then.
    """
    if crosses(context):
        closed, cure = ["the streams protocol has no online path"], ""
    elif turns_eager(context):
        closed, cure = ["workers that turn eager one by one run tasks twice (RB507)"], ""
    elif to_or_from_consumer(context):
        closed = [answer.why for answer in closed_online(context, up=to_consumer(context))]
        left = [f for f in context.members if f.member.protocol_type == "consumer"]
        one_by_one = "cure that and plan again, which moves the members one by one; or "
        cure = one_by_one if left or to_consumer(context) else ""
    else:
        return
    if closed and context.members:
        yield found(
            "the whole group must stop, and nothing is consumed until its members have joined "
            f"again: {'; '.join(closed)}.",
            fix=f"{cure}agree on the interruption and record it.".capitalize(),
            before_step=1,
        )
