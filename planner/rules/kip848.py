"""Members that do not start with group.protocol=consumer, are rejected, or see a change then."""

from collections.abc import Iterator, Sequence

from rebal.groups.clients import NEVER, UNKNOWN, family
from rebal.groups.model import GroupType, Member
from rebal.planner.commands import NamedCommand
from rebal.planner.context import STREAMS
from rebal.planner.rules.registry import (
    Context,
    Facts,
    Findings,
    Risk,
    Severity,
    Trait,
    Tri,
    found,
    rule,
)
from rebal.planner.rules.scope import still_classic, to_consumer
from rebal.planner.settings import KEY
from rebal.planner.versions import exact_version


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
        left = [
            *([KEY] if declared.list else []),
            *declared.classic_only,
        ]
        if left:
            yield found(
                f"{facts.name} will not start again: its configuration has "
                f"group.protocol=consumer and still sets {', '.join(left)}.",
                members=(facts,),
                evidence=(declared.evidence,),
                fix=f"Remove {', '.join(left)}.{_now_at(left)}",
                commands=_group_settings(context, left),
            )


def _now_at(left: Sequence[str]) -> str:
    """Return where the timeouts are set now."""
    moved = [f"consumer.{name}" for name in left if name != KEY]
    said = f" The group's own configuration has {' and '.join(moved)} instead"
    return f"{said} (kafka-configs.sh, entity type groups)." if moved else ""


def _group_settings(context: Context, left: Sequence[str]) -> Iterator[NamedCommand]:
    """Yield the command that shows the group's own configuration, where a timeout moves there."""
    if any(name != KEY for name in left):
        of_group = ("--entity-type", "groups", "--entity-name", context.group.group_id)
        yield NamedCommand(
            "show the group's own configuration",
            context.given.kafka("kafka-configs.sh", "--describe", *of_group),
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
    if context.elected != "range":
        return
    default = context.snapshot.cluster.settings.get("group.consumer.assignors", "uniform")
    first = default.split(",")[0].strip()
    if first == "range":
        return
    several = [facts for facts in context.members if len(_topics(facts.member)) > 1]
    unknown = [facts for facts in context.members if not _topics(facts.member)]
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


def _topics(member: Member) -> set[str]:
    sent = member.subscription.topics if member.subscription else ()
    return {*member.assignment, *member.subscribed_topics, *sent}


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
    ahead = still_classic(context)
    for answer, what in (
        (Tri.NO, "cannot use group.protocol=consumer"),
        (Tri.CANNOT_TELL, "may be unable to use group.protocol=consumer"),
    ):
        named = [facts for facts in ahead if _can(facts) is answer]
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
    plain = exact_version(facts.version) is not None
    return known.kip848(facts.version) if plain else known.kip848(None)


def _fix(named: list[Facts]) -> str:
    first = {}
    for facts in named:
        known = family(facts.family)
        if known.kip848_since not in (NEVER, UNKNOWN):
            first[known.title] = known.kip848_since
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
