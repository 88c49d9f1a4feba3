"""Rules on what brokers have to allow for a move to KIP-848 or back, and the stop otherwise."""

from collections.abc import Iterator

from rebal.groups.model import GroupType
from rebal.planner.admission.memory import POLICY
from rebal.planner.commands import COOPERATIVE, NamedCommand
from rebal.planner.kip848 import brokers, closed_online, crosses, fits, policy, room, user_data
from rebal.planner.programs import turns_eager
from rebal.planner.rules.registry import (
    Context,
    Findings,
    PathKind,
    Risk,
    Severity,
    Trait,
    Tri,
    found,
    rule,
)
from rebal.planner.rules.scope import (
    classic,
    planning,
    read_brokers,
    still_classic,
    switching_on,
    to_consumer,
    to_or_from_consumer,
    unless_allowed,
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
    """Yield the command that shows the coordinator's settings."""
    coordinator = context.group.coordinator
    if coordinator is not None:
        where = ("--entity-type", "brokers", "--entity-name", str(coordinator.broker_id))
        tool = context.given.kafka("kafka-configs.sh", "--describe", "--all", *where)
        yield NamedCommand("show the broker's settings", tool)


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
    fix = "Move to one of Kafka's own assignors first."
    yield from unless_allowed(
        answer, fix, [NamedCommand("plan that move", context.replan(to=COOPERATIVE))]
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
