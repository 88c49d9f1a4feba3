"""RB402: more members than a KIP-848 group may have."""

from rebal.groups.model import GroupType
from rebal.planner.kip848 import fits, room
from rebal.planner.rules.registry import Context, Findings, PathKind, Severity, Tri, rule
from rebal.planner.rules.scope import read_brokers, still_classic, to_consumer, unless_allowed


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
