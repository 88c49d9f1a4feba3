"""RB905: a kind or state of group that a plan cannot start from."""

from rebal.groups.model import GroupState, GroupType
from rebal.planner.advice.wording import START_EMPTY
from rebal.planner.commands import NamedCommand
from rebal.planner.context import CONSUMER
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import planning


@rule(
    "RB905",
    Severity.BLOCK,
    "A plan cannot start from this kind or state of group",
    reference="Kafka: group states and types; KIP-848; KIP-932; KIP-1071",
    applies=(planning,),
    traits={Trait.HISTORY, Trait.MISSING_MEMBERS},
)
def nothing_to_plan_from(context: Context) -> Findings:
    """Plans need a group of consumers or of Connect workers that is Stable and has members.

    Why it matters: during a rebalance the assignor and the members change while rebal reads them.
    An empty group shows no list, client or assignor. Share groups have no rebalance protocol, and
    other protocol types (schema registries) do not use consumer assignors. A plan from such a
    reading would be a guess.

    How to find out: rebal inspect shows type, protocol type and state.

    How to fix it: wait until the group is Stable, or start its members, and ask again.
    """
    group = context.group
    if group.type is GroupType.SHARE:
        yield found(
            "this is a share group, whose members keep no partitions: it has no rebalance protocol "
            "to change."
        )
    elif group.type in (GroupType.CONSUMER, GroupType.STREAMS):
        return
    elif group.protocol_type not in (None, "", "consumer", "connect"):
        yield found(
            f"the group's protocol type is {group.protocol_type}, which uses no consumer assignors "
            "and has no rebalance protocol to change.",
        )
    elif group.protocol_type == "connect" and context.goal == CONSUMER:
        return
    elif group.state in (GroupState.EMPTY, GroupState.DEAD) or not context.members:
        yield found(
            f"the group is {group.state} and has no members, so their number and their assignor "
            "lists are unknown.",
            result=Tri.CANNOT_TELL,
            fix=START_EMPTY,
        )
    elif group.state is not GroupState.STABLE:
        yield found(
            f"the group is {group.state}, not Stable: members and assignor may differ in a moment.",
            result=Tri.CANNOT_TELL,
            fix="Wait until it is Stable, and ask again.",
        )
    elif group.protocol_type not in ("consumer", "connect"):
        yield found(
            "the group's protocol type is unknown, so no path can be chosen.",
            result=Tri.CANNOT_TELL,
            fix="Take the snapshot again.",
            commands=[
                NamedCommand("take it", context.given.inspect(context.group.group_id, "--save"))
            ],
        )
