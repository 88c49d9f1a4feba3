"""RB112: a custom assignor whose rebalance protocols are not known."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.context import CONSUMER, EAGER, Context
from rebal.planner.kinds import custom
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule


@rule(
    "RB112",
    Severity.BLOCK,
    "A custom assignor's rebalance protocols are not known",
    reference="KIP-429: ConsumerPartitionAssignor.supportedProtocols",
)
def custom_assignor(context: Context) -> Iterator[Finding]:
    """The plan would put an assignor that rebal does not know into a mixed list, or end on one.

    Why it matters: a consumer whose assignors have no rebalance protocol in common fails when it
    is built. cooperative-sticky supports COOPERATIVE and EAGER; a custom assignor supports what
    its supportedProtocols() says, which is EAGER alone unless it was changed. On the way back to
    EAGER a custom assignor that supports COOPERATIVE would leave the group where it is.

    How to find out: read supportedProtocols() of that class. Or look at a rebalance: members that
    keep their partitions when they rejoin run COOPERATIVE, and rebal inspect shows it.

    How to fix it: if it returns EAGER, or both, the mixed list works: accept it with
    --ignore RB112 --reason "…", which the plan records. Any change of the custom assignor's own
    code belongs in the first bounce of an upgrade, and in the second one of a downgrade.

    It does not fire where members were seen to run COOPERATIVE with it.
    """
    if not context.planning or not context.classic or context.goal == CONSUMER:
        return
    if context.goal == EAGER and custom(context.target):
        yield found(
            f"the plan ends on {context.target}, an assignor that is not known here: whether its "
            "members run EAGER then depends on its supportedProtocols().",
            result=Tri.CANNOT_TELL,
            fix='If it supports EAGER alone: --ignore RB112 --reason "it supports EAGER alone".',
        )
        return
    name = context.elected
    if name is None or not custom(name) or name in context.seen_cooperative:
        return
    if context.lacking or context.unsure:
        yield found(
            f"the group runs {name}, an assignor that is not known here: whether it "
            f"can stand in one list with {context.target} depends on its supportedProtocols().",
            result=Tri.CANNOT_TELL,
            fix='If it supports EAGER: --ignore RB112 --reason "it supports EAGER". If it supports '
            "COOPERATIVE, the next rebalance shows that members keep their partitions.",
        )
