"""RB413: the move to KIP-848 or KIP-1071, or back, stops every member."""

from rebal.planner.kip848 import closed_online
from rebal.planner.kip1071 import crosses
from rebal.planner.rules.registry import Context, Findings, PathKind, Risk, Severity, found, rule
from rebal.planner.rules.scope import planning, to_consumer, to_or_from_consumer


@rule(
    "RB413",
    Severity.BLOCK,
    "This move stops every member of the group",
    reference="KIP-848; KIP-1071; Kafka: GroupMetadataManager",
    applies=(planning,),
    accepts=Risk.STOP_FOR_KIP848,
    handled_by={
        PathKind.KIP848_ONLINE,
        PathKind.KIP848_OFFLINE,
        PathKind.KIP848_BACK,
        PathKind.KIP848_BACK_OFFLINE,
        PathKind.KIP1071,
        PathKind.KIP1071_BACK,
    },
)
def every_member_stops(context: Context) -> Findings:
    """The online path is closed, so every member stops before the first one starts again.

    Kafka Streams has no online path to the streams protocol (KIP-1071), nor back.

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
    elif to_or_from_consumer(context):
        online = closed_online(context, up=to_consumer(context))
        closed = [answer.why for answer in online]
        cure = "cure that and plan again, which moves the members one by one; or "
    else:
        return
    if closed and context.members:
        yield found(
            "the whole group must stop, and nothing is consumed until its members have joined "
            f"again: {'; '.join(closed)}.",
            fix=f"{cure}agree on the interruption and record it.".capitalize(),
            before_step=1,
        )
