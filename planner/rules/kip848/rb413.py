"""RB413: the move to KIP-848, or back, stops every member."""

from rebal.planner.kip848 import closed_online
from rebal.planner.rules.registry import Context, Findings, PathKind, Risk, Severity, found, rule
from rebal.planner.rules.scope import to_consumer, to_or_from_consumer


@rule(
    "RB413",
    Severity.BLOCK,
    "This move stops every member of the group",
    reference="KIP-848; Kafka: GroupMetadataManager",
    applies=(to_or_from_consumer,),
    accepts=Risk.STOP_FOR_KIP848,
    handled_by={
        PathKind.KIP848_ONLINE,
        PathKind.KIP848_OFFLINE,
        PathKind.KIP848_BACK,
        PathKind.KIP848_BACK_OFFLINE,
    },
)
def every_member_stops(context: Context) -> Findings:
    """The online path is closed, so every member stops before the first one starts again.

    Why it matters: nothing of the group is consumed from the last stop until the first rebalance of
    the new members has completed. Whether that is acceptable, and when, only its owners can say.

    How to find out: the plan's step names the condition that closes the online path (RB401 to
    RB403), and the cost of the stop.

    How to fix it: cure that condition and plan again, which gives the online path. Or agree on the
    interruption and record it: --ignore RB413 --reason "who agreed, and for when". The plan keeps
    it, and `rebal verify` advises the stop only then.
    """
    closed = closed_online(context, up=to_consumer(context))
    if closed:
        yield found(
            "the whole group must stop, and nothing is consumed until its members have joined "
            f"again: {'; '.join(answer.why for answer in closed)}.",
            fix="Cure that and plan again, which moves the members one by one; or agree on the "
            "interruption and record it.",
            before_step=1,
        )
