"""RB401: the brokers do not move a group between the classic and the consumer protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rebal.groups.model import GroupType, Tri
from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.kip848 import moving_down, moving_up
from rebal.planner.rules.registry import found, rule
from rebal.planner.versions import exact_version

_POLICY: Final = "group.consumer.migration.policy"
_UP: Final = ("upgrade", "bidirectional")
_DOWN: Final = ("downgrade", "bidirectional")


@rule(
    "RB401",
    Severity.BLOCK,
    "The brokers do not move this group to or from KIP-848",
    reference="KIP-848; Kafka: docs/operations/consumer-rebalance-protocol; group.version",
)
def brokers_do_not_move(context: Context) -> Iterator[Finding]:
    """KIP-848 needs brokers from 4.0 on, the feature group.version, and a policy that allows it.

    Why it matters: without them a member with group.protocol=consumer is refused at its first
    heartbeat and stops; with group.consumer.migration.policy=disabled (or the wrong direction) it
    is refused for as long as the group has members of the other protocol.

    How to find out: the broker's version, its finalised features and its settings, all of which a
    live snapshot holds; reading settings needs DESCRIBE_CONFIGS on the cluster.

    How to fix it: upgrade the brokers, then kafka-features.sh --bootstrap-server HOST:PORT
    upgrade --feature group.version=1, and set group.consumer.migration.policy on every broker.
    Where the policy cannot be changed, the offline way is left: an empty group may change in
    any direction.

    Cannot tell: version, features or settings were not read.
    """
    up = moving_up(context)
    if not up and not moving_down(context):
        return
    if up and context.group.type is not GroupType.CONSUMER:
        yield from _able(context)
    if context.members:
        yield from _policy(context, _UP if up else _DOWN)


def _able(context: Context) -> Iterator[Finding]:
    """Version and feature: are there groups of the new kind at all."""
    cluster = context.snapshot.cluster
    text = (cluster.version or "").removesuffix(" or later")
    version = exact_version(text)
    level = cluster.features.get("group.version")
    if level:
        return
    upgrade = "Upgrade the brokers to 4.0 or later, then set the feature group.version to 1."
    if version is not None and version < (4, 0, 0) and text == cluster.version:
        yield found(
            f"the brokers are {cluster.version}, and KIP-848 groups need 4.0 or later.", fix=upgrade
        )
    elif level == 0 or cluster.features:
        yield found("the feature group.version is not switched on.", fix=upgrade)
    else:
        yield found(
            "whether the brokers have the feature group.version is not known.",
            result=Tri.CANNOT_TELL,
            fix="Take the snapshot again, live; kafka-features.sh --bootstrap-server HOST:PORT "
            "describe shows it.",
        )


def _policy(context: Context, allowed: tuple[str, ...]) -> Iterator[Finding]:
    policy = context.snapshot.cluster.settings.get(_POLICY)
    wanted = " or ".join(allowed)
    if policy is None:
        yield found(
            f"whether the brokers move a group that has members ({_POLICY}) is not known.",
            result=Tri.CANNOT_TELL,
            fix="Allow DESCRIBE_CONFIGS on the cluster and take the snapshot again; it must be "
            f"{wanted}.",
        )
    elif policy.lower() not in allowed:
        yield found(
            f"{_POLICY} is {policy}, so a member of the other protocol is refused while the group "
            "has members.",
            fix=f"Set it to {wanted} on every broker; or stop all members first, as an empty "
            "group may change in any direction.",
        )
