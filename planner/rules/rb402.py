"""RB402: more members than a KIP-848 group may have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rebal.groups.model import GroupType, Tri
from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.kip848 import moving_up
from rebal.planner.rules.registry import found, rule

_LIMIT: Final = "group.consumer.max.size"


@rule(
    "RB402",
    Severity.BLOCK,
    "The group has as many members as a KIP-848 group may have, or more",
    reference="Kafka: group.consumer.max.size; GroupMetadataManager: validateOnlineUpgrade",
)
def too_many_members(context: Context) -> Iterator[Finding]:
    """group.consumer.max.size limits groups of the new kind, and is not group.max.size.

    Why it matters: a group with more members is not converted, and the member that asks for it is
    refused. At exactly the limit the new member is refused unless the old one has left first: a
    static member does not leave when it stops, and a surge starts the new one before.

    How to find out: count the members; the limit is in the broker's settings.

    How to fix it: raise group.consumer.max.size on the brokers, or scale the group down for the
    time of the change.

    Cannot tell: the settings were not read; or the group is exactly full, where it depends on who
    is quicker.
    """
    if not moving_up(context) or not context.members:
        return
    if context.group.type is GroupType.CONSUMER:
        return
    settings = context.snapshot.cluster.settings
    limit = settings.get(_LIMIT, "")
    count = len(context.members)
    if not settings:
        yield found(
            "how many members a KIP-848 group may have (group.consumer.max.size) is not known.",
            result=Tri.CANNOT_TELL,
            fix="Allow DESCRIBE_CONFIGS on the cluster and take the snapshot again.",
        )
    elif limit.isdigit() and count >= int(limit):
        over = count > int(limit)
        yield found(
            f"the group has {count} members, and group.consumer.max.size is {limit}"
            + (
                ": it is not converted."
                if over
                else ": a member that comes back before its old self has left is refused."
            ),
            result=Tri.YES if over else Tri.CANNOT_TELL,
            fix="Raise group.consumer.max.size, or scale the group down for the change.",
        )
