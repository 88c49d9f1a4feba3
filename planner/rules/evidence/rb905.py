"""RB905: there is nothing that a plan could start from."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import GroupState, GroupType, Tri
from rebal.planner.admission.wording import START_EMPTY
from rebal.planner.context import CONSUMER, Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import Trait, found, rule


@rule(
    "RB905",
    Severity.BLOCK,
    "This group is not one, or not in a state, that a plan can start from",
    reference="Kafka: group states and types; KIP-848; KIP-932; KIP-1071",
    traits={Trait.HISTORY, Trait.MISSING_MEMBERS},
)
def nothing_to_plan_from(context: Context) -> Iterator[Finding]:
    """Plans are made for groups of consumers or of Connect workers, Stable and with members.

    Why it matters: in the middle of a rebalance the assignor and the members change under the
    reader; an empty group shows no list, no client and no assignor; share groups assign nothing;
    other protocol types (schema registries) do not use consumer assignors at all. A plan from such
    a reading would be invented.

    How to find out: rebal inspect shows type, protocol type and state.

    How to fix it: wait until the group is Stable, or start its members, and ask again.
    """
    group = context.group
    if not context.planning:
        return
    if group.type is GroupType.SHARE:
        yield found(
            "a share group assigns no partitions for its members to keep: it has no rebalance "
            "protocol to change."
        )
    elif group.type in (GroupType.CONSUMER, GroupType.STREAMS):
        return
    elif group.protocol_type not in (None, "", "consumer", "connect"):
        yield found(
            f"the group's protocol type is {group.protocol_type}: it does not use consumer "
            "assignors, and has no rebalance protocol that could be changed.",
        )
    elif group.protocol_type == "connect" and context.goal == CONSUMER:
        return
    elif group.state in (GroupState.EMPTY, GroupState.DEAD) or not context.members:
        yield found(
            f"the group is {group.state} and has no members: who belongs to it, and with which "
            "lists they come back, is not known.",
            result=Tri.CANNOT_TELL,
            fix=START_EMPTY,
        )
    elif group.state is not GroupState.STABLE:
        yield found(
            f"the group is {group.state}, not Stable: what is read now may be different in a "
            "moment.",
            result=Tri.CANNOT_TELL,
            fix="Wait until it is Stable, and ask again.",
        )
    elif group.protocol_type not in ("consumer", "connect"):
        yield found(
            "the group's protocol type is not known.",
            result=Tri.CANNOT_TELL,
            fix="Take the snapshot again: rebal inspect GROUP --save.",
        )
