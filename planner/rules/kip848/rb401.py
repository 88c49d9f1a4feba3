"""RB401: the brokers do not convert a group between the classic and the consumer protocol."""

from collections.abc import Iterator

from rebal.groups.model import GroupType
from rebal.planner.admission.memory import POLICY
from rebal.planner.commands import NamedCommand
from rebal.planner.kip848 import brokers, policy
from rebal.planner.rules.registry import Context, Findings, PathKind, Severity, Trait, Tri, rule
from rebal.planner.rules.scope import (
    read_brokers,
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
